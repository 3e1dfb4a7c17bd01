#include "attn/core/rounding.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

std::size_t count_infinite(const Tensor& tensor) {
  return visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto data = tensor.data<T>();
    return static_cast<std::size_t>(std::count_if(data.begin(), data.end(), [](T x) {
      if constexpr (std::is_same_v<T, Half>)
        return (x.bits & 0x7fff) == 0x7c00;
      else
        return std::isinf(static_cast<double>(x));
    }));
  });
}

}  // namespace

void Rounding::count(const std::string& name, const Tensor& exact, const Tensor& rounded) {
  const std::size_t infinite = count_infinite(rounded);
  if (infinite == 0) return;
  const std::size_t overflows = infinite - count_infinite(exact);
  if (overflows == 0) return;
  const std::lock_guard lock(mutex_);
  overflows_[name] += overflows;
}

Tensor Rounding::rounded(const std::string& name, const Tensor& output) {
  if (!is_float(output.dtype()) || output.dtype() == to_) return output;
  const Tensor result = cast(output, to_);
  count(name, output, result);
  return result;
}

RowSinks Rounding::before(const RowSinks& sinks) {
  RowSinks rounding;
  for (const auto& [name, sink] : sinks)
    rounding[name] = [this, &name = name, &to = sink](const RowBlock& block) {
      if (block.dtype == to_) return to(block);
      const Tensor rows = rounded(name, copied(block));
      to(in_place_of(block, rows));
    };
  return rounding;
}

}  // namespace attn
