#include "attn/io/csv.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "attn/base/error.h"

using namespace attn;
using namespace std::string_literals;

namespace {

Tensor matrix(const std::string& text) {
  FileBytes file;
  file.path = "m.csv";
  file.data = {reinterpret_cast<const std::byte*>(text.data()), [](const std::byte*) {}};
  file.size = text.size();
  return read_csv(file, "m.csv");
}

std::string complaint_about_csv(const std::string& text) {
  try {
    matrix(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "";
}

using Integers = std::vector<std::int64_t>;
using Floats = std::vector<double>;

Integers integers(const std::string& text) {
  const Tensor tensor = matrix(text);
  const auto data = tensor.data<std::int64_t>();
  return {data.begin(), data.end()};
}

Floats floats(const std::string& text) {
  const Tensor tensor = matrix(text);
  const auto data = tensor.data<double>();
  return {data.begin(), data.end()};
}

}  // namespace

TEST_CASE("lines are rows, and integers stay integers") {
  CHECK(matrix("1,2,3\n4,5,6\n").shape() == Shape{2, 3});
  CHECK(integers("1,2,3\n4,5,6\n") == Integers{1, 2, 3, 4, 5, 6});
  CHECK(integers("1,2\r\n-3,+4\r\n\r\n\r\n") == Integers{1, 2, -3, 4});
  CHECK(integers("7") == Integers{7});
  CHECK(integers("\xEF\xBB\xBF"
                 "1, 2\n\t3 ,4") == Integers{1, 2, 3, 4});
  CHECK(integers("\"1\",2\n3,\"4\"\r\n") == Integers{1, 2, 3, 4});
  CHECK(integers("9007199254740993,-9223372036854775808") == Integers{9007199254740993, INT64_MIN});
  CHECK(matrix("18446744073709551615,1").data<std::uint64_t>()[0] == UINT64_MAX);
}

TEST_CASE("one float makes the whole matrix float") {
  CHECK(floats("1,2\n3,4.5\n") == Floats{1, 2, 3, 4.5});
  CHECK(floats("1e3,.5,2.,-1E-2") == Floats{1000, 0.5, 2, -0.01});
  CHECK(floats("inf,-inf,Infinity,-Infinity") == Floats{INFINITY, -INFINITY, INFINITY, -INFINITY});
  CHECK(std::isnan(floats("nan,1")[0]));
  CHECK(std::isnan(floats("1,NaN")[1]));
  CHECK(floats("1e-999,-1e-999,5e-324") == Floats{0, -0.0, 5e-324});
  const Floats zeros = floats("0,-0,-00,-0.0,1.5");  // as numpy.loadtxt
  CHECK(!std::signbit(zeros[0]));
  CHECK((std::signbit(zeros[1]) && std::signbit(zeros[2]) && std::signbit(zeros[3])));
  CHECK(floats("1.0,9007199254740993") == Floats{1, 9007199254740992});
}

TEST_CASE("a header and a column of names are skipped") {
  CHECK(integers("query,key value\n1,2\n") == Integers{1, 2});
  CHECK(integers("\"a,b\",\"c\nd \"\"e\"\"\"\n1,2\n") == Integers{1, 2});
  const Tensor named = matrix(",\"I\nsay\",\"\",2\nI,1,2,3\n\"a, b\",4,5,6\n");
  CHECK(named.shape() == Shape{2, 3});
  CHECK(named.data<std::int64_t>()[5] == 6);
}

TEST_CASE("a long line is read completely", "[long]") {
  std::string line = "0";
  for (int i = 1; i < 1'000'000; ++i) line += ",1";
  CHECK(matrix(line).shape() == Shape{1, 1'000'000});
}

TEST_CASE("text that is not a matrix is refused with its line and column") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is empty"},
      {"\n\r\n", "is empty"},
      {"a,b\n", "has no rows of numbers"},
      {"=cmd()", "has no rows of numbers"},
      {"1,2\n3\n", "line 2: has 1 cell, line 1 has 2"},
      {"a,b\n1,2,3\n", "line 2: has 3 cells, line 1 has 2"},
      {"1,2\n\n3,4\n", "line 2: is blank, but more rows follow"},
      {"\n1,2\n", "line 1: is blank, but more rows follow"},
      {"1,2\n3,\n", "line 2, column 2: is empty, expected a number"},
      {"1,2\n,3\n", "line 2, column 1: is empty, expected a number"},
      {"1,2,\n", "line 1, column 3: is empty, expected a number"},
      {"1,2\n3,\"\"\n", "line 2, column 2: is empty, expected a number"},
      {"a,b\n1,x\n", "line 2, column 2: expected a number, found 'x'"},
      {"\"a\nb\",c\n1,x\n", "line 3, column 2: expected a number, found 'x'"},
      {"1,oops\n3,4\n",
       "line 1, column 2: expected a number, found 'oops' (a header cannot contain numbers)"},
      {"1;2\n3;4\n",
       "line 1, column 1: expected a number, found '1;2' (cells are separated by ',')"},
      {"1,5;2,5\n",
       "line 1, column 2: expected a number, found '5;2' (cells are separated by ',')"},
      {"a;b\n1;2\n",
       "line 1, column 1: expected a number, found 'a;b' (cells are separated by ',')"},
      {"1\t2\n",
       "line 1, column 1: expected a number, found '1\\x092' (cells are separated by ',')"},
      {"1 2\n", "line 1, column 1: expected a number, found '1 2' (cells are separated by ',')"},
      {"token,a\ncat,1\n",
       "line 2, column 1: expected a number, found 'cat' (if column 1 holds names, leave the first "
       "cell of the header empty)"},
      {"city,a\nNew York,1\n",
       "line 2, column 1: expected a number, found 'New York' (if column 1 holds names, leave the "
       "first cell of the header empty)"},
      {"x\nabc\n", "line 2, column 1: expected a number, found 'abc'"},
      {"a,b\n1,2\nn/a,3\n", "line 3, column 1: expected a number, found 'n/a'"},
      {"1,2\n0x10,3\n", "line 2, column 1: expected a number, found '0x10'"},
      {"0x10\n3\n",
       "line 1, column 1: expected a number, found '0x10' (a header cannot contain numbers)"},
      {"1,2\n3,1_000\n", "line 2, column 2: expected a number, found '1_000'"},
      {"1,2\n3,4abc\n", "line 2, column 2: expected a number, found '4abc'"},
      {"1,2\n3,--4\n", "line 2, column 2: expected a number, found '--4'"},
      {"1,2\n3,+-4\n", "line 2, column 2: expected a number, found '+-4'"},
      {"1,2\n3,1e\n", "line 2, column 2: expected a number, found '1e'"},
      {"1,2\n3,Inf\n", "line 2, column 2: expected a number, found 'Inf'"},
      {"1,2\n3,nan(1)\n", "line 2, column 2: expected a number, found 'nan(1)'"},
      {"1,2\n3,true\n", "line 2, column 2: expected a number, found 'true'"},
      {"1,2\n=cmd(),3\n", "line 2, column 1: expected a number, found '=cmd()'"},
      {"1,2\n1e999,3\n", "line 2, column 1: expected a number that fits a float64, found '1e999'"},
      {"-1e999\n", "line 1, column 1: expected a number that fits a float64, found '-1e999'"},
      {"18446744073709551616\n",
       "line 1, column 1: expected a number that fits 64 bits, found '18446744073709551616'"},
      {"1\n-9223372036854775809\n",
       "line 2, column 1: expected a number that fits 64 bits, found '-9223372036854775809'"},
      {"-1,18446744073709551615\n",
       "has integers below 0 and above 2^63 - 1, which no 64-bit type can represent (write one "
       "with a '.' for floats)"},
      {"1,2\n3,\"4\n", "line 2, column 2: the quote is not closed"},
      {"1,2\n\"3\"x,4\n", "line 2, column 1: text after the closing quote"},
      {"1,2\n3,4\"\n", "line 2, column 2: expected a number, found '4\"'"},
      {"1,\"2\n3\"\n",
       "line 1, column 2: expected a number, found '2\\x0a3' (a header cannot contain numbers)"},
      {"1,2\0\n"s, "byte 3 is NUL, expected text in UTF-8"},
      {"1,\xFF\n", "byte 2 is not UTF-8"},
      {"\xFF\xFE"
       "1\0"s,
       "is UTF-16, expected UTF-8 (save it as UTF-8)"},
      {"1,2\n3,\x1B[31m\n", "line 2, column 2: expected a number, found '\\x1b[31m'"},
  };
  for (const auto& [text, expected] : cases) {
    INFO(text);
    CHECK(complaint_about_csv(text) == "m.csv: " + expected);
  }
}

