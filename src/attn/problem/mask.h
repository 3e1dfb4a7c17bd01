// Masks: which keys each query sees by its position (documents, lengths, causality, window, mask
// rule, lists of keys), masks that hide more keys, and biases of scores.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "attn/problem/input_table.h"
#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// For each batch item, or once if in.token_positions has one entry for all of them, a range for
/// each of in.rows. nullopt if the keys that a query sees are not contiguous: documents may be
/// interleaved, appended keys may follow keys that are hidden, and a mask rule or a list may show
/// any keys.
/// nullopt, too, if heads differ. Errors: data, as RuleRows.
std::optional<std::vector<kernel::KeyRange>> key_ranges(const Inputs& in);

/// Boolean (B or 1, H or 1, R, S): in.key_ranges as a mask, or the same computed directly if there
/// are none. Errors: data, as RuleRows.
Tensor visible_by_position(const Inputs& in);
Shape shape_of_visible_by_position(const Inputs& in);

/// Whether this query is beyond the length of its batch item.
bool is_padding(const Inputs& in, std::size_t batch_item, std::size_t query);

/// The keys that each query sees. Masked scores do not determine this, because a visible score can
/// be -inf.
struct VisibleKeys {
  Tensor keys;     ///< (B, H, R, S), boolean
  Tensor padding;  ///< (B, R), boolean: beyond its batch item's length; EmptyRows does not apply
};

/// Boolean (B, H, R, S), or with 1 for B or H if batch items or heads do not differ: query i sees
/// key j when the boolean mask, the additive mask and bias (not
/// -inf), causality, the window, documents and lengths all allow it; appended keys are always
/// visible.
Tensor visible_keys(const Inputs& in);
Shape shape_of_visible_keys(const Inputs& in);

/// The inputs of which biases of the scores are made, in the order in which they are added.
inline constexpr std::array kBiasInputs = {Input::bias,          Input::mask,
                                           Input::key_mask,      Input::alibi_slopes,
                                           Input::relative_bias, Input::key_indices};
/// Whether the tensor of one of these is added: a mask may be boolean instead.
inline bool is_added(Input input, const Tensor& tensor) {
  return row_of(input).kind != InputKind::mask || is_float(tensor.dtype());
}

/// One of kBiasInputs.
template <class Value>
struct GivenBias {
  Input input;
  Value value;
};
template <class Value>
using Biases = std::vector<GivenBias<Value>>;

/// Masked scores (B, H, R, S) and what was masked. The bias rule and the biases are added, and
/// then, with SoftcapOrder::after_mask, the softcap is applied. Hidden scores are -inf, even if
/// they were NaN. `scaled` (B, H, R, S) has the rows in.rows of L queries.
std::pair<Tensor, VisibleKeys> mask_scores(const Tensor& scaled, const Biases<Tensor>& biases,
                                           const Inputs& in);

/// What mask_scores() adds for one of the biases: it broadcasts to (B, H, R, S).
Tensor bias_of_scores(const GivenBias<Tensor>& bias, const Inputs& in);

/// What mask_scores() adds to the scaled scores.
struct BiasMagnitudes {
  Tensor sums;  ///< (B, H, R, S), f64: the sum of the magnitudes of all biases that are finite
  std::size_t count;  ///< how many biases there are
};
BiasMagnitudes bias_magnitudes(const Biases<Tensor>& biases, const Inputs& in);

/// Whether queries have rows of their own in a mask, of which fitted_mask() takes in.rows.
bool takes_rows(const Tensor& mask, const Inputs& in);

/// The rows of a mask for in.rows, with columns for appended keys, which every query sees.
Tensor fitted_mask(const Tensor& mask, const Inputs& in, MaskPolarity polarity);

}  // namespace attn
