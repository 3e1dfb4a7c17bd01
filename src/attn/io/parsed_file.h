// What readers derive from the bytes of a file before they read its tensors.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "attn/io/file.h"
#include "attn/io/json_write.h"
#include "attn/io/mapped_file.h"
#include "attn/io/npz.h"
#include "attn/io/read_budget.h"
#include "attn/io/safetensors.h"

namespace attn {

/// The file of each tensor of an index, by the name of the tensor.
using ShardNames = std::map<std::string, std::string, std::less<>>;

/// The parts of one version of a file that n jobs or layers may request. Each part is computed
/// once, so that n of them do not read a list of n entries n times. A request charges the memory of
/// the part to its budget, where it stays charged. Thread-safe.
class ParsedFile {
 public:
  /// Of a .safetensors file. Errors: as parse_safetensors_header().
  const SafetensorsHeader& header(const FileBytes& file, ReadBudget& budget);
  /// Of an .npz file. Errors: as read_npz_index().
  const NpzIndex& archive(const FileBytes& file, const NpzLimits& limits, ReadBudget& budget);
  /// Of an index of .safetensors files. Errors: data.
  const ShardNames& shards(const FileBytes& file, ReadBudget& budget);
  /// Of a JSON file. Errors: as parse_json().
  const Json& document(const FileBytes& file, ReadBudget& budget);
  std::string digest(const FileBytes& file);
  std::size_t size();  ///< bytes of memory

 private:
  template <class T>
  struct Part {
    std::unique_ptr<const T> value;
    std::size_t bytes = 0;
  };
  template <class T, class Read>
  const T& part(Part<T>& part, const FileBytes& file, ReadBudget& budget, const Read& read);

  std::mutex mutex_;
  Part<SafetensorsHeader> header_;
  Part<NpzIndex> archive_;
  Part<ShardNames> shards_;
  Part<Json> document_;
  std::string digest_;
};

/// The files that the parts of one job, such as layers, have parsed. Not thread-safe.
class ParsedFiles {
 public:
  /// When more than `capacity` bytes are kept, all are dropped.
  explicit ParsedFiles(std::size_t capacity) : capacity_(capacity) {}
  std::shared_ptr<ParsedFile> find(const std::string& path, const FileStamp& version);
  void count(std::size_t bytes);  ///< that a file has grown by

 private:
  struct Kept {
    FileStamp version;
    std::shared_ptr<ParsedFile> file;
  };
  std::map<std::string, Kept> files_;
  std::size_t capacity_, bytes_ = 0;
};

}  // namespace attn
