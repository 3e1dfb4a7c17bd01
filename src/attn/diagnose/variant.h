// Problems that a kernel may have computed instead of its job.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "attn/problem/attention_arguments.h"
#include "attn/problem/inputs.h"
#include "attn/problem/output_table.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// What a kernel does with the rows of the weights that no option expresses.
enum class RowChange {
  none,
  times_sum,          ///< exp(score), not divided by the sum
  times_shifted_sum,  ///< exp(score - the largest), not divided by the sum
  over_all_keys,      ///< divided by the sum over all keys, also hidden ones
  sink_reads_key_0,   ///< the weight of the sink is multiplied with the value of key 0
  sink_not_shifted,   ///< exp(score - the largest), divided by their sum + exp(sink)
  maximum,            ///< the largest score instead of logsumexp
  minus_maximum,      ///< logsumexp of the scores minus the largest
  // Online softmax in blocks of keys, when the largest score grows:
  sums_not_rescaled,     ///< the sums of earlier blocks are kept as they are
  context_not_rescaled,  ///< only the weighted sum of the values is
  divisor_not_rescaled,  ///< only the sum of the weights is
  // Hidden keys count:
  hidden_set,         ///< their scores are Variant::of_hidden instead of -inf
  hidden_set_biased,  ///< and biases are added to it
  hidden_added,       ///< Variant::of_hidden is added to their scores
  hidden_only,        ///< the others do not count
  twice,              ///< the softmax of the weights, those of hidden keys too, which are 0
  twice_masked,       ///< without hidden keys
};

/// How a kernel joins the contexts of the heads (B, H, L, Dv) before the output projection.
enum class Join {
  transposed,      ///< as (B, L, H * Dv)
  viewed,          ///< read as (B, L, H * Dv), without being transposed
  viewed_as_heads  ///< its memory is (B, L, H, Dv), but is read as (B, H, L, Dv)
};

/// What a kernel does in the backward pass alone.
enum class BackwardChange {
  /// Weights of the other changes of the variant, with the logsumexp and the row sums of the job.
  only,
  own_logsumexp,          ///< with `only`: the logsumexp of the variant
  own_row_sums,           ///< with `only`: row sums of the variant
  no_row_sums,            ///< dS = P dP
  double_row_sums,        ///< dS = P (dP - 2 delta)
  added_row_sums,         ///< dS = P (dP + delta)
  no_logsumexp,           ///< P = exp(x)
  maximum_as_logsumexp,   ///< P = exp(x - the largest of the row)
  logsumexp_as_base_2,    ///< P = 2^(x log2(e) - logsumexp), with the natural one
  logsumexp_from_base_2,  ///< P = exp(x - logsumexp), with that of base 2
  no_softcap,             ///< without the derivative of the softcap
  linear_softcap,         ///< its derivative 1 - y / c
  unscaled_dQ,            ///< without the scale
  unscaled_dK,
  scaled_twice_dQ,  ///< the scale applied twice
  scaled_twice_dK,
  first_of_group,  ///< of the query heads of a key/value head, only one contributes
  last_of_group,
  mean_of_group,
  tiled_groups,        ///< query head h contributes to key/value head h % G
  not_rotated_back,    ///< derivatives by the rotated queries and keys
  rotated_again,       ///< rotated by the positive angles
  first_of_broadcast,  ///< of the axes along which a bias is broadcast, only one index contributes
  last_of_broadcast,
  mean_of_broadcast,
  twice,          ///< added up twice
  chained_sinks,  ///< the derivative by sinks before they were multiplied by a factor
  of_queries,     ///< the derivative by Q, whatever is asked for
  of_keys,
  of_values,
  // Of delta:
  of_f16_context,  ///< of a context that was rounded
  of_bf16_context,
  scaled_delta,
  minus_of_logsumexp,  ///< less the derivative by logsumexp
};
using BackwardChanges = std::set<BackwardChange>;

/// Tensors and options of a job, with the changes that a hypothesis makes.
struct Variant : AttentionArguments {
  RowChange row_change = RowChange::none;
  std::size_t block = 0;                ///< keys at a time, for an online softmax
  bool starts_at_sink = false;          ///< its maximum, instead of at -inf
  std::optional<Tensor> of_heads = {};  ///< (B, H), added to the natural logsumexp of times_sum
  double of_hidden = 0;                 ///< a score or a term of it, for some changes
  Join join = Join::transposed;         ///< only of an attention_only()
  BackwardChanges backward = {};        ///< for gradients
  bool is_attention_only = false;       ///< made by attention_only()
  /// The inputs of a PagedCache (cache/pages.h), of which `tensors` has the keys and values;
  /// nullptr: there is none with a table of pages.
  std::shared_ptr<const TensorMap> cache = {};

  const Tensor* find(Input input) const { return attn::find(tensors, input); }
  bool has(Input input) const { return find(input) != nullptr; }
  void set(Input input, Tensor tensor) {
    tensors.set(std::string(name_of(input)), std::move(tensor));
  }
  void erase(std::initializer_list<Input> inputs);
};

/// The table of a tensor with scales or codes (tensor/gathered_rows.h); nullptr: it has neither.
const RowTable* table_of_stored(const Variant& variant, Input input);

/// Sets a tensor that has a table to the numbers of another of the same shape.
void set_table(Variant& variant, Input input, RowTable table);

/// Whether scores and context are those of Q, K and V themselves.
bool are_used_as_given(const Inputs& in);

/// The variant from its queries, keys and values on: Q (B, H, L, D), K (B, G, N, D), V (B, G, N,
/// Dv) and past_K, past_V (B, G, P, .) in f64, as they are after projection, normalisation and
/// rotary positions; mask, bias and dropout_mask with four axes. All its outputs have axes B and,
/// unless heads are concatenated, H. It has no seeds of gradients. Errors: data.
Variant attention_only(const Variant& given);

/// x (B, heads, N, columns) with only these items and heads, in this order.
Tensor matrices_from(const Tensor& x, const std::vector<std::size_t>& items,
                     const std::vector<std::size_t>& heads);

/// Some batch items and query heads of a problem.
struct HeadSample {
  std::vector<std::size_t> items, heads;
};

/// The number of elements of the queries, keys and values of one key/value head.
std::size_t elements_of_head(const Inputs& in);

/// Whether with_chosen_heads() knows the axes of all tensors of this attention_only().
bool can_choose_heads(const Variant& attention);

/// An attention_only() with only these items and heads, and the key/value heads that they read.
Variant with_chosen_heads(const Variant& attention, const HeadSample& sample);

/// A tensor as matrices (B, heads, rows, columns), of which any axis may have length 1.
struct Matrices {
  std::size_t B = 1, H = 1, R = 1, C = 1;
  std::size_t stride_B = 0, stride_H = 0, stride_R = 0, stride_C = 0;

  std::size_t at(std::size_t b, std::size_t h, std::size_t r, std::size_t c) const {
    return b * stride_B + h * stride_H + r * stride_R + c * stride_C;
  }
};

/// `axes` are the letters of `shape`, or empty if they are unknown; packed heads are split into
/// `heads`.
Matrices matrices_of(const Shape& shape, const AxisList& axes, std::size_t heads);

/// The view of matrices (B, H, R, C) in row-major order.
Matrices contiguous(const Shape& shape);

/// These rows of a tensor with this view, (B, H, rows, C), f64.
Tensor taken(const Tensor& tensor, const Matrices& view, const std::vector<std::size_t>& rows);

/// All rows; without a copy if they are in this order.
Tensor taken(const Tensor& tensor, const Matrices& view);

}  // namespace attn
