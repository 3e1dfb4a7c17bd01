#include "attn/core/checks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"

namespace attn {
namespace {

/// A tensor that means nothing without another.
const std::vector<std::pair<std::string, std::string>> kTogether = {
    {"b_O", "W_O"},       {"past_K", "past_V"}, {"past_V", "past_K"}, {"bias_K", "bias_V"},
    {"bias_V", "bias_K"}, {"cos", "sin"},       {"sin", "cos"},       {"memory_V", "memory"}};

/// Tables and the like, whose precision says nothing of the precision of what is computed.
const std::set<std::string> kAside = {"cos", "sin", "alibi_slopes", "relative_bias", "sinks"};

/// The first of `names` that was given, or "".
std::string first_given(const TensorMap& tensors, std::initializer_list<const char*> names) {
  for (const char* const name : names)
    if (tensors.contains(name)) return name;
  return "";
}

void check_direct(const TensorMap& tensors, const std::string& given, Axes& axes) {
  for (const char* name : {"embeddings", "memory", "memory_V"})
    if (tensors.contains(name))
      axes.problem({.subject = name,
                    .expected = "either embeddings or Q, K and V",
                    .found = name + (" beside " + given)});
  for (const char* name : {"W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V"})
    if (tensors.contains(name))
      axes.problem({.subject = name, .expected = "embeddings to project", .found = given});
  for (const char* name : {"Q", "K"})
    if (!tensors.contains(name))
      axes.problem({.subject = name, .expected = "Q and K together", .found = given + " alone"});
}

std::string text_of(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

void require(bool holds, const char* option, const char* expected, double found, Axes& axes) {
  if (!holds) axes.problem({.subject = option, .expected = expected, .found = text_of(found)});
}

}  // namespace

void check_names(const TensorMap& tensors, Axes& axes) {
  for (const auto& [name, tensor] : tensors)
    if (std::find(kInputNames.begin(), kInputNames.end(), name) == kInputNames.end())
      axes.problem({.subject = name,
                    .expected = "a tensor that attention knows",
                    .found = "this name" + did_you_mean(name, kInputNames)});
  const std::string given = first_given(tensors, {"Q", "K", "V"});
  if (!given.empty())
    check_direct(tensors, given, axes);
  else if (!tensors.contains("embeddings"))
    axes.problem(
        {.subject = "embeddings", .expected = "embeddings, or Q and K", .found = "neither"});
  for (const auto& [name, other] : kTogether)
    if (tensors.contains(name) && !tensors.contains(other))
      axes.problem({.subject = name, .expected = other + " beside it", .found = "none"});
}

void check_options(const TensorMap& tensors, const Options& options, Axes& axes) {
  const Position& position = options.position;
  require(options.heads >= 0, "heads", "a positive number", static_cast<double>(options.heads),
          axes);
  require(options.kv_heads >= 0, "kv_heads", "a positive number",
          static_cast<double>(options.kv_heads), axes);
  require(std::isfinite(options.scale.number), "scale", "a finite number", options.scale.number,
          axes);
  require(options.softcap >= 0 && std::isfinite(options.softcap), "softcap",
          "a positive number, or 0 for none", options.softcap, axes);
  for (const std::int64_t side : {options.window.left, options.window.right})
    require(side >= -1, "window", "two numbers of at least 0, or -1 for open",
            static_cast<double>(side), axes);
  require(position.base > 0 && std::isfinite(position.base), "position.base", "a positive number",
          position.base, axes);
  require(std::isfinite(position.embedding_scale), "position.embedding_scale", "a finite number",
          position.embedding_scale, axes);
  if (position.kind != Position::Kind::none && !tensors.contains("embeddings"))
    axes.problem(
        {.subject = "position", .expected = "embeddings to add positions to", .found = "none"});
}

DType result_dtype(const TensorMap& tensors, Compute compute) {
  if (compute == Compute::f32) return DType::f32;
  if (compute == Compute::f64) return DType::f64;
  const auto given = [&](DType dtype) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
      return entry.second.dtype() == dtype && kAside.count(entry.first) == 0;
    });
  };
  if (given(DType::f64)) return DType::f64;
  if (given(DType::f32) || (given(DType::f16) && given(DType::bf16))) return DType::f32;
  if (given(DType::f16)) return DType::f16;
  return given(DType::bf16) ? DType::bf16 : DType::f64;
}

TensorMap as_numbers(const TensorMap& tensors, DType compute, Axes& axes) {
  TensorMap numbers;
  for (const auto& [name, tensor] : tensors) {
    if (name == "mask" || name == "key_mask") continue;
    try {
      numbers.set(name, cast(tensor, is_float(tensor.dtype()) ? compute : DType::i64));
    } catch (const Error& error) {
      axes.problem({.subject = name,
                    .expected = "integers within int64",
                    .found = std::string("one that is not: ") + error.what()});
    }
  }
  return numbers;
}

Tensor as_mask(const std::string& name, const Tensor& mask, DType compute, Axes& axes) {
  if (mask.dtype() == DType::boolean) return mask;
  if (is_float(mask.dtype())) return cast(mask, compute);
  visit(mask.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>)
      for (const T value : mask.data<T>())
        if (value != T{0} && value != T{1})
          return axes.problem({.subject = name,
                               .expected = "booleans, 0 and 1, or floating-point numbers to add",
                               .found = "the integer " + std::to_string(value)});
  });
  return cast(mask, DType::boolean);
}

std::vector<std::size_t> chosen_rows(const std::vector<std::int64_t>& rows, std::size_t L,
                                     Axes& axes) {
  std::vector<std::size_t> chosen;
  const auto count = static_cast<std::int64_t>(L);
  for (const std::int64_t row : rows) {
    if (row < -count || row >= count)
      axes.problem({.subject = "rows",
                    .expected = "places among " + std::to_string(L) + " queries",
                    .found = std::to_string(row)});
    else
      chosen.push_back(static_cast<std::size_t>(row < 0 ? row + count : row));
  }
  if (rows.empty()) {
    chosen.resize(L);
    std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  }
  return chosen;
}

}  // namespace attn
