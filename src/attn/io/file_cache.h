// A cache of input files that several jobs of a batch share, and the limits on what is read.
#pragma once

#include <cstddef>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "attn/io/file.h"
#include "attn/io/parsed_file.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct ReadLimits {
  /// Bytes of one file; also of all files and random tensors of a job (TensorFiles::budget()).
  std::size_t memory = std::numeric_limits<std::size_t>::max();
  NpzLimits npz = {};
  FileAccess access = FileAccess::read;
};

/// A file that is read once, and its tensors, which are read on first request.
class SharedFile {
 public:
  SharedFile(const std::string& path, const ReadLimits& limits, bool standard_input_taken)
      : path_(path), limits_(limits), standard_input_taken_(standard_input_taken) {}
  /// Errors: as read_file() and read_tensors(), for each caller.
  FileBytes bytes();
  std::shared_ptr<const TensorMap> tensors();
  ParsedFile& parsed() { return parsed_; }
  std::size_t size();  ///< bytes of memory, with the tensors and this object
  const std::string& path() const { return path_; }

 private:
  void read();

  const std::string path_;
  const ReadLimits limits_;
  const bool standard_input_taken_;
  std::mutex mutex_;
  FileBytes bytes_;
  std::shared_ptr<const TensorMap> tensors_;
  std::size_t tensor_bytes_ = 0;
  ParsedFile parsed_;
};

/// Thread-safe: the first thread reads a file, others wait for it. When the files together exceed
/// `capacity` bytes, the least recently used ones are dropped, pipes last. A single file that
/// exceeds it is not kept. A file that changes on disk is not read again while it is cached. A file
/// that cannot be read is not cached.
class FileCache {
 public:
  /// `standard_input_taken`: standard input contains the jobs, so an input that names it is
  /// Error(no_input).
  FileCache(std::size_t capacity, const ReadLimits& limits, bool standard_input_taken = false)
      : capacity_(capacity), limits_(limits), standard_input_taken_(standard_input_taken) {}
  /// The file, after reading it. It stays valid when the cache drops it.
  std::shared_ptr<SharedFile> file(const std::string& path);
  std::shared_ptr<const TensorMap> tensors(SharedFile& file);
  void count(SharedFile& file);  ///< after a request that may have made it larger
  void clear();                  ///< drops all files except pipes
  const ReadLimits& limits() const { return limits_; }

 private:
  struct Entry {
    std::shared_ptr<SharedFile> file;
    std::size_t size = 0;  ///< its share of used_
    bool once = false;     ///< can be read only once, such as a pipe
    std::list<std::string>::iterator use;
  };
  using Entries = std::map<std::string, Entry>;
  std::shared_ptr<SharedFile> find(const std::string& path);
  Entries::iterator entry_of(const SharedFile& file);
  void forget(const SharedFile& file);
  void drop(Entries::iterator entry);

  const std::size_t capacity_;
  const ReadLimits limits_;
  const bool standard_input_taken_;
  std::mutex mutex_;
  Entries entries_;
  std::list<std::string> uses_;  ///< most recently used first
  std::size_t used_ = 0;
};

}  // namespace attn
