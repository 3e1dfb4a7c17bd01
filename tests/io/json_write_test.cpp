#include "attn/io/json_write.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "attn/base/error.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_tensor.h"

using namespace attn;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::string text_of(T value) {
  return to_json(Tensor::of<T>({}, {value}), -1);
}

/// The tensor after writing and reading.
Tensor round_trip(const Tensor& tensor) {
  return tensor_from_json(parse_json(to_json(tensor, 2), "F"), "T");
}

/// Floats of all exponents.
template <class T, class Bits>
Tensor finite_of_random_bits(const Shape& shape) {
  std::mt19937_64 random(20240229);
  Tensor tensor(dtype_of<T>, shape);
  for (T& value : tensor.mutable_data<T>()) {
    do {
      value = std::bit_cast<T>(static_cast<Bits>(random()));
    } while (!std::isfinite(value));
  }
  return tensor;
}

/// All finite bit patterns of a 16-bit float.
template <class T>
Tensor all_finite() {
  std::vector<T> values;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    if (std::isfinite(static_cast<float>(value))) values.push_back(value);
  }
  return Tensor::of<T>({values.size()}, values);
}

/// Whether all elements have the same bits.
bool identical(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace

TEST_CASE("floats have the fewest digits that identify a double and a point or an exponent") {
  CHECK(text_of(1.0) == "1.0");
  CHECK(text_of(-0.0) == "-0.0");
  CHECK(text_of(0.1) == "0.1");
  CHECK(text_of(100000.0) == "100000.0");
  CHECK(text_of(1e15) == "1000000000000000.0");
  CHECK(text_of(1e16) == "1e+16");
  CHECK(text_of(1e-4) == "0.0001");
  CHECK(text_of(1.25e-5) == "1.25e-05");
  CHECK(text_of(2.8414709848078967) == "2.8414709848078967");
  CHECK(text_of(5e-324) == "5e-324");
  CHECK(text_of(0.1f) == "0.10000000149011612");
  CHECK(text_of(123456789.0f) == "123456792.0");
  CHECK(text_of(Half(0.1)) == "0.0999755859375");
  CHECK(text_of(Half(65504)) == "65504.0");
  CHECK(text_of(BFloat16(3.14159)) == "3.140625");
  CHECK(text_of(BFloat16(18446744073709551616.0)) == "1.8446744073709552e+19");
  CHECK(text_of(kNaN) == "\"NaN\"");
  CHECK(text_of(kInfinity) == "\"Infinity\"");
  CHECK(text_of(Half(-kInfinity)) == "\"-Infinity\"");
}

TEST_CASE("integers are written exactly, booleans as words") {
  CHECK(text_of<std::int64_t>(INT64_MIN) == "-9223372036854775808");
  CHECK(text_of<std::uint64_t>(UINT64_MAX) == "18446744073709551615");
  CHECK(text_of<std::int8_t>(-128) == "-128");
  CHECK(text_of<std::uint8_t>(65) == "65");
  CHECK(text_of(true) == "true");
  CHECK(text_of(false) == "false");
}

TEST_CASE("a matrix is written with a line for each row") {
  const Tensor matrix = Tensor::of<double>({2, 2}, {1, 2.5, kNaN, -1});
  CHECK(to_json(matrix, -1) == "[[1.0,2.5],[\"NaN\",-1.0]]");
  CHECK(to_json(matrix, 2) == "[\n  [1.0, 2.5],\n  [\"NaN\", -1.0]\n]");
  CHECK(to_json(matrix, 4) == "[\n    [1.0, 2.5],\n    [\"NaN\", -1.0]\n  ]");
  CHECK(to_json(Tensor::of<std::int64_t>({3}, {1, 2, 3}), 2) == "[1, 2, 3]");
  CHECK(to_json(Tensor::of<std::int64_t>({2, 1, 1}, {1, 2}), 2) ==
        "[\n  [\n    [1]\n  ],\n  [\n    [2]\n  ]\n]");
  CHECK(to_json(Tensor(DType::f64, {2, 0}), 2) == "[\n  [],\n  []\n]");
  CHECK(to_json(Tensor(DType::f64, {0, 3}), 2) == "[]");
}

TEST_CASE("2^40 rows without elements are refused") {
  const std::size_t rows = std::size_t{1} << 40;
  CHECK(to_json(Tensor(DType::f64, {0, rows}), 2) == "[]");
  try {
    to_json(Tensor(DType::f64, {rows, 1, 0}), 2);
    FAIL("was written");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "shape (1099511627776, 1, 0) has too many rows without elements");
  }
}

TEST_CASE("documents are written compactly and read back unchanged") {
  const std::string text =
      R"({"b":[true,null,"é😀"],"a":{},"n":[1,-2],"f":[0.5,"NaN","-Infinity"],"":"\"\\\n\t\u001b/","u":18446744073709551615})";
  CHECK(to_json(parse_json(text, "F")) == text);
}

TEST_CASE("quoted text is always valid JSON") {
  CHECK(json_quoted("a\"b\\c\r\x7f") == R"("a\"b\\c\u000d\u007f")");
  CHECK(json_quoted("a\u202eb\u0085") == R"("a\u202eb\u0085")");
  CHECK(json_quoted("\U000E0001\u00e9") == "\"\\udb40\\udc01\u00e9\"");
  CHECK(json_quoted(std::string("\0", 1)) == R"("\u0000")");
  CHECK(json_quoted("bad \xFF\xC3") == "\"bad \uFFFD\uFFFD\"");
}

TEST_CASE("a million random doubles are written and read back bit for bit", "[long]") {
  const Tensor doubles = finite_of_random_bits<double, std::uint64_t>({1000, 1000});
  CHECK(identical(round_trip(doubles), doubles));
}

TEST_CASE("random floats and all 16-bit floats are written and read back bit for bit") {
  const Tensor singles = finite_of_random_bits<float, std::uint32_t>({200, 1000});
  CHECK(identical(cast(round_trip(singles), DType::f32), singles));
  const Tensor halves = all_finite<Half>(), brains = all_finite<BFloat16>();
  CHECK(identical(cast(round_trip(halves), DType::f16), halves));
  CHECK(identical(cast(round_trip(brains), DType::bf16), brains));
}

TEST_CASE("random integers are written and read back exactly") {
  std::mt19937_64 random(11);
  std::vector<std::int64_t> values(100'000);
  for (std::int64_t& value : values) value = static_cast<std::int64_t>(random() >> random() % 64);
  const Tensor tensor = Tensor::of<std::int64_t>({100, 1000}, values);
  CHECK(identical(round_trip(tensor), tensor));
}
