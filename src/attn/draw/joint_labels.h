// The labels of a page of two results, whose tokens may differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/draw/page.h"

namespace attn {

struct JointLabels {
  std::vector<std::string> labels;       ///< "tired / wide" where those of two results differ
  std::optional<std::size_t> different;  ///< the first such label
};

/// A label that is only a number, as of a result without tokens, is replaced by the other token.
JointLabels joint_row_labels(const std::vector<PageSet>& sets);
JointLabels joint_column_labels(const std::vector<PageSet>& sets);

}  // namespace attn
