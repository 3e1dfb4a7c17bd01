#include "attn/io/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "attn/io/bytes.h"
#include "attn/io/mapping.h"

namespace attn {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kLarge = std::size_t{64}
                               << 10;  // buffering larger writes costs more than it saves

/// The error for a failed write of `size` bytes at `data`. If they belong to a mapped input that
/// was cut short, that is reported instead.
Error failure(const StagedFile& file, int code, const void* data, std::size_t size) {
  if (code == EFAULT) look_at_pages(data, size);
  return system_error(ErrorKind::io, file.path(), code);
}

void write_all(const StagedFile& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file.descriptor(), text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (count < 0 && errno == EAGAIN) {
      wait_for(file.descriptor(), POLLOUT);
    } else if (count == 0 || errno != EINTR) {
      if (count < 0 && errno == EPIPE) throw BrokenPipe{};
      throw failure(file, count == 0 ? EIO : errno, text.data(), text.size());
    }
  }
}

/// Takes `count` bytes off the front.
std::span<iovec> without(std::span<iovec> parts, std::size_t count) {
  while (!parts.empty() && count >= parts[0].iov_len) {
    count -= parts[0].iov_len;
    parts = parts.subspan(1);
  }
  if (count > 0)
    parts[0] = {static_cast<std::byte*>(parts[0].iov_base) + count, parts[0].iov_len - count};
  return parts;
}

void write_all_at(const StagedFile& file, std::uint64_t offset, std::span<iovec> parts) {
  while (!parts.empty()) {
    const ssize_t count = pwritev(file.descriptor(), parts.data(), static_cast<int>(parts.size()),
                                  static_cast<off_t>(offset));
    if (count > 0) {
      parts = without(parts, static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    } else if (count == 0 || errno != EINTR) {
      throw failure(file, count == 0 ? EIO : errno, parts[0].iov_base, parts[0].iov_len);
    }
  }
}

}  // namespace

OutputFile::OutputFile(const std::string& path, const OutputPolicy& policy) : file_(path, policy) {
  if (policy.digest) digest_.emplace();
}

void OutputFile::write(std::span<const std::byte> bytes) { write(text_of(bytes)); }

void OutputFile::write(std::string_view text) {
  if (digest_) digest_->add(bytes_of(text));
  if (buffer_.size() + text.size() > kBufferBytes) flush();
  if (text.size() < kLarge) {
    buffer_ += text;
    return;
  }
  flush();
  write_all(file_, text);
}

void OutputFile::flush() {
  write_all(file_, buffer_);
  buffer_.clear();
}

void OutputFile::reserve(std::uint64_t bytes) {
  int code = 0;
  do code = fallocate(file_.descriptor(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  while (code == EINTR);
  // Other file systems report a full disk when they are written to.
  if (code != 0 && code != EOPNOTSUPP && code != ENOSYS && code != EINVAL)
    throw system_error(ErrorKind::io, path(), code);
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::span<const std::byte>> parts) {
  constexpr std::size_t kAtOnce = 128;
  std::array<iovec, kAtOnce> vectors;
  while (!parts.empty()) {
    const auto some = parts.first(std::min(parts.size(), kAtOnce));
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      vectors[i] = {const_cast<std::byte*>(some[i].data()), some[i].size()};
      bytes += some[i].size();
    }
    write_all_at(file_, offset, {vectors.data(), some.size()});
    offset += bytes;
    parts = parts.subspan(some.size());
  }
}

void OutputFile::skip(std::uint64_t bytes) {
  flush();
  if (lseek(file_.descriptor(), static_cast<off_t>(bytes), SEEK_CUR) < 0)
    throw system_error(ErrorKind::io, path(), errno);
}

void OutputFile::finish() {
  if (finished_) return;
  flush();
  file_.close();
  if (digest_) file_.settle(digest());
  finished_ = true;
}

void OutputFile::commit() {
  finish();
  file_.give_name();
}

}  // namespace attn
