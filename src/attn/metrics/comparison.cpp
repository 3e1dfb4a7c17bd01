#include "attn/metrics/comparison.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/print/numpy_text.h"

namespace attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A pair of elements and their distance.
struct ElementPair {
  double a = 0, b = 0;
  double error = 0;  ///< |a - b|
  double ulps = 0;
  double bound = -1;  ///< the element's bound; negative: none
};

void raise(std::optional<Extreme>& extreme, double value, std::size_t at) {
  if (!extreme || value > extreme->value || (value == extreme->value && at < extreme->at))
    extreme = Extreme{value, at};
}

bool is_close(const ElementPair& pair, const Tolerance& tolerance) {
  if (pair.error == 0) return true;
  if (!std::isfinite(pair.a) || !std::isfinite(pair.b)) return false;
  if (pair.error <= pair.bound) return true;
  if (tolerance.ulps && pair.ulps <= *tolerance.ulps) return true;
  return pair.error <= tolerance.atol + tolerance.rtol * std::abs(pair.b);
}

/// Accumulates the pairs.
class Census {
 public:
  explicit Census(const Tolerance& tolerance) : tolerance_(tolerance) {}

  void add(std::size_t at, const ElementPair& pair) {
    ++result_.elements;
    if (std::isnan(pair.a) || std::isnan(pair.b)) return add_nan(at, pair);
    if (pair.bound >= 0 || std::isnan(pair.bound))
      raise(result_.max_of_bound, pair.error == 0 ? 0 : pair.error / pair.bound, at);
    if (!is_close(pair, tolerance_)) ++result_.differing;
    raise(result_.max_abs, pair.error, at);
    raise(result_.max_ulps, pair.ulps, at);
    if (pair.b != 0) raise(result_.max_rel, relative(pair), at);
    add_to_histogram(pair.error);
    ++count_;
    if (std::isfinite(pair.a) && std::isfinite(pair.b)) add_finite(pair);
  }

  /// Calls set_elements(extreme) for each extreme without elements.
  template <class Set>
  void keep_elements(const Set& set_elements) {
    for (std::optional<Extreme>* extreme : {&result_.max_abs, &result_.max_rel, &result_.max_ulps,
                                            &result_.max_of_bound, &result_.first_nan})
      if (*extreme && !(*extreme)->a) set_elements(**extreme);
  }

  Comparison finish() {
    if (count_ > 0) {
      const auto count = static_cast<long double>(count_);
      const bool infinite = result_.infinitely_apart > 0;
      result_.mean_abs = infinite ? kInfinity : static_cast<double>(errors_ / count);
      result_.rms = infinite ? kInfinity : static_cast<double>(std::sqrt(squares_ / count));
    }
    result_.norm_of_a = static_cast<double>(std::sqrt(aa_));
    result_.norm_of_b = static_cast<double>(std::sqrt(bb_));
    result_.norm_of_error = static_cast<double>(std::sqrt(squares_));
    if (bb_ > 0) {
      result_.nmse = static_cast<double>(squares_ / bb_);
      result_.factor = static_cast<double>(ab_ / bb_);
    }
    if (aa_ > 0 && bb_ > 0)
      result_.cosine = static_cast<double>(ab_ / std::sqrt(aa_) / std::sqrt(bb_));
    set_pearson();
    return std::move(result_);
  }

 private:
  static double relative(const ElementPair& pair) {
    return std::isinf(pair.error) ? kInfinity : pair.error / std::abs(pair.b);
  }

  /// In long double, in which products of doubles cannot overflow.
  void add_finite(const ElementPair& pair) {
    const long double a = pair.a, b = pair.b, error = pair.error;
    ++result_.finite;
    result_.max_of_b = std::max(result_.max_of_b, std::abs(pair.b));
    errors_ += error;
    squares_ += error * error;
    a_ += a;
    b_ += b;
    aa_ += a * a;
    bb_ += b * b;
    ab_ += a * b;
  }

  /// Not if a or b is constant, or so close to it that the variance is lost in rounding errors.
  void set_pearson() {
    if (result_.finite == 0) return;
    constexpr long double kRounding = 0x1p-50L;
    const auto count = static_cast<long double>(result_.finite);
    const long double variance_a = aa_ - a_ * a_ / count, variance_b = bb_ - b_ * b_ / count;
    if (variance_a > kRounding * aa_ && variance_b > kRounding * bb_)
      result_.pearson = static_cast<double>((ab_ - a_ * b_ / count) / std::sqrt(variance_a) /
                                            std::sqrt(variance_b));
  }

