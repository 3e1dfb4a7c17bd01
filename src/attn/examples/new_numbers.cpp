#include "attn/examples/new_numbers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "attn/problem/input_table.h"

namespace attn {
namespace {

constexpr double kNear = 1e-6;  ///< of the largest number, for those stored in float32

/// How many digits after the decimal point these numbers have; nothing for more than 4.
std::optional<int> digits_after_point(std::span<const double> numbers, double largest) {
  constexpr int kMost = 4;
  double power = 1;
  for (int digits = 0; digits <= kMost; ++digits, power *= 10)
    if (std::all_of(numbers.begin(), numbers.end(), [power, largest](double x) {
          return std::abs(x * power - std::round(x * power)) <= kNear * largest * power;
        }))
      return digits;
  return std::nullopt;
}

Tensor with_new_numbers(const Tensor& tensor, Generator& generator) {
  constexpr int kFewDigits = 2;
  const Tensor given = cast(tensor, DType::f64);
  const auto numbers = given.data<double>();
  const bool are_finite =
      std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
  if (numbers.empty() || !are_finite) return tensor;
  const auto [least, largest] = std::minmax_element(numbers.begin(), numbers.end());
  const double size = std::max(std::abs(*least), std::abs(*largest));
  const double power = std::pow(10, digits_after_point(numbers, size).value_or(kFewDigits));
  const double near = kNear * size * power;
  if (size * power > 0x1p53) return tensor;
  const auto low = static_cast<std::int64_t>(std::ceil(*least * power - near)),
             high = static_cast<std::int64_t>(std::floor(*largest * power + near));
  if (low >= high) return tensor;
  const Tensor drawn = generator.integers(low, high + 1, DType::i64, tensor.shape());
  Tensor result(DType::f64, tensor.shape());
  std::transform(drawn.data<std::int64_t>().begin(), drawn.data<std::int64_t>().end(),
                 result.mutable_data<double>().begin(),
                 [power](std::int64_t x) { return static_cast<double>(x) / power; });
  return cast(result, tensor.dtype());
}

bool has_same_elements(const Tensor& a, const Tensor& b) {
  const Tensor of_a = cast(a, DType::f64), of_b = cast(b, DType::f64);
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::equal(of_a.data<double>().begin(), of_a.data<double>().end(),
                    of_b.data<double>().begin());
}

}  // namespace

bool draw_new_numbers(TensorMap& tensors, Generator& generator) {
  bool is_new = false;
  std::vector<std::pair<Tensor, Tensor>> known;  // as given, and new
  for (const InputRow& row : kInputs) {
    const Tensor* const tensor = tensors.find(std::string(row.name));
    if (tensor == nullptr || row.kind != InputKind::factor) continue;
    const auto same = std::find_if(known.begin(), known.end(), [&](const auto& pair) {
      return has_same_elements(pair.first, *tensor);
    });
    Tensor drawn = same != known.end() ? same->second : with_new_numbers(*tensor, generator);
    is_new = is_new || !has_same_elements(*tensor, drawn);
    known.emplace_back(*tensor, drawn);
    tensors.set(std::string(row.name), std::move(drawn));
  }
  return is_new;
}

}  // namespace attn
