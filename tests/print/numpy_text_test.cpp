// The expected texts were printed by NumPy 1.24.2.
#include "attn/print/numpy_text.h"

#include <catch2/catch.hpp>
#include <limits>

#include "attn/base/number_text.h"

using namespace attn;
using FloatMode = PrintOptions::FloatMode;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor f64(const std::vector<double>& values) {
  return Tensor::of<double>({values.size()}, values);
}

Tensor f32(const std::vector<float>& values) { return Tensor::of<float>({values.size()}, values); }

template <class T>
Tensor range(Shape shape, T step = T(1)) {
  Tensor tensor(dtype_of<T>, std::move(shape));
  T next = T(0);
  for (T& value : tensor.mutable_data<T>()) {
    value = next;
    next = T(next + step);
  }
  return tensor;
}

}  // namespace

TEST_CASE("floats of an array share their notation and their columns") {
  CHECK(numpy_str(f64({1, 2.5, -3.125})) == "[ 1.     2.5   -3.125]");
  CHECK(numpy_repr(f64({1, 2.5, -3.125})) == "array([ 1.   ,  2.5  , -3.125])");
  CHECK(numpy_str(f64({-0.0, 0.0})) == "[-0.  0.]");
  CHECK(numpy_str(f64({0.98522025, 1.74174051e-4, 0.756})) ==
        "[9.85220250e-01 1.74174051e-04 7.56000000e-01]");
}

TEST_CASE("e-notation starts above a ratio of 1000, below 1e-4 and from 1e8 on") {
  CHECK(numpy_str(f64({1000, 1})) == "[1000.    1.]");
  CHECK(numpy_str(f64({1001, 1})) == "[1.001e+03 1.000e+00]");
  CHECK(numpy_str(f64({0.0001, 0.01})) == "[0.0001 0.01  ]");
  CHECK(numpy_str(f64({0.00009, 0.01})) == "[9.e-05 1.e-02]");
  CHECK(numpy_str(f64({99999999, 5e7})) == "[99999999. 50000000.]");
  CHECK(numpy_str(f64({1e8, 5e7})) == "[1.e+08 5.e+07]");
  CHECK(numpy_str(f64({1e-300, 1e5, 1.5})) == "[1.0e-300 1.0e+005 1.5e+000]");
  // The limit is compared in double: float32's 0.0001 is a little less.
  CHECK(numpy_repr(f32({0.0001f, 0.01f})) == "array([1.e-04, 1.e-02], dtype=float32)");
}

TEST_CASE("suppress keeps small numbers out of e-notation, not large ones") {
  PrintOptions options;
  options.suppress = true;
  CHECK(numpy_str(f64({1e-9, 1.5, 2000}), options) == "[   0.     1.5 2000. ]");
  CHECK(numpy_str(f64({1e8, 5e7}), options) == "[1.e+08 5.e+07]");
}

TEST_CASE("NaN and infinities are right-aligned") {
  CHECK(numpy_str(f64({1, kNan, -kInf})) == "[  1.  nan -inf]");
  CHECK(numpy_str(f64({kNan, kInf})) == "[nan inf]");
  CHECK(numpy_str(f64({kNan, -kInf, kNan})) == "[ nan -inf  nan]");
  CHECK(numpy_str(f64({kNan, 1e10, -kInf})) == "[   nan 1.e+10   -inf]");
}

TEST_CASE("precision and floatmode choose the digits") {
  PrintOptions options;
  options.precision = 0;
  CHECK(numpy_str(f64({0.5, 1.5, 2.5}), options) == "[0. 2. 2.]");
  options.precision = 3;
  options.floatmode = FloatMode::fixed;
  CHECK(numpy_str(f64({0.5, 2}), options) == "[0.500 2.000]");
  options.precision = 8;
  options.floatmode = FloatMode::maxprec_equal;
  CHECK(numpy_str(f64({0.5, 0.12345}), options) == "[0.50000 0.12345]");
  options.floatmode = FloatMode::unique;
  CHECK(numpy_str(f64({0.1 + 0.2, 0.5}), options) == "[0.30000000000000004 0.5                ]");
}

TEST_CASE("each dtype has the digits that distinguish its neighbours") {
  CHECK(numpy_repr(f32({0.1f, 1.0f / 3})) == "array([0.1       , 0.33333334], dtype=float32)");
  CHECK(numpy_repr(Tensor::of<Half>({2}, {Half(0.015625), Half(1 / 3.0)})) ==
        "array([0.01563, 0.3333 ], dtype=float16)");
  CHECK(numpy_repr(Tensor::of<Half>({2}, {Half(65504), Half(0.1)})) ==
        "array([6.55e+04, 1.00e-01], dtype=float16)");
  CHECK(numpy_repr(Tensor::of<BFloat16>({2}, {BFloat16(0.1), BFloat16(3)})) ==
        "array([0.10009766, 3.        ], dtype=bfloat16)");
}

TEST_CASE("digits beyond the shortest text are those of the exact value") {
  CHECK(numpy_str(f32({1e-5f, 1.2345678e10f})) == "[9.9999997e-06 1.2345678e+10]");
  // ... but for a power of two never the digits of the lower neighbour.
  PrintOptions options;
  options.precision = 15;
  CHECK(numpy_str(f64({0x1p-645, 1 + 1 / 3.0}), options) ==
        "[6.849404215651260e-195 1.333333333333333e+000]");
}

