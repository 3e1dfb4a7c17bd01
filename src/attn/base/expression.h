// Expressions of gates ("max_abs < 1e-3 and cosine > 0.999") and of similar options, as syntax
// trees. Languages differ in their names and in whether numbers are real.
//
//   expression  and ("or" and)*
//   and         not ("and" not)*
//   not         "not" not | comparison
//   comparison  sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)*
//   sum         product (("+" | "-") product)*
//   product     unary (OPERATOR unary)*
//   unary       "-" unary | atom
//   atom        NUMBER | NAME | call | element | "(" expression ")"
//   call        NAME "(" argument ("," argument)* ")"
//   element     NAME "[" sum ("," sum)* "]"
//   argument    (WORD "=")? sum
//
// OPERATOR is "*" or, with real numbers, "/", or, with integers or Language::rounds_down, "//" or
// "%".
//
// a < b < c means a < b and b < c, as in Python. Comparisons, "and", "or" and "not" have truth
// values, everything else numbers; operators do not accept the other kind, unless the language says
// so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace attn {

struct Expression {
  enum class Kind {
    number,
    name,
    call,   ///< of a function; the operands are its arguments
    index,  ///< an element of a table; the operands are its indices
    negate,
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    remainder,
    comparison,  ///< of each operand with the next
    logical_not,
    logical_and,
    logical_or
  };
  enum class Relation { less, less_equal, greater, greater_equal, equal, not_equal };

  Kind kind = Kind::number;
  std::size_t position = 1;                ///< of its first character or operator, from 1
  double real = 0;                         ///< of a number
  std::int64_t integer = 0;                ///< of a number, in languages of integers
  std::string name = {};                   ///< of a name, a function or a table
  std::vector<Expression> operands = {};   ///< one, two or, where several are possible, all
  std::vector<Relation> relations = {};    ///< of a comparison, one fewer than operands
  std::vector<std::string> keywords = {};  ///< of a call: the word before "=", or ""

  bool is_truth_value() const { return kind >= Kind::comparison; }
};

/// Returns f(compare), where compare(a, b) says whether the relation holds between two numbers.
template <class F>
auto with_relation(Expression::Relation relation, const F& f) {
  switch (relation) {
    case Expression::Relation::less:
      return f([](auto a, auto b) { return a < b; });
    case Expression::Relation::less_equal:
      return f([](auto a, auto b) { return a <= b; });
    case Expression::Relation::greater:
      return f([](auto a, auto b) { return a > b; });
    case Expression::Relation::greater_equal:
      return f([](auto a, auto b) { return a >= b; });
    case Expression::Relation::equal:
      return f([](auto a, auto b) { return a == b; });
    case Expression::Relation::not_equal:
      break;
  }
  return f([](auto a, auto b) { return a != b; });
}

/// Whether the relation holds between two numbers.
template <class T>
bool holds(Expression::Relation relation, T a, T b) {
  return with_relation(relation, [&](auto compare) { return compare(a, b); });
}

/// What expressions may contain.
struct Language {
  std::string noun;  ///< what its names are, in messages: "metric"
  std::vector<std::string> names, functions = {}, tables = {};
  bool has_reals = false;           ///< otherwise numbers are integers
  bool rounds_down = false;         ///< real numbers have "//" and "%", too
  bool numbers_are_true = false;    ///< unless they are 0
  bool truths_are_numbers = false;  ///< 0 and 1
};

inline constexpr std::size_t kMaxExpressionLength = 4096;  ///< bytes
inline constexpr std::size_t kMaxExpressionDepth = 64;     ///< of parentheses, "not" and "-"

/// The expression that `text` has from the byte `start` on. Positions count the characters of all
/// of `text`. Errors: usage, with the position and, for an unknown name, similar ones.
Expression parse_expression(const std::string& text, std::size_t start, const Language& language);

/// Throws the error of parse_expression() about this part: "MESSAGE at character 7".
[[noreturn]] void fail_at(const Expression& part, const std::string& message,
                          const std::string& hint = "");

/// Calls visit(part) for the expression and all its parts.
template <class Visit>
void for_each_part(const Expression& expression, const Visit& visit) {
  visit(expression);
  for (const Expression& operand : expression.operands) for_each_part(operand, visit);
}

}  // namespace attn
