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

/// One version of a file, and its tensors once somebody has asked for them.
class SharedFile {
 public:
  SharedFile(const std::string& path, const ReadLimits& limits, bool standard_input_taken)
      : path_(path), limits_(limits), standard_input_taken_(standard_input_taken) {}
  /// Errors: as read_file() and read_tensors(), for each who asks.
  FileBytes bytes();
  std::shared_ptr<const TensorMap> tensors();
  std::size_t size();  ///< bytes in memory: the file's, its tensors' and this note's
  const std::string& path() const { return path_; }

 private:
  void read();

  const std::string path_;
  const ReadLimits limits_;
  const bool standard_input_taken_;
  std::mutex mutex_;
  FileBytes bytes_;
  std::shared_ptr<const TensorMap> tensors_;
};

/// Threads may ask at once: the first one reads, the others wait for it. Files asked for longest
/// ago are dropped where all together would exceed `most` bytes, what can be read once only behind
/// all others, and one that would do so alone is not kept. A file that changes on disk after it was
/// read is not read again while it is held; one that cannot be read is not remembered.
class FileCache {
 public:
  /// `standard_input_taken`: it holds something else, and to name it is Error(no_input).
  FileCache(std::size_t most, const ReadLimits& limits, bool standard_input_taken = false)
      : most_(most), limits_(limits), standard_input_taken_(standard_input_taken) {}
  /// The file, which has been read. Who holds it has one version of it, whatever becomes of its
  /// place here.
  std::shared_ptr<SharedFile> file(const std::string& path);
  std::shared_ptr<const TensorMap> tensors(SharedFile& file);
  void clear();  ///< drops all, save what can be read once only
  const ReadLimits& limits() const { return limits_; }

 private:
  struct Place {
    std::shared_ptr<SharedFile> file;
    std::size_t size = 0;  ///< as counted in held_
    bool once = false;     ///< a pipe, say: what it gave is not to be had again
    std::list<std::string>::iterator use;
  };
  using Places = std::map<std::string, Place>;
  std::shared_ptr<SharedFile> find(const std::string& path);
  Places::iterator place_of(const SharedFile& file);
  void count(SharedFile& file);
  void forget(const SharedFile& file);
  void drop(Places::iterator place);

  const std::size_t most_;
  const ReadLimits limits_;
  const bool standard_input_taken_;
  std::mutex mutex_;
  Places places_;
  std::list<std::string> uses_;  ///< the one asked for last in front
  std::size_t held_ = 0;
};

}  // namespace attn
