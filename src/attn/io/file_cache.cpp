#include "attn/io/file_cache.h"

#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/descriptor.h"
#include "attn/io/tensor_file.h"

namespace attn {
namespace {

constexpr std::size_t kNote = 512;  // what a file takes in the cache besides its bytes

}  // namespace

void SharedFile::read() {
  if (bytes_.data != nullptr) return;
  if (standard_input_taken_ && is_standard_input(path_))
    throw Error(ErrorKind::no_input,
                Problem{.where = {path_}, .message = "standard input holds the jobs"});
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
  std::size_t size = kNote + bytes_.size;
  if (tensors_ != nullptr)
    for (const auto& [name, tensor] : *tensors_) size += tensor.bytes();
  return size;
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
  for (auto place = places_.begin(); place != places_.end();) {
    const auto here = place++;
    if (!here->second.once) drop(here);
  }
}

std::shared_ptr<SharedFile> FileCache::find(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = places_.try_emplace(path);
  if (is_new) {
    place->second.file = std::make_shared<SharedFile>(path, limits_, standard_input_taken_);
    place->second.use = uses_.insert(uses_.begin(), path);
    std::error_code ignored;
    place->second.once = !std::filesystem::is_regular_file(path, ignored);
  } else {
    uses_.splice(uses_.begin(), uses_, place->second.use);
  }
  return place->second.file;
}

/// The end where it was dropped meanwhile, or another version has its place.
FileCache::Places::iterator FileCache::place_of(const SharedFile& file) {
  const auto place = places_.find(file.path());
  return place != places_.end() && place->second.file.get() == &file ? place : places_.end();
}

void FileCache::count(SharedFile& file) {
  const std::size_t size = file.size();
  const std::lock_guard lock(mutex_);
  const auto place = place_of(file);
  if (place == places_.end()) return;
  held_ += size - place->second.size;
  place->second.size = size;
  if (size > most_) return drop(place);  // no other one need go for it
  for (const bool once : {false, true})
    for (auto use = uses_.end(); held_ > most_ && use != uses_.begin();) {
      const auto least_recent = places_.find(*--use);
      if (least_recent->second.once != once) continue;
      ++use;
      drop(least_recent);
    }
}

void FileCache::forget(const SharedFile& file) {
  const std::lock_guard lock(mutex_);
  const auto place = place_of(file);
  if (place != places_.end()) drop(place);
}

void FileCache::drop(Places::iterator place) {
  held_ -= place->second.size;
  uses_.erase(place->second.use);
  places_.erase(place);
}

}  // namespace attn
