#include "attn/metrics/statistics.h"

#include <cmath>
#include <span>
#include <type_traits>

namespace attn {
namespace {

template <class T>
auto number(T value) {
  if constexpr (std::is_integral_v<T>)
    return value;
  else
    return static_cast<double>(value);
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return std::isnan(number(value));
}

/// Pairwise, so that the error grows with the logarithm of the number of elements.
template <class T>
long double sum_without_nan(std::span<const T> values) {
  constexpr std::size_t kBlock = 128;
  long double sum = 0;
  if (values.size() > kBlock) {
    const std::size_t half = values.size() / 2;
    return sum_without_nan(values.first(half)) + sum_without_nan(values.subspan(half));
  }
  for (const T value : values)
    if (!is_nan(value)) sum += static_cast<long double>(number(value));
  return sum;
}

template <class T>
Statistics statistics_as(const Tensor& tensor) {
  Statistics result;
  T min{}, max{};
  std::size_t count = 0;
  for (const T value : tensor.data<T>()) {
    if (is_nan(value)) {
      ++result.nan;
      continue;
    }
    if constexpr (!std::is_integral_v<T>)
      if (std::isinf(number(value))) ++result.infinite;
    if (count == 0 || number(value) < number(min)) min = value;
    if (count == 0 || number(value) > number(max)) max = value;
    ++count;
  }
  if (count == 0) return result;
  const long double mean = sum_without_nan(tensor.data<T>()) / static_cast<long double>(count);
  result.range = Statistics::Range{Tensor::of<T>({}, {min}), Tensor::of<T>({}, {max}),
                                   static_cast<double>(mean)};
  return result;
}

}  // namespace

Statistics statistics_of(const Tensor& tensor) {
  return visit(tensor.dtype(), [&]<class T>(Type<T>) { return statistics_as<T>(tensor); });
}

}  // namespace attn
