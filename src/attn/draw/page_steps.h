// What a page stores so that its panel "why this weight" (draw/page/why.mjs) can compute how each
// weight came about: queries, keys and values, and the scores after biases and masks if there are
// any. The script elements are, little-endian and in 32 or 64 bits:
//   steps-0-P   of the P-th matrix: the drawn queries (L, D), then their masked scores (L, S), then
//               bytes (L, S): 0 for weights that dropout sets to 0
//   keyed-0-G   of the G-th matrix of keys: keys (S, D), then values (S, Dv)
//   hiding-0-M  of the M-th matrix of HidingOptions: a byte for each cell (L, S)
// Heads that share keys, or what hides them, share the element of these.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "attn/draw/heat_map.h"
#include "attn/kernel/thread_pool.h"
#include "attn/problem/hiding_options.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The matrices of queries, keys or values: (..., H, L, D), or (..., L, H, D).
struct HeadVectors {
  Tensor tensor;
  std::size_t heads = 1;      ///< the length of the axis of heads
  bool heads_inside = false;  ///< it follows the axis of queries or keys
  std::size_t count() const;  ///< queries or keys of a matrix
  std::size_t width() const { return tensor.shape().back(); }
  std::size_t matrices() const;
  /// Row `i` of a matrix: `matrix` counts heads first.
  std::vector<double> row(std::size_t matrix, std::size_t i) const;
};

/// The weights are the softmax over the keys (attention/normalise.h) of products or cosines of
/// queries and keys, after the options `scale`, `softcap` and `temperature`.
struct WeightSteps {
  Options options;
  HeadVectors queries, keys;
  std::optional<HeadVectors> values;
  std::string note;              ///< about the context, or why it is missing; may be ""
  std::optional<Tensor> masked;  ///< masked scores of all matrices, if something is added to scores
  std::optional<Tensor> dropped;   ///< weights after dropout of all matrices, if there is dropout
  std::vector<std::string> added;  ///< what: keys of the job
  std::vector<std::string> hides;  ///< what hides keys: keys of the job
  std::optional<HidingOptions> hiding;  ///< which of them hide each key, if there are several
  /// Of each head; empty: none. Head scales are finite, sinks finite or -inf.
  std::vector<double> sinks, head_scales;

  std::size_t heads() const { return queries.heads; }
  /// Of a matrix of weights.
  std::size_t keys_of(std::size_t matrix) const;
  /// The matrix of `hiding`.
  std::size_t hiding_of(std::size_t matrix) const;
};

/// The JSON object about them, for the drawn matrices.
std::string steps_json(const WeightSteps& steps, const HeatMap& map);

/// An upper bound on the bytes of the elements, before they are compressed.
std::size_t raw_bytes_of_steps(const WeightSteps& steps, const HeatMap& map);

/// The script elements; nullopt if they have more than `max_bytes`.
std::optional<std::string> steps_elements(const WeightSteps& steps, const HeatMap& map,
                                          std::size_t max_bytes, kernel::ThreadPool& pool);

}  // namespace attn
