// Mistakes about stored queries, keys and values: scales, zero points and codes.
#include <algorithm>
#include <utility>

#include "attn/cache/stored_rows.h"
#include "attn/diagnose/hypotheses.h"

namespace attn {
namespace {

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

/// Changes the factors of a scaled tensor; false: the change does not apply.
template <class Change>
bool change_factors(Variant& variant, Input input, Change change) {
  const RowTable* given = scaled_table(variant, input);
  if (given == nullptr) return false;
  RowTable table = *given;
  if (!change(*table.factors)) return false;
  set_table(variant, input, std::move(table));
  return true;
}

bool set_all(RowFactors& factors, double value) {
  std::fill(factors.factors.begin(), factors.factors.end(), value);
  return true;
}

template <Input Of>
Found without_scale(Variant& variant, const Inputs&) {
  const auto change = [](RowFactors& factors) { return set_all(factors, factors.global); };
  if (!change_factors(variant, Of, change)) return std::nullopt;
  return flag("without --" + letter_of(Of) + "-scale");
}

template <Input Of>
Found without_global_scale(Variant& variant, const Inputs&) {
  const auto change = [](RowFactors& factors) {
    for (double& factor : factors.factors) factor /= factors.global;
    return factors.global != 1;
  };
  if (!change_factors(variant, Of, change)) return std::nullopt;
  return flag("without --" + letter_of(Of) + "-global-scale");
}

template <Input Of>
Found without_any_scale(Variant& variant, const Inputs&) {
  const auto change = [](RowFactors& factors) {
    return factors.global != 1 && set_all(factors, 1);
  };
  if (!change_factors(variant, Of, change)) return std::nullopt;
  const std::string letter = letter_of(Of);
  return flag("without --" + letter + "-scale and --" + letter + "-global-scale");
}

template <Input Of>
Found with_scale_twice(Variant& variant, const Inputs&) {
  const auto change = [](RowFactors& factors) {
    for (double& factor : factors.factors) factor *= factor / factors.global;
    return true;
  };
  if (!change_factors(variant, Of, change)) return std::nullopt;
  return words(letter_of(Of) + "_scale applied twice", "once");
}

template <Input Of>
Found with_global_scale_twice(Variant& variant, const Inputs&) {
  const auto change = [](RowFactors& factors) {
    for (double& factor : factors.factors) factor *= factors.global;
    return factors.global != 1;
  };
  if (!change_factors(variant, Of, change)) return std::nullopt;
  return words(letter_of(Of) + "_global_scale applied twice", "once");
}

template <Input Of>
Found with_first_scale(Variant& variant, const Inputs&) {
  const auto change = [](RowFactors& factors) {
    const bool is_of_heads = factors.starts.empty() && factors.head == 1;  // see the next one
    return !is_of_heads && factors.factors.size() > 1 && set_all(factors, factors.factors[0]);
  };
  if (!change_factors(variant, Of, change)) return std::nullopt;
  return words("the first element of " + letter_of(Of) + "_scale for all elements");
}

template <Input Of>
Found with_scale_of_first_head(Variant& variant, const Inputs&) {
  const auto change = [](RowFactors& factors) { return std::exchange(factors.head, 0) != 0; };
  if (!change_factors(variant, Of, change)) return std::nullopt;
  return words(letter_of(Of) + "_scale of head 0 for all heads");
}

template <Input Of>
Found with_scale_of_first_key(Variant& variant, const Inputs& in) {
  const auto change = [&](RowFactors& factors) {
    for (std::size_t i = 0; i < factors.starts.size(); ++i)
      factors.starts[i] = factors.starts[i / in.N * in.N];
    return !factors.starts.empty() && factors.starts.size() % in.N == 0;
  };
  if (!change_factors(variant, Of, change)) return std::nullopt;
  return words(letter_of(Of) + "_scale of the first key for all keys");
}

template <Input Of>
Found without_zero_point(Variant& variant, const Inputs&) {
  const RowTable* given = table_of_stored(variant, Of);
  if (given == nullptr || !given->factors || given->factors->zeros.empty()) return std::nullopt;
  RowTable table = *given;
  table.factors->zeros.clear();
  set_table(variant, Of, std::move(table));
  return flag("without --" + letter_of(Of) + "-zero-point");
}

/// K with the scale of V, and V with that of K, if they have the same shape.
Found with_scales_swapped(Variant& variant, const Inputs&) {
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
Found with_code(Variant& variant, const Inputs&) {
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
Found with_halves_swapped(Variant& variant, const Inputs&) {
  const RowTable* given = table_of_stored(variant, Of);
  if (given == nullptr || given->code != Code::e2m1) return std::nullopt;
  RowTable table = *given;
  for (std::uint8_t& byte : table.pool.mutable_data<std::uint8_t>())
    byte = static_cast<std::uint8_t>(byte << 4 | byte >> 4);
  set_table(variant, Of, std::move(table));
  return words("4-bit elements of " + std::string(name_of(Of)) + " read from the high half first");
}

/// The same mistake with K and V.
template <auto OfKeys, auto OfValues>
Found with_both(Variant& variant, const Inputs& in) {
  Found claim = OfKeys(variant, in);
  if (!claim) return std::nullopt;
  const Found other = OfValues(variant, in);
  if (!other) return std::nullopt;
  claim->kernel += " and " + other->kernel;
  return claim;
}

using enum Hypothesis::Stage;
constexpr auto K = Input::K, V = Input::V;

constexpr Hypothesis kTable[] = {
    {"storage.q_scale_missing", projection, without_scale<Input::Q>},
    {"storage.k_scale_missing", projection, without_scale<K>},
    {"storage.v_scale_missing", projection, without_scale<V>},
    {"storage.q_scale_twice", projection, with_scale_twice<Input::Q>},
    {"storage.k_scale_twice", projection, with_scale_twice<K>},
    {"storage.v_scale_twice", projection, with_scale_twice<V>},
    {"storage.scales_swapped", projection, with_scales_swapped},
    {"storage.q_scale_first", projection, with_first_scale<Input::Q>},
    {"storage.k_scale_first", projection, with_first_scale<K>},
    {"storage.v_scale_first", projection, with_first_scale<V>},
    {"storage.q_zero_point", projection, without_zero_point<Input::Q>},
    {"storage.k_zero_point", projection, without_zero_point<K>},
    {"storage.v_zero_point", projection, without_zero_point<V>},
    {"storage.k_e4m3", projection, with_code<K, 0>},
    {"storage.k_e5m2", projection, with_code<K, 1>},
    {"storage.k_e4m3fnuz", projection, with_code<K, 2>},
    {"storage.k_e5m2fnuz", projection, with_code<K, 3>},
    {"storage.v_e4m3", projection, with_code<V, 0>},
    {"storage.v_e5m2", projection, with_code<V, 1>},
    {"storage.v_e4m3fnuz", projection, with_code<V, 2>},
    {"storage.v_e5m2fnuz", projection, with_code<V, 3>},
    {"storage.scales_missing", projection, with_both<without_scale<K>, without_scale<V>>},
    {"storage.scales_twice", projection, with_both<with_scale_twice<K>, with_scale_twice<V>>},
    {"storage.scales_first", projection, with_both<with_first_scale<K>, with_first_scale<V>>},
    {"storage.k_scale_head", projection, with_scale_of_first_head<K>},
    {"storage.v_scale_head", projection, with_scale_of_first_head<V>},
    {"storage.scales_head", projection,
     with_both<with_scale_of_first_head<K>, with_scale_of_first_head<V>>},
    {"storage.k_scale_key", projection, with_scale_of_first_key<K>},
    {"storage.v_scale_key", projection, with_scale_of_first_key<V>},
    {"storage.scales_key", projection,
     with_both<with_scale_of_first_key<K>, with_scale_of_first_key<V>>},
    {"storage.k_global_missing", projection, without_global_scale<K>},
    {"storage.v_global_missing", projection, without_global_scale<V>},
    {"storage.globals_missing", projection,
     with_both<without_global_scale<K>, without_global_scale<V>>},
    {"storage.k_any_missing", projection, without_any_scale<K>},
    {"storage.v_any_missing", projection, without_any_scale<V>},
    {"storage.any_missing", projection, with_both<without_any_scale<K>, without_any_scale<V>>},
    {"storage.k_global_twice", projection, with_global_scale_twice<K>},
    {"storage.v_global_twice", projection, with_global_scale_twice<V>},
    {"storage.codes_e4m3", projection, with_both<with_code<K, 0>, with_code<V, 0>>},
    {"storage.codes_e5m2", projection, with_both<with_code<K, 1>, with_code<V, 1>>},
    {"storage.codes_e4m3fnuz", projection, with_both<with_code<K, 2>, with_code<V, 2>>},
    {"storage.codes_e5m2fnuz", projection, with_both<with_code<K, 3>, with_code<V, 3>>},
    {"storage.halves", projection, with_both<with_halves_swapped<K>, with_halves_swapped<V>>},
    {"storage.q_halves", projection, with_halves_swapped<Input::Q>},
    {"storage.k_halves", projection, with_halves_swapped<K>},
    {"storage.v_halves", projection, with_halves_swapped<V>},
};

}  // namespace

Hypotheses storage_hypotheses() { return kTable; }

}  // namespace attn
