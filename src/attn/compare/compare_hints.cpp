#include "attn/compare/compare_hints.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

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
  if (std::string_view(text) == "1") return "";
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

/// The elements at these positions, as float64.
Tensor gathered(const Tensor& tensor, std::span<const std::size_t> positions) {
  std::vector<double> values(positions.size());
  visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto data = tensor.data<T>();
    for (std::size_t k = 0; k < positions.size(); ++k)
      values[k] = static_cast<double>(data[positions[k]]);
  });
  return Tensor::of<double>({positions.size()}, values);
}

using IndexMap = std::function<std::size_t(std::size_t)>;

constexpr std::size_t kMaxElements = std::size_t{1} << 22;  // limits time and memory

/// Whether every element of B, or each of a sample of a large tensor, is close to the element
/// position(at) of A, by the rules of the comparison. Looks at a few elements first: most
/// arrangements are wrong everywhere.
bool agrees(const Compared& compared, const IndexMap& position) {
  constexpr std::size_t kFew = 1024;
  const std::size_t size = compared.b.size();
  const std::size_t step = size / kMaxElements | 1;  // odd, for columns of all kinds
  for (const std::size_t most : {kFew, kMaxElements}) {
    std::vector<std::size_t> of_a, of_b;
    for (std::size_t at = 0; at < size && of_b.size() < most; at += step) {
      of_b.push_back(at);
      of_a.push_back(position(at));
    }
    std::optional<Tensor> bounds;
    if (compared.bounds) bounds = gathered(*compared.bounds, of_b);
    if (!compare(gathered(compared.a, of_a), gathered(compared.b, of_b), compared.tolerance,
                 bounds ? &*bounds : nullptr)
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

/// Calls try_axes(i, j) for each pair of axes of which neither has length 1; returns its first
/// result that is not empty.
template <class Try>
std::string for_axes(const Shape& shape, const Try& try_axes) {
  for (std::size_t i = 0; i < shape.size(); ++i)
    for (std::size_t j = i + 1; j < shape.size(); ++j)
      if (shape[i] != 1 && shape[j] != 1)
        if (std::string text = try_axes(i, j); !text.empty()) return text;
  return "";
}

Shape with_swapped(Shape shape, std::size_t i, std::size_t j) {
  std::swap(shape[i], shape[j]);
  return shape;
}

/// (B, L, H D) for (B, L, H, D).
Shape with_joined_end(Shape shape) {
  const std::size_t last = shape.back();
  shape.pop_back();
  shape.back() *= last;
  return shape;
}

/// What is possible if no arrangement of A agrees with B: their shapes alone.
std::string possible_arrangement(const Shape& a, const Shape& b, const AxisList& letters) {
  if (a == b) return "";
  return for_axes(b, [&](std::size_t i, std::size_t j) -> std::string {
    const Shape swapped = with_swapped(b, i, j);
    const std::string text =
        "A has the shape of B with axes " + axis_text(i, j, letters) + " swapped";
    if (swapped == a) return text;
    return b.size() > 2 && with_joined_end(swapped) == a ? text + " and the last two joined" : "";
  });
}

}  // namespace

std::string agreeing_arrangement(const Compared& compared, const AxisList& letters) {
  const Shape &a = compared.a.shape(), &b = compared.b.shape();
  if (compared.a.size() != compared.b.size() || compared.a.size() == 0) return "";
  const auto agrees_swapped = [&](const Shape& shape, std::size_t i, std::size_t j) {
    return agrees(compared, [&](std::size_t at) { return swapped_position(at, shape, i, j); });
  };
  std::string text = for_axes(a, [&](std::size_t i, std::size_t j) -> std::string {
    if (with_swapped(a, i, j) != b || !agrees_swapped(a, i, j)) return "";
    return "if its axes " + axis_text(i, j, letters) + " are swapped";
  });
  if (!text.empty() || a == b) return text;
  if (agrees(compared, [](std::size_t at) { return at; })) return "if reshaped to " + to_string(b);
  if (a.size() == b.size()) return "";
  const std::string and_reshaped = " swapped, and the result is reshaped to ";
  text = for_axes(a, [&](std::size_t i, std::size_t j) -> std::string {
    if (!agrees_swapped(a, i, j)) return "";
    return "if its axes " + axis_text(i, j, {}) + " are" + and_reshaped + to_string(b);
  });
  if (!text.empty()) return text;
  return for_axes(b, [&](std::size_t i, std::size_t j) -> std::string {
    if (!agrees_swapped(with_swapped(b, i, j), i, j)) return "";
    return "if axes " + axis_text(i, j, letters) + " of B are" + and_reshaped + to_string(a);
  });
}

std::vector<Hint> compare_hints(const Compared& compared, const Comparison& found,
                                const AxisList& letters, std::size_t width) {
  std::vector<Hint> hints;
  const std::string factor = found.same_shape ? factor_hint(compared, found, width) : "";
  if (!factor.empty()) return {{factor}};
  if (!compared.has_elements) return {};
  const std::string agreeing = agreeing_arrangement(compared, letters);
  const std::string possible =
      possible_arrangement(compared.a.shape(), compared.b.shape(), letters);
  if (!agreeing.empty())
    hints.push_back({"A agrees with B " + agreeing, true});
  else if (!possible.empty())
    hints.push_back({possible});
  return hints;
}

}  // namespace attn