  void add_nan(std::size_t at, const ElementPair& pair) {
    const bool both = std::isnan(pair.a) && std::isnan(pair.b);
    ++(both ? result_.nan_in_both : std::isnan(pair.a) ? result_.nan_in_a : result_.nan_in_b);
    if (both && tolerance_.equal_nan) return;
    ++result_.differing;
    if (!result_.first_nan || at < result_.first_nan->at) result_.first_nan = Extreme{0, at};
  }

  void add_to_histogram(double error) {
    if (error == 0)
      ++result_.equal;
    else if (std::isinf(error))
      ++result_.infinitely_apart;
    else
      ++result_.decades[static_cast<int>(std::floor(std::log10(error)))];
  }

  Tolerance tolerance_;
  Comparison result_;
  std::size_t count_ = 0;
  // Sums over finite pairs: of |a - b| and its square, of a, b, a^2, b^2 and a b.
  long double errors_ = 0, squares_ = 0, a_ = 0, b_ = 0, aa_ = 0, bb_ = 0, ab_ = 0;
};

/// Maps floats to integers such that neighbouring values differ by 1; both zeros are 0.
template <class Bits, class Float>
std::int64_t ordinal(Float value) {
  const auto bits = static_cast<std::int64_t>(std::bit_cast<Bits>(value));
  return bits < 0 ? std::numeric_limits<Bits>::min() - bits : bits;
}

std::int64_t ordinal_in(DType dtype, double value) {
  switch (dtype) {
    case DType::bf16:
      return ordinal<std::int16_t>(BFloat16(value).bits);
    case DType::f16:
      return ordinal<std::int16_t>(Half(value).bits);
    case DType::f32:
      return ordinal<std::int32_t>(static_cast<float>(value));
    default:
      return ordinal<std::int64_t>(value);
  }
}

double ulps_between(DType dtype, double a, double b) {
  if (std::isinf(a) || std::isinf(b)) return a == b ? 0 : kInfinity;
  const std::int64_t x = ordinal_in(dtype, a), y = ordinal_in(dtype, b);
  // Unsigned: two doubles can be nearly 2^64 apart.
  const auto low = static_cast<std::uint64_t>(std::min(x, y));
  return static_cast<double>(static_cast<std::uint64_t>(std::max(x, y)) - low);
}

/// The dtype in which ulps are counted; at least one of the two is a float.
DType coarser(DType a, DType b) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    if (a == dtype || b == dtype) return dtype;
  return DType::f64;
}

/// Calls f(first, elements of a, elements of b) with some of their elements at a time, in double.
template <class F>
void in_doubles(const Tensor& a, const Tensor& b, const F& f) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 16;
  const Tensor all_a = a.reshaped({a.size()}), all_b = b.reshaped({b.size()});
  for (std::size_t first = 0; first < a.size(); first += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, a.size() - first);
    const Tensor x = cast(all_a.range(first, count), DType::f64);
    const Tensor y = cast(all_b.range(first, count), DType::f64);
    f(first, x.data<double>(), y.data<double>());
  }
}

template <class Add>
void add_floats(const Tensor& a, const Tensor& b, const Add& add) {
  const DType dtype = coarser(a.dtype(), b.dtype());
  in_doubles(a, b, [&](std::size_t first, auto x, auto y) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      ElementPair pair{x[i], y[i]};
      if (!std::isnan(pair.a) && !std::isnan(pair.b) && pair.a != pair.b) {
        pair.error = std::abs(pair.a - pair.b);
        pair.ulps = ulps_between(dtype, pair.a, pair.b);
      }
      add(first + i, pair);
    }
  });
}

/// All integers and booleans are exact in one of these two.
Tensor widened(const Tensor& integers) {
  return integers.dtype() == DType::u64 ? integers : cast(integers, DType::i64);
}

