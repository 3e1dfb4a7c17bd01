// Expressions as trees: precedence, languages of integers with tables, limits.
#include "attn/base/expression.h"

#include <catch2/catch.hpp>
#include <string>

#include "attn/base/error.h"

using namespace attn;

namespace {

using Kind = Expression::Kind;
using Relation = Expression::Relation;

const Language kRule{.noun = "name",
                     .names = {"q", "k"},
                     .functions = {"abs", "min"},
                     .tables = {"doc", "anc"},
                     .has_reals = false,
                     .numbers_are_true = true};

/// The tree in prefix notation: "(+ q (* 2 k))".
std::string prefix(const Expression& tree) {
  constexpr const char* kRelations[] = {"<", "<=", ">", ">=", "==", "!="};
  std::string head;
  switch (tree.kind) {
    case Kind::number:
      return std::to_string(tree.integer);
    case Kind::name:
      return tree.name;
    case Kind::call:
      head = tree.name;
      break;
    case Kind::index:
      head = tree.name + "[]";
      break;
    case Kind::negate:
      head = "-";
      break;
    case Kind::add:
      head = "+";
      break;
    case Kind::subtract:
      head = "-";
      break;
    case Kind::multiply:
      head = "*";
      break;
    case Kind::divide:
      head = "/";
      break;
    case Kind::floor_divide:
      head = "//";
      break;
    case Kind::remainder:
      head = "%";
      break;
    case Kind::comparison:
      for (const Relation relation : tree.relations)
        head += (head.empty() ? "" : " ") + std::string(kRelations[static_cast<int>(relation)]);
      break;
    case Kind::logical_not:
      head = "not";
      break;
    case Kind::logical_and:
      head = "and";
      break;
    case Kind::logical_or:
      head = "or";
      break;
  }
  std::string text = "(" + head;
  for (const Expression& operand : tree.operands) text += " " + prefix(operand);
  return text + ")";
}

std::string parsed(const std::string& text) { return prefix(parse_expression(text, 0, kRule)); }

std::string message(const std::string& text) {
  try {
    parse_expression(text, 0, kRule);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("expression: precedence is that of Python") {
  CHECK(parsed("q - k - 1 < 2 * 3 + 4") == "(< (- (- q k) 1) (+ (* 2 3) 4))");
  CHECK(parsed("q // 4 % 3 * 2 == k") == "(== (* (% (// q 4) 3) 2) k)");
  CHECK(parsed("-q * k + -1 != 0") == "(!= (+ (* (- q) k) (- 1)) 0)");
  CHECK(parsed("not q < k and k < 3 or q >= 9") == "(or (and (not (< q k)) (< k 3)) (>= q 9))");
  CHECK(parsed("q < 1 or q < 2 or q < 3") == "(or (< q 1) (< q 2) (< q 3))");
  CHECK(parsed("0 <= q - k < 128") == "(<= < 0 (- q k) 128)");
  CHECK(parsed("q >= k and (q - k < 128 or k < 4)") ==
        "(and (>= q k) (or (< (- q k) 128) (< k 4)))");
}

TEST_CASE("expression: tables, functions and numbers as truth values") {
  CHECK(parsed("doc[q] == doc[k]") == "(== (doc[] q) (doc[] k))");
  CHECK(parsed("anc[q, k - 2]") == "(anc[] q (- k 2))");
  CHECK(parsed("abs(q - k) <= min(q, 8)") == "(<= (abs (- q k)) (min q 8))");
  CHECK(parsed("doc[q] or not doc[k]") == "(or (doc[] q) (not (doc[] k)))");
}

TEST_CASE("expression: all integers of int64") {
  CHECK(parsed("9223372036854775807") == "9223372036854775807");
  CHECK(message("q < 9223372036854775808") ==
        "expected a number within the limits of int64, found '9223372036854775808' at character 5");
  CHECK(message("q < 0.5") == "expected an integer, found '0.5' at character 5");
  CHECK(message("q < 1e3") == "expected an integer, found '1e3' at character 5");
}

TEST_CASE("expression: errors name the position") {
  CHECK(message("q / 2 == k") == "expected an operator, found '/' at character 3 (use '//')");
  CHECK(message("pos[q] == 1") == "unknown table 'pos' at character 1");
  CHECK(message("sqrt(q)") == "unknown name 'sqrt' at character 1");
  CHECK(message("q[0]") == "unknown table 'q' at character 1");
  CHECK(message("doc[]") == "expected a number, a name or '(', found ']' at character 5");
  CHECK(message("doc[q == k]") == "expected ',' or ']', found '==' at character 7");
  CHECK(message("(q < k) < 2") == "expected a number, found a truth value at character 4");
}

TEST_CASE("expression: as long and as deep as allowed") {
  std::string sum = "1";
  while (sum.size() + 2 <= kMaxExpressionLength) sum += "+1";
  CHECK(parsed(sum).size() > sum.size());
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '(') + "q" + std::string(depth, ')');
  };
  CHECK(parsed(nested(kMaxExpressionDepth)) == "q");
  CHECK(message(nested(kMaxExpressionDepth + 1)) ==
        "expected at most 64 nested operations at character 65");
}

TEST_CASE("expression: starts at a byte of a text, and positions count its characters") {
  const std::string text = "\u00e9: q < p";
  CHECK(prefix(parse_expression("\u00e9: q < k", 3, kRule)) == "(< q k)");
  CHECK_THROWS_AS(parse_expression(text, 3, kRule), Error);
  try {
    parse_expression(text, 3, kRule);
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "unknown name 'p' at character 8");
  }
}
