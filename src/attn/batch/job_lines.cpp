#include "attn/batch/job_lines.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "attn/base/error.h"
#include "attn/io/descriptor.h"

namespace attn {
namespace {

constexpr int kPollMilliseconds = 100;  // how often `stop` is checked while waiting for input

class LineItems final : public ItemSource {
 public:
  LineItems(std::size_t max_bytes, const std::atomic<bool>& stop)
      : max_bytes_(max_bytes), stop_(stop) {}

  std::optional<Item> next() override {
    std::string line;
    for (std::size_t size = 0; (size = read_line(line)) > 0;) {
      ++lines_;
      Item item{0, "line " + std::to_string(lines_), ""};
      if (size - 1 > max_bytes_)
        item.invalid = "expected at most " + std::to_string(max_bytes_) +
                       " bytes in a line, found " + std::to_string(size - 1) +
                       "; the limit is one eighth of --max-memory";
      else if (line.find_first_not_of(" \t\r") == std::string::npos)
        continue;
      item.number = ++items_;
      item.line = std::move(line);
      has_more_ = std::memchr(buffer_.data() + at_, '\n', size_ - at_) != nullptr;
      return item;
    }
    has_more_ = false;
    return std::nullopt;
  }

  std::optional<std::size_t> count() const override { return std::nullopt; }
  bool has_more() const override { return has_more_; }

 private:
  /// The size of the next line, plus one for its end even if the last line has none; 0 after the
  /// last line. A line that is too long is counted but not stored.
  std::size_t read_line(std::string& line) {
    line.clear();
    for (std::size_t size = 1;;) {
      const char* const from = buffer_.data() + at_;
      const void* const end = std::memchr(from, '\n', size_ - at_);
      const std::size_t length = end ? static_cast<const char*>(end) - from : size_ - at_;
      size += length;
      if (size - 1 <= max_bytes_)
        line.append(from, length);
      else
        line = std::string();
      at_ += length + (end ? 1 : 0);
      if (end) return size;
      if (!fill()) return size == 1 ? 0 : size;
    }
  }

  bool fill() {
    for (at_ = size_ = 0; !stop_;) {
      pollfd ready{STDIN_FILENO, POLLIN, 0};
      if (poll(&ready, 1, kPollMilliseconds) == 0) continue;
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

  const std::size_t max_bytes_;
  const std::atomic<bool>& stop_;
  std::array<char, 65536> buffer_{};
  std::size_t at_ = 0, size_ = 0, lines_ = 0, items_ = 0;
  std::atomic<bool> has_more_ = false;
};

}  // namespace

std::unique_ptr<ItemSource> items_of_standard_input(std::size_t max_bytes,
                                                    const std::atomic<bool>& stop) {
  return std::make_unique<LineItems>(max_bytes, stop);
}

}  // namespace attn
