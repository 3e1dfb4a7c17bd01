#include "attn/io/used_files.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <unordered_set>

#include "attn/base/error.h"
#include "attn/io/open_file.h"
#include "attn/io/shared_file_ids.h"

namespace attn {
namespace {

struct HashOfId {
  std::size_t operator()(const FileId& id) const {
    return id.inode * 0x9e3779b97f4a7c15U ^ id.device;
  }
};
using FileIds = std::unordered_set<FileId, HashOfId>;

/// Not a member, so that nothing is allocated between the files of a result if nothing is recorded.
constinit std::atomic<bool> is_recording = false;

class UsedFiles {
 public:
  void record(bool starts) {
    is_recording = starts;
    const std::lock_guard lock(mutex_);
    if (!starts) inputs_.clear(), outputs_.clear();
  }

  void add_input(const FileId& id) {
    const std::lock_guard lock(mutex_);
    if (inputs_.insert(id).second && shared_ != nullptr) shared_->add(id);
  }

  void add_output(const FileId& id) {
    const std::lock_guard lock(mutex_);
    outputs_.insert(id);
  }

  bool has_input(const FileId& id) {
    const std::lock_guard lock(mutex_);
    take_shared();
    return inputs_.contains(id);
  }

  bool has_output(const FileId& id) {
    const std::lock_guard lock(mutex_);
    return outputs_.contains(id);
  }

  void share() {
    void* const memory = mmap(nullptr, sizeof(SharedFileIds), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    shared_ = static_cast<SharedFileIds*>(memory);  // zeros: no files
  }

 private:
  /// Adds what other processes noted.
  void take_shared() {
    if (shared_ != nullptr)
      reader_.read(*shared_, [this](const FileId& id) { inputs_.insert(id); });
  }

  std::mutex mutex_;
  FileIds inputs_, outputs_;
  SharedFileIds* shared_ = nullptr;
  SharedFileIdReader reader_;
};

UsedFiles& used_files() {
  static UsedFiles* const files = new UsedFiles;  // inputs may be read after static objects end
  return *files;
}

}  // namespace

FileId id_of(const struct stat& info) { return {info.st_dev, info.st_ino}; }

std::optional<FileId> id_of_file(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return std::nullopt;
  return id_of(info);
}

void note_input(const struct stat& info) {
  if (is_recording && S_ISREG(info.st_mode)) used_files().add_input(id_of(info));
}

void note_input(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) note_input(info);
}

void note_output(const struct stat& info) {
  if (is_recording) used_files().add_output(id_of(info));
}

void record_used_files(bool is_on) { used_files().record(is_on); }

void share_noted_inputs() { used_files().share(); }

void require_unused(const FileId& file, const std::string& path) {
  if (used_files().has_input(file))
    throw path_error(ErrorKind::cannot_create, path, "is an input and cannot be overwritten");
  if (used_files().has_output(file)) throw same_output_error(path);
}

Error same_output_error(const std::string& path) {
  return path_error(ErrorKind::cannot_create, path, "is another output of this run");
}

constinit std::mutex OutputClaim::mutex = {};
constinit std::vector<const OutputClaim::Name*> OutputClaim::claimed = {};

OutputClaim::OutputClaim(const OutputEntry& entry, const std::string& path) {
  const std::size_t start = entry.name.rfind('/') + 1;
  struct stat folder {};
  const int found = entry.is_confined() ? fstat(entry.at(), &folder)
                    : start == 0        ? stat(".", &folder)
                                        : stat(entry.name.substr(0, start).c_str(), &folder);
  if (found != 0) return;  // opening the output will fail
  auto name = std::make_unique<const Name>(Name{id_of(folder), entry.name.substr(start)});
  const std::lock_guard lock(mutex);
  for (const Name* const other : claimed)
    if (*other == *name) throw same_output_error(path);
  claimed.push_back(name.get());
  name_ = std::move(name);
}

OutputClaim claim_of(const std::string& path) {
  const OutputEntry entry = output_entry(path);
  return {entry.is_confined() ? entry : OutputEntry{nullptr, follow_links(path)}, path};
}

OutputClaim::~OutputClaim() {
  if (name_ == nullptr) return;
  const std::lock_guard lock(mutex);
  std::erase(claimed, name_.get());
}

}  // namespace attn
