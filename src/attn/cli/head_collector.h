// The statistics of the attention heads in files, for attn stats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "attn/base/text.h"
#include "attn/cli/weights_files.h"
#include "attn/io/tensor_file.h"
#include "attn/stats/head_statistics.h"

namespace attn {

/// Which heads share a line.
enum class Grouping { item, file, all };

/// Identifies a line of the table; -1 for an axis that the tensor lacks or that is pooled.
struct HeadKey {
  std::string name;
  std::int64_t layer = -1, item = -1, head = -1;
  bool operator<(const HeadKey& other) const {
    if (name != other.name) return precedes_naturally(name, other.name);
    return std::tie(layer, item, head) < std::tie(other.layer, other.item, other.head);
  }
};

/// The statistics of a line, and which are known for all of its heads, and for some.
struct Group {
  HeadSums sums;
  StatisticSet known = StatisticSet().set(), known_of_some;

  void restrict_to(const StatisticSet& set) { known &= set, known_of_some |= set; }
};
using Groups = std::map<HeadKey, Group>;
using Similarities = std::map<HeadKey, HeadSimilarity>;  ///< by name and layer

/// Reads files and adds up the sums of their heads.
class HeadCollector {
 public:
  /// `token_ids` names the token ids of the keys; "": those of each file. `similarity` compares
  /// heads instead. Errors: as TensorFiles::read(); data, if they are no token ids.
  HeadCollector(Grouping by, bool similarity, const std::string& token_ids,
                const ReadLimits& limits);

  Groups groups;
  Similarities similarities;

  /// Errors: as read_result(); data, naming the file.
  void add(const std::string& file);

 private:
  void add_file(const ResultFile& result);
  void add_tensors(const ResultFile& result, bool is_named);
  void add_all(const ResultFile& result, const std::vector<std::string>& names,
               const std::optional<Tensor>& ids);
  std::string name_in_table(const std::string& name) const;
  HeadKey key_of(const std::string& name, const HeadAxes& axes, std::size_t index) const;
  void add_weights(const ResultFile& result, const std::string& name,
                   const std::optional<Tensor>& ids,
                   std::optional<std::int64_t> layer = std::nullopt);
  void add_similarity(const Tensor& weights, const std::string& name, const HeadAxes& axes);
  void add_row_statistics(const ResultFile& result);
  void warn_of_unused_statistics(const TensorMap& tensors);

  const Grouping by_;
  const bool similarity_;
  const ReadLimits limits_;
  TensorFiles parsed_{limits_};  ///< what one file has parsed, further tensors of it use, too
  std::optional<Tensor> token_ids_;
  std::string file_;
  std::string job_;  ///< of a bundle; "": the file has one job
};

}  // namespace attn
