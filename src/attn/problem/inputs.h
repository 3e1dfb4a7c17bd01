// A problem with checked shapes, made from the user's tensors and options.
//
// All shapes, dtypes and options are checked here. All problems are reported together
// (Error(data)); the subject of each is a tensor or an option: "W_Q: expected (3, *) to match
// embeddings (4, 3), found (2, 3)".
//
// A problem is given in one of two forms:
//   embeddings (L, M) or (B, L, M), optionally memory (S, Mk) or (B, S, Mk) for keys and values,
//   memory_V (S, Mv) or (B, S, Mv) for values only, W_Q, W_K, W_V (default: identity) and b_Q, b_K,
//   b_V;
//   Q and K, and V (default: K), all (L, D), all (B, L, D) or all (B, H, L, D).
// With a batch, matrices (S, *) as K, V, memory and memory_V are shared by all its items.
// Both forms: W_O, b_O, a mask, a bias, a dropout mask, past_K and past_V (shaped as the outputs
// keys and values, or (B, G, P, D)), lengths and documents (problem/token_positions.h), and tensors
// of options (problem/shapes.h). 1-D queries are an error. Integers and booleans (0 and 1) become
// int64, floats the dtype of the computation. In a mask, booleans and the integers 0 and 1 mark
// keys; floats, even 0.0 and 1.0, are added.
//
// B, L, S and Dv may be 0, and so may D unless scores are divided by sqrt(D). With S = 0 no query
// sees a key.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/base/shared_vector.h"
#include "attn/base/slots.h"
#include "attn/kernel/problem.h"
#include "attn/problem/attention_arguments.h"
#include "attn/problem/input_table.h"
#include "attn/problem/score_scale.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// The documents and positions of the queries and keys of a batch item (problem/token_positions.h).
struct TokenPositions {
  static constexpr std::int64_t kPadding = -1;
  struct Side {
    std::size_t count = 0;              ///< of all tokens
    std::size_t begin = 0, length = 0;  ///< tokens before the one and from the other on are padding
    std::int64_t offset = 0;            ///< without lists: added to a token's index
    std::vector<std::int64_t> documents;  ///< equal ids: one document; kPadding: none; empty: one
    std::vector<std::int64_t> positions;  ///< in the document; for a query, plus the offset

    /// Of each document: how many first keys causality does not hide. Empty: none.
    std::vector<std::int64_t> prefixes = {};

    std::int64_t prefix(std::int64_t document) const {
      const auto index = static_cast<std::size_t>(document);
      return index < prefixes.size() ? prefixes[index] : 0;
    }
    std::int64_t document(std::size_t token) const {
      return documents.empty() ? (token < begin ? kPadding : 0) : documents[token];
    }
    std::int64_t position(std::size_t token) const {
      return positions.empty() ? static_cast<std::int64_t>(token) + offset : positions[token];
    }
    /// The document, or kPadding.
    std::int64_t segment(std::size_t token) const {
      return token < length ? document(token) : kPadding;
    }
  };
  Side queries, keys;  ///< L and P + N
};

class BiasRule;
class KeyLists;
class MaskRule;

/// A checked problem. Tensors have all axes, with length 1 for those that the user's tensors lack;
/// elements are int64 or of dtype `compute`. Dk is D unless the score function has weights between
/// queries and keys.
struct Inputs : AttentionArguments {
  /// The given tensors. Their shapes are those of problem/input_table.h, except:
  ///   embeddings (B, L, M), memory (B, N, Mk), memory_V (B, N, Mv)
  ///   Q (B, H, L, D), K (B, G, N, Dk), V (B, G, N, Dv), gate (B, H, L, Dv)
  ///   past_K (B, G, P, Dk), past_V (B, G, P, Dv): precede new keys
  ///   bias_K (B, G, 1, Dk), bias_V (B, G, 1, Dv): appended
  ///   mask, bias: each axis 1 or of (B, H, L, P + N); key_mask (B or 1, 1, 1, P + N)
  ///   dropout_mask: boolean, true: kept; each axis 1 or of (B, H, L, S)
  ///   input_norm_weight, input_norm_bias (1, M); q_norm, q_norm_bias (H or 1, D); k_norm,
  ///     k_norm_bias (G or 1, Dk); the weights include norm_offset
  ///   cos, sin (positions, r / 2) or (B or 1, N, r / 2)
  ///   alibi_slopes (B or 1, H), also those of the option alibi
  ///   token_ids (B or 1, P + N), int64
  ///   key_indices (), if what key_lists counts is to be added to the scores
  /// Those of other options, such as lengths and documents, are in the members below instead.
  const std::optional<Tensor>& operator[](Input input) const { return tensors_[input]; }
  std::optional<Tensor>& operator[](Input input) { return tensors_[input]; }