TEST_CASE("matrices are written with enough digits to be read back exactly") {
  const Tensor tensor = Tensor::of<double>({2, 2}, {1, 0.1, NAN, -INFINITY});
  CHECK(to_csv(tensor, "T") == "1.0,0.1\nnan,-inf\n");
  CHECK(to_csv(Tensor::of<float>({3}, {0.1f, 2, 3}), "T") == "0.10000000149011612,2.0,3.0\n");
  CHECK(to_csv(Tensor::of<std::int64_t>({}, {7}), "T") == "7\n");
  CHECK(to_csv(Tensor::of<bool>({1, 2}, {true, false}), "T") == "1,0\n");
  CHECK(to_csv(Tensor::of<Half>({1, 2}, {Half(0.1), Half(INFINITY)}), "T") ==
        "0.0999755859375,inf\n");

  const Tensor thirds =
      Tensor::of<double>({2, 2}, {1.0 / 3, 5e-324, -1.7976931348623157e308, -0.0});
  const Tensor again = matrix(to_csv(thirds, "T"));
  CHECK(std::memcmp(again.raw(), thirds.raw(), thirds.bytes()) == 0);
}

TEST_CASE("tensors that CSV cannot represent are refused") {
  const auto refusal = [](const Shape& shape) {
    try {
      to_csv(Tensor(DType::f64, shape), "T");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return "written"s;
  };
  CHECK(refusal({2, 3, 4}) == "T: CSV holds one matrix, found shape (2, 3, 4)");
  CHECK(refusal({0, 3}) == "T: CSV holds one matrix, found shape (0, 3)");
  CHECK(refusal({std::size_t{1} << 40, 0}) ==
        "T: CSV holds one matrix, found shape (1099511627776, 0)");
}
