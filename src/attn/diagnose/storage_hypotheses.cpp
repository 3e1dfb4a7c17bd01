// Mistakes about stored queries, keys and values: scales, zero points and codes.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "attn/cache/stored_rows.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/hypotheses.h"

namespace attn {
namespace {

/// Changes one of Q, K and V.
using StoredChange = std::function<Found(Variant& variant, const Inputs& in, Input input)>;

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

Found without_scale(Variant& variant, const Inputs&, Input input) {
  const auto change = [](RowFactors& factors) { return set_all(factors, factors.global); };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return flag("without --" + letter_of(input) + "-scale");
}

Found without_global_scale(Variant& variant, const Inputs&, Input input) {
  const auto change = [](RowFactors& factors) {
    for (double& factor : factors.factors) factor /= factors.global;
    return factors.global != 1;
  };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return flag("without --" + letter_of(input) + "-global-scale");
}

Found without_any_scale(Variant& variant, const Inputs&, Input input) {
  const auto change = [](RowFactors& factors) {
    return factors.global != 1 && set_all(factors, 1);
  };
  if (!change_factors(variant, input, change)) return std::nullopt;
  const std::string letter = letter_of(input);
  return flag("without --" + letter + "-scale and --" + letter + "-global-scale");
}

Found with_scale_twice(Variant& variant, const Inputs&, Input input) {
  const auto change = [](RowFactors& factors) {
    for (double& factor : factors.factors) factor *= factor / factors.global;
    return true;
  };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return words(letter_of(input) + "_scale applied twice", "once");
}

Found with_inverse_scale(Variant& variant, const Inputs&, Input input) {
  const auto change = [](RowFactors& factors) {
    const double global = factors.global;  // a part of each factor, and applied as before
    const auto is_zero = [](double factor) { return factor == 0; };
    if (std::any_of(factors.factors.begin(), factors.factors.end(), is_zero)) return false;
    for (double& factor : factors.factors) factor = global * global / factor;
    return true;
  };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return words("division by " + letter_of(input) + "_scale instead of multiplication");
}

Found with_global_scale_twice(Variant& variant, const Inputs&, Input input) {
  const auto change = [](RowFactors& factors) {
    for (double& factor : factors.factors) factor *= factors.global;
    return factors.global != 1;
  };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return words(letter_of(input) + "_global_scale applied twice", "once");
}

Found with_first_scale(Variant& variant, const Inputs&, Input input) {
  const auto change = [](RowFactors& factors) {
    const bool is_of_heads = factors.starts.empty() && factors.head == 1;  // see the next one
    return !is_of_heads && factors.factors.size() > 1 && set_all(factors, factors.factors[0]);
  };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return words("the first element of " + letter_of(input) + "_scale for all elements");
}

Found with_scale_of_first_head(Variant& variant, const Inputs&, Input input) {
  const auto change = [](RowFactors& factors) { return std::exchange(factors.head, 0) != 0; };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return words(letter_of(input) + "_scale of head 0 for all heads");
}

Found with_scale_of_first_key(Variant& variant, const Inputs& in, Input input) {
  const auto change = [&](RowFactors& factors) {
    for (std::size_t i = 0; i < factors.starts.size(); ++i)
      factors.starts[i] = factors.starts[i / in.N * in.N];
    return !factors.starts.empty() && factors.starts.size() % in.N == 0;
  };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return words(letter_of(input) + "_scale of the first key for all keys");
}

Found with_scale_of_first_item(Variant& variant, const Inputs&, Input input) {
  const RowTable* table = table_of_stored(variant, input);
  const std::size_t keys = table == nullptr ? 0 : table->keys;
  const auto change = [&](RowFactors& factors) {
    if (keys == 0 || factors.starts.size() <= keys) return false;
    for (std::size_t i = keys; i < factors.starts.size(); ++i)
      factors.starts[i] = factors.starts[i % keys];
    return true;
  };
  if (!change_factors(variant, input, change)) return std::nullopt;
  return words(letter_of(input) + "_scale of batch item 0 for all items");
}

Found without_zero_point(Variant& variant, const Inputs&, Input input) {
  const RowTable* given = table_of_stored(variant, input);
  if (given == nullptr || !given->factors || given->factors->zeros.empty()) return std::nullopt;
  RowTable table = *given;
  table.factors->zeros.clear();
  set_table(variant, input, std::move(table));
  return flag("without --" + letter_of(input) + "-zero-point");
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

constexpr std::pair<Code, const char*> kCodesOfBytes[] = {{Code::e4m3, "e4m3"},
                                                          {Code::e5m2, "e5m2"},
                                                          {Code::e4m3fnuz, "e4m3fnuz"},
                                                          {Code::e5m2fnuz, "e5m2fnuz"}};

StoredChange with_code(Code code, const std::string& name) {
  return [=](Variant& variant, const Inputs&, Input input) -> Found {
    const RowTable* given = table_of_stored(variant, input);
    if (given == nullptr || given->code == code) return std::nullopt;
    const auto is_known = [&](const auto& known) { return known.first == given->code; };
    if (std::none_of(std::begin(kCodesOfBytes), std::end(kCodesOfBytes), is_known))
      return std::nullopt;
    RowTable table = *given;
    table.code = code;
    set_table(variant, input, std::move(table));
    return flag("--" + letter_of(input) + "-type " + name);
  };
}

Found with_halves_swapped(Variant& variant, const Inputs&, Input input) {
  const RowTable* given = table_of_stored(variant, input);
  if (given == nullptr || given->code != Code::e2m1) return std::nullopt;
  RowTable table = *given;
  for (std::uint8_t& byte : table.pool.mutable_data<std::uint8_t>())
    byte = static_cast<std::uint8_t>(byte << 4 | byte >> 4);
  set_table(variant, input, std::move(table));
  return words("4-bit elements of " + std::string(name_of(input)) +
               " read from the high half first");
}

}  // namespace

Hypotheses storage_hypotheses() {
  constexpr auto Q = Input::Q, K = Input::K, V = Input::V;
  Hypotheses all;
  const auto each = [&](std::initializer_list<Input> inputs, const std::string& id,
                        const StoredChange& change) {
    for (const Input input : inputs)
      all.push_back(
          {"storage." + letter_of(input) + "_" + id, kProjection,
           [=](Variant& variant, const Inputs& in) { return change(variant, in, input); }});
  };
  // The same mistake with K and V.
  const auto both = [&](const std::string& id, const StoredChange& change) {
    all.push_back({"storage." + id, kProjection, [=](Variant& variant, const Inputs& in) -> Found {
                     Found claim = change(variant, in, K);
                     const Found other = claim ? change(variant, in, V) : std::nullopt;
                     if (!other) return std::nullopt;
                     claim->kernel += " and " + other->kernel;
                     return claim;
                   }});
  };
  each({Q, K, V}, "scale_missing", without_scale);
  each({Q, K, V}, "scale_twice", with_scale_twice);
  each({Q, K, V}, "scale_inverse", with_inverse_scale);
  all.push_back({"storage.scales_swapped", kProjection, with_scales_swapped});
  each({Q, K, V}, "scale_first", with_first_scale);
  each({Q, K, V}, "zero_point", without_zero_point);
  for (const Input input : {K, V})
    for (const auto& [code, name] : kCodesOfBytes) each({input}, name, with_code(code, name));
  both("scales_missing", without_scale);
  both("scales_twice", with_scale_twice);
  both("scales_inverse", with_inverse_scale);
  both("scales_first", with_first_scale);
  each({K, V}, "scale_head", with_scale_of_first_head);
  both("scales_head", with_scale_of_first_head);
  each({K, V}, "scale_key", with_scale_of_first_key);
  both("scales_key", with_scale_of_first_key);
  each({K, V}, "scale_item", with_scale_of_first_item);
  both("scales_item", with_scale_of_first_item);
  each({K, V}, "global_missing", without_global_scale);
  both("globals_missing", without_global_scale);
  each({K, V}, "any_missing", without_any_scale);
  both("any_missing", without_any_scale);
  each({K, V}, "global_twice", with_global_scale_twice);
  for (const auto& [code, name] : kCodesOfBytes)
    both(std::string("codes_") + name, with_code(code, name));
  both("halves", with_halves_swapped);
  each({Q, K, V}, "halves", with_halves_swapped);
  return all;
}

}  // namespace attn
