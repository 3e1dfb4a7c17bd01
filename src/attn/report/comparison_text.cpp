#include "attn/report/comparison_text.h"

#include <algorithm>
#include <cstdio>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/report/comparison.h"
#include "attn/report/numpy_text.h"

namespace attn {
namespace {

constexpr std::size_t kLongestBar = 40;
constexpr int kMostDecades = 12;  // smaller errors share one bar

/// "[1, 0, 2]"; "[]" for the element of a 0-d tensor.
std::string place_text(std::size_t at, const Shape& shape) {
  const auto digits = [](std::size_t i) { return std::to_string(i); };
  return "[" + join(index_of(at, shape), ", ", digits) + "]";
}

/// With the shortest digits that identify the value.
std::string element_text(const Tensor& tensor, std::size_t at) {
  return numpy_str(tensor.reshaped({tensor.size()}).at(at));
}

std::string values_text(std::size_t at, const Tensor& a, const Tensor& b) {
  return place_text(at, a.shape()) + ": " + element_text(a, at) + " and " + element_text(b, at);
}

std::string extreme_line(const char* what, const std::optional<Extreme>& extreme, const Tensor& a,
                         const Tensor& b) {
  if (!extreme) return "";
  const std::string where = extreme->value == 0 ? "" : " at " + values_text(extreme->at, a, b);
  return std::string("  ") + what + six_digits(extreme->value) + where + "\n";
}

std::string nan_line(const Comparison& found, const Tensor& a, const Tensor& b) {
  if (found.nan_in_both + found.nan_in_a + found.nan_in_b == 0) return "";
  std::string text = "  NaN              " + std::to_string(found.nan_in_both) + " in both, " +
                     std::to_string(found.nan_in_a) + " in A only, " +
                     std::to_string(found.nan_in_b) + " in B only";
  if (found.first_nan) text += "; the first that differs at " + values_text(*found.first_nan, a, b);
  return text + "\n";
}

struct Bar {
  std::string label;
  std::size_t count;
};

std::string power(int exponent) {
  char text[16];
  std::snprintf(text, sizeof text, "1e%+03d", exponent);
  return text;
}

std::vector<Bar> bars_of(const Comparison& found) {
  std::vector<Bar> bars = {{"0", found.equal}};
  if (!found.decades.empty()) {
    const int last = found.decades.rbegin()->first;
    const int first = std::max(found.decades.begin()->first, last - kMostDecades + 1);
    std::size_t below = 0;
    for (const auto& [exponent, count] : found.decades)
      if (exponent < first) below += count;
    if (below > 0) bars.push_back({"below " + power(first), below});
    for (int exponent = first; exponent <= last; ++exponent) {
      const auto decade = found.decades.find(exponent);
      bars.push_back({power(exponent) + " to " + power(exponent + 1),
                      decade == found.decades.end() ? 0 : decade->second});
    }
  }
  if (found.infinitely_apart > 0) bars.push_back({"infinite", found.infinitely_apart});
  return bars;
}

/// A bar for each decade of |a - b|, with at least one '#' if it is not empty.
std::string histogram(const Comparison& found) {
  const std::vector<Bar> bars = bars_of(found);
  std::size_t most = 1;
  for (const Bar& bar : bars) most = std::max(most, bar.count);
  std::string text = "  |a - b|\n";
  for (const Bar& bar : bars) {
    std::string label = bar.label;
    label.resize(std::max<std::size_t>(label.size(), 14), ' ');
    const std::size_t length = (bar.count * kLongestBar + most - 1) / most;
    text += "    " + label + " " + std::string(length, '#') + (length > 0 ? " " : "") +
            std::to_string(bar.count) + "\n";
  }
  return text;
}

std::string both(const std::string& a, const std::string& b) {
  return a == b ? a : a + " and " + b;
}

std::string verdict(const Compared& compared, const Comparison& found) {
  if (!found.same_shape) return "shapes differ";
  if (found.differing > 0)
    return std::to_string(found.differing) + " of " + std::to_string(found.elements) +
           (compared.bounds       ? " beyond the bound of " + compared.bound_of
            : found.elements == 1 ? " element differs"
                                  : " elements differ");
  if (found.equal_throughout()) return "equal";
  return compared.bounds ? "within the bound of " + compared.bound_of : "close";
}

/// "  of its bound     0.4 at [1, 1]: 0.5 and 0.4998, bound 0.0005"
std::string bound_line(const Compared& compared, const Comparison& found) {
  if (!found.max_of_bound) return "";
  std::string line = extreme_line("of its bound     ", found.max_of_bound, compared.a, compared.b);
  line.pop_back();
  const double bound = compared.bounds->data<double>()[found.max_of_bound->at];
  return line + ", bound " + six_digits(bound) + "\n";
}

}  // namespace

std::string comparison_text(const Compared& compared, const Comparison& found) {
  const Tensor &a = compared.a, &b = compared.b;
  std::string text = compared.name + (compared.name.empty() ? "" : " ") +
                     both(to_string(a.shape()), to_string(b.shape())) + " " +
                     both(std::string(name_of(a.dtype())), std::string(name_of(b.dtype()))) + ": " +
                     verdict(compared, found) + "\n";
  if (!found.same_shape ||
      (found.differing == 0 && found.equal + found.nan_in_both == found.elements))
    return text;
  text += bound_line(compared, found);
  text += extreme_line("max |a - b|      ", found.max_abs, a, b);
  text += extreme_line("max |a - b|/|b|  ", found.max_rel, a, b);
  text += extreme_line("max ulps         ", found.max_ulps, a, b);
  if (found.rms) text += "  RMS of a - b     " + six_digits(*found.rms) + "\n";
  if (found.cosine) {
    char cosine[32];
    std::snprintf(cosine, sizeof cosine, "%.12g", *found.cosine);
    text += "  cosine           " + std::string(cosine) + "\n";
  }
  return text + nan_line(found, a, b) + histogram(found);
}

}  // namespace attn