  bool projected = false;                 ///< from embeddings, rather than Q, K and V
  std::optional<Tensor> rotary_divisors;  ///< (r / 2), f64: the factors of longrope that apply
  Tensor query_positions, key_positions;  ///< (B or 1, L), (B or 1, N); int64, for rotary

  SharedVector<TokenPositions> token_positions;  ///< for each batch item, or one for all
  std::shared_ptr<const BiasRule> bias_rule;     ///< nullptr: none
  std::vector<std::string> rules;             ///< those of mask_rule and of problem/named_masks.h
  std::shared_ptr<const MaskRule> mask_rule;  ///< all of them; nullptr: none
  std::shared_ptr<const KeyLists> key_lists;  ///< of key_indices; nullptr: none
  /// Of a part of a larger problem: its first batch item and query head, for these three.
  std::size_t first_item = 0, first_head = 0;
  /// For each entry of token_positions, a range for each of `rows`; nullopt if the keys that some
  /// query sees by its position are not contiguous, or differ between heads.
  std::optional<SharedVector<kernel::KeyRange>> key_ranges;  ///< problem/mask.h
  ScoreScale scale;

  std::size_t B = 1, H = 1, G = 1, L = 0, S = 0, D = 0, Dv = 0;
  /// S = P + N + E: past keys, new ones, and appended ones that every query sees (bias_K,
  /// zero_key).
  std::size_t P = 0, N = 0, E = 0;
  /// Whether past_K belongs to a memory. Positions of queries then do not count the past.
  bool past_of_memory = false;
  std::int64_t last_position = 0;  ///< the largest of query_positions and key_positions
  DType compute = DType::f64;      ///< f32 or f64: of all arithmetic on floats
  DType result = DType::f64;       ///< of float outputs: compute, f16 or bf16
  /// Queries and keys, or values, are computed in float32 from numbers in bfloat16 that nothing
  /// changes.
  bool has_bf16_factors = false, has_bf16_values = false;
  SharedVector<std::size_t> rows;  ///< indices of the queries to compute
  /// If other processes compute other rows: replaces sum_over_queries() (attention/reductions.h).
  std::function<Tensor(const Tensor& weights)> sum_over_queries;
  /// If other processes compute these rows, too.
  const kernel::KeyPart* key_part = nullptr;
  bool batched = false;     ///< whether inputs and results have a batch axis
  bool with_heads = false;  ///< whether results have a head axis
  bool packed = true;       ///< context is (B, L, H*Dv), not (B, H, L, Dv)

 private:
  Slots<Input, kInputs.size(), Tensor> tensors_;
};

/// Whether sinks count in the weights but not in the output logsumexp.
inline bool leaves_sinks_out(const Inputs& in) { return in[Input::sinks] && !in.options.lse_sinks; }

/// An upper bound on the bytes that make_inputs() takes for the tables of rules, trees and blocks.
std::size_t bytes_of_rule_tables(const TensorMap& tensors);

/// The same with the copies of tensors that have other dtypes than the computation; without
/// `of_all`, except tensors that may stay as they are (may_stay_narrow() in problem/shapes.h).
std::size_t bytes_of_conversions(const AttentionArguments& given, bool of_all);

/// Keeps the tensors and the options. Errors: data, with all problems.
Inputs make_inputs(const AttentionArguments& given);

/// Frees the tensors of a problem and keeps their shapes and dtypes for replace_numbers(), without
/// which `in` must not be used. Returns false and changes nothing if make_inputs() reads more of
/// one of the tensors: of masks, biases, tables, indices, uint64 and gathered rows.
bool release_numbers(Inputs& in);

/// Makes `in` the result of make_inputs(given) after release_numbers(), if only numbers differ:
/// if the options are equal, as are the names, dtypes and shapes of the tensors, and
/// release_numbers() can free these, too. Otherwise returns false and changes nothing.
bool replace_numbers(Inputs& in, const AttentionArguments& given);

}  // namespace attn
