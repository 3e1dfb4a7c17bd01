// Files that many jobs name, read once between them.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "attn/io/file.h"
#include "attn/io/limits.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A file, and its tensors once somebody has asked for them.
class SharedFile {
 public:
  SharedFile(const std::string& path, const ReadLimits& limits) : path_(path), limits_(limits) {}
  /// Errors: as read_file() and read_tensors(), for each who asks.
  FileBytes bytes();
  std::shared_ptr<const TensorMap> tensors();
  std::size_t size();  ///< bytes in memory: the file's, and its tensors' where they are copies

 private:
  void read();

  const std::string path_;
  const ReadLimits limits_;
  std::mutex mutex_;
  FileBytes bytes_;
  std::shared_ptr<const TensorMap> tensors_;
};

/// Threads may ask at once: the first one reads, the others wait for it. Files asked for longest
/// ago are dropped where all together would exceed `most` bytes. A file that changes on disk after
/// it was read is not read again while it is held.
class FileCache {
 public:
  /// `standard_input_taken`: it holds something else, and to name it is Error(no_input).
  FileCache(std::size_t most, const ReadLimits& limits, bool standard_input_taken = false)
      : most_(most), limits_(limits), standard_input_taken_(standard_input_taken) {}
  FileBytes bytes(const std::string& path);
  std::shared_ptr<const TensorMap> tensors(const std::string& path);
  const ReadLimits& limits() const { return limits_; }

 private:
  struct Place {
    std::shared_ptr<SharedFile> file;
    std::size_t size = 0;  ///< as counted in held_
    std::list<std::string>::iterator use;
  };
  std::shared_ptr<SharedFile> find(const std::string& path);
  void count(const std::string& path, SharedFile& file);

  const std::size_t most_;
  const ReadLimits limits_;
  const bool standard_input_taken_;
  std::mutex mutex_;
  std::map<std::string, Place> places_;
  std::list<std::string> uses_;  ///< the one asked for last in front
  std::size_t held_ = 0;
};

}  // namespace attn
