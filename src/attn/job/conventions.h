// What each library means where attention can mean several things, by the library's name.
#pragma once

#include <string>
#include <vector>

#include "attn/core/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The options that a convention sets; each can be set again by itself.
struct Convention {
  const char* name;
  const char* library;
  Layout layout = Layout::bhld;
  bool batch_second = false;
  MaskPolarity mask_polarity = MaskPolarity::attend;
  Alignment alignment = Alignment::top_left;
  /// The alignment where the job has key_lengths: the last query stands at the last key of its row.
  Alignment alignment_of_lengths = Alignment::top_left;
  EmptyRows empty_rows = EmptyRows::zero;
  ShortMask short_mask = ShortMask::refuse;
};

const std::vector<Convention>& conventions();

/// The options to start from, as far as they mean anything for these tensors; `name` is one of
/// conventions().
Options options_of_convention(const std::string& name, const TensorMap& tensors);

/// The table of conventions, a line each, as `attn conventions` prints it.
std::string conventions_table();

}  // namespace attn