template <class A, class B, class Add>
void add_integers(std::span<const A> x, std::span<const B> y, const Add& add) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Exact: a long double has 64 significant bits or more.
    const double error = static_cast<double>(
        std::abs(static_cast<long double>(x[i]) - static_cast<long double>(y[i])));
    add(i, {static_cast<double>(x[i]), static_cast<double>(y[i]), error, error, -1});
  }
}

/// Calls f(elements of a, elements of b) with the elements as one of these types.
template <class F>
void with_integers(const Tensor& a, const Tensor& b, F f) {
  const Tensor wide_a = widened(a), wide_b = widened(b);
  const auto with = [&](auto x) {
    if (wide_b.dtype() == DType::u64)
      f(x, wide_b.data<std::uint64_t>());
    else
      f(x, wide_b.data<std::int64_t>());
  };
  if (wide_a.dtype() == DType::u64)
    with(wide_a.data<std::uint64_t>());
  else
    with(wide_a.data<std::int64_t>());
}

/// Calls add(index, pair) for each pair of elements, with its bound if there are bounds.
template <class Add>
void for_each_pair(const Tensor& a, const Tensor& b, const Tensor* bounds, const Add& add) {
  std::span<const double> of_pairs;
  if (bounds != nullptr) of_pairs = bounds->data<double>();
  const auto add_bounded = [&](std::size_t at, ElementPair pair) {
    if (!of_pairs.empty()) pair.bound = of_pairs[at];
    add(at, pair);
  };
  if (is_float(a.dtype()) || is_float(b.dtype()))
    add_floats(a, b, add_bounded);
  else
    with_integers(a, b, [&](auto x, auto y) { add_integers(x, y, add_bounded); });
}

/// Sets the elements of an extreme to those at an index of these tensors.
void set_elements(Extreme& extreme, std::size_t at, const Tensor& a, const Tensor& b,
                  const Tensor* bounds) {
  const auto element = [&](const Tensor& tensor) {
    const std::size_t bytes = size_of(tensor.dtype());
    Tensor copy(tensor.dtype(), {});
    std::copy_n(tensor.raw() + at * bytes, bytes, copy.mutable_raw());
    return copy;
  };
  extreme.a = element(a), extreme.b = element(b);
  if (bounds != nullptr) extreme.bound = bounds->data<double>()[at];
}

/// The comparisons of the parts of tensors along some axes.
class PartCensuses {
 public:
  PartCensuses(std::size_t elements, const Tolerance& tolerance, std::vector<PartAxis> axes)
      : axes_(std::move(axes)), run_(std::max<std::size_t>(elements, 1)) {
    std::size_t count = 1;
    for (const PartAxis& axis : axes_) {
      count *= axis.length;
      run_ = std::min(run_, axis.stride);
    }
    censuses_.assign(count, Census(tolerance));
  }

  /// Elements come in runs, which start at multiples of run().
  std::size_t run() const { return run_; }
  Census& of(std::size_t at) {
    std::size_t part = 0;
    for (const PartAxis& axis : axes_) part = part * axis.length + at / axis.stride % axis.length;
    return censuses_[part];
  }

  std::vector<PartComparison> finish() {
    std::vector<PartComparison> parts;
    for (std::size_t i = 0; i < censuses_.size(); ++i) {
      PartComparison part{{}, censuses_[i].finish()};
      std::size_t rest = censuses_.size(), place = i;
      for (const PartAxis& axis : axes_) {
        rest /= axis.length;
        part.index.push_back(place / rest);
        place %= rest;
      }
      parts.push_back(std::move(part));
    }
    return parts;
  }

 private:
  std::vector<PartAxis> axes_;
  std::size_t run_;
  std::vector<Census> censuses_;
};

/// rtol and atol of one dtype in torch.testing.assert_close.
std::pair<double, double> default_tolerances(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {1e-7, 1e-7};
    case DType::f32:
      return {1.3e-6, 1e-5};
    case DType::f16:
      return {1e-3, 1e-5};
    case DType::bf16:
      return {1.6e-2, 1e-5};
    default:
      return {0, 0};
  }
}

}  // namespace

Tolerance default_tolerance(DType a, DType b) {
  const auto [rtol_a, atol_a] = default_tolerances(a);
  const auto [rtol_b, atol_b] = default_tolerances(b);
  return {std::max(rtol_a, rtol_b), std::max(atol_a, atol_b), {}, false};
}

