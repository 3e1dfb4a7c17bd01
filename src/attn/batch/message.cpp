#include "attn/batch/message.h"

#include <cstring>
#include <utility>
#include <vector>

namespace attn {
namespace {

constexpr std::size_t kNumber = sizeof(std::uint64_t);

void append(std::string& out, std::uint64_t number) { pack(out, number); }

void append(std::string& out, std::string_view text) { pack_text(out, text); }

void append(std::string& out, const std::vector<FileDigest>& digests) {
  append(out, digests.size());
  for (const auto& [file, digest] : digests) append(out, file), append(out, digest);
}

/// Appends a message's size and then, in its destructor, sets it.
class MessageScope {
 public:
  explicit MessageScope(std::string& out) : out_(out), start_(out.size()) { append(out, 0); }
  MessageScope(const MessageScope&) = delete;
  MessageScope& operator=(const MessageScope&) = delete;
  ~MessageScope() {
    const std::uint64_t size = out_.size() - start_ - kNumber;
    std::memcpy(out_.data() + start_, &size, kNumber);
  }

 private:
  std::string& out_;
  const std::size_t start_;
};

/// Reads the parts of one message.
class MessageReader : public Unpacker {
 public:
  using Unpacker::Unpacker;

  std::uint64_t number() { return Unpacker::number<std::uint64_t>(); }
  std::uint64_t number_up_to(std::uint64_t most) {
    const std::uint64_t value = number();
    if (value > most) throw BadMessage();
    return value;
  }
  template <class Element>
  auto list(Element element) {
    std::vector<decltype(element())> items;
    for (std::uint64_t left = number_up_to(size()); left > 0; --left) items.push_back(element());
    return items;
  }
  std::vector<FileDigest> pairs() {
    return list([&] {
      std::string file = text();
      return FileDigest(std::move(file), text());
    });
  }
  void require_end() const {
    if (!empty()) throw BadMessage();
  }
};

/// The contents of the first message, which are removed; nullopt if it is incomplete.
std::optional<std::string_view> take_message(std::string_view& bytes) {
  if (bytes.size() < kNumber) return std::nullopt;
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), kNumber);
  if (size > bytes.size() - kNumber) return std::nullopt;
  const std::string_view contents = bytes.substr(kNumber, size);
  bytes.remove_prefix(kNumber + size);
  return contents;
}

Outcome read_outcome(MessageReader& reader, std::string text_buffer) {
  Outcome outcome;
  outcome.status =
      static_cast<Status>(reader.number_up_to(static_cast<std::uint64_t>(kLastStatus)));
  const std::uint64_t seconds = reader.number();
  std::memcpy(&outcome.seconds, &seconds, kNumber);
  outcome.inputs = reader.pairs();
  outcome.outputs = reader.pairs();
  outcome.error = reader.list([&] { return reader.text(); });
  outcome.code = static_cast<int>(reader.number_up_to(255));
  outcome.warning = reader.text();
  outcome.id = reader.text();
  outcome.change =
      static_cast<Change>(reader.number_up_to(static_cast<std::uint64_t>(kLastChange)));
  outcome.changed_file = reader.text();
  outcome.statistics = reader.text();
  outcome.text = std::move(text_buffer);
  outcome.text = reader.text_view();
  return outcome;
}

}  // namespace

void append_item(std::string& out, std::size_t sequence, const Item& item) {
  const MessageScope scope(out);
  append(out, static_cast<std::uint64_t>(WorkerRequest::Kind::item));
  append(out, sequence);
  append(out, item.number);
  append(out, item.name);
  append(out, item.relative);
  append(out, item.line.has_value());
  if (item.line) append(out, *item.line);
  append(out, item.inputs);
  append(out, item.invalid);
}

void append_withdrawal(std::string& out) {
  const MessageScope scope(out);
  append(out, static_cast<std::uint64_t>(WorkerRequest::Kind::withdrawn));
}

void append_memory_answer(std::string& out, bool is_granted) {
  const MessageScope scope(out);
  append(out, static_cast<std::uint64_t>(WorkerRequest::Kind::memory));
  append(out, is_granted);
}

void append_end(std::string& out) {
  const MessageScope scope(out);
  append(out, static_cast<std::uint64_t>(WorkerRequest::Kind::end));
}

void append_outcome(std::string& out, std::size_t sequence, const Outcome& outcome) {
  const MessageScope scope(out);
  append(out, static_cast<std::uint64_t>(WorkerReply::Kind::outcome));
  append(out, sequence);
  append(out, static_cast<std::uint64_t>(outcome.status));
  std::uint64_t seconds = 0;
  std::memcpy(&seconds, &outcome.seconds, kNumber);
  append(out, seconds);
  append(out, outcome.inputs);
  append(out, outcome.outputs);
  append(out, outcome.error.size());
  for (const std::string& line : outcome.error) append(out, line);
  append(out, static_cast<std::uint64_t>(outcome.code));
  append(out, outcome.warning);
  append(out, outcome.id);
  append(out, static_cast<std::uint64_t>(outcome.change));
  append(out, outcome.changed_file);
  append(out, outcome.statistics);
  append(out, outcome.text);
}

void append_question(std::string& out, const AskForMemory& ask) {
  const MessageScope scope(out);
  append(out, static_cast<std::uint64_t>(WorkerReply::Kind::question));
  append(out, ask.bytes);
  append(out, ask.wait);
}

void append_return(std::string& out, std::size_t sequence) {
  const MessageScope scope(out);
  append(out, static_cast<std::uint64_t>(WorkerReply::Kind::returned));
  append(out, sequence);
}

void append_workers(std::string& out, std::size_t workers) {
  const MessageScope scope(out);
  append(out, static_cast<std::uint64_t>(WorkerReply::Kind::workers));
  append(out, workers);
}

std::optional<WorkerRequest> take_request(std::string_view& bytes) {
  const std::optional<std::string_view> contents = take_message(bytes);
  if (!contents) return std::nullopt;
  MessageReader reader(*contents);
  WorkerRequest request;
  request.kind = static_cast<WorkerRequest::Kind>(
      reader.number_up_to(static_cast<std::uint64_t>(WorkerRequest::Kind::end)));
  if (request.kind == WorkerRequest::Kind::item) {
    Item& item = request.assignment.item;
    request.assignment.sequence = reader.number();
    item.number = reader.number();
    item.name = reader.text();
    item.relative = reader.text();
    if (reader.number_up_to(1) == 1) item.line = reader.text();
    item.inputs = reader.pairs();
    item.invalid = reader.text();
  } else if (request.kind == WorkerRequest::Kind::memory) {
    request.is_granted = reader.number_up_to(1) == 1;
  }
  reader.require_end();
  return request;
}

std::optional<WorkerReply> take_reply(std::string_view& bytes, std::string text_buffer) {
  const std::optional<std::string_view> contents = take_message(bytes);
  if (!contents) return std::nullopt;
  MessageReader reader(*contents);
  WorkerReply reply;
  reply.kind = static_cast<WorkerReply::Kind>(
      reader.number_up_to(static_cast<std::uint64_t>(WorkerReply::Kind::workers)));
  if (reply.kind == WorkerReply::Kind::question) {
    reply.ask.bytes = reader.number();
    reply.ask.wait = reader.number_up_to(1) == 1;
  } else if (reply.kind == WorkerReply::Kind::workers) {
    reply.workers = reader.number();
  } else {
    reply.sequence = reader.number();
    if (reply.kind == WorkerReply::Kind::outcome)
      reply.outcome = read_outcome(reader, std::move(text_buffer));
  }
  reader.require_end();
  return reply;
}

}  // namespace attn
