#include "attn/io/json_tensor.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "attn/base/error.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"

using namespace attn;

namespace {

Tensor tensor(const std::string& text) { return tensor_from_json(parse_json(text, "F"), "W_Q"); }

std::string complaint_about_tensor(const std::string& text) {
  try {
    tensor(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "";
}

template <class T>
std::vector<T> cells(const Tensor& tensor) {
  const auto data = tensor.data<T>();
  return {data.begin(), data.end()};
}

}  // namespace

TEST_CASE("nested numbers become a tensor of the narrowest kind") {
  CHECK(tensor("[[1,2,3],[4,5,6]]").shape() == Shape{2, 3});
  CHECK(cells<std::int64_t>(tensor("[[1,2,3],[4,5,6]]")) ==
        std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
  CHECK(cells<double>(tensor("[[1,2],[3,4.5]]")) == std::vector<double>{1, 2, 3, 4.5});
  CHECK(cells<std::uint64_t>(tensor("[1,18446744073709551615]")) ==
        std::vector<std::uint64_t>{1, UINT64_MAX});
  CHECK(cells<double>(tensor("[[-1,18446744073709551615],[0.5,1]]")) ==
        std::vector<double>{-1, 18446744073709551616.0, 0.5, 1});
  CHECK(cells<bool>(tensor("[[true,false]]")) == std::vector<bool>{true, false});
  CHECK(cells<std::int64_t>(tensor("[9007199254740993]"))[0] == 9007199254740993);
}

TEST_CASE("a single number has no axes, and empty rows are counted") {
  CHECK(tensor("7").shape() == Shape{});
  CHECK(tensor("7").data<std::int64_t>()[0] == 7);
  CHECK(tensor("true").dtype() == DType::boolean);
  CHECK(std::isnan(tensor("\"NaN\"").data<double>()[0]));
  CHECK(tensor("[]").shape() == Shape{0});
  CHECK(tensor("[[]]").shape() == Shape{1, 0});
  CHECK(tensor("[[],[]]").shape() == Shape{2, 0});
  CHECK(tensor("[[]]").dtype() == DType::f64);
}

TEST_CASE("tensors may have 4 axes, or 64") {
  CHECK(tensor("[[[[1,2],[3,4]],[[5,6],[7,8]]],[[[1,2],[3,4]],[[5,6],[7,8]]]]").shape() ==
        Shape{2, 2, 2, 2});
  CHECK(tensor(std::string(64, '[') + "1" + std::string(64, ']')).rank() == 64);
}

TEST_CASE("NaN and infinities are strings, even alone in a row") {
  const auto values = cells<double>(tensor("[[\"NaN\",\"-Infinity\"],[1,\"Infinity\"]]"));
  CHECK(std::isnan(values[0]));
  CHECK(values[1] == -INFINITY);
  CHECK(values[2] == 1);
  CHECK(values[3] == INFINITY);
}

TEST_CASE("a value that is not a tensor is refused with the offending row") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[[1,2,3],[4,5]]", "row [1] has 2 elements, row [0] has 3"},
      {"[[1],[2,3.5]]", "row [1] has 2 elements, row [0] has 1"},
      {"[[[1],[2]],[[3]]]", "row [1] has 1 element, row [0] has 2"},
      {"[[[1],[2]],[[3],[4,5]]]", "row [1][1] has 2 elements, row [0][0] has 1"},
      {"[[],[1]]", "row [1] has 1 element, row [0] has 0"},
      {"[[1],[]]", "row [1] has 0 elements, row [0] has 1"},
      {"[[1,2],3]", "element [1] is an integer, row [0] has 2 elements"},
      {"[[[1],[2]],[3,4]]", "element [1][0] is an integer, row [0][0] has 1 element"},
      {"[[[1],[2]],[3.5,4]]", "element [1][0] is a float, row [0][0] has 1 element"},
      {"[[1],null]", "element [1] is null, row [0] has 1 element"},
      {"[1,[2]]", "element [1] is an array, element [0] is not"},
      {"[true,1]", "element [1] is a number, element [0] is a boolean"},
      {"[[1,2],[true,false]]", "element [1][0] is a boolean, element [0][0] is a number"},
      {"[[true],[1.5]]", "element [1][0] is a number, element [0][0] is a boolean"},
      {"[1,null]", "element [1]: expected a number, found null"},
      {"[[1],[\"x\\u001b\"]]", "element [1][0]: expected a number, found the string 'x\\x1b'"},
      {"[1,{}]", "element [1]: expected a number, found an object"},
      {"{\"a\":1}", "expected a number, found an object"},
      {"\"nan\"", "expected a number, found the string 'nan'"},
      {"null", "expected a number, found null"},
      {"[-1,18446744073709551615]",
       "has integers below 0 and above 2^63 - 1, which no 64-bit type can represent (write one "
       "with a '.' for floats)"},
  };
  for (const auto& [text, expected] : cases) {
    INFO(text);
    CHECK(complaint_about_tensor(text) == "W_Q: " + expected);
  }
}
