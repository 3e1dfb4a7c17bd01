#include <catch2/catch.hpp>

#include "attn/print/numpy_text.h"

using namespace attn;

TEST_CASE("short sequences are written on one line, as in Python") {
  CHECK(ipython_sequence(Sequence::list, {}) == "[]");
  CHECK(ipython_sequence(Sequence::tuple, {}) == "()");
  CHECK(ipython_sequence(Sequence::list, {"1"}) == "[1]");
  CHECK(ipython_sequence(Sequence::tuple, {"4"}) == "(4,)");
  CHECK(ipython_sequence(Sequence::tuple, {"2", "4"}) == "(2, 4)");
  CHECK(ipython_sequence(Sequence::list, {"array([1, 2])", "array([3])"}) ==
        "[array([1, 2]), array([3])]");
}

TEST_CASE("a sequence of more than 79 characters has a line for each item") {
  const std::string item(37, '1');  // "[" + 37 + ", " + 38 + "]" is 79
  CHECK(ipython_sequence(Sequence::list, {item, item + "1"}) ==
        "[" + item + ", " + item + "1" + "]");
  CHECK(ipython_sequence(Sequence::list, {item, item + "11"}) ==
        "[" + item + ",\n " + item + "11" + "]");
}

TEST_CASE("an item of several lines breaks the whole sequence and is indented by one") {
  const std::string matrix = "array([[1, 2],\n       [3, 4]])";
  CHECK(ipython_sequence(Sequence::list, {matrix, "array([5])"}) ==
        "[array([[1, 2],\n        [3, 4]]),\n array([5])]");
  CHECK(ipython_sequence(Sequence::tuple, {"array([5])", matrix}) ==
        "(array([5]),\n array([[1, 2],\n        [3, 4]]))");
  CHECK(ipython_sequence(Sequence::tuple, {matrix}) == "(array([[1, 2],\n        [3, 4]]),)");
}
