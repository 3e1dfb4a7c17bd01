// The table of inputs: one row for each tensor that a job can provide.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/problem/axis.h"
#include "attn/problem/table_lookup.h"

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
  prefix_lengths,
  tree_parents,
  blocks,
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
  v_global_scale,
  Q_nope,
  Q_pe,
  CKV,
  K_pe,
  CKV_pages,
  K_pe_pages,
  k_pe_scale,
  W_UV,
  index_counts
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
  bool is_of_values = false;            ///< scores and weights do not depend on it
};

/// The rows, in the order of the enumerators.
inline constexpr auto kInputs = [] {
  using enum Axis;
  using enum InputKind;
  // For what few rows have.
  const auto with = [](InputRow row, Input companion) {
    row.companion = companion;
    return row;
  };
  const auto with_own_axes = [](InputRow row) {
    row.has_own_axes = true;
    return row;
  };
  const auto without_gradient = [](InputRow row) {
    row.has_gradient = false;
    return row;
  };
  const auto of_values = [](InputRow row) {
    row.is_of_values = true;
    return row;
  };
  return std::to_array<InputRow>({
      {Input::W_Q, "W_Q", {M, HD}},
      {Input::W_K, "W_K", {Mk, GD}},
      of_values({Input::W_V, "W_V", {Mv, GDv}}),
      of_values({Input::W_O, "W_O", {HDv, Mo}}),
      {Input::b_Q, "b_Q", {HD}},
      {Input::b_K, "b_K", {GD}},
      of_values({Input::b_V, "b_V", {GDv}}),
      of_values(with({Input::b_O, "b_O", {Mo}}, Input::W_O)),
      {Input::embeddings, "embeddings", {B, L, M}},
      {Input::memory, "memory", {B, N, Mk}},
      {Input::Q, "Q", {B, L, HD}},
      {Input::K, "K", {B, N, GD}},
      of_values({Input::V, "V", {B, N, GDv}}),
      {Input::mask, "mask", {B, H, L, S}, mask},
      with({Input::past_K, "past_K", {B, G, P, Dk}}, Input::past_V),
      of_values(with({Input::past_V, "past_V", {B, G, P, Dv}}, Input::past_K)),
      {Input::query_lengths, "query_lengths", {B}, index},
      {Input::key_lengths, "key_lengths", {B}, index},
      {Input::key_starts, "key_starts", {B}, index},
      {Input::prefix_lengths, "prefix_lengths", {}, index},
      {Input::tree_parents, "tree_parents", {}, index},
      {Input::blocks, "blocks", {}, index},
      {Input::documents, "documents", {B, L}, index},
      {Input::key_documents, "key_documents", {B, S}, index},
      {Input::cu_seqlens_q, "cu_seqlens_q", {}, index},
      {Input::cu_seqlens_k, "cu_seqlens_k", {}, index},
      with_own_axes(with({Input::bias_K, "bias_K", {GD}}, Input::bias_V)),
      of_values(with_own_axes(with({Input::bias_V, "bias_V", {GDv}}, Input::bias_K))),
      {Input::q_norm, "q_norm", {D}},
      {Input::k_norm, "k_norm", {Dk}},
      with({Input::cos, "cos", {B, L, angles}, table}, Input::sin),
      with({Input::sin, "sin", {B, L, angles}, table}, Input::cos),
      {Input::position_ids, "position_ids", {B, L}, index},
      {Input::key_position_ids, "key_position_ids", {B, N}, index},
      {Input::alibi_slopes, "alibi_slopes", {B, H}, table},
      {Input::relative_bias, "relative_bias", {buckets, H}, table},
      with_own_axes({Input::sinks, "sinks", {H}, table}),
      {Input::W_score, "W_score", {D, Dk}},
      {Input::W_score_Q, "W_score_Q", {D, A}},
      {Input::W_score_K, "W_score_K", {Dk, A}},
      {Input::b_score, "b_score", {A}},
      {Input::v_score, "v_score", {A}},
      {Input::g_score, "g_score", {}},
      of_values(with({Input::memory_V, "memory_V", {B, N, Mv}}, Input::memory)),
      {Input::key_mask, "key_mask", {B, S}, mask},
      {Input::q_norm_bias, "q_norm_bias", {D}},
      {Input::k_norm_bias, "k_norm_bias", {Dk}},
      without_gradient(
          with({Input::short_factor, "rotary.short_factor", {angles}, table}, Input::long_factor)),
      without_gradient(
          with({Input::long_factor, "rotary.long_factor", {angles}, table}, Input::short_factor)),
      with_own_axes({Input::head_scale, "head_scale", {H}, table}),
      of_values({Input::W_gate, "W_gate", {M, HDv}}),
      of_values(with({Input::b_gate, "b_gate", {HDv}}, Input::W_gate)),
      of_values({Input::gate, "gate", {B, L, HDv}}),
      {Input::bias, "bias", {B, H, L, S}},
      with_own_axes({Input::input_norm_weight, "input_norm_weight", {M}, table}),
      with_own_axes({Input::input_norm_bias, "input_norm_bias", {M}, table}),
      {Input::dropout_mask, "dropout_mask", {B, H, L, S}, flag},
      {Input::token_ids, "token_ids", {B, S}, index},
      {Input::grad_context, "grad_context", {B, L, HDv}, seed},
      {Input::grad_output, "grad_output", {B, L, Mo}, seed},
      {Input::grad_weights, "grad_weights", {B, H, L, S}, seed},
      {Input::grad_logsumexp, "grad_logsumexp", {B, H, L}, seed},
      without_gradient(with({Input::K_pages, "K_pages", {}}, Input::V_pages)),
      of_values(without_gradient(with({Input::V_pages, "V_pages", {}}, Input::K_pages))),
      without_gradient({Input::KV_pages, "KV_pages", {}}),
      {Input::block_table, "block_table", {}, index},
      with({Input::kv_indptr, "kv_indptr", {}, index}, Input::kv_indices),
      with({Input::kv_indices, "kv_indices", {}, index}, Input::last_page_len),
      with({Input::last_page_len, "last_page_len", {}, index}, Input::kv_indptr),
      {Input::key_indices, "key_indices", {}, index},
      without_gradient({Input::q_scale, "q_scale", {}, table}),
      without_gradient({Input::q_zero_point, "q_zero_point", {}, table}),
      without_gradient({Input::q_global_scale, "q_global_scale", {}, table}),
      without_gradient({Input::k_scale, "k_scale", {}, table}),
      without_gradient({Input::k_zero_point, "k_zero_point", {}, table}),
      without_gradient({Input::k_global_scale, "k_global_scale", {}, table}),
      of_values(without_gradient({Input::v_scale, "v_scale", {}, table})),
      of_values(without_gradient({Input::v_zero_point, "v_zero_point", {}, table})),
      of_values(without_gradient({Input::v_global_scale, "v_global_scale", {}, table})),
      without_gradient(with({Input::Q_nope, "Q_nope", {}}, Input::Q_pe)),
      without_gradient(with({Input::Q_pe, "Q_pe", {}}, Input::Q_nope)),
      without_gradient(with({Input::CKV, "CKV", {}}, Input::K_pe)),
      without_gradient(with({Input::K_pe, "K_pe", {}}, Input::CKV)),
      without_gradient(with({Input::CKV_pages, "CKV_pages", {}}, Input::K_pe_pages)),
      without_gradient(with({Input::K_pe_pages, "K_pe_pages", {}}, Input::CKV_pages)),
      without_gradient({Input::k_pe_scale, "k_pe_scale", {}, table}),
      of_values({Input::W_UV, "W_UV", {H, Dv, Du}}),
      with({Input::index_counts, "index_counts", {}, index}, Input::key_indices),
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

/// In front of the names of the tables of problem/mask_rule.h, which are no inputs of the formula:
/// "mask_tables.image".
inline constexpr std::string_view kMaskTables = "mask_tables.";

/// nullopt if no input has this name.
inline std::optional<Input> input_named(std::string_view name) { return find_by_name<Input>(name); }

/// In the order of the table.
const std::vector<std::string>& input_names();

}  // namespace attn
