// Any file of tensors: which format it is, and what it holds.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "attn/io/file.h"
#include "attn/io/file_cache.h"
#include "attn/io/json.h"
#include "attn/io/limits.h"
#include "attn/tensor/tensor.h"

namespace attn {

enum class Format { npy, npz, safetensors, json, csv };

/// What an output's name may end in: for messages and help.
inline constexpr char kSuffixes[] = ".npz, .safetensors, .npy, .json or .csv";

std::string_view name_of(Format format);

/// What the bytes are: by magic for .npy and .npz, by a header for safetensors (or the name, where
/// the header is broken), then '{' or '[' for JSON, also behind a UTF-8 byte order mark; what is
/// left is CSV when the name ends in .csv or text comes through standard input or a pipe, JSON when
/// it ends in .json. Errors: data.
Format format_of(const FileBytes& file);

/// By the suffix alone, for outputs; nothing when it is unknown or absent.
std::optional<Format> format_of_suffix(const std::string& path);

/// "FILE" or "FILE#NAME", split at the last '#' unless a file of the whole name exists.
struct TensorRef {
  std::string path, member;
};
TensorRef parse_tensor_ref(const std::string& text);

/// Every tensor in a file. .npy, .csv and a JSON array hold one, under the name ""; .npz and
/// .safetensors hold theirs; a JSON object holds those of its values that are numbers or arrays of
/// numbers. An array of several without a name (the key "") is an error.
TensorMap read_tensors(const FileBytes& file, const ReadLimits& limits = {});

/// Reads each file once, however often it is named; remembers what was read, for provenance and
/// for refusing to write onto an input.
class TensorFiles {
 public:
  explicit TensorFiles(const ReadLimits& limits = {}) : limits_(limits) {}
  /// Reads through `shared`, which outlives this.
  explicit TensorFiles(FileCache& shared) : shared_(&shared), limits_(shared.limits()) {}

  /// A file that has been read already.
  void add(FileBytes file);
  /// The one tensor that is meant. A file with several needs a member: the error lists their names.
  /// Errors: no_input, data, io.
  Tensor read(const TensorRef& ref);
  const FileBytes& file(const std::string& path);
  /// Everything that the file holds. Errors as read().
  const TensorMap& all(const std::string& path);
  const std::map<std::string, FileBytes>& files() const { return files_; }
  std::set<std::string> paths() const;  ///< of all that was read: nothing may be written there
  /// Errors: io, for a file that is used where it is and was written to since.
  void require_unchanged() const;
  const ReadLimits& limits() const { return limits_; }

 private:
  bool is_own(const std::string& path) const { return !held_.contains(path); }

  FileCache* shared_ = nullptr;
  ReadLimits limits_;
  std::map<std::string, FileBytes> files_;
  std::map<std::string, std::shared_ptr<SharedFile>> held_;  ///< the shared cache's
  std::map<std::string, std::shared_ptr<const TensorMap>> tensors_;
};

}  // namespace attn