Comparison compare(const Tensor& a, const Tensor& b, const Tolerance& tolerance,
                   const Tensor* bounds) {
  if (a.shape() != b.shape()) {
    Comparison different;
    different.same_shape = false;
    return different;
  }
  Census census(tolerance);
  for_each_pair(a, b, bounds,
                [&](std::size_t at, const ElementPair& pair) { census.add(at, pair); });
  census.keep_elements([&](Extreme& extreme) { set_elements(extreme, extreme.at, a, b, bounds); });
  return census.finish();
}

std::vector<PartComparison> compare_parts(const Tensor& a, const Tensor& b,
                                          const Tolerance& tolerance, const Tensor* bounds,
                                          const std::vector<PartAxis>& axes) {
  PartCensuses parts(a.size(), tolerance, axes);
  Census* current = nullptr;
  for_each_pair(a, b, bounds, [&](std::size_t at, const ElementPair& pair) {
    if (at % parts.run() == 0) current = &parts.of(at);
    current->add(at, pair);
  });
  return parts.finish();
}

struct PartwiseComparison::State {
  Census whole;
  PartCensuses parts;
};

PartwiseComparison::PartwiseComparison(const Shape& shape, const Tolerance& tolerance,
                                       std::vector<PartAxis> axes)
    : state_(std::make_unique<State>(
          State{Census(tolerance), {element_count(shape), tolerance, std::move(axes)}})) {}
PartwiseComparison::~PartwiseComparison() = default;

void PartwiseComparison::add(const Tensor& a, const Tensor& b, const Tensor* bounds,
                             const std::vector<std::size_t>& starts) {
  Census& whole = state_->whole;
  PartCensuses& parts = state_->parts;
  const std::size_t columns = a.shape().back(), run = parts.run();
  Census* current = nullptr;
  for_each_pair(a, b, bounds, [&](std::size_t i, const ElementPair& pair) {
    const std::size_t at = starts[i / columns] + i % columns;
    if (i % columns == 0 || at % run == 0) current = &parts.of(at);
    whole.add(at, pair), current->add(at, pair);
  });
  whole.keep_elements([&](Extreme& extreme) {
    const auto row = std::find_if(starts.begin(), starts.end(), [&](std::size_t start) {
      return start <= extreme.at && extreme.at < start + columns;
    });
    const auto index = static_cast<std::size_t>(row - starts.begin());
    set_elements(extreme, index * columns + extreme.at - *row, a, b, bounds);
  });
}

Comparison PartwiseComparison::whole() { return state_->whole.finish(); }
std::vector<PartComparison> PartwiseComparison::parts() { return state_->parts.finish(); }

Tensor difference(const Tensor& a, const Tensor& b) {
  Tensor result(DType::f64, a.shape());
  const auto out = result.mutable_data<double>();
  if (is_float(a.dtype()) || is_float(b.dtype())) {
    in_doubles(a, b, [&](std::size_t first, auto x, auto y) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double less = x[i] == y[i] ? 0 : x[i] - y[i];
        out[first + i] = std::isinf(less) ? std::numeric_limits<double>::quiet_NaN() : less;
      }
    });
    return result;
  }
  with_integers(a, b, [&](auto x, auto y) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<double>(static_cast<long double>(x[i]) - static_cast<long double>(y[i]));
  });
  return result;
}

