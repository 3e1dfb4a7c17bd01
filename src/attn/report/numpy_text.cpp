#include "attn/report/numpy_text.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "attn/base/number_text.h"
#include "attn/report/array_layout.h"
#include "attn/report/float_format.h"

namespace attn {
namespace {

using Words = std::vector<std::string>;

/// The texts of the elements `shown`, all of the same width. The elements `measured` determine the
/// notation and the number of digits.
template <class T>
Words words_of(const Tensor& tensor, const std::vector<std::size_t>& measured,
               const std::vector<std::size_t>& shown, const PrintOptions& options) {
  const auto data = tensor.data<T>();
  Words words;
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
  } else {
    std::vector<double> values;
    for (const std::size_t index : measured) values.push_back(static_cast<double>(data[index]));
    const FloatFormat format(values, tensor.dtype(), options);
    for (const std::size_t index : shown) words.push_back(format(static_cast<double>(data[index])));
  }
  return words;
}

/// The array with its brackets; `prefix` and `suffix` are the widths of the text around it.
std::string array_text(const Tensor& tensor, const PrintOptions& options,
                       const std::string& separator, std::size_t prefix, std::size_t suffix) {
  if (tensor.size() == 0) return "[]";
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

/// bfloat16, which NumPy lacks, is printed with the digits of float32.
Tensor printable_tensor(const Tensor& tensor) {
  return tensor.dtype() == DType::bf16 ? cast(tensor, DType::f32) : tensor;
}

}  // namespace

std::string numpy_str(const Tensor& tensor, const PrintOptions& options) {
  const Tensor shown = printable_tensor(tensor);
  if (shown.rank() > 0 || !is_float(shown.dtype())) return array_text(shown, options, " ", 0, 0);
  const double value = visit(
      shown.dtype(), [&]<class T>(Type<T>) { return static_cast<double>(shown.data<T>()[0]); });
  return python_repr(value, shown.dtype());
}

std::string numpy_repr(const Tensor& tensor, const PrintOptions& options) {
  const DType dtype = tensor.dtype();
  const bool implied =
      tensor.size() > 0 && (dtype == DType::f64 || dtype == DType::i64 || dtype == DType::boolean);
  std::string text = "array(";
  if (tensor.size() == 0 && tensor.shape() != Shape{0})
    text += "[], shape=" + to_string(tensor.shape());
  else
    text += array_text(printable_tensor(tensor), options, ", ", text.size(), 1);
  if (implied) return text + ")";
  const std::string dtype_text = "dtype=" + std::string(name_of(dtype)) + ")";
  text += ",";
  const auto last_line = static_cast<long>(text.size() - (text.rfind('\n') + 1));
  const bool full = last_line + 1 + static_cast<long>(dtype_text.size()) > options.linewidth;
  text += full ? "\n      " : " ";  // below the bracket, or after it
  return text + dtype_text;
}

}  // namespace attn
