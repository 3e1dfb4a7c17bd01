// Arrays as text, byte for byte as NumPy prints them (numpy._core.arrayprint), and lists and tuples
// of arrays as IPython prints them (IPython.lib.pretty, lines of at most 79 columns).
//
// NumPy 1 and 2 differ. PrintOptions::numpy = 1 is NumPy 1.24 to 1.26, and 2 is NumPy 2.3 and
// later: float32 and float16 get exponents from 1e6 and 1e3 on instead of 1e8, a float32 next to
// 1e-4 gets none, and the repr of a summarised array states its shape. (2.0 to 2.2 have some of
// these rules.)
//
// The printed elements determine a common notation and number of digits (FloatFormat). ArrayLayout
// arranges them in lines with brackets. bfloat16, which NumPy lacks, is printed as float32, which
// is exact; in the styles jax and tf, it has six digits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/base/number_text.h"
#include "attn/base/print_options.h"
#include "attn/tensor/tensor.h"

namespace attn {

struct ArrayLayout {
  Shape shape;              ///< no axis is empty
  bool summarised = false;  ///< axes longer than 2 * edgeitems show only their ends
  std::size_t edgeitems = 3;
  std::string separator = " ";  ///< between elements; ", " in a repr
  std::size_t indent = 0;       ///< columns before the first bracket
  long linewidth = 75;          ///< greatest width of a line
};

/// Row-major indices of the printed elements, in order.
std::vector<std::size_t> shown_elements(const ArrayLayout& layout);

/// `words` are the texts of the printed elements. The last axis fills lines and wraps; each row of
/// a matrix starts a new line; each further axis adds an empty line between blocks.
std::string bracketed(const std::vector<std::string>& words, const ArrayLayout& layout);

std::string numpy_str(const Tensor& tensor, const PrintOptions& options = {});   ///< print(a)
std::string numpy_repr(const Tensor& tensor, const PrintOptions& options = {});  ///< array([...])

/// numpy.array2string: the array with its brackets alone, also of rank 0. `prefix` and `suffix` are
/// the widths of the text around it.
std::string array2string(const Tensor& tensor, const PrintOptions& options,
                         const std::string& separator, std::size_t prefix, std::size_t suffix);

/// NumPy's FloatingFormat. All numbers of an array share one notation: scientific if the largest
/// magnitude is at least 1e8 (in NumPy 2, 1e6 for float32 and 1e3 for float16), or, unless
/// options.suppress, if the smallest is below 1e-4 or the largest is more than 1000 times the
/// smallest (ignoring zeros, NaN and infinities). All have the width of the widest; NaN and
/// infinities are right-aligned.
class FloatFormat {
 public:
  /// `values` are the elements to be printed, of `dtype` (f64, f32 or f16).
  FloatFormat(const std::vector<double>& values, DType dtype, const PrintOptions& options);

  std::string operator()(double value) const;

 private:
  void measure(const std::vector<double>& finite, const PrintOptions& options);

  DType dtype_;
  Notation notation_ = Notation::positional;
  DigitRule rule_;
  std::size_t left_ = 0;      ///< characters before the point
  std::size_t right_ = 0;     ///< characters after it
  std::size_t exponent_ = 0;  ///< digits of the exponent
};

enum class Sequence { list, tuple };

/// "[a, b]", "(a, b)" or "(a,)" from the reprs of the items. On one line if it fits and no item has
/// several lines; otherwise one item per line, indented by one space:
///
///   [array([[1, 2],
///           [3, 4]]),
///    array([5])]
std::string ipython_sequence(Sequence sequence, const std::vector<std::string>& items);

}  // namespace attn
