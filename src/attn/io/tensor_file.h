// Reads tensor files of any format.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/memory_limit.h"
#include "attn/io/csv.h"
#include "attn/io/file.h"
#include "attn/io/file_cache.h"
#include "attn/io/format.h"
#include "attn/io/json_write.h"
#include "attn/io/parsed_file.h"
#include "attn/io/read_budget.h"
#include "attn/io/safetensors.h"
#include "attn/io/tensor_part.h"
#include "attn/tensor/tensor.h"
#include "attn/tensor/transposed.h"

namespace attn {

/// "FILE", if a file with the whole name exists, or "FILE#'NAME'", split at the first "#'", or
/// "FILE#NAME", split at the last '#' that follows the name of a file that exists or "-" (if there
/// is none, at the last one). A part (io/tensor_part.h) may follow NAME or 'NAME'. After NAME, it
/// stays in `member`, because it may belong to the name: TensorFiles::read() decides that.
struct TensorRef {
  std::string path, member;
  std::string part = {};  ///< follows 'NAME'
};
TensorRef parse_tensor_ref(const std::string& text);

/// All tensors of a file. A .npy or .csv file or a JSON array has one, named "". A JSON object has
/// those of its values that are numbers or arrays of numbers. The name "" in a file with names is
/// an error. The memory is charged to `budget`, if any; the part of the returned tensors stays
/// charged.
TensorMap read_tensors(const FileBytes& file, const ReadLimits& limits = {},
                       ReadBudget* budget = nullptr);

/// The suffix of an index, a JSON file that names the .safetensors file of each tensor of a model:
/// {"weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}, ...}. The files are in the
/// folder of the index. Its tensors are read as if it contained them.
inline constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

/// Whether, by its name, a file lists the dtypes and shapes of its tensors: .safetensors, or an
/// index of such files.
bool is_model_file(const std::string& path);

/// A tensor of a .safetensors file, without its elements.
struct StoredTensor {
  std::string dtype;  ///< as the format names it: "BF16"
  Shape shape;
};

/// The input files of one job, or of a part of it such as a layer. Reads each file once and records
/// it, for provenance and to refuse outputs that would overwrite an input. Of a .safetensors file
/// that is mapped into memory and whose tensors are read by name, only these count towards the
/// memory limit.
class TensorFiles {
 public:
  explicit TensorFiles(const ReadLimits& limits = {}) : limits_(limits), budget_(limits.memory) {}
  /// Reads through the cache `shared`, which outlives this.
  explicit TensorFiles(FileCache& shared)
      : shared_(&shared), limits_(shared.limits()), budget_(limits_.memory) {}
  /// The files of a part of the job of `whole`. What one part has parsed, the others use, too.
  TensorFiles(TensorFiles& whole, const ReadLimits& limits);

  /// Adds a file that was read already.
  void add(FileBytes file);
  /// The tensor `ref`, or the part of it. A tensor whose name is the whole member comes first:
  /// "W.T" is the tensor W.T, if there is one, otherwise the transpose of W. For a file with
  /// several tensors and no member, the error lists their names. `whole_shape`, if not null,
  /// receives that of the tensor that has the part. Errors: no_input, data, io.
  Tensor read(const TensorRef& ref, Shape* whole_shape = nullptr);
  /// The name of the tensor that `ref` means, and the part of it. Errors: as read().
  NamedPart named_part(const TensorRef& ref);
  /// The names of all tensors of the file. Errors: as read().
  std::vector<std::string> names(const std::string& path);
  /// A tensor of a .safetensors file or an index; nullopt if it has none of this name. Errors: as
  /// read().
  std::optional<StoredTensor> stored(const std::string& path, const std::string& name);
  /// The files that read() or below() of `ref` reads: ref.path and, if that is an index, the files
  /// that contain the tensor or those whose names start with ref.member. Errors: as read(), of the
  /// index.
  std::set<std::string> paths_of(const TensorRef& ref);
  /// Whether the file has a tensor of this name. Errors: as read().
  bool contains(const std::string& path, const std::string& name);
  /// The tensors whose names start with `prefix`, without it. Errors: as read(); data, if there is
  /// none.
  TensorMap below(const std::string& path, const std::string& prefix);
  const FileBytes& file(const std::string& path);
  /// Of a file in format csv; otherwise empty. Errors: as read().
  CsvNames csv_names(const std::string& path);
  /// The texts of a file with an index; otherwise empty. Errors: as read().
  FileMetadata metadata(const std::string& path);
  /// The value of a JSON file. Errors: as read().
  const Json& document(const std::string& path);
  /// All tensors of the file. Errors: as read().
  const TensorMap& all(const std::string& path);
  const std::map<std::string, FileBytes>& files() const { return files_; }
  /// What was read, by name: each file, or FILE#NAME for each tensor of a file that is mapped and
  /// whose tensors were read by name only. The second is the digest of these bytes.
  std::vector<std::pair<std::string, std::string>> digests() const;
  /// Takes elements of a mapped file out of memory (tensor/transposed.h); does nothing if those of
  /// the tensor are of no such file.
  ReleasePages releaser(const Tensor& tensor) const;
  const ReadLimits& limits() const { return limits_; }
  ReadBudget& budget() { return budget_; }  ///< memory of the files and tensors

 private:
  /// What has been derived from the bytes of a file.
  struct Contents {
    std::shared_ptr<ParsedFile> file;
    const SafetensorsHeader* header = nullptr;
    const NpzIndex* archive = nullptr;
    const ShardNames* shards = nullptr;
    const Json* document = nullptr;
  };

  bool is_own(const std::string& path) const { return !held_.contains(path); }
  const FileBytes& file_of_names(const std::string& path);
  void use_part(const FileBytes& file, std::size_t size);
  std::shared_ptr<ParsedFile> parsed(const FileBytes& file) const;
  template <class Parse>
  void parse(const FileBytes& file, Contents& contents, const Parse& parse);
  const SafetensorsHeader& header(const std::string& path);
  const NpzIndex& archive(const FileBytes& file);
  const ShardNames& shards(const std::string& path);
  std::vector<std::string> names_below(const std::string& path, const std::string& prefix);
  std::string listed_names(const std::string& path);
  TensorRef in_shard(const TensorRef& ref);
  Tensor read_whole(const TensorRef& ref);

  FileCache* shared_ = nullptr;
  ReadLimits limits_;
  ReadBudget budget_;
  std::map<std::string, FileBytes> files_;
  std::map<std::string, std::shared_ptr<SharedFile>> held_;  ///< from the shared cache
  std::map<std::string, std::shared_ptr<const TensorMap>> tensors_;
  std::map<std::string, Contents> contents_;
  std::shared_ptr<ParsedFiles> parts_;  ///< of all parts of the job; nullptr if it has none
  /// Of files that are mapped and used by name only: the tensors read.
  std::map<std::string, std::set<std::string>> partly_read_;
  MappedMemory mapped_parts_;
};

}  // namespace attn
