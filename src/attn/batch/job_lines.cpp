#include "attn/batch/job_lines.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "attn/io/descriptor.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

constexpr int kLookMilliseconds = 100;  // how often `stop` is looked at while no input comes

class LineItems final : public ItemSource {
 public:
  LineItems(std::size_t longest, const std::atomic<bool>& stop) : longest_(longest), stop_(stop) {}

  std::optional<Item> next() override {
    std::string line;
    while (!broken_ && read_line(line)) {
      ++lines_;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      return Item{++items_, "line " + std::to_string(lines_), "", std::move(line)};
    }
    return std::nullopt;
  }

  std::optional<std::size_t> count() const override { return std::nullopt; }

 private:
  /// Without its end; false when there is none.
  bool read_line(std::string& line) {
    line.clear();
    for (;;) {
      const char* const from = buffer_.data() + at_;
      const void* const end = std::memchr(from, '\n', size_ - at_);
      const std::size_t length = end ? static_cast<const char*>(end) - from : size_ - at_;
      line.append(from, length);
      at_ += length + (end ? 1 : 0);
      // What is left of such a line is no line: another worker that asks is told of the end.
      broken_ = line.size() > longest_;
      if (broken_)
        throw Error(ErrorKind::data, "standard input: line " + std::to_string(lines_ + 1) +
                                         ": expected at most " + std::to_string(longest_) +
                                         (longest_ == 1 ? " byte" : " bytes") +
                                         ", found more; --max-memory sets how many");
      if (end) return true;
      if (!fill()) return !line.empty();
    }
  }

  bool fill() {
    for (at_ = size_ = 0; !stop_;) {
      pollfd ready{STDIN_FILENO, POLLIN, 0};
      if (poll(&ready, 1, kLookMilliseconds) == 0) continue;
      const ssize_t count = read(STDIN_FILENO, buffer_.data(), buffer_.size());
      if (count >= 0) {
        size_ = static_cast<std::size_t>(count);
        return count > 0;
      }
      if (errno != EINTR && errno != EAGAIN)
        throw system_error(ErrorKind::io, "standard input", errno);
    }
    return false;
  }

  const std::size_t longest_;
  const std::atomic<bool>& stop_;
  std::array<char, 65536> buffer_{};
  std::size_t at_ = 0, size_ = 0, lines_ = 0, items_ = 0;
  bool broken_ = false;
};

}  // namespace

std::unique_ptr<ItemSource> items_of_standard_input(std::size_t longest,
                                                    const std::atomic<bool>& stop) {
  return std::make_unique<LineItems>(longest, stop);
}

}  // namespace attn
