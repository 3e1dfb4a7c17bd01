// The conventions of libraries: options that differ between them, by the library's name.
#pragma once

#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The options that a convention sets; a job can override each of them.
struct Convention {
  const char* name;
  const char* library;
  Layout layout = Layout::bhld;  ///< of 4-D queries
  bool packs_tokens = false;     ///< 3-D queries, keys and values have Layout::thd
  PoolLayout page_layout = PoolLayout::nhd;
  bool batch_second = false;
  MaskPolarity mask_polarity = MaskPolarity::attend;
  Alignment alignment = Alignment::top_left;
  /// The alignment of jobs with key_lengths, if it differs; bottom_right: the last query is aligned
  /// with the last key of its row.
  std::optional<Alignment> alignment_of_lengths = {};
  EmptyRows empty_rows = EmptyRows::zero;
  double lse_base = std::numbers::e;
  bool lse_sinks = true;
  EmptyLogsumexp lse_empty = EmptyLogsumexp::minus_infinity;
  ShortMask short_mask = ShortMask::refuse;
  WeightsLayout weights_layout = WeightsLayout::in_out;
  bool mask_by_batch = false;  ///< the 3-D mask of 3-D inputs is (B, L, S), also with heads
};

const std::vector<Convention>& conventions();

/// Sets the options of the convention `name` that decide what is written for a query without keys
/// and what logsumexp is.
void set_results_of_convention(const std::string& name, Options& options);

/// The options of the convention `name` that apply to these tensors.
Options convention_options(const std::string& name, const TensorMap& tensors);

/// Gives the mask the axes that it has in the convention: (B, L, S) becomes (B, 1, L, S).
void apply_mask_convention(const std::string& name, TensorMap& tensors);

/// The table that `attn conventions` prints.
std::string conventions_table();

}  // namespace attn
