#include "attn/compare/compare_hints.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>

#include "attn/base/number_text.h"

namespace attn {
namespace {

/// The widths of heads that are looked for if D is unknown.
constexpr std::size_t kCommonWidths[] = {8, 16, 32, 64, 80, 96, 112, 128, 160, 192, 256, 512, 576};

bool is_about(double value, double constant) { return std::abs(value / constant - 1) < 3e-3; }

/// What the factor between A and B means: ", which is 1/log(2): ..."; "" if it is unknown.
std::string meaning_of_factor(double factor, const std::string& name, std::size_t width) {
  if (is_about(factor, -1)) return ": the sign is reversed";
  if (name == "logsumexp" && is_about(factor, std::numbers::log2e))
    return ", 1/log(2): A is a logarithm in base 2, B a natural one (--lse-base 2)";
  if (name == "logsumexp" && is_about(factor, std::numbers::ln2))
    return ", log(2): A is a natural logarithm, B one in base 2 (--lse-base e)";
  std::vector<std::size_t> widths(std::begin(kCommonWidths), std::end(kCommonWidths));
  if (width > 0) widths = {width};
  for (const std::size_t D : widths) {
    const double root = std::sqrt(static_cast<double>(D));
    const std::string text = "sqrt(" + std::to_string(D) + ")";
    if (is_about(factor, root)) return ", " + text + ": the scale 1/sqrt(D) may be missing in A";
    if (is_about(factor, 1 / root)) return ", 1/" + text + ": A may be scaled once too often";
  }
  return "";
}

/// "A is about 1.4427 times B, ..."; "" if A is no multiple of B. The part of A that is not a
/// multiple must be at most 1 % of A, and far less than the difference between A and B.
std::string factor_hint(const Compared& compared, const Comparison& found, std::size_t width) {
  if (!found.factor || !found.cosine || *found.factor == 0) return "";
  const double factor = *found.factor, cosine = *found.cosine;
  const double rest = std::sqrt(std::max(0.0, 1 - cosine * cosine));
  if (rest > 0.01 * std::min(1.0, std::abs(factor - 1))) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", factor);
  return "A is about " + std::string(text) + " times B" +
         meaning_of_factor(factor, compared.name, width);
}

/// The position in a tensor of `shape` of element `at` of the tensor with axes i and j swapped,
/// both row-major.
std::size_t swapped_position(std::size_t at, const Shape& shape, std::size_t i, std::size_t j) {
  Shape index = shape;
  std::swap(index[i], index[j]);
  for (std::size_t k = index.size(); k-- > 0;) {
    const std::size_t length = index[k];
    index[k] = at % length;
    at /= length;
  }
  std::swap(index[i], index[j]);
  std::size_t position = 0;
  for (std::size_t k = 0; k < shape.size(); ++k) position = position * shape[k] + index[k];
  return position;
}

Tensor first_elements(const Tensor& wide, std::size_t count) {
  const auto values = wide.data<double>().first(count);
  return Tensor::of<double>({count}, {values.begin(), values.end()});
}

/// Whether every element of B is close to the element position(at) of A, by the rules of the
/// comparison. Looks at a few elements first: most arrangements are wrong everywhere.
bool agrees(const Compared& compared, const std::function<std::size_t(std::size_t)>& position) {
  constexpr std::size_t kFew = 1024;
  const Tensor a = cast(compared.a, DType::f64), b = cast(compared.b, DType::f64);
  for (const std::size_t count : {std::min(kFew, b.size()), b.size()}) {
    std::vector<double> arranged(count);
    for (std::size_t at = 0; at < count; ++at) arranged[at] = a.data<double>()[position(at)];
    std::optional<Tensor> bounds;
    if (compared.bounds) bounds = first_elements(*compared.bounds, count);
    if (!compare(Tensor::of<double>({count}, arranged), first_elements(b, count),
                 compared.tolerance, bounds ? &*bounds : nullptr)
             .same())
      return false;
  }
  return true;
}

std::string axis_text(std::size_t i, std::size_t j, const AxisList& letters) {
  std::string text = std::to_string(i) + " and " + std::to_string(j);
  if (letters.empty()) return text;
  return text + " (" + std::string(name_of(letters[i])) + " and " +
         std::string(name_of(letters[j])) + ")";
}

/// "A agrees with B if its axes 1 and 2 (H and L) are swapped"
std::string shape_hint(const Compared& compared, const AxisList& letters) {
  const Tensor &a = compared.a, &b = compared.b;
  constexpr std::size_t kMaxElements = std::size_t{1} << 22;  // limits time and memory
  if (a.size() != b.size() || a.size() == 0 || a.size() > kMaxElements) return "";
  const std::size_t rank = a.rank();
  std::string possible;
  for (std::size_t i = 0; rank == b.rank() && i < rank; ++i)
    for (std::size_t j = i + 1; j < rank; ++j) {
      Shape shape = a.shape();
      std::swap(shape[i], shape[j]);
      if (shape != b.shape() || shape[i] == 1 || shape[j] == 1) continue;
      const std::string axes = "axes " + axis_text(i, j, letters);
      if (agrees(compared, [&](std::size_t at) { return swapped_position(at, a.shape(), i, j); }))
        return "A agrees with B if its " + axes + " are swapped";
      if (a.shape() != b.shape() && possible.empty())
        possible = "A has the shape of B with " + axes + " swapped";
    }
  if (a.shape() != b.shape() && agrees(compared, [](std::size_t at) { return at; }))
    return "A agrees with B if reshaped to " + to_string(b.shape());
  return possible;
}

}  // namespace

std::vector<std::string> compare_hints(const Compared& compared, const Comparison& found,
                                       const AxisList& letters, std::size_t width) {
  std::vector<std::string> hints;
  const std::string factor = found.same_shape ? factor_hint(compared, found, width) : "";
  if (!factor.empty()) return {factor};
  const std::string shape = shape_hint(compared, letters);
  if (!shape.empty()) hints.push_back(shape);
  return hints;
}

}  // namespace attn
