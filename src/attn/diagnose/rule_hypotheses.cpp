#include "attn/diagnose/rule_hypotheses.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "attn/core/mask_rule.h"

namespace attn {
namespace {

using Kind = Expression::Kind;
using Relation = Expression::Relation;

/// How tightly an operator binds: the operands of another one that binds more tightly need
/// parentheses.
int binding(Kind kind) {
  switch (kind) {
    case Kind::logical_or:
      return 0;
    case Kind::logical_and:
      return 1;
    case Kind::logical_not:
      return 2;
    case Kind::comparison:
      return 3;
    case Kind::add:
    case Kind::subtract:
      return 4;
    case Kind::multiply:
    case Kind::divide:
    case Kind::floor_divide:
    case Kind::remainder:
      return 5;
    case Kind::negate:
      return 6;
    default:
      return 7;
  }
}

const char* sign_of(Kind kind) {
  switch (kind) {
    case Kind::logical_or:
      return " or ";
    case Kind::logical_and:
      return " and ";
    case Kind::add:
      return " + ";
    case Kind::subtract:
      return " - ";
    case Kind::multiply:
      return " * ";
    case Kind::floor_divide:
      return " // ";
    default:
      return " % ";
  }
}

const char* sign_of(Relation relation) {
  constexpr std::array<const char*, 6> kSigns = {" < ", " <= ", " > ", " >= ", " == ", " != "};
  return kSigns[static_cast<std::size_t>(relation)];
}

std::string text_of(const Expression& rule) {
  const auto operand = [&](std::size_t n) {
    const Expression& inner = rule.operands[n];
    const bool is_list = rule.kind == Kind::logical_or || rule.kind == Kind::logical_and;
    const bool may_be_equal = n == 0 || is_list;
    const int outer = binding(rule.kind), own = binding(inner.kind);
    const std::string text = text_of(inner);
    return own > outer || (own == outer && may_be_equal && rule.kind != Kind::comparison)
               ? text
               : "(" + text + ")";
  };
  switch (rule.kind) {
    case Kind::number:
      return std::to_string(rule.integer);
    case Kind::name:
      return rule.name;
    case Kind::negate:
      return "-" + operand(0);
    case Kind::logical_not:
      return "not " + operand(0);
    case Kind::call:
    case Kind::index: {
      std::string text = rule.name + (rule.kind == Kind::call ? "(" : "[");
      for (std::size_t n = 0; n < rule.operands.size(); ++n)
        text += (n == 0 ? "" : ",") + text_of(rule.operands[n]);
      return text + (rule.kind == Kind::call ? ")" : "]");
    }
    default: {
      std::string text = operand(0);
      for (std::size_t n = 1; n < rule.operands.size(); ++n)
        text +=
            (rule.kind == Kind::comparison ? sign_of(rule.relations[n - 1]) : sign_of(rule.kind)) +
            operand(n);
      return text;
    }
  }
}

Relation other_strictness(Relation relation) {
  switch (relation) {
    case Relation::less:
      return Relation::less_equal;
    case Relation::less_equal:
      return Relation::less;
    case Relation::greater:
      return Relation::greater_equal;
    case Relation::greater_equal:
      return Relation::greater;
    default:
      return relation;
  }
}

/// Calls add() with `rule` changed in one place of `part`, which is a part of it.
template <class Add>
void change_each(Expression& part, const Add& add) {
  const auto with = [&](auto& member, auto value) {
    const auto old = std::exchange(member, value);
    add();
    member = old;
  };
  if (part.kind == Kind::logical_and || part.kind == Kind::logical_or)
    for (std::size_t n = 0; n < part.operands.size(); ++n) {
      const Expression old = part;
      part.operands.erase(part.operands.begin() + static_cast<std::ptrdiff_t>(n));
      if (part.operands.size() == 1) part = Expression(part.operands.front());
      add();
      part = old;
    }
  for (Relation& relation : part.relations)
    if (other_strictness(relation) != relation) with(relation, other_strictness(relation));
  if (part.kind == Kind::number) {
    with(part.integer, part.integer + 1);
    if (part.integer > 0) with(part.integer, part.integer - 1);
  }
  for (Expression& operand : part.operands) change_each(operand, add);
}

/// Calls visit(number) for each number in the rule.
template <class Visit>
void visit_numbers(Expression& part, const Visit& visit) {
  if (part.kind == Kind::number) visit(part.integer);
  for (Expression& operand : part.operands) visit_numbers(operand, visit);
}

/// Calls add(changed) with each number that `rule` has several times, such as the length of a
/// chunk, changed in all places.
template <class Add>
void change_repeated(const Expression& rule, const Add& add) {
  std::map<std::int64_t, std::size_t> times;
  Expression changed = rule;
  visit_numbers(changed, [&](std::int64_t number) { ++times[number]; });
  for (const auto& entry : times)
    for (const std::int64_t step : {1, -1}) {
      const std::int64_t from = entry.first, to = from + step;
      if (entry.second < 2 || to < 0) continue;
      changed = rule;
      visit_numbers(changed, [&](std::int64_t& number) { number = number == from ? to : number; });
      add(changed);
    }
}

using Changed = std::optional<Claim>;

std::string quoted(const std::string& rule) { return "'" + rule + "'"; }

Changed without_rule(Variant& variant, const Inputs& in) {
  if (!in.mask_rule) return std::nullopt;
  variant.options.mask_rule.clear();
  return flag("without --mask-rule", quoted(in.options.mask_rule));
}

template <std::size_t Number>
Changed with_similar_rule(Variant& variant, const Inputs& in) {
  if (!in.mask_rule) return std::nullopt;
  const std::vector<std::string> rules =
      similar_rules(parse_mask_rule(in.options.mask_rule, variant.tensors));
  if (Number >= rules.size()) return std::nullopt;
  variant.options.mask_rule = rules[Number];
  return flag("--mask-rule " + quoted(rules[Number]), quoted(in.options.mask_rule));
}

constexpr std::size_t kMostRules = 24;

template <std::size_t... Numbers>
std::vector<Hypothesis> hypotheses_of(std::index_sequence<Numbers...>) {
  static const std::array<std::string, sizeof...(Numbers)> kIds = {
      ("rule.changed_" + std::to_string(Numbers + 1))...};
  return {{kIds[Numbers], Hypothesis::Stage::attention, with_similar_rule<Numbers>}...};
}

}  // namespace

std::vector<std::string> similar_rules(const Expression& rule) {
  Expression changed = rule;
  std::vector<std::string> rules;
  change_repeated(rule, [&](const Expression& other) { rules.push_back(text_of(other)); });
  change_each(changed, [&] { rules.push_back(text_of(changed)); });
  return rules;
}

std::vector<Hypothesis> rule_hypotheses() {
  std::vector<Hypothesis> all = hypotheses_of(std::make_index_sequence<kMostRules>());
  all.insert(all.begin(), {"rule.dropped", Hypothesis::Stage::attention, without_rule});
  return all;
}

}  // namespace attn
