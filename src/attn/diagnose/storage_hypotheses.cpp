// Mistakes about stored queries, keys and values: scales, zero points and codes.
#include <algorithm>
#include <memory>
#include <utility>

#include "attn/core/stored_rows.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {
namespace {

using MaybeClaim = std::optional<Claim>;

/// The table of a stored tensor; nullptr if it has none that is decoded.
const RowTable* table_of_stored(const Variant& variant, Input input) {
  const Tensor* tensor = variant.find(input);
  if (tensor == nullptr || tensor->rows() == nullptr) return nullptr;
  const RowTable& table = *tensor->rows()->table();
  return table.is_stored() ? &table : nullptr;
}

void set_table(Variant& variant, Input input, RowTable table) {
  const Tensor& tensor = *variant.find(input);
  const GatheredRows& rows = *tensor.rows();
  const Tensor changed = gathered_tensor(std::make_shared<const RowTable>(std::move(table)),
                                         rows.dtype(), rows.by_head());
  variant.set(input, changed.reshaped(tensor.shape()));
}

/// "q", "k" or "v".
std::string letter_of(Input input) {
  return std::string(name_of(storage_of(input).scale).substr(0, 1));
}

/// The table, if some of its factors are not 1.
const RowTable* scaled_table(const Variant& variant, Input input) {
  const RowTable* table = table_of_stored(variant, input);
  const bool has_scale = table != nullptr && table->factors &&
                         std::any_of(table->factors->factors.begin(), table->factors->factors.end(),
                                     [](double factor) { return factor != 1; });
  return has_scale ? table : nullptr;
}

template <Input Of>
MaybeClaim without_scale(Variant& variant, const Inputs&) {
  const RowTable* given = scaled_table(variant, Of);
  if (given == nullptr) return std::nullopt;
  RowTable table = *given;
  std::fill(table.factors->factors.begin(), table.factors->factors.end(), 1.0);
  set_table(variant, Of, std::move(table));
  return flag("without --" + letter_of(Of) + "-scale");
}

template <Input Of>
MaybeClaim with_scale_twice(Variant& variant, const Inputs&) {
  const RowTable* given = scaled_table(variant, Of);
  if (given == nullptr) return std::nullopt;
  RowTable table = *given;
  for (double& factor : table.factors->factors) factor *= factor;
  set_table(variant, Of, std::move(table));
  return words(letter_of(Of) + "_scale applied twice", "once");
}

template <Input Of>
MaybeClaim with_first_scale(Variant& variant, const Inputs&) {
  const RowTable* given = scaled_table(variant, Of);
  if (given == nullptr || given->factors->factors.size() == 1) return std::nullopt;
  RowTable table = *given;
  RowFactors& factors = *table.factors;
  std::fill(factors.factors.begin(), factors.factors.end(), given->factors->factors[0]);
  if (factors.factors == given->factors->factors) return std::nullopt;
  set_table(variant, Of, std::move(table));
  return words("the first element of " + letter_of(Of) + "_scale for all elements");
}

template <Input Of>
MaybeClaim without_zero_point(Variant& variant, const Inputs&) {
  const RowTable* given = table_of_stored(variant, Of);
  if (given == nullptr || !given->factors || given->factors->zeros.empty()) return std::nullopt;
  RowTable table = *given;
  table.factors->zeros.clear();
  set_table(variant, Of, std::move(table));
  return flag("without --" + letter_of(Of) + "-zero-point");
}

/// K with the scale of V, and V with that of K, if they have the same shape.
MaybeClaim with_scales_swapped(Variant& variant, const Inputs&) {
  const RowTable *keys = scaled_table(variant, Input::K), *values = scaled_table(variant, Input::V);
  if (keys == nullptr || values == nullptr) return std::nullopt;
  RowTable of_keys = *keys, of_values = *values;
  std::swap(of_keys.factors->factors, of_values.factors->factors);
  const bool is_same = of_keys.factors->factors == keys->factors->factors;
  if (is_same || of_keys.factors->factors.size() != of_values.factors->factors.size())
    return std::nullopt;
  set_table(variant, Input::K, std::move(of_keys));
  set_table(variant, Input::V, std::move(of_values));
  return words("k_scale and v_scale swapped");
}

constexpr std::pair<Code, std::string_view> kCodesOfBytes[] = {{Code::e4m3, "e4m3"},
                                                               {Code::e5m2, "e5m2"},
                                                               {Code::e4m3fnuz, "e4m3fnuz"},
                                                               {Code::e5m2fnuz, "e5m2fnuz"}};

template <Input Of, std::size_t Number>
MaybeClaim with_code(Variant& variant, const Inputs&) {
  const RowTable* given = table_of_stored(variant, Of);
  const auto& [code, name] = kCodesOfBytes[Number];
  if (given == nullptr || given->code == code) return std::nullopt;
  const auto is_known = [&](const auto& known) { return known.first == given->code; };
  if (std::none_of(std::begin(kCodesOfBytes), std::end(kCodesOfBytes), is_known))
    return std::nullopt;
  RowTable table = *given;
  table.code = code;
  set_table(variant, Of, std::move(table));
  return flag("--" + letter_of(Of) + "-type " + std::string(name));
}

template <Input Of>
MaybeClaim with_halves_swapped(Variant& variant, const Inputs&) {
  const RowTable* given = table_of_stored(variant, Of);
  if (given == nullptr || given->code != Code::e2m1) return std::nullopt;
  RowTable table = *given;
  for (std::uint8_t& byte : table.pool.mutable_data<std::uint8_t>())
    byte = static_cast<std::uint8_t>(byte << 4 | byte >> 4);
  set_table(variant, Of, std::move(table));
  return words("4-bit elements of " + std::string(name_of(Of)) + " read from the high half first");
}

using enum Hypothesis::Stage;

constexpr Hypothesis kTable[] = {
    {"storage.q_scale_missing", projection, without_scale<Input::Q>},
    {"storage.k_scale_missing", projection, without_scale<Input::K>},
    {"storage.v_scale_missing", projection, without_scale<Input::V>},
    {"storage.q_scale_twice", projection, with_scale_twice<Input::Q>},
    {"storage.k_scale_twice", projection, with_scale_twice<Input::K>},
    {"storage.v_scale_twice", projection, with_scale_twice<Input::V>},
    {"storage.scales_swapped", projection, with_scales_swapped},
    {"storage.q_scale_first", projection, with_first_scale<Input::Q>},
    {"storage.k_scale_first", projection, with_first_scale<Input::K>},
    {"storage.v_scale_first", projection, with_first_scale<Input::V>},
    {"storage.q_zero_point", projection, without_zero_point<Input::Q>},
    {"storage.k_zero_point", projection, without_zero_point<Input::K>},
    {"storage.v_zero_point", projection, without_zero_point<Input::V>},
    {"storage.k_e4m3", projection, with_code<Input::K, 0>},
    {"storage.k_e5m2", projection, with_code<Input::K, 1>},
    {"storage.k_e4m3fnuz", projection, with_code<Input::K, 2>},
    {"storage.k_e5m2fnuz", projection, with_code<Input::K, 3>},
    {"storage.v_e4m3", projection, with_code<Input::V, 0>},
    {"storage.v_e5m2", projection, with_code<Input::V, 1>},
    {"storage.v_e4m3fnuz", projection, with_code<Input::V, 2>},
    {"storage.v_e5m2fnuz", projection, with_code<Input::V, 3>},
    {"storage.q_halves", projection, with_halves_swapped<Input::Q>},
    {"storage.k_halves", projection, with_halves_swapped<Input::K>},
    {"storage.v_halves", projection, with_halves_swapped<Input::V>},
};

}  // namespace

std::span<const Hypothesis> storage_hypotheses() { return kTable; }

}  // namespace attn
