#include "attn/attention/row_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attn/base/float_arrays.h"

namespace attn {

RowBlock rows_of(const Tensor& tensor) {
  const std::size_t columns = tensor.rank() == 0 ? 1 : tensor.shape().back();
  return {.first = 0,
          .count = columns == 0 ? 0 : tensor.size() / columns,
          .columns = columns,
          .dtype = tensor.dtype(),
          .data = tensor.raw(),
          .stride = columns * size_of(tensor.dtype())};
}

Tensor copied(const RowBlock& block) {
  Tensor rows(block.dtype, {block.count, block.columns});
  const std::size_t bytes = block.columns * size_of(block.dtype);
  std::byte* const to = rows.mutable_raw();
  for (std::size_t i = 0; i < block.count && bytes > 0; ++i)
    std::memcpy(to + i * bytes, block.row(i), bytes);
  return rows;
}

RowBlock in_place_of(const RowBlock& block, const Tensor& rows) {
  RowBlock result = rows_of(rows);
  result.first = block.first;
  result.may_hold_nan = block.may_hold_nan;
  return result;
}

RowBlock converted(const RowBlock& block, DType dtype, Tensor& kept) {
  if (block.dtype == dtype) return block;
  kept = cast(copied(block), dtype);
  return in_place_of(block, kept);
}

namespace {

std::size_t count_infinite(const Tensor& tensor) {
  return visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto data = tensor.data<T>();
    if constexpr (!std::is_integral_v<T>)
      if (all_finite(data)) return std::size_t{0};
    return static_cast<std::size_t>(std::count_if(
        data.begin(), data.end(), [](T x) { return std::isinf(static_cast<double>(x)); }));
  });
}

}  // namespace

void Rounding::count(Output output, const Tensor& exact, const Tensor& rounded) {
  const std::size_t infinite = count_infinite(rounded);
  if (infinite == 0) return;
  const std::size_t overflows = infinite - count_infinite(exact);
  if (overflows == 0) return;
  const std::lock_guard lock(mutex_);
  overflows_[output] += overflows;
}

Tensor Rounding::rounded(Output output, Tensor exact) {
  if (!is_float(exact.dtype()) || exact.dtype() == to_) return exact;
  const Tensor result = cast(exact, to_);
  count(output, exact, result);
  return result;
}

RowConsumers Rounding::before(const RowConsumers& consumers) {
  RowConsumers rounding;
  for (const auto& [output, consumer] : consumers)
    rounding[output] = [this, output = output, &to = consumer](const RowBlock& block) {
      if (block.dtype == to_) return to(block);
      const Tensor rows = rounded(output, copied(block));
      to(in_place_of(block, rows));
    };
  return rounding;
}

}  // namespace attn
