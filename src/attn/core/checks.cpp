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

void check_direct(const TensorMap& tensors, Input given, AxisLengths& axes) {
  const std::string name(name_of(given));
  for (const Input input : {Input::embeddings, Input::memory, Input::memory_V})
    if (contains(tensors, input))
      axes.problem(input, {.expected = "either embeddings or Q, K and V",
                           .found = std::string(name_of(input)) + " beside " + name});
  for (const Input input : {Input::W_Q, Input::W_K, Input::W_V, Input::b_Q, Input::b_K, Input::b_V})
    if (contains(tensors, input))
      axes.problem(input, {.expected = "embeddings to project", .found = name});
  for (const Input input : {Input::Q, Input::K})
    if (!contains(tensors, input))
      axes.problem(input, {.expected = "Q and K together", .found = name + " alone"});
}

std::string text_of(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

void require(bool holds, const char* option, const char* expected, double found,
             AxisLengths& axes) {
  if (!holds) axes.problem({.subject = option, .expected = expected, .found = text_of(found)});
}

}  // namespace

void check_names(const TensorMap& tensors, AxisLengths& axes) {
  for (const auto& [name, tensor] : tensors)
    if (!input_named(name))
      axes.problem({.subject = name,
                    .expected = "a tensor that attention knows",
                    .found = "this name" + did_you_mean(name, input_names())});
  const std::initializer_list<Input> direct = {Input::Q, Input::K, Input::V};
  const auto given = std::find_if(direct.begin(), direct.end(),
                                  [&](Input input) { return contains(tensors, input); });
  if (given != direct.end())
    check_direct(tensors, *given, axes);
  else if (!contains(tensors, Input::embeddings))
    axes.problem(Input::embeddings, {.expected = "embeddings, or Q and K", .found = "neither"});
  for (const InputRow& row : kInputs)
    if (row.companion && contains(tensors, row.input) && !contains(tensors, *row.companion))
      axes.problem(row.input, {.expected = std::string(name_of(*row.companion)) + " beside it",
                               .found = "none"});
}

void check_options(const TensorMap& tensors, const Options& options, AxisLengths& axes) {
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
  if (position.kind != Position::Kind::none && !contains(tensors, Input::embeddings))
    axes.problem(
        {.subject = "position", .expected = "embeddings to add positions to", .found = "none"});
}

DType result_dtype(const TensorMap& tensors, Compute compute) {
  if (compute == Compute::f32) return DType::f32;
  if (compute == Compute::f64) return DType::f64;
  const auto given = [&](DType dtype) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
      if (entry.second.dtype() != dtype) return false;
      const auto input = input_named(entry.first);
      return !input || row_of(*input).kind != InputKind::table;
    });
  };
  if (given(DType::f64)) return DType::f64;
  if (given(DType::f32) || (given(DType::f16) && given(DType::bf16))) return DType::f32;
  if (given(DType::f16)) return DType::f16;
  return given(DType::bf16) ? DType::bf16 : DType::f64;
}

TensorMap as_numbers(const TensorMap& tensors, DType compute, AxisLengths& axes) {
  TensorMap numbers;
  for (const auto& [name, tensor] : tensors) {
    const auto input = input_named(name);
    if (input && row_of(*input).kind == InputKind::mask) continue;
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

Tensor as_mask(Input input, const Tensor& mask, DType compute, AxisLengths& axes) {
  if (mask.dtype() == DType::boolean) return mask;
  if (is_float(mask.dtype())) return cast(mask, compute);
  visit(mask.dtype(), [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T>)
      for (const T value : mask.data<T>())
        if (value != T{0} && value != T{1})
          return axes.problem(input,
                              {.expected = "booleans, 0 and 1, or floating-point numbers to add",
                               .found = "the integer " + std::to_string(value)});
  });
  return cast(mask, DType::boolean);
}

std::vector<std::size_t> chosen_rows(const std::vector<std::int64_t>& rows, std::size_t L,
                                     AxisLengths& axes) {
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
