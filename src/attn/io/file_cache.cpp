#include "attn/io/file_cache.h"

#include <unistd.h>

#include "attn/io/descriptor.h"
#include "attn/io/tensor_file.h"
#include "attn/tensor/error.h"

namespace attn {

void SharedFile::read() {
  if (bytes_.data != nullptr) return;
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
  if (tensors_ == nullptr)
    tensors_ = std::make_shared<const TensorMap>(read_tensors(bytes_, limits_));
  return tensors_;
}

std::size_t SharedFile::size() {
  const std::lock_guard lock(mutex_);
  std::size_t size = bytes_.size;
  if (tensors_ != nullptr)
    for (const auto& [name, tensor] : *tensors_) size += tensor.bytes();
  return size;
}

FileBytes FileCache::bytes(const std::string& path) {
  const std::shared_ptr<SharedFile> file = find(path);
  FileBytes bytes = file->bytes();
  count(path, *file);
  return bytes;
}

std::shared_ptr<const TensorMap> FileCache::tensors(const std::string& path) {
  const std::shared_ptr<SharedFile> file = find(path);
  std::shared_ptr<const TensorMap> tensors = file->tensors();
  count(path, *file);
  return tensors;
}

std::shared_ptr<SharedFile> FileCache::find(const std::string& path) {
  if (standard_input_taken_ && (path == "-" || descriptor_named(path) == STDIN_FILENO))
    throw Error(ErrorKind::no_input, printable(path) + ": standard input holds the jobs");
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = places_.try_emplace(path);
  if (is_new) {
    place->second.file = std::make_shared<SharedFile>(path, limits_);
    place->second.use = uses_.insert(uses_.begin(), path);
  } else {
    uses_.splice(uses_.begin(), uses_, place->second.use);
  }
  return place->second.file;
}

void FileCache::count(const std::string& path, SharedFile& file) {
  const std::size_t size = file.size();
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(path);
  if (place == places_.end() || place->second.file.get() != &file) return;  // dropped meanwhile
  held_ += size - place->second.size;
  place->second.size = size;
  while (held_ > most_) {
    const auto oldest = places_.find(uses_.back());
    held_ -= oldest->second.size;
    uses_.pop_back();
    places_.erase(oldest);
  }
}

}  // namespace attn
