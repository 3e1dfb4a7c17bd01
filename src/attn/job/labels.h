// What the axes of the tensors in a result mean: the members `axes` and `layers` of made_by.
//
//   {"axes": {"weights": ["batch", "query", "key"]}, "layers": [0, 4]}
//
// `axes` has a word for each axis of a tensor, outermost first: layer, batch, head, query, key,
// token, embedding or feature. A tensor has no entry if its axes are those that readers assume from
// its name: the last ones of its row in problem/output_table.h or problem/input_table.h, after an
// axis of layers if it has one more; contexts, queries, keys and values with four axes have heads
// as in layout bhld. `layers` has the numbers of the layers of a model whose results were joined.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attn/attention/plan.h"
#include "attn/io/json_write.h"
#include "attn/job/recorded_positions.h"
#include "attn/problem/axis.h"

namespace attn {

inline constexpr std::string_view kAxesMember = "axes", kLayersMember = "layers";
/// The members of made_by that readers of tensors need.
inline constexpr std::array<std::string_view, 3> kLabelMembers = {kAxesMember, kLayersMember,
                                                                  kPositionsMember};

struct Labels {
  std::vector<std::string> axes;     ///< a word for each axis; empty: not known
  std::vector<std::int64_t> layers;  ///< of an axis of layers; empty: 0, 1, ...
};

/// Adds the members that a result with these outputs needs. `layers`: of joined results.
void record_labels(const Plan& plan, const std::vector<std::int64_t>& layers, JsonObject& made_by);

/// The labels of a tensor with this name and shape in a result, recorded or assumed.
Labels labels_in(const Json& made_by, const std::string& name, const Shape& shape);

/// A letter for each axis, those of the words in record_labels(); any width for features and
/// embeddings, and new keys for tokens.
AxisList letters_of(const Labels& labels);

}  // namespace attn