namespace {

constexpr std::size_t kMaxBarLength = 40;
constexpr int kMaxDecades = 12;  // smaller errors share one bar

/// With the shortest digits that identify the value in its dtype, or as a double.
std::string element_text(const Tensor& element, bool as_double) {
  return numpy_str(as_double && is_float(element.dtype()) ? cast(element, DType::f64) : element);
}

/// Values of different dtypes are shown as doubles, since 0.1 in float16 is not 0.1 in float32.
std::string values_text(const Extreme& extreme, const Shape& shape) {
  const bool as_double = extreme.a->dtype() != extreme.b->dtype();
  return index_text(extreme.at, shape) + ": " + element_text(*extreme.a, as_double) + " and " +
         element_text(*extreme.b, as_double);
}

std::string extreme_line(const char* what, const std::optional<Extreme>& extreme,
                         const Shape& shape) {
  if (!extreme) return "";
  const std::string where = extreme->value == 0 ? "" : " at " + values_text(*extreme, shape);
  return std::string("  ") + what + six_digits(extreme->value) + where + "\n";
}

std::string nan_line(const Comparison& found, const Shape& shape) {
  if (found.nan_in_both + found.nan_in_a + found.nan_in_b == 0) return "";
  std::string text = "  NaN              " + std::to_string(found.nan_in_both) + " in both, " +
                     std::to_string(found.nan_in_a) + " in A only, " +
                     std::to_string(found.nan_in_b) + " in B only";
  if (found.first_nan)
    text += "; the first that differs at " + values_text(*found.first_nan, shape);
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
    const int first = std::max(found.decades.begin()->first, last - kMaxDecades + 1);
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
  std::size_t max = 1;
  for (const Bar& bar : bars) max = std::max(max, bar.count);
  std::string text = "  |a - b|\n";
  for (const Bar& bar : bars) {
    std::string label = bar.label;
    label.resize(std::max<std::size_t>(label.size(), 14), ' ');
    const std::size_t length = (bar.count * kMaxBarLength + max - 1) / max;
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
  if (!compared.verdict.empty()) return compared.verdict;
  const std::string tolerance = tolerance_text(compared.tolerance);
  const std::string in_brackets = tolerance.empty() ? "" : " (" + tolerance + ")";
  if (found.differing > 0)
    return std::to_string(found.differing) + " of " + std::to_string(found.elements) +
           (compared.bounds
                ? " elements exceed the error bound of " + compared.bound_of
                : (found.elements == 1 ? " element differs" : " elements differ") + in_brackets);
  if (found.equal_throughout()) return "equal";
  return compared.bounds ? "within the error bound of " + compared.bound_of : "close" + in_brackets;
}

std::string twelve_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

/// "  NMSE             1.2e-05 (SNR 49.2082 dB)"
std::string nmse_line(double nmse) {
  const std::string snr =
      nmse > 0 ? " (SNR " + six_digits(-10 * std::log10(nmse)) + " dB)" : std::string();
  return "  NMSE             " + six_digits(nmse) + snr + "\n";
}

/// "  max error/bound  0.4 at [1, 1]: 0.5 and 0.4998, bound 0.0005"
std::string bound_line(const Compared& compared, const Comparison& found) {
  if (!found.max_of_bound) return "";
  std::string line = extreme_line("max error/bound  ", found.max_of_bound, compared.a.shape());
  line.pop_back();
  return line + ", bound " + six_digits(*found.max_of_bound->bound) + "\n";
}

/// ", at most 0.46 of it" for a verdict about the bound, ", max |a - b| 1e-6", or "" if all are
/// equal.
std::string largest_error(const Compared& compared, const Comparison& found) {
  if (found.equal_throughout()) return "";
  if (found.max_of_bound && found.differing == 0 && compared.verdict.empty())
    return ", at most " + six_digits(found.max_of_bound->value) + " of it";
  return found.max_abs ? ", max |a - b| " + six_digits(found.max_abs->value) : "";
}

}  // namespace

std::string tolerance_text(const Tolerance& tolerance) {
  std::string text;
  if (tolerance.rtol > 0) text = "rtol " + six_digits(tolerance.rtol);
  if (tolerance.atol > 0) text += (text.empty() ? "atol " : ", atol ") + six_digits(tolerance.atol);
  if (tolerance.ulps && *tolerance.ulps > 0)
    text += (text.empty() ? "" : " or ") + six_digits(*tolerance.ulps) +
            (*tolerance.ulps == 1 ? " ulp" : " ulps");
  return text;
}

std::string comparison_text(const Compared& compared, const Comparison& found,
                            const std::vector<std::string>& lines, Detail detail) {
  const Tensor &a = compared.a, &b = compared.b;
  std::string text = compared.name + (compared.name.empty() ? "" : " ") +
                     both(to_string(a.shape()), to_string(b.shape())) + " " +
                     both(std::string(name_of(a.dtype())), std::string(name_of(b.dtype()))) + ": " +
                     verdict(compared, found);
  if (detail == Detail::line) return text + largest_error(compared, found) + "\n";
  text += "\n";
  for (const std::string& line : lines) text += "  " + line + "\n";
  for (const std::string& reason : compared.reasons) text += "  " + reason + "\n";
  if (!found.same_shape ||
      (found.differing == 0 && found.equal + found.nan_in_both == found.elements))
    return text;
  text += bound_line(compared, found);
  text += extreme_line("max |a - b|      ", found.max_abs, a.shape());
  text += extreme_line("max |a - b|/|b|  ", found.max_rel, a.shape());
  if (found.differing > 0 || compared.tolerance.ulps)
    text += extreme_line("max ulps         ", found.max_ulps, a.shape());
  if (detail == Detail::summary) {
    if (found.rms) text += "  RMS of a - b     " + six_digits(*found.rms) + "\n";
    return text + nan_line(found, a.shape());
  }
  if (found.mean_abs) text += "  mean |a - b|     " + six_digits(*found.mean_abs) + "\n";
  if (found.rms) text += "  RMS of a - b     " + six_digits(*found.rms) + "\n";
  if (found.nmse) text += nmse_line(*found.nmse);
  if (found.cosine) text += "  cosine           " + twelve_digits(*found.cosine) + "\n";
  if (found.pearson) text += "  PCC              " + twelve_digits(*found.pearson) + "\n";
  return text + nan_line(found, a.shape()) + (found.differing > 0 ? histogram(found) : "");
}

namespace {

constexpr std::size_t kMaxComparedParts = 6;  // rows of a table

/// How wrong a part is: infinite if NaN or infinity occurs in only one of a and b.
double severity(const Comparison& found) {
  if (found.first_nan || found.infinitely_apart > 0) return kInfinity;
  const std::optional<Extreme>& error = found.max_of_bound ? found.max_of_bound : found.max_abs;
  return error ? error->value : 0;
}

std::string table_cell(const std::optional<Extreme>& extreme) {
  return extreme ? six_digits(extreme->value) : "-";
}
std::string table_cell(const std::optional<double>& number) {
  return number ? six_digits(*number) : "-";
}

}  // namespace

std::string parts_text(const std::vector<PartAxis>& axes,
                       const std::vector<PartComparison>& parts) {
  std::vector<const PartComparison*> wrong;
  for (const PartComparison& part : parts)
    if (!part.found.same()) wrong.push_back(&part);
  if (parts.size() < 2 || wrong.empty()) return "";
  std::stable_sort(wrong.begin(), wrong.end(),
                   [](const PartComparison* one, const PartComparison* other) {
                     return severity(one->found) > severity(other->found);
                   });
  const bool bounded = std::any_of(wrong.begin(), wrong.end(), [](const PartComparison* part) {
    return part->found.max_of_bound.has_value();
  });
  const std::string indent = "  ";  // a column
  std::vector<std::string> head = {indent};
  for (const PartAxis& axis : axes) head.push_back(axis.name);
  for (const char* column : {"differing", "max error/bound", "max |a - b|", "RMS", "PCC"})
    if (bounded || column != std::string_view("max error/bound")) head.emplace_back(column);
  std::vector<std::vector<std::string>> rows = {head};
  for (std::size_t i = 0; i < std::min(wrong.size(), kMaxComparedParts); ++i) {
    const Comparison& found = wrong[i]->found;
    std::vector<std::string> row = {indent};
    for (const std::size_t place : wrong[i]->index) row.push_back(std::to_string(place));
    row.push_back(std::to_string(found.differing) + " of " + std::to_string(found.elements));
    if (bounded) row.push_back(table_cell(found.max_of_bound));
    row.push_back(table_cell(found.max_abs));
    row.push_back(table_cell(found.rms));
    row.push_back(table_cell(found.pearson));
    rows.push_back(std::move(row));
  }
  const std::string& last = axes.back().name;
  const std::string noun = last == "head" ? "head" : last == "batch" ? "batch item" : "part";
  std::string text = "  " + std::to_string(wrong.size()) + " of " + counted(parts.size(), noun) +
                     (wrong.size() == 1 ? " differs" : " differ") +
                     (wrong.size() > 1 ? ", largest errors first" : "") + "\n" +
                     aligned_rows(rows, 0, head.size());
  if (wrong.size() > kMaxComparedParts)
    text += "    and " + std::to_string(wrong.size() - kMaxComparedParts) + " more\n";
  return text;
}

}  // namespace attn
