// Changes of tensors that hypotheses share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attn/base/number_text.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/diagnose/variant.h"
#include "attn/problem/inputs.h"

namespace attn {

/// Numbers in claims and ids.
inline std::string in_words(std::int64_t number) { return std::to_string(number); }
inline std::string in_words(std::size_t number) { return std::to_string(number); }
inline std::string in_words(double number) { return python_repr(number); }

inline constexpr auto kProjection = Hypothesis::Stage::projection;
inline constexpr auto kAttention = Hypothesis::Stage::attention;
inline constexpr auto kAllHeads = Hypothesis::Stage::all_heads;
inline constexpr auto kAllScores = Hypothesis::Stage::all_scores;

/// The smallest page of a cache that hypotheses try.
inline constexpr std::size_t kSmallestPage = 8;

/// The variant without these tensors; nullopt if it has none of them. `kernel`: "without --mask".
Found without(Variant& variant, std::initializer_list<Input> inputs, const std::string& kernel);

/// The variant without this tensor, whose flag has its name.
Found without(Variant& variant, Input input);

/// The change that calls function(variant, in, arguments...).
template <class... Parameters, class... Arguments>
VariantChange change_by(Found (*function)(Variant&, const Inputs&, Parameters...),
                        Arguments... arguments) {
  return [=](Variant& variant, const Inputs& in) { return function(variant, in, arguments...); };
}

/// The change that calls without().
VariantChange dropped(Input input);

/// The input with f(x) for each element x, or with each times a number.
VariantChange each_of(Input input, double (*f)(double), const std::string& kernel);
VariantChange multiplied(Input input, double factor, const std::string& kernel);

/// The variant with this square matrix transposed; nullopt if it has none.
Found with_transposed(Variant& variant, const Inputs& in, Input input);
/// The same for (B, H, L, S) with as many queries as keys.
Found with_queries_as_keys(Variant& variant, const Inputs& in, Input input);

/// f(x) for each element, in f64.
Tensor mapped(const Tensor& tensor, const std::function<double(double)>& f);

/// Each element of the input times this factor; nullopt if it is 1, or the input is not given.
Found with_product(Variant& variant, Input input, double factor, const std::string& kernel);

/// The hypotheses of a mistake that depends on a number, "ID_NUMBER", for each of these numbers.
void add_for_each(const std::string& id, std::initializer_list<std::size_t> numbers,
                  Found (*change)(Variant& variant, const Inputs& in, std::size_t number),
                  Hypotheses& hypotheses);

/// Adds numbers that broadcast to (B, H, queries, keys) to the scores.
void add_bias(Variant& variant, const Tensor& bias);

/// The variant with this change of rows; nullopt if its formula does not hold for it
/// (diagnose/row_changes.h).
Found with_row_change(Variant& variant, const Inputs& in, RowChange change,
                      const std::string& kernel);

/// A tensor of the same shape, whose block i of `block` elements is block source(i) of `tensor`.
Tensor reordered(const Tensor& tensor, std::size_t block,
                 const std::function<std::size_t(std::size_t)>& source);

/// x (B, G, N, D) with head source[g] at head g: (B, source.size(), N, D).
Tensor with_heads_from(const Tensor& x, const std::vector<std::size_t>& source);

/// x (B, G, N, D) with row source(n) at row n.
Tensor with_rows_from(const Tensor& x, const std::function<std::size_t(std::size_t)>& source);

/// Past and new keys, or values, (B, G, P + N, columns) in f64.
Tensor all_keys(const Variant& variant);
Tensor all_values(const Variant& variant);
/// Replaces past and new ones by a tensor of the same shape.
void set_all_keys(Variant& variant, const Inputs& in, const Tensor& keys);
void set_all_values(Variant& variant, const Inputs& in, const Tensor& values);

/// The rows of x (B, heads, N, columns) in reverse order.
Tensor reversed_rows(const Tensor& x);

/// The memory of the transposed matrices (columns, N) read as (N, columns).
Tensor transposed_memory(const Tensor& x);

/// The memory of x (B, N, heads, D) read as (B, heads, N, D).
Tensor viewed_as_heads(const Tensor& x);
/// The memory of x (B, heads, N, D) read as (B, N, heads, D).
Tensor viewed_as_rows(const Tensor& x);

/// Hides the keys j of batch item b for which hidden(b, j), in addition to those hidden by the
/// variant.
void hide_keys(Variant& variant, const Inputs& in,
               const std::function<bool(std::size_t, std::size_t)>& hidden);

/// The same without causality, windows, boolean masks and lengths. Positions stay as in `in`.
Variant without_masks(const Variant& variant, const Inputs& in);

/// Gives each query head its own key/value head: head h gets of_keys[h] and of_values[h].
void set_kv_heads(Variant& variant, const Inputs& in, const std::vector<std::size_t>& of_keys,
                  const std::vector<std::size_t>& of_values);

/// Adds keys whose scores and values are 0 and that every query sees, as a sink.
void add_zero_keys(Variant& variant, const Inputs& in, double count);

/// The number of keys of batch item b that are not padding, past keys included.
std::size_t keys_of(const Inputs& in, std::size_t b);

/// The offset between queries and keys if it is the same everywhere.
std::optional<std::int64_t> common_offset(const Inputs& in);

/// Whether something is added to the scores.
bool has_bias(const Variant& variant);

bool has_window(const Inputs& in);

/// Whether a query sees no key after its position.
bool is_causal(const Inputs& in);

/// Whether some keys are hidden from some queries.
bool hides_keys(const Variant& variant, const Inputs& in);

/// Whether some query sees no key; true for a large job with a mask.
bool has_empty_rows(const Inputs& in);

}  // namespace attn
