// The text of an expression of integers or of real numbers, with the names of rules: parentheses
// around each part do not change the syntax tree.
#include "attn/base/expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "support/fuzz.h"

using namespace attn;

namespace {

Language language(bool has_reals) {
  return {.noun = "name",
          .names = {"q", "k", "i", "j", "b", "h", "g", "L", "S"},
          .functions = {"abs", "min", "max", "exp", "log"},
          .tables = {"t", "u", "doc"},
          .has_reals = has_reals,
          .rounds_down = has_reals,
          .numbers_are_true = !has_reals,
          .truths_are_numbers = has_reals};
}

std::string_view symbol_of(const Expression& part, std::size_t operand) {
  using Kind = Expression::Kind;
  constexpr std::array<std::string_view, 6> kRelations = {"<", "<=", ">", ">=", "==", "!="};
  switch (part.kind) {
    case Kind::add:
      return "+";
    case Kind::subtract:
      return "-";
    case Kind::multiply:
      return "*";
    case Kind::divide:
      return "/";
    case Kind::floor_divide:
      return "//";
    case Kind::remainder:
      return "%";
    case Kind::comparison:
      return kRelations[static_cast<std::size_t>(part.relations[operand - 1])];
    case Kind::logical_and:
      return " and ";
    case Kind::logical_or:
      return " or ";
    default:
      return ", ";
  }
}

template <class T>
std::string text_of_number(T number) {
  std::array<char, 32> digits;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

/// With parentheses around all operands.
std::string with_parentheses(const Expression& part, bool has_reals) {
  using Kind = Expression::Kind;
  std::string operands;
  const bool is_list = part.kind == Kind::call || part.kind == Kind::index;
  for (std::size_t i = 0; i < part.operands.size(); ++i) {
    if (i > 0) operands += symbol_of(part, i);
    if (is_list && !part.keywords[i].empty()) operands += part.keywords[i] + "=";
    operands += "(" + with_parentheses(part.operands[i], has_reals) + ")";
  }
  switch (part.kind) {
    case Kind::number:
      return has_reals ? text_of_number(part.real) : text_of_number(part.integer);
    case Kind::name:
      return part.name;
    case Kind::call:
      return part.name + "(" + operands + ")";
    case Kind::index:
      return part.name + "[" + operands + "]";
    case Kind::negate:
      return "-" + operands;
    case Kind::logical_not:
      return "not " + operands;
    default:
      return operands;
  }
}

bool same(const Expression& a, const Expression& b) {
  return a.kind == b.kind && a.real == b.real && a.integer == b.integer && a.name == b.name &&
         a.relations == b.relations && a.keywords == b.keywords &&
         std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(),
                    same);
}

std::size_t depth_of(const Expression& part) {
  std::size_t depth = 0;
  for (const Expression& operand : part.operands) depth = std::max(depth, depth_of(operand));
  return depth + 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::array kLanguages = {language(false), language(true)};
  const std::string text(fuzz::text_of(data, size));
  for (const Language& language : kLanguages) {
    Expression found;
    if (!fuzz::accepted([&] { found = parse_expression(text, 0, language); })) continue;
    for_each_part(found, [&](const Expression& part) {
      fuzz::require(part.position >= 1 && part.position <= size, "parts are in the text");
    });
    // Parentheses and the operation in them are two levels.
    if (2 * depth_of(found) > kMaxExpressionDepth) continue;
    const std::string full = with_parentheses(found, language.has_reals);
    if (full.size() > kMaxExpressionLength) continue;
    Expression again;
    fuzz::require(fuzz::accepted([&] { again = parse_expression(full, 0, language); }),
                  "parentheses are accepted");
    fuzz::require(same(found, again), "parentheses do not change the tree");
  }
  return 0;
}
