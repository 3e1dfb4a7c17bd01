#include "attn/print/numpy_text.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "attn/base/number_text.h"
#include "attn/base/text.h"

namespace attn {
namespace {

/// Elements printed at the start and at the end of an axis, and whether some between are omitted.
struct Ends {
  std::size_t head = 0, tail = 0;
  bool gap = false;
};

Ends ends_of(std::size_t extent, const ArrayLayout& layout) {
  if (!layout.summarised || extent <= 2 * layout.edgeitems) return {0, extent, false};
  // NumPy prints the last element even if edgeitems is 0.
  return {layout.edgeitems, std::max<std::size_t>(layout.edgeitems, 1), true};
}

void collect(const ArrayLayout& layout, std::size_t axis, std::size_t start,
             std::vector<std::size_t>& indices) {
  if (axis == layout.shape.size()) {
    indices.push_back(start);
    return;
  }
  const std::size_t extent = layout.shape[axis];
  const Ends ends = ends_of(extent, layout);
  for (std::size_t i = 0; i < ends.head; ++i)
    collect(layout, axis + 1, start * extent + i, indices);
  for (std::size_t i = extent - ends.tail; i < extent; ++i)
    collect(layout, axis + 1, start * extent + i, indices);
}

std::string without_spaces_at_end(const std::string& text) {
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

/// Prints the words of one array in row-major order.
class Typesetter {
 public:
  Typesetter(const std::vector<std::string>& words, const ArrayLayout& layout)
      : words_(words), layout_(layout) {}

  /// The block of `axis`. Its bracket is at column `indent` - 1 and its lines end before column
  /// `width`; the columns after that are for outer closing brackets.
  std::string block(std::size_t axis, std::size_t indent, long width) {
    if (axis == layout_.shape.size()) return words_[next_++];
    const Ends ends = ends_of(layout_.shape[axis], layout_);
    std::vector<std::string> items;
    for (std::size_t i = 0; i < ends.head; ++i)
      items.push_back(block(axis + 1, indent + 1, width - 1));
    if (ends.gap) items.push_back("...");
    for (std::size_t i = 0; i < ends.tail; ++i)
      items.push_back(block(axis + 1, indent + 1, width - 1));
    const std::size_t axes_within = layout_.shape.size() - axis - 1;
    std::string text = "[";
    text += axes_within == 0 ? wrapped(items, indent, width) : stacked(items, indent, axes_within);
    return text + "]";
  }

 private:
  std::string wrapped(const std::vector<std::string>& items, std::size_t indent, long width) const {
    std::string text, line(indent, ' ');
    for (std::size_t i = 0; i < items.size(); ++i) {
      // One column stays free for the separator's comma or the bracket. A word longer than any line
      // is not moved.
      const bool full = static_cast<long>(line.size() + items[i].size()) > width - 1;
      if (full && line.size() > indent) {
        text += without_spaces_at_end(line) + "\n";
        line.assign(indent, ' ');
      }
      line += items[i];
      if (i + 1 < items.size()) line += layout_.separator;
    }
    return (text + line).substr(indent);
  }

  std::string stacked(const std::vector<std::string>& items, std::size_t indent,
                      std::size_t axes_within) const {
    const std::string between = without_spaces_at_end(layout_.separator) +
                                std::string(axes_within, '\n') + std::string(indent, ' ');
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : between) + item;
    return text;
  }

  const std::vector<std::string>& words_;
  const ArrayLayout& layout_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<std::size_t> shown_elements(const ArrayLayout& layout) {
  std::vector<std::size_t> indices;
  collect(layout, 0, 0, indices);
  return indices;
}

std::string bracketed(const std::vector<std::string>& words, const ArrayLayout& layout) {
  return Typesetter(words, layout).block(0, layout.indent + 1, layout.linewidth);
}

namespace {

using Texts = std::vector<std::string>;

/// The texts of the elements `shown`, all of the same width (except bfloat16). The elements
/// `measured` determine the notation and the number of digits.
template <class T>
Texts words_of(const Tensor& tensor, const std::vector<std::size_t>& measured,
               const std::vector<std::size_t>& shown, const PrintOptions& options) {
  const auto data = tensor.data<T>();
  Texts words;
  if constexpr (std::is_integral_v<T>) {
    std::size_t width = 0;
    const auto text = [&](std::size_t index) -> std::string {
      if constexpr (std::is_same_v<T, bool>) return data[index] ? "True" : "False";
      return std::to_string(data[index]);
    };
    for (const std::size_t index : measured) width = std::max(width, text(index).size());
    if (std::is_same_v<T, bool> && tensor.rank() > 0) width = 5;
    for (const std::size_t index : shown) {
      words.push_back(text(index));
      words.back().insert(0, width - words.back().size(), ' ');
    }
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    for (const std::size_t index : shown)
      words.push_back(six_digits(static_cast<double>(data[index])));
  } else {
    std::vector<double> values;
    for (const std::size_t index : measured) values.push_back(static_cast<double>(data[index]));
    const FloatFormat format(values, tensor.dtype(), options);
    for (const std::size_t index : shown) words.push_back(format(static_cast<double>(data[index])));
  }
  return words;
}

/// The least magnitude with an exponent: `usual`, but for f32 and f16 in NumPy 2 10^p, where p is
/// numpy.finfo(dtype).precision.
double exponent_limit(DType dtype, int numpy, double usual) {
  if (numpy == 1 || dtype == DType::f64) return usual;
  return dtype == DType::f32 ? 1e6 : 1e3;
}

/// NumPy has no bfloat16. In JAX and TensorFlow it is the type of the package ml_dtypes, to which
/// NumPy's rules for floats do not apply.
bool prints_as_float32(const Tensor& tensor, const PrintOptions& options) {
  return tensor.dtype() == DType::bf16 && options.style == TextStyle::numpy;
}

}  // namespace

std::string array2string(const Tensor& tensor, const PrintOptions& options,
                         const std::string& separator, std::size_t prefix, std::size_t suffix) {
  if (tensor.size() == 0) return "[]";
  if (prints_as_float32(tensor, options))
    return array2string(cast(tensor, DType::f32), options, separator, prefix, suffix);
  ArrayLayout layout;
  layout.shape = tensor.shape();
  layout.summarised = std::cmp_greater(tensor.size(), options.threshold);
  layout.edgeitems = static_cast<std::size_t>(options.edgeitems);
  layout.separator = separator;
  layout.indent = prefix;
  layout.linewidth = options.linewidth - static_cast<long>(suffix);
  const std::vector<std::size_t> shown = shown_elements(layout);
  ArrayLayout deciding = layout;
  deciding.summarised =
      layout.summarised && options.edgeitems > 0;  // without edge items all are measured
  const std::vector<std::size_t> measured = shown_elements(deciding);
  return bracketed(
      visit(tensor.dtype(),
            [&]<class T>(Type<T>) { return words_of<T>(tensor, measured, shown, options); }),
      layout);
}

std::string numpy_str(const Tensor& tensor, const PrintOptions& options) {
  if (prints_as_float32(tensor, options)) return numpy_str(cast(tensor, DType::f32), options);
  if (tensor.rank() > 0 || !is_float(tensor.dtype()) || tensor.dtype() == DType::bf16)
    return array2string(tensor, options, " ", 0, 0);
  const double value = visit(
      tensor.dtype(), [&]<class T>(Type<T>) { return static_cast<double>(tensor.data<T>()[0]); });
  return python_repr(value, tensor.dtype(), exponent_limit(tensor.dtype(), options.numpy, 1e16));
}

std::string numpy_repr(const Tensor& tensor, const PrintOptions& options) {
  const DType dtype = tensor.dtype();
  const bool implied =
      tensor.size() > 0 && (dtype == DType::f64 || dtype == DType::i64 || dtype == DType::boolean);
  const std::string shape = "shape=" + to_string(tensor.shape());
  const bool is_empty = tensor.size() == 0 && tensor.shape() != Shape{0};
  std::string text = "array(", extras;
  text += array2string(tensor, options, ", ", text.size(), 1);
  if (is_empty && options.numpy == 1)
    text += ", " + shape;  // not moved to the next line
  else if (is_empty || (options.numpy == 2 && std::cmp_greater(tensor.size(), options.threshold)))
    extras = shape;
  if (!implied) extras += (extras.empty() ? "dtype=" : ", dtype=") + std::string(name_of(dtype));
  if (extras.empty()) return text + ")";
  text += ",", extras += ")";
  const auto last_line = static_cast<long>(text.size() - (text.rfind('\n') + 1));
  const bool full = last_line + 1 + static_cast<long>(extras.size()) > options.linewidth;
  text += full ? "\n      " : " ";  // below the bracket, or after it
  return text + extras;
}

namespace {

/// The quotient in the dtype's arithmetic; f16 and f32 may overflow or round.
double quotient(double a, double b, DType dtype) {
  if (dtype == DType::f64) return a / b;
  const float result = static_cast<float>(a) / static_cast<float>(b);
  return dtype == DType::f16 ? double(Half(result)) : double(result);
}

Notation notation_for(const std::vector<double>& finite, DType dtype, const PrintOptions& options) {
  double min = HUGE_VAL, max = 0;
  for (const double value : finite) {
    const double magnitude = std::fabs(value);
    if (magnitude == 0) continue;
    min = std::min(min, magnitude);
    max = std::max(max, magnitude);
  }
  if (max == 0) return Notation::positional;
  // NumPy 2 compares in the dtype, in which 1e-4 is a little less or more.
  const double least_positional = options.numpy == 2 && dtype == DType::f32 ? double{1e-4F} : 1e-4;
  const bool wide = max >= exponent_limit(dtype, options.numpy, 1e8);
  const bool small =
      !options.suppress && (min < least_positional || quotient(max, min, dtype) > 1000);
  return wide || small ? Notation::scientific : Notation::positional;
}

}  // namespace

FloatFormat::FloatFormat(const std::vector<double>& values, DType dtype,
                         const PrintOptions& options)
    : dtype_(dtype) {
  std::vector<double> finite;
  bool below = false;  // some value is -inf
  for (const double value : values) {
    if (std::isfinite(value)) finite.push_back(value);
    below = below || (std::isinf(value) && value < 0);
  }
  measure(finite, options);
  if (finite.size() == values.size()) return;
  const std::size_t widest = below ? 4 : 3;  // "-inf"; else "nan", "inf"
  left_ = std::max(left_, widest - std::min(widest, right_ + 1));
}

void FloatFormat::measure(const std::vector<double>& finite, const PrintOptions& options) {
  if (finite.empty()) return;
  const bool fixed = options.floatmode == PrintOptions::FloatMode::fixed;
  const bool unlimited = options.floatmode == PrintOptions::FloatMode::unique;
  notation_ = notation_for(finite, dtype_, options);
  rule_.unique = !fixed;
  rule_.max_digits = unlimited ? -1 : options.precision;
  rule_.trim_zeros = !fixed;
  for (const double value : finite) {
    const std::string text = number_text(value, dtype_, notation_, rule_);
    const std::size_t point = text.find('.'), e = std::min(text.find('e'), text.size());
    left_ = std::max(left_, point);
    right_ = std::max(right_, e - point - 1);
    if (e < text.size()) exponent_ = std::max(exponent_, text.size() - e - 2);
  }
  const bool equal = notation_ == Notation::scientific || fixed ||
                     options.floatmode == PrintOptions::FloatMode::maxprec_equal;
  rule_.trim_zeros = !equal;
  rule_.min_digits = equal ? static_cast<int>(right_) : 0;
  if (equal) rule_.max_digits = rule_.min_digits;
  if (notation_ == Notation::scientific) right_ += exponent_ + 2;
}

std::string FloatFormat::operator()(double value) const {
  const std::size_t width = left_ + 1 + right_;
  if (!std::isfinite(value)) {
    const std::string text = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
    return std::string(width - std::min(width, text.size()), ' ') + text;
  }
  std::string text = number_text(value, dtype_, notation_, rule_);
  text.insert(0, left_ - std::min(left_, text.find('.')), ' ');
  if (notation_ == Notation::scientific) {
    const std::size_t digits = text.find('e') + 2;
    text.insert(digits, exponent_ - std::min(exponent_, text.size() - digits), '0');
  } else if (text.size() < width) {
    text.append(width - text.size(), ' ');
  }
  return text;
}

namespace {

constexpr std::size_t kLineWidth = 79;

/// Indents every line after the first by one space.
std::string indented(const std::string& item) {
  std::string text;
  for (const char c : item) text += c == '\n' ? std::string("\n ") : std::string(1, c);
  return text;
}

}  // namespace

std::string ipython_sequence(Sequence sequence, const std::vector<std::string>& items) {
  const bool list = sequence == Sequence::list;
  const std::string open = list ? "[" : "(";
  const std::string close = list ? "]" : items.size() == 1 ? ",)" : ")";

  const std::string line = open + join(items, ", ") + close;
  const bool one_line = line.size() <= kLineWidth && line.find('\n') == std::string::npos;
  if (one_line) return line;

  std::vector<std::string> lines(items.size());
  std::transform(items.begin(), items.end(), lines.begin(), indented);
  return open + join(lines, ",\n ") + close;
}

}  // namespace attn
