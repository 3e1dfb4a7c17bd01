#include "attn/diagnose/rule_hypotheses.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "attn/diagnose/changes.h"
#include "attn/problem/mask_rule.h"

namespace attn {
namespace {

using Kind = Expression::Kind;
using Relation = Expression::Relation;

struct Operator {
  Kind kind;
  int binding;  ///< the operands of another one that binds more tightly need parentheses
  const char* sign;
};
constexpr auto kOperators = std::to_array<Operator>({{Kind::logical_or, 0, " or "},
                                                     {Kind::logical_and, 1, " and "},
                                                     {Kind::logical_not, 2, "not "},
                                                     {Kind::comparison, 3, ""},
                                                     {Kind::add, 4, " + "},
                                                     {Kind::subtract, 4, " - "},
                                                     {Kind::multiply, 5, " * "},
                                                     {Kind::divide, 5, " / "},
                                                     {Kind::floor_divide, 5, " // "},
                                                     {Kind::remainder, 5, " % "},
                                                     {Kind::negate, 6, "-"}});

/// Binds most tightly if the expression has no operator.
Operator operator_of(Kind kind) {
  const auto* const found = std::find_if(kOperators.begin(), kOperators.end(),
                                         [&](const Operator& each) { return each.kind == kind; });
  return found == kOperators.end() ? Operator{kind, 7, ""} : *found;
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
    const int outer = operator_of(rule.kind).binding, own = operator_of(inner.kind).binding;
    const std::string text = text_of(inner);
    return own > outer || (own == outer && may_be_equal && rule.kind != Kind::comparison)
               ? text
               : "(" + text + ")";
  };
  switch (rule.kind) {
    case Kind::number:
      return in_words(rule.integer);
    case Kind::name:
      return rule.name;
    case Kind::negate:
    case Kind::logical_not:
      return operator_of(rule.kind).sign + operand(0);
    case Kind::call:
    case Kind::index: {
      std::string text = rule.name + (rule.kind == Kind::call ? "(" : "[");
      for (std::size_t n = 0; n < rule.operands.size(); ++n)
        text += (n == 0 ? "" : ", ") + text_of(rule.operands[n]);
      return text + (rule.kind == Kind::call ? ")" : "]");
    }
    default: {
      std::string text = operand(0);
      for (std::size_t n = 1; n < rule.operands.size(); ++n)
        text += (rule.kind == Kind::comparison ? sign_of(rule.relations[n - 1])
                                               : operator_of(rule.kind).sign) +
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

/// Whether the sum is another number that a rule may have.
bool may_change(std::int64_t number, std::int64_t step) {
  return step < 0 ? number > 0 : number < std::numeric_limits<std::int64_t>::max();
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
    for (const std::int64_t step : {1, -1})
      if (may_change(part.integer, step)) with(part.integer, part.integer + step);
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
      const std::int64_t from = entry.first;
      if (entry.second < 2 || !may_change(from, step)) continue;
      const std::int64_t to = from + step;
      changed = rule;
      visit_numbers(changed, [&](std::int64_t& number) { number = number == from ? to : number; });
      add(changed);
    }
}

std::string quoted(const std::string& rule) { return "'" + rule + "'"; }

Found without_rule(Variant& variant, const Inputs& in) {
  if (in.options.mask_rule.empty()) return std::nullopt;
  variant.options.mask_rule.clear();
  return flag("without --mask-rule", quoted(in.options.mask_rule));
}

VariantChange with_similar_rule(std::size_t number) {
  return [number](Variant& variant, const Inputs& in) -> Found {
    if (in.options.mask_rule.empty()) return std::nullopt;
    const std::vector<std::string> rules =
        similar_rules(parse_mask_rule(in.options.mask_rule, variant.tensors));
    if (number >= rules.size()) return std::nullopt;
    variant.options.mask_rule = rules[number];
    return flag("--mask-rule " + quoted(rules[number]), quoted(in.options.mask_rule));
  };
}

/// Another length of chunks, or another number of sink tokens; a step of 0: none.
VariantChange with_number(std::int64_t Options::*option, const std::string& name,
                          std::int64_t step) {
  return [=](Variant& variant, const Inputs& in) -> Found {
    const std::int64_t given = in.options.*option;
    if (given == 0 || (step == 0 && given == 1) || !may_change(given, step)) return std::nullopt;
    const std::int64_t now = step == 0 ? 0 : given + step;
    variant.options.*option = now;
    if (now == 0) return flag("without " + name, in_words(given));
    return flag(name + " " + in_words(now), in_words(given));
  };
}

VariantChange with_chunk(std::int64_t step) {
  return with_number(&Options::chunk, "--chunk", step);
}
VariantChange with_sink_tokens(std::int64_t step) {
  return with_number(&Options::sink_tokens, "--sink-tokens", step);
}

/// Prefixes that are one key longer or shorter.
Found with_prefix_lengths(Variant& variant, const Inputs& in, std::int64_t step) {
  const Tensor* given = variant.find(Input::prefix_lengths);
  if (given == nullptr || !in.options.causal) return std::nullopt;
  Tensor changed = cast(*given, DType::i64);
  bool has_changed = false;
  for (std::int64_t& length : changed.mutable_data<std::int64_t>()) {
    const auto keys = static_cast<std::int64_t>(in.P + in.N);
    const std::int64_t now = std::clamp<std::int64_t>(length + step, 0, keys);
    has_changed |= now != length;
    length = now;
  }
  if (!has_changed) return std::nullopt;
  variant.set(Input::prefix_lengths, changed);
  if (changed.size() == 1) {
    const std::int64_t now = changed.data<std::int64_t>()[0];
    return flag("--prefix-lengths " + in_words(now), in_words(now - step));
  }
  return words(step > 0 ? "prefixes that are one key longer" : "prefixes that are one key shorter");
}

/// Each draft sees those before it, as if they were one sequence.
Found with_chain(Variant& variant, const Inputs&) {
  const Tensor* given = variant.find(Input::tree_parents);
  if (given == nullptr) return std::nullopt;
  Tensor chain(DType::i64, given->shape());
  const auto parents = chain.mutable_data<std::int64_t>();
  for (std::size_t i = 0; i < parents.size(); ++i)
    parents[i] = static_cast<std::int64_t>(i % given->shape().back()) - 1;
  variant.set(Input::tree_parents, chain);
  return words("the drafts as one sequence instead of a tree");
}

/// With as many blocks of queries as of keys of one size.
Found with_swapped_blocks(Variant& variant, const Inputs& in) {
  const Tensor* given = variant.find(Input::blocks);
  if (given == nullptr || in.options.block_size[0] != in.options.block_size[1] ||
      in.L != in.P + in.N)
    return std::nullopt;
  const std::size_t n = given->shape().back(), items = given->size() / (n * n);
  const Tensor flags = cast(*given, DType::boolean);
  Tensor swapped(DType::boolean, given->shape());
  for (std::size_t b = 0; b < items; ++b)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        swapped.mutable_data<bool>()[(b * n + i) * n + j] = flags.data<bool>()[(b * n + j) * n + i];
  variant.set(Input::blocks, swapped);
  return words("--blocks with rows and columns swapped");
}

}  // namespace

std::vector<std::string> similar_rules(const Expression& rule) {
  Expression changed = rule;
  std::vector<std::string> rules;
  change_repeated(rule, [&](const Expression& other) { rules.push_back(text_of(other)); });
  change_each(changed, [&] { rules.push_back(text_of(changed)); });
  return rules;
}

Hypotheses rule_hypotheses() {
  constexpr std::size_t kMostRules = 64;
  Hypotheses all = {
      {"chunk.longer", kAttention, with_chunk(1)},
      {"chunk.shorter", kAttention, with_chunk(-1)},
      {"chunk.dropped", kAttention, with_chunk(0)},
      {"sink_tokens.one_more", kAttention, with_sink_tokens(1)},
      {"sink_tokens.one_less", kAttention, with_sink_tokens(-1)},
      {"sink_tokens.dropped", kAttention, with_sink_tokens(0)},
      {"prefix.longer", kAttention, change_by(with_prefix_lengths, 1)},
      {"prefix.shorter", kAttention, change_by(with_prefix_lengths, -1)},
      {"prefix.dropped", kAttention, dropped(Input::prefix_lengths)},
      {"tree.dropped", kAttention, dropped(Input::tree_parents)},
      {"tree.chain", kAttention, with_chain},
      {"blocks.swapped", kAttention, with_swapped_blocks},
      {"rule.dropped", kAttention, without_rule},
  };
  for (std::size_t i = 0; i < kMostRules; ++i)
    all.push_back({"rule.changed_" + in_words(i + 1), kAttention, with_similar_rule(i)});
  return all;
}

}  // namespace attn
