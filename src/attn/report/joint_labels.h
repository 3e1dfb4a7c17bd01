// The labels of a page of two results, whose tokens may differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/report/page.h"

namespace attn {

struct JointLabels {
  std::vector<std::string> labels;       ///< "tired / wide" where those of two results differ
  std::optional<std::size_t> different;  ///< the first such label
};

/// Numbers give way to tokens: they are the labels of results without tokens.
JointLabels joint_row_labels(const std::vector<PageSet>& sets);
JointLabels joint_column_labels(const std::vector<PageSet>& sets);

}  // namespace attn
