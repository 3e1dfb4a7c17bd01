#include "attn/core/checks.h"

#include <algorithm>
#include <numeric>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"

namespace attn {
void check_names(const TensorMap& tensors, AxisLengths& axes) {
  for (const auto& [name, tensor] : tensors)
    if (!input_named(name))
      axes.problem({.message = "unknown tensor '" + printable(name) + "'" +
                               did_you_mean(name, input_names())});
  const bool direct = contains(tensors, Input::Q) && contains(tensors, Input::K);
  if (!direct && !contains(tensors, Input::embeddings))
    axes.problem(Input::embeddings, {.expected = "embeddings, or Q and K", .found = "neither"});
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
      axes.problem({.subject = name, .message = error.what()});
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
                              {.expected = "booleans, the integers 0 and 1, or floats to add",
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
                    .expected = "indices of the " + std::to_string(L) + " queries",
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
