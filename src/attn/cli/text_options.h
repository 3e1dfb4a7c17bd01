// Options for tensors as text, after numpy.set_printoptions.
#pragma once

#include <string>
#include <vector>

#include "attn/cli/option.h"
#include "attn/report/numpy_text.h"

namespace attn {

struct TextArgs {
  bool repr = false;
  std::string floatmode = "maxprec";
  PrintOptions print;
};

/// --repr, --precision, --threshold and others, in a separate group.
std::vector<Option> text_options(TextArgs& args);

/// The names of these options.
std::vector<std::string> text_option_names();

/// A tensor as NumPy's str() or repr() prints it.
std::string format_tensor(const Tensor& tensor, const TextArgs& args);

}  // namespace attn
