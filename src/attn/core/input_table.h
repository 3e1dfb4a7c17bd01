// The table of inputs: one row for each tensor that a job can provide.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/core/axis.h"
#include "attn/core/table_lookup.h"

namespace attn {

/// In the order in which random tensors are drawn. Add new ones at the end.
enum class Input : unsigned char {
  W_Q,
  W_K,
  W_V,
  W_O,
  b_Q,
  b_K,
  b_V,
  b_O,
  embeddings,
  memory,
  Q,
  K,
  V,
  mask,
  past_K,
  past_V,
  query_lengths,
  key_lengths,
  key_starts,
  documents,
  key_documents,
  cu_seqlens_q,
  cu_seqlens_k,
  bias_K,
  bias_V,
  q_norm,
  k_norm,
  cos,
  sin,
  position_ids,
  key_position_ids,
  alibi_slopes,
  relative_bias,
  sinks,
  W_score,
  W_score_Q,
  W_score_K,
  b_score,
  v_score,
  g_score,
  memory_V,
  key_mask,
  q_norm_bias,
  k_norm_bias,
  short_factor,
  long_factor,
  head_scale,
  W_gate,
  b_gate,
  gate,
  bias,
  input_norm_weight,
  input_norm_bias,
  dropout_mask,
  token_ids,
  grad_context,
  grad_output,
  grad_weights,
  grad_logsumexp,
  K_pages,
  V_pages,
  KV_pages,
  block_table,
  kv_indptr,
  kv_indices,
  last_page_len,
  key_indices,
  q_scale,
  q_zero_point,
  q_global_scale,
  k_scale,
  k_zero_point,
  k_global_scale,
  v_scale,
  v_zero_point,
  v_global_scale
};

/// What an input's elements are.
enum class InputKind {
  factor,  ///< a number in the computation; these determine the result's dtype
  table,   ///< numbers whose dtype does not affect the result's
  mask,    ///< booleans, or numbers that are added
  flag,    ///< 0 or 1, as booleans or in any other dtype, which does not affect the result's
  index,   ///< whole numbers: lengths, documents, positions
  seed,    ///< the derivative of a loss by an output, from which gradients are computed
};

struct InputRow {
  Input input;
  std::string_view name;  ///< the key in a job
  AxisList axes;          ///< with a batch and packed heads; the job may have fewer
  InputKind kind = InputKind::factor;
  std::optional<Input> companion = {};  ///< an input that has to be given with it
  bool has_own_axes = false;            ///< its shape is that of `axes` in every job
  bool has_gradient = true;             ///< if it holds floats, and factors, tables or a mask
};

/// The rows, in the order of the enumerators.
inline constexpr auto kInputs = [] {
  using enum Axis;
  using enum InputKind;
  return std::to_array<InputRow>({
      {.input = Input::W_Q, .name = "W_Q", .axes = {M, HD}},
      {.input = Input::W_K, .name = "W_K", .axes = {Mk, GD}},
      {.input = Input::W_V, .name = "W_V", .axes = {Mv, GDv}},
      {.input = Input::W_O, .name = "W_O", .axes = {HDv, Mo}},
      {.input = Input::b_Q, .name = "b_Q", .axes = {HD}},
      {.input = Input::b_K, .name = "b_K", .axes = {GD}},
      {.input = Input::b_V, .name = "b_V", .axes = {GDv}},
      {.input = Input::b_O, .name = "b_O", .axes = {Mo}, .companion = Input::W_O},
      {.input = Input::embeddings, .name = "embeddings", .axes = {B, L, M}},
      {.input = Input::memory, .name = "memory", .axes = {B, N, Mk}},
      {.input = Input::Q, .name = "Q", .axes = {B, L, HD}},
      {.input = Input::K, .name = "K", .axes = {B, N, GD}},
      {.input = Input::V, .name = "V", .axes = {B, N, GDv}},
      {.input = Input::mask, .name = "mask", .axes = {B, H, L, S}, .kind = mask},
      {.input = Input::past_K, .name = "past_K", .axes = {B, G, P, Dk}, .companion = Input::past_V},
      {.input = Input::past_V, .name = "past_V", .axes = {B, G, P, Dv}, .companion = Input::past_K},
      {.input = Input::query_lengths, .name = "query_lengths", .axes = {B}, .kind = index},
      {.input = Input::key_lengths, .name = "key_lengths", .axes = {B}, .kind = index},
      {.input = Input::key_starts, .name = "key_starts", .axes = {B}, .kind = index},
      {.input = Input::documents, .name = "documents", .axes = {B, L}, .kind = index},
      {.input = Input::key_documents, .name = "key_documents", .axes = {B, S}, .kind = index},
      {.input = Input::cu_seqlens_q, .name = "cu_seqlens_q", .axes = {}, .kind = index},
      {.input = Input::cu_seqlens_k, .name = "cu_seqlens_k", .axes = {}, .kind = index},
      {.input = Input::bias_K,
       .name = "bias_K",
       .axes = {GD},
       .companion = Input::bias_V,
       .has_own_axes = true},
      {.input = Input::bias_V,
       .name = "bias_V",
       .axes = {GDv},
       .companion = Input::bias_K,
       .has_own_axes = true},
      {.input = Input::q_norm, .name = "q_norm", .axes = {D}},
      {.input = Input::k_norm, .name = "k_norm", .axes = {Dk}},
      {.input = Input::cos,
       .name = "cos",
       .axes = {B, L, angles},
       .kind = table,
       .companion = Input::sin},
      {.input = Input::sin,
       .name = "sin",
       .axes = {B, L, angles},
       .kind = table,
       .companion = Input::cos},
      {.input = Input::position_ids, .name = "position_ids", .axes = {B, L}, .kind = index},
      {.input = Input::key_position_ids, .name = "key_position_ids", .axes = {B, N}, .kind = index},
      {.input = Input::alibi_slopes, .name = "alibi_slopes", .axes = {B, H}, .kind = table},
      {.input = Input::relative_bias, .name = "relative_bias", .axes = {buckets, H}, .kind = table},
      {.input = Input::sinks, .name = "sinks", .axes = {H}, .kind = table, .has_own_axes = true},
      {.input = Input::W_score, .name = "W_score", .axes = {D, Dk}},
      {.input = Input::W_score_Q, .name = "W_score_Q", .axes = {D, A}},
      {.input = Input::W_score_K, .name = "W_score_K", .axes = {Dk, A}},
      {.input = Input::b_score, .name = "b_score", .axes = {A}},
      {.input = Input::v_score, .name = "v_score", .axes = {A}},
      {.input = Input::g_score, .name = "g_score", .axes = {}},
      {.input = Input::memory_V,
       .name = "memory_V",
       .axes = {B, N, Mv},
       .companion = Input::memory},
      {.input = Input::key_mask, .name = "key_mask", .axes = {B, S}, .kind = mask},
      {.input = Input::q_norm_bias, .name = "q_norm_bias", .axes = {D}},
      {.input = Input::k_norm_bias, .name = "k_norm_bias", .axes = {Dk}},
      {.input = Input::short_factor,
       .name = "rotary.short_factor",
       .axes = {angles},
       .kind = table,
       .companion = Input::long_factor,
       .has_gradient = false},
      {.input = Input::long_factor,
       .name = "rotary.long_factor",
       .axes = {angles},
       .kind = table,
       .companion = Input::short_factor,
       .has_gradient = false},
      {.input = Input::head_scale,
       .name = "head_scale",
       .axes = {H},
       .kind = table,
       .has_own_axes = true},
      {.input = Input::W_gate, .name = "W_gate", .axes = {M, HDv}},
      {.input = Input::b_gate, .name = "b_gate", .axes = {HDv}, .companion = Input::W_gate},
      {.input = Input::gate, .name = "gate", .axes = {B, L, HDv}},
      {.input = Input::bias, .name = "bias", .axes = {B, H, L, S}},
      {.input = Input::input_norm_weight,
       .name = "input_norm_weight",
       .axes = {M},
       .kind = table,
       .has_own_axes = true},
      {.input = Input::input_norm_bias,
       .name = "input_norm_bias",
       .axes = {M},
       .kind = table,
       .has_own_axes = true},
      {.input = Input::dropout_mask, .name = "dropout_mask", .axes = {B, H, L, S}, .kind = flag},
      {.input = Input::token_ids, .name = "token_ids", .axes = {B, S}, .kind = index},
      {.input = Input::grad_context, .name = "grad_context", .axes = {B, L, HDv}, .kind = seed},
      {.input = Input::grad_output, .name = "grad_output", .axes = {B, L, Mo}, .kind = seed},
      {.input = Input::grad_weights, .name = "grad_weights", .axes = {B, H, L, S}, .kind = seed},
      {.input = Input::grad_logsumexp, .name = "grad_logsumexp", .axes = {B, H, L}, .kind = seed},
      {.input = Input::K_pages,
       .name = "K_pages",
       .axes = {},
       .companion = Input::V_pages,
       .has_gradient = false},
      {.input = Input::V_pages,
       .name = "V_pages",
       .axes = {},
       .companion = Input::K_pages,
       .has_gradient = false},
      {.input = Input::KV_pages, .name = "KV_pages", .axes = {}, .has_gradient = false},
      {.input = Input::block_table, .name = "block_table", .axes = {}, .kind = index},
      {.input = Input::kv_indptr,
       .name = "kv_indptr",
       .axes = {},
       .kind = index,
       .companion = Input::kv_indices},
      {.input = Input::kv_indices,
       .name = "kv_indices",
       .axes = {},
       .kind = index,
       .companion = Input::last_page_len},
      {.input = Input::last_page_len,
       .name = "last_page_len",
       .axes = {},
       .kind = index,
       .companion = Input::kv_indptr},
      {.input = Input::key_indices, .name = "key_indices", .axes = {}, .kind = index},
      {.input = Input::q_scale,
       .name = "q_scale",
       .axes = {},
       .kind = table,
       .has_gradient = false},
      {.input = Input::q_zero_point,
       .name = "q_zero_point",
       .axes = {},
       .kind = table,
       .has_gradient = false},
      {.input = Input::q_global_scale,
       .name = "q_global_scale",
       .axes = {},
       .kind = table,
       .has_gradient = false},
      {.input = Input::k_scale,
       .name = "k_scale",
       .axes = {},
       .kind = table,
       .has_gradient = false},
      {.input = Input::k_zero_point,
       .name = "k_zero_point",
       .axes = {},
       .kind = table,
       .has_gradient = false},
      {.input = Input::k_global_scale,
       .name = "k_global_scale",
       .axes = {},
       .kind = table,
       .has_gradient = false},
      {.input = Input::v_scale,
       .name = "v_scale",
       .axes = {},
       .kind = table,
       .has_gradient = false},
      {.input = Input::v_zero_point,
       .name = "v_zero_point",
       .axes = {},
       .kind = table,
       .has_gradient = false},
      {.input = Input::v_global_scale,
       .name = "v_global_scale",
       .axes = {},
       .kind = table,
       .has_gradient = false},
  });
}();

constexpr const auto& table_of(Input) { return kInputs; }
static_assert(is_in_order(kInputs, &InputRow::input));

/// Whether a job may ask for the derivative of a loss by the input.
constexpr bool has_gradient(Input input) {
  const InputKind kind = row_of(input).kind;
  return row_of(input).has_gradient && kind != InputKind::flag && kind != InputKind::index &&
         kind != InputKind::seed;
}

/// In front of the names of the tables of core/mask_rule.h, which are no inputs of the formula:
/// "mask_tables.image".
inline constexpr std::string_view kMaskTables = "mask_tables.";

/// nullopt if no input has this name.
inline std::optional<Input> input_named(std::string_view name) { return find_by_name<Input>(name); }

/// In the order of the table.
const std::vector<std::string>& input_names();

}  // namespace attn
