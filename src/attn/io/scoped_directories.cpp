#include "attn/io/scoped_directories.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "attn/base/error.h"
#include "attn/io/descriptor.h"

namespace attn {
namespace {

bool is_folder_there(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// "a/b" for "a/b/c" and for "a/b/c/"; "" for a name in the working directory.
std::string parent_of(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return std::filesystem::path(path).parent_path().string();
}

}  // namespace

ScopedDirectories::~ScopedDirectories() {
  // A directory sorts before the ones in it.
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) rmdir(folder->first.c_str());
}

void ScopedDirectories::make(const std::string& path, bool durable) {
  const std::lock_guard lock(mutex_);
  make_one(path, durable);
}

void ScopedDirectories::make_with_parents(const std::string& path, bool durable) {
  if (!durable && is_folder_there(path)) return;
  std::vector<std::string> missing;
  const std::lock_guard lock(mutex_);  // with `durable`, wait for other threads' fsync
  for (std::string at = path; !at.empty() && !is_folder_there(at); at = parent_of(at))
    missing.push_back(at);
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder)
    make_one(*folder, durable);
}

void ScopedDirectories::make_one(const std::string& path, bool durable) {
  {
    const SignalGuard guard;
    // Registered first, because a signal may interrupt this thread after mkdir().
    const auto [place, first] = made_.try_emplace(path, path);
    if (mkdir(path.c_str(), 0777) != 0) {
      const int code = errno;
      if (first) made_.erase(place);
      if (code == EEXIST) return;
      throw system_error(ErrorKind::cannot_create, path, code);
    }
  }
  if (durable) sync_folder(path, parent_of(path));
}

void ScopedDirectories::keep() {
  const std::lock_guard lock(mutex_);
  made_.clear();
}

void ScopedDirectories::keep(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (made_.empty()) return;
  for (std::string kept = path; !kept.empty() && kept != "/"; kept = parent_of(kept))
    made_.erase(kept);
}

}  // namespace attn
