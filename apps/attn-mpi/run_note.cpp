#include "attn-mpi/run_note.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "attn/base/error.h"

namespace attn {
namespace {

std::string note_path(const std::string& output) {
  const std::filesystem::path path(output);
  return (path.parent_path() / (".attn-run-" + path.filename().string())).string();
}

}  // namespace

RunNote::RunNote(const std::string& output)
    : path_(note_path(output)),
      file_(::open(path_.path().c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)) {
  if (!file_.is_open()) return;  // opening the output reports the reason
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    const bool is_taken = errno == EWOULDBLOCK;
    file_ = Descriptor();
    if (is_taken) throw path_error(ErrorKind::busy, output, "another attn-mpi is writing it");
    return;
  }
  char token[64];
  const ssize_t size = pread(file_.get(), token, sizeof token, 0);
  if (size > 0) {
    const std::filesystem::path folder = std::filesystem::path(output).parent_path();
    remove_leftovers(folder.empty() ? "." : folder.string(),
                     {std::string(token, static_cast<std::size_t>(size))});
  }
  const std::string& own = temp_token();
  if (ftruncate(file_.get(), 0) != 0 ||
      pwrite(file_.get(), own.data(), own.size(), 0) != static_cast<ssize_t>(own.size())) {
    const int code = errno;
    unlink(path_.path().c_str());
    throw system_error(ErrorKind::io, path_.path(), code);
  }
}

RunNote::~RunNote() {
  if (file_.is_open()) unlink(path_.path().c_str());
}

}  // namespace attn
