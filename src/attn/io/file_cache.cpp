#include "attn/io/file_cache.h"

#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/open_file.h"
#include "attn/io/tensor_file.h"

namespace attn {
namespace {

constexpr std::size_t kCacheEntry = 512;  // memory of a cache entry besides the file

}  // namespace

void SharedFile::read() {
  if (bytes_.data != nullptr) return;
  if (standard_input_taken_ && is_standard_input(path_))
    throw Error(ErrorKind::no_input,
                Problem{.where = {path_}, .message = "standard input contains the jobs"});
  FileBytes bytes = read_file(path_, limits_.memory);
  bytes.known_digest = bytes.digest();
  bytes_ = std::move(bytes);
}

FileBytes SharedFile::bytes() {
  const std::lock_guard lock(mutex_);
  read();
  return bytes_;
}

std::shared_ptr<const TensorMap> SharedFile::tensors() {
  const std::lock_guard lock(mutex_);
  read();
  if (tensors_ == nullptr) {
    ReadBudget budget(limits_.memory);
    budget.charge(bytes_.size, bytes_.name());
    tensors_ = std::make_shared<const TensorMap>(read_tensors(bytes_, limits_, &budget));
    for (const auto& [name, tensor] : *tensors_) tensor_bytes_ += tensor.bytes();
  }
  return tensors_;
}

std::size_t SharedFile::size() {
  const std::lock_guard lock(mutex_);
  return kCacheEntry + bytes_.size + tensor_bytes_ + parsed_.size();
}

std::shared_ptr<SharedFile> FileCache::file(const std::string& path) {
  std::shared_ptr<SharedFile> file = find(path);
  try {
    file->bytes();
  } catch (...) {
    forget(*file);
    throw;
  }
  count(*file);
  return file;
}

std::shared_ptr<const TensorMap> FileCache::tensors(SharedFile& file) {
  std::shared_ptr<const TensorMap> tensors = file.tensors();
  count(file);
  return tensors;
}

void FileCache::clear() {
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto here = entry++;
    if (!here->second.once) drop(here);
  }
}

std::shared_ptr<SharedFile> FileCache::find(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = entries_.try_emplace(path);
  if (is_new) {
    entry->second.file = std::make_shared<SharedFile>(path, limits_, standard_input_taken_);
    entry->second.use = uses_.insert(uses_.begin(), path);
    std::error_code ignored;
    entry->second.once = !std::filesystem::is_regular_file(path, ignored);
  } else {
    uses_.splice(uses_.begin(), uses_, entry->second.use);
  }
  return entry->second.file;
}

/// entries_.end() if the file has been dropped, or if another version of it is cached.
FileCache::Entries::iterator FileCache::entry_of(const SharedFile& file) {
  const auto entry = entries_.find(file.path());
  return entry != entries_.end() && entry->second.file.get() == &file ? entry : entries_.end();
}

void FileCache::count(SharedFile& file) {
  const std::size_t size = file.size();
  const std::lock_guard lock(mutex_);
  const auto entry = entry_of(file);
  if (entry == entries_.end()) return;
  used_ += size - entry->second.size;
  entry->second.size = size;
  if (size > capacity_) return drop(entry);  // do not drop others for it
  for (const bool once : {false, true})
    for (auto use = uses_.end(); used_ > capacity_ && use != uses_.begin();) {
      const auto least_recent = entries_.find(*--use);
      if (least_recent->second.once != once) continue;
      ++use;
      drop(least_recent);
    }
}

void FileCache::forget(const SharedFile& file) {
  const std::lock_guard lock(mutex_);
  const auto entry = entry_of(file);
  if (entry != entries_.end()) drop(entry);
}

void FileCache::drop(Entries::iterator entry) {
  used_ -= entry->second.size;
  uses_.erase(entry->second.use);
  entries_.erase(entry);
}

}  // namespace attn