TEST_CASE("integers and booleans are right-aligned") {
  CHECK(numpy_repr(Tensor::of<std::uint64_t>({2}, {0, 18446744073709551615u})) ==
        "array([                   0, 18446744073709551615], dtype=uint64)");
  CHECK(numpy_repr(Tensor::of<std::int8_t>({2}, {-128, 5})) == "array([-128,    5], dtype=int8)");
  CHECK(numpy_repr(range<std::int64_t>({3})) == "array([0, 1, 2])");
  CHECK(numpy_str(Tensor::of<bool>({2, 2}, {true, false, true, true})) ==
        "[[ True False]\n [ True  True]]");
}

TEST_CASE("str of a 0-d array is that of the scalar, and its repr obeys the options") {
  CHECK(numpy_str(Tensor::of<double>({}, {0.1 + 0.2})) == "0.30000000000000004");
  CHECK(numpy_repr(Tensor::of<double>({}, {0.1 + 0.2})) == "array(0.3)");
  CHECK(numpy_str(Tensor::of<Half>({}, {Half(65504)})) == "65500.0");
  CHECK(numpy_str(Tensor::of<float>({}, {1e-4f})) == "1e-04");
  CHECK(numpy_str(Tensor::of<bool>({}, {true})) == "True");
  CHECK(numpy_repr(Tensor::of<bool>({}, {true})) == "array(True)");
  CHECK(numpy_repr(Tensor::of<std::int32_t>({}, {7})) == "array(7, dtype=int32)");
}

TEST_CASE("empty arrays show their shape and dtype") {
  CHECK(numpy_str(Tensor(DType::f64, {0, 3})) == "[]");
  CHECK(numpy_repr(Tensor(DType::f64, {0})) == "array([], dtype=float64)");
  CHECK(numpy_repr(Tensor(DType::f64, {0, 3})) == "array([], shape=(0, 3), dtype=float64)");
  CHECK(numpy_repr(Tensor(DType::boolean, {2, 0})) == "array([], shape=(2, 0), dtype=bool)");
}

TEST_CASE("axes beyond the second are separated by empty lines") {
  CHECK(numpy_str(range<std::int64_t>({2, 2, 2})) == "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
  CHECK(numpy_repr(range<std::int64_t>({2, 1, 2, 1})) ==
        "array([[[[0],\n         [1]]],\n\n\n       [[[2],\n         [3]]]])");
}

TEST_CASE("large arrays are summarised, and only shown elements determine the digits") {
  CHECK(numpy_repr(range<std::int64_t>({1000})).find("...") == std::string::npos);
  CHECK(numpy_repr(range<std::int64_t>({1001})) ==
        "array([   0,    1,    2, ...,  998,  999, 1000])");
  Tensor tensor = range<double>({1001});
  tensor.mutable_data<double>()[500] = 0.123;
  CHECK(numpy_str(tensor) == "[   0.    1.    2. ...  998.  999. 1000.]");
  PrintOptions options;
  options.edgeitems = 1;
  options.threshold = 8;
  CHECK(numpy_str(range<std::int64_t>({3, 3}), options) == "[[0 ... 2]\n ...\n [6 ... 8]]");
  options.edgeitems = 0;
  CHECK(numpy_str(range<std::int64_t>({12}), options) == "[... 11]");
}

TEST_CASE("lines are wrapped at linewidth, brackets and dtype included") {
  PrintOptions options;
  options.linewidth = 40;
  CHECK(numpy_repr(range<std::int64_t>({18}), options) ==
        "array([ 0,  1,  2,  3,  4,  5,  6,  7,\n"
        "        8,  9, 10, 11, 12, 13, 14, 15,\n"
        "       16, 17])");
  CHECK(numpy_str(range<std::int64_t>({18}), options) ==
        "[ 0  1  2  3  4  5  6  7  8  9 10 11 12\n 13 14 15 16 17]");
  options.linewidth = 3;
  CHECK(numpy_str(range<double>({3}), options) == "[0.\n 1.\n 2.]");
  options.linewidth = 30;
  CHECK(numpy_repr(range<std::int32_t>({4}), options) == "array([0, 1, 2, 3],\n      dtype=int32)");
}

TEST_CASE("python_repr writes a float as Python does") {
  CHECK(python_repr(2.8414709848078967) == "2.8414709848078967");
  CHECK(python_repr(0) == "0.0");
  CHECK(python_repr(-0.0) == "-0.0");
  CHECK(python_repr(100) == "100.0");
  CHECK(python_repr(1e-4) == "0.0001");
  CHECK(python_repr(1e-5) == "1e-05");
  CHECK(python_repr(1.5e-5) == "1.5e-05");
  CHECK(python_repr(9999999999999998) == "9999999999999998.0");
  CHECK(python_repr(1e16) == "1e+16");
  CHECK(python_repr(5e-324) == "5e-324");
  CHECK(python_repr(1.7976931348623157e308) == "1.7976931348623157e+308");
  CHECK(python_repr(kNan) == "nan");
  CHECK(python_repr(-kInf) == "-inf");
}
