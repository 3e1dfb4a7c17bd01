#include "attn/batch/message.h"

#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace attn {
namespace {

constexpr std::size_t kSize = sizeof(std::uint64_t);
constexpr int kMostExitCode = 255;

template <class T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

constexpr Status last_of(Status) { return kLastStatus; }
constexpr Change last_of(Change) { return kLastChange; }
constexpr WorkerRequest::Kind last_of(WorkerRequest::Kind) { return WorkerRequest::Kind::end; }
constexpr WorkerReply::Kind last_of(WorkerReply::Kind) { return WorkerReply::Kind::workers; }

/// Appends a message of the parts that it is called with. Its destructor sets the size in front.
class MessageWriter {
 public:
  MessageWriter(std::string& out, Number auto kind) : out_(out), start_(out.size()) {
    pack(out_, std::uint64_t{0});
    add(kind);
  }
  MessageWriter(const MessageWriter&) = delete;
  MessageWriter& operator=(const MessageWriter&) = delete;
  ~MessageWriter() {
    const std::uint64_t size = out_.size() - start_ - kSize;
    std::memcpy(out_.data() + start_, &size, kSize);
  }

  void operator()(const auto&... parts) { (add(parts), ...); }

 private:
  void add(Number auto number) { pack(out_, number); }
  void add(const std::string& text) { pack_text(out_, text); }
  void add(const FileDigest& digest) { (*this)(digest.first, digest.second); }
  void add(const std::optional<std::string>& text) {
    add(text.has_value());
    if (text) add(*text);
  }
  template <class T>
  void add(const std::vector<T>& parts) {
    add(parts.size());
    for (const T& part : parts) add(part);
  }

  std::string& out_;
  const std::size_t start_;
};

/// Reads the parts that it is called with. Throws BadMessage.
class MessageReader : public Unpacker {
 public:
  using Unpacker::Unpacker;

  void operator()(auto&... parts) { (read(parts), ...); }

  void require_end() const {
    if (!empty()) throw BadMessage();
  }

 private:
  template <Number T>
  void read(T& part) {
    if constexpr (std::is_same_v<T, bool>) {
      part = number_up_to<std::uint8_t>(1) == 1;
    } else if constexpr (std::is_enum_v<T>) {
      using Value = std::make_unsigned_t<std::underlying_type_t<T>>;
      part = static_cast<T>(number_up_to(static_cast<Value>(last_of(T{}))));
    } else {
      part = number<T>();
    }
  }
  void read(std::string& part) { part = text_view(); }
  void read(FileDigest& part) { (*this)(part.first, part.second); }
  void read(std::optional<std::string>& part) {
    bool has_value = false;
    read(has_value);
    if (has_value) read(part.emplace());
  }
  template <class T>
  void read(std::vector<T>& parts) {
    for (std::size_t left = number_up_to<std::size_t>(size()); left > 0; --left)
      read(parts.emplace_back());
  }
  template <class T>
  T number_up_to(T most) {
    const T value = number<T>();
    if (value > most) throw BadMessage();
    return value;
  }
};

/// The parts of an item, for a writer and for a reader.
void visit_parts_of_item(auto& message, auto& sequence, auto& item) {
  message(sequence, item.number, item.name, item.relative, item.line, item.inputs, item.invalid);
}

void visit_parts_of_outcome(auto& message, auto& sequence, auto& outcome) {
  message(sequence, outcome.status, outcome.seconds, outcome.inputs, outcome.outputs, outcome.error,
          outcome.code, outcome.warning, outcome.id, outcome.change, outcome.changed_file,
          outcome.statistics, outcome.text);
}

/// The contents of the first message, which are removed; nullopt if it is incomplete.
std::optional<MessageReader> take_message(std::string_view& bytes) {
  if (bytes.size() < kSize) return std::nullopt;
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), kSize);
  if (size > bytes.size() - kSize) return std::nullopt;
  const std::string_view contents = bytes.substr(kSize, size);
  bytes.remove_prefix(kSize + size);
  return MessageReader(contents);
}

}  // namespace

void append_item(std::string& out, std::size_t sequence, const Item& item) {
  MessageWriter message(out, WorkerRequest::Kind::item);
  visit_parts_of_item(message, sequence, item);
}

void append_withdrawal(std::string& out) {
  const MessageWriter message(out, WorkerRequest::Kind::withdrawn);
}

void append_memory_answer(std::string& out, bool is_granted) {
  MessageWriter(out, WorkerRequest::Kind::memory)(is_granted);
}

void append_end(std::string& out) { const MessageWriter message(out, WorkerRequest::Kind::end); }

void append_outcome(std::string& out, std::size_t sequence, const Outcome& outcome) {
  MessageWriter message(out, WorkerReply::Kind::outcome);
  visit_parts_of_outcome(message, sequence, outcome);
}

void append_question(std::string& out, const AskForMemory& ask) {
  MessageWriter(out, WorkerReply::Kind::question)(ask.bytes, ask.wait);
}

void append_return(std::string& out, std::size_t sequence) {
  MessageWriter(out, WorkerReply::Kind::returned)(sequence);
}

void append_workers(std::string& out, std::size_t workers) {
  MessageWriter(out, WorkerReply::Kind::workers)(workers);
}

std::optional<WorkerRequest> take_request(std::string_view& bytes) {
  std::optional<MessageReader> message = take_message(bytes);
  if (!message) return std::nullopt;
  WorkerRequest request;
  (*message)(request.kind);
  if (request.kind == WorkerRequest::Kind::item)
    visit_parts_of_item(*message, request.assignment.sequence, request.assignment.item);
  else if (request.kind == WorkerRequest::Kind::memory)
    (*message)(request.is_granted);
  message->require_end();
  return request;
}

std::optional<WorkerReply> take_reply(std::string_view& bytes, std::string text_buffer) {
  std::optional<MessageReader> message = take_message(bytes);
  if (!message) return std::nullopt;
  WorkerReply reply;
  reply.outcome.text = std::move(text_buffer);
  (*message)(reply.kind);
  if (reply.kind == WorkerReply::Kind::question)
    (*message)(reply.ask.bytes, reply.ask.wait);
  else if (reply.kind == WorkerReply::Kind::workers)
    (*message)(reply.workers);
  else if (reply.kind == WorkerReply::Kind::outcome)
    visit_parts_of_outcome(*message, reply.sequence, reply.outcome);
  else if (reply.kind == WorkerReply::Kind::returned)
    (*message)(reply.sequence);
  if (reply.outcome.code < 0 || reply.outcome.code > kMostExitCode) throw BadMessage();
  message->require_end();
  return reply;
}

}  // namespace attn
