#include "attn/io/spool_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "attn/base/error.h"
#include "attn/io/elements.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

constexpr std::size_t kSpoolBuffer = std::size_t{1} << 20;

}  // namespace

void SpoolFile::append(std::span<const std::byte> bytes) { append(text_of(bytes)); }

void SpoolFile::append(std::string_view text) {
  if (text.size() > kSpoolBuffer) {  // not copied
    flush();
    write(text);
    return;
  }
  buffer_ += text;
  if (buffer_.size() > kSpoolBuffer) flush();
}

/// Where the file system has no O_TMPFILE (NFS), the file gets a name, which is removed at once.
void SpoolFile::create() {
  constexpr int kFlags = O_RDWR | O_CLOEXEC;
  file_ = Descriptor(open(folder_.c_str(), kFlags | O_TMPFILE, 0600));
  if (file_.is_open()) return;
  const SignalGuard guard;
  const TempPath temporary(folder_ + "/" + new_temp_name());
  file_ = Descriptor(open(temporary.path().c_str(), kFlags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  if (!file_.is_open() || unlink(temporary.path().c_str()) != 0)
    throw system_error(ErrorKind::cannot_create, folder_, errno);
}

void SpoolFile::flush() {
  if (buffer_.empty()) return;
  write(buffer_);
  buffer_.clear();
}

void SpoolFile::write(std::string_view text) {
  if (!file_.is_open()) create();
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = pwrite(file_.get(), text.data() + done, text.size() - done,
                                 static_cast<off_t>(written_ + done));
    if (count > 0)
      done += static_cast<std::size_t>(count);
    else if (count == 0 || errno != EINTR)
      throw system_error(ErrorKind::io, folder_, count == 0 ? EIO : errno);
  }
  written_ += text.size();
}

void SpoolFile::read(std::uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    std::size_t size = 0;
    if (offset >= written_) {
      size = bytes.size();
      std::memcpy(bytes.data(), buffer_.data() + (offset - written_), size);
    } else {
      const std::uint64_t in_file = std::min<std::uint64_t>(bytes.size(), written_ - offset);
      const ssize_t count = pread(file_.get(), bytes.data(), in_file, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw system_error(ErrorKind::io, folder_, count == 0 ? EIO : errno);
      size = static_cast<std::size_t>(count);
    }
    offset += size;
    bytes = bytes.subspan(size);
  }
}

void SpoolFile::clear() {
  buffer_.clear();
  if (written_ == 0) return;
  written_ = 0;
  while (ftruncate(file_.get(), 0) != 0)
    if (errno != EINTR) throw system_error(ErrorKind::io, folder_, errno);
}

}  // namespace attn
