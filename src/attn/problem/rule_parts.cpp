#include "attn/problem/rule_parts.h"

#include <algorithm>

#include "attn/base/error.h"

namespace attn::rule {
namespace {

std::size_t function_named(const std::string& name, const Language& language) {
  return static_cast<std::size_t>(
      std::find(language.functions.begin(), language.functions.end(), name) -
      language.functions.begin());
}

bool is_reserved(const std::string& name, const Language& language) {
  const auto is_name = [&](const auto& entry) { return entry.first == name; };
  return std::any_of(kNames.begin(), kNames.end(), is_name) ||
         function_named(name, language) < language.functions.size() || name == "and" ||
         name == "or" || name == "not";
}

[[noreturn]] void refuse(const std::string& key, const std::string& expected,
                         const std::string& found) {
  fail_data({.subject = key, .expected = expected, .found = found});
}

/// Errors: data, for a name or a shape that a table cannot have.
Table table_of(const RuleKind& kind, const std::string& key, const Tensor& tensor) {
  const std::string name = key.substr(kMaskTables.size());
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const bool is_word = !name.empty() && is_letter(name[0]) &&
                       std::all_of(name.begin(), name.end(),
                                   [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
  if (!is_word) refuse(key, "a name of letters, digits and '_'", "'" + name + "'");
  if (is_reserved(name, kind.language))
    refuse(key, "another name", "'" + name + "', which " + std::string(kind.key) + " defines");
  if (tensor.rank() < 1 || tensor.rank() > 3)
    refuse(key, "one to three axes", "shape " + to_string(tensor.shape()));
  return {.name = name, .elements = tensor, .columns = tensor.shape().back()};
}

/// Builds the list of parts from the tree of the parser.
class Compiler {
 public:
  Compiler(const RuleKind& kind, const TensorMap& tensors, const Inputs& in, Parts& to)
      : kind_(kind), in_(in), to_(to) {
    for (const auto& [key, tensor] : tensors)
      if (key.starts_with(kMaskTables)) to_.tables.push_back(table_of(kind, key, tensor));
  }

  std::size_t add(const Expression& expression) {
    Part part{.kind = expression.kind, .position = expression.position};
    part.number = expression.integer, part.real = expression.real;
    part.relations = expression.relations;
    if (part.kind == Expression::Kind::name) set_name(expression, part);
    if (part.kind == Expression::Kind::call) set_function(expression, part);
    if (part.kind == Expression::Kind::index) set_table(expression, part);
    for (const Expression& operand : expression.operands) {
      part.operands.push_back(add(operand));
      part.is_of_key |= to_.parts[part.operands.back()].is_of_key;
    }
    to_.parts.push_back(std::move(part));
    return to_.parts.size() - 1;
  }

 private:
  void set_name(const Expression& expression, Part& part) {
    for (const auto& [name, meaning] : kNames)
      if (name == expression.name) part.name = meaning;
    part.is_of_key = part.name == Name::k || part.name == Name::j;
    to_.of_keys |= part.is_of_key;
    to_.of_queries |= part.name == Name::q || part.name == Name::i;
    to_.of_items |= part.name == Name::b;
    to_.of_heads |= part.name == Name::h || part.name == Name::g;
  }

  void set_function(const Expression& expression, Part& part) {
    const std::string& name = expression.name;
    for (const std::string& word : expression.keywords)
      if (!word.empty()) fail_at(expression, name + " has no argument '" + word + "'");
    part.of = function_named(name, kind_.language);
    const std::size_t count = expression.operands.size();
    const bool has_several = name == "min" || name == "max";
    if (has_several ? count < 2 : count != 1)
      fail_at(expression, std::string("expected ") +
                              (has_several ? "two or more arguments" : "one argument") + " of " +
                              name + ", found " + std::to_string(count));
  }

  void set_table(const Expression& expression, Part& part) {
    while (to_.tables[part.of].name != expression.name) ++part.of;
    Table& table = to_.tables[part.of];
    const Shape& shape = table.elements.shape();
    const std::size_t indices = expression.operands.size();
    const bool has_items = indices + 1 == shape.size() && shape[0] == in_.B;
    if (indices > 2 || (indices != shape.size() && !has_items))
      fail_at(expression, "expected " + std::to_string(std::min<std::size_t>(2, shape.size())) +
                              " indices of " + table.name + " " + to_string(shape) + ", found " +
                              std::to_string(indices));
    if (table.items > 1 && !has_items)
      fail_at(expression, table.name + " has different numbers of indices");
    if (is_float(table.elements.dtype()) && !is_float(kind_.numbers))
      refuse(std::string(kMaskTables) + table.name, "integers or booleans",
             std::string(name_of(table.elements.dtype())));
    table.elements = cast(table.elements, kind_.numbers);
    table.items = has_items ? in_.B : 1;
    table.has_rows = indices == 2;
    table.rows = table.has_rows ? shape[shape.size() - 2] : 1;
    to_.of_items |= table.items > 1;
  }

  const RuleKind& kind_;
  const Inputs& in_;
  Parts& to_;
};

}  // namespace

Language language_of(const RuleKind& kind, const TensorMap& tensors) {
  Language language = kind.language;
  for (const auto& [name, meaning] : kNames) language.names.emplace_back(name);
  for (const std::string& key : tensors.names_below(kMaskTables))
    language.tables.push_back(key.substr(kMaskTables.size()));
  return language;
}

Parts parts_of(const RuleKind& kind, const std::vector<std::string>& texts,
               const TensorMap& tensors, const Inputs& in) {
  Parts parts{.parts = {}, .tables = {}};
  parts.L = static_cast<std::int64_t>(in.L), parts.S = static_cast<std::int64_t>(in.P + in.N);
  parts.heads_of_group = in.G == 0 ? 1 : std::max<std::size_t>(1, in.H / in.G);
  try {
    Compiler compiler(kind, tensors, in, parts);
    Part all{.kind = Expression::Kind::logical_and, .position = 0};
    for (const std::string& text : texts) {
      const Expression whole = parse_expression(text, 0, language_of(kind, tensors));
      if (is_float(kind.numbers) && whole.is_truth_value())
        fail_at(whole, "expected numbers to add, found a truth value", " (use mask_rule)");
      all.operands.push_back(compiler.add(whole));
      all.is_of_key |= parts.parts.back().is_of_key;
    }
    if (texts.size() > 1) parts.parts.push_back(std::move(all));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    Problem problem = error.problems().front();
    problem.subject = kind.key;
    fail_data(std::move(problem));
  }
  return parts;
}

std::int64_t number_of(Name name, const Pair& pair, const Parts& rule) {
  switch (name) {
    case Name::q:
      return pair.position;
    case Name::i:
      return pair.query;
    case Name::k:
      return pair.key_position;
    case Name::j:
      return pair.key;
    case Name::b:
      return static_cast<std::int64_t>(pair.item);
    case Name::h:
      return pair.head;
    case Name::g:
      return pair.head / static_cast<std::int64_t>(rule.heads_of_group);
    case Name::L:
      return rule.L;
    case Name::S:
      break;
  }
  return rule.S;
}

void fail_at_pair(const RuleKind& kind, const Part& part, const std::string& message,
                  const Pair& pair) {
  const auto text = [](auto x) { return std::to_string(x); };
  fail_data({.subject = std::string(kind.key),
             .message = message + " at character " + text(part.position) +
                        " for b = " + text(pair.item) + ", h = " + text(pair.head) +
                        ", q = " + text(pair.position) + ", k = " + text(pair.key_position)});
}

}  // namespace attn::rule
