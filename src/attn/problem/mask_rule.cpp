#include "attn/problem/mask_rule.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "attn/problem/rule_parts.h"

namespace attn {
namespace rule {

using Kind = Expression::Kind;
using Relation = Expression::Relation;
using Int = std::int64_t;

constexpr std::array<std::string_view, 3> kFunctions = {"abs", "min", "max"};

const RuleKind& mask_rules() {
  static const RuleKind kKind = {.key = "mask_rule",
                                 .numbers = DType::i64,
                                 .language = {.noun = "name",
                                              .names = {},
                                              .functions = {kFunctions.begin(), kFunctions.end()},
                                              .numbers_are_true = true}};
  return kKind;
}

/// The numbers that a part of the expression may have for some keys. Truth values are 0 and 1.
struct Bounds {
  Int least = std::numeric_limits<Int>::min(), most = std::numeric_limits<Int>::max();
  bool is_safe = false;  ///< no operation fails for any of the keys

  bool is_constant() const { return is_safe && least == most; }
};
constexpr Bounds exactly(Int x) { return {x, x, true}; }

/// Bounds of the elements of any range of a list: a tree of the bounds of pairs, pairs of pairs,
/// ...
class RangeBounds {
 public:
  explicit RangeBounds(const Int* elements, std::size_t count) : count_(count), tree_(2 * count) {
    for (std::size_t n = 0; n < count; ++n) tree_[count + n] = exactly(elements[n]);
    for (std::size_t n = count; n-- > 1;) tree_[n] = both(tree_[2 * n], tree_[2 * n + 1]);
  }
  /// Of elements [first, last], which exist.
  Bounds of(std::size_t first, std::size_t last) const {
    Bounds found = tree_[count_ + first];
    for (std::size_t from = count_ + first, to = count_ + last + 1; from < to; from /= 2, to /= 2) {
      if (from % 2 == 1) found = both(found, tree_[from++]);
      if (to % 2 == 1) found = both(found, tree_[--to]);
    }
    return found;
  }

 private:
  static Bounds both(const Bounds& a, const Bounds& b) {
    return {std::min(a.least, b.least), std::max(a.most, b.most), true};
  }
  std::size_t count_;
  std::vector<Bounds> tree_;  ///< from 1 on; the elements are the last half
};

namespace {

/// 0, 1 or both.
Bounds bounds_of_relation(Relation relation, const Bounds& a, const Bounds& b) {
  const auto truth = [](bool always, bool never) { return Bounds{always, never ? 0 : 1, true}; };
  switch (relation) {
    case Relation::less:
      return truth(a.most < b.least, a.least >= b.most);
    case Relation::less_equal:
      return truth(a.most <= b.least, a.least > b.most);
    case Relation::greater:
      return truth(a.least > b.most, a.most <= b.least);
    case Relation::greater_equal:
      return truth(a.least >= b.most, a.most < b.least);
    case Relation::equal:
      return truth(a.is_constant() && b.is_constant() && a.least == b.least,
                   a.most < b.least || a.least > b.most);
    case Relation::not_equal:
      break;
  }
  return truth(a.most < b.least || a.least > b.most,
               a.is_constant() && b.is_constant() && a.least == b.least);
}

/// a // b, rounded down. b is neither 0 nor, for the least number, -1.
Int floor_quotient(Int a, Int b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
Int floor_remainder(Int a, Int b) { return b == -1 ? 0 : a - floor_quotient(a, b) * b; }

/// The same for numbers whose magnitude has 31 bits, in vectors: a double has the quotient with an
/// error less than 1 / b.
std::int32_t floor_quotient(std::int32_t a, std::int32_t b) {
  const auto quotient = static_cast<std::int32_t>(static_cast<double>(a) / static_cast<double>(b));
  const std::int32_t rest = a - quotient * b;
  return quotient - static_cast<std::int32_t>((rest != 0) & ((rest < 0) != (b < 0)));
}
std::int32_t floor_remainder(std::int32_t a, std::int32_t b) {
  return a - floor_quotient(a, b) * b;
}

/// An arithmetic operation; nullopt if it has no result.
std::optional<Int> arithmetic(Kind kind, Int a, Int b) {
  Int result = 0;
  switch (kind) {
    case Kind::add:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case Kind::subtract:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case Kind::multiply:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case Kind::floor_divide:
      if (b == 0 || (b == -1 && a == std::numeric_limits<Int>::min())) return std::nullopt;
      return floor_quotient(a, b);
    default:
      return b == 0 ? std::nullopt : std::optional(floor_remainder(a, b));
  }
}

/// The bounds of an arithmetic operation. Those of a sum, a difference, a product and a quotient by
/// numbers of one sign are among the results for the bounds of its operands.
Bounds arithmetic(Kind kind, const Bounds& a, const Bounds& b) {
  if (!a.is_safe || !b.is_safe) return {};
  const bool divides = kind == Kind::floor_divide || kind == Kind::remainder;
  if (divides && b.least <= 0 && b.most >= 0) return {};
  if (kind == Kind::remainder) {
    if (a.is_constant() && b.is_constant()) return exactly(floor_remainder(a.least, b.least));
    if (b.is_constant() && b.least > 0 &&
        floor_quotient(a.least, b.least) == floor_quotient(a.most, b.least))
      return {floor_remainder(a.least, b.least), floor_remainder(a.most, b.least), true};
    if (b.least > 0) return {0, b.most - 1, true};
    return {b.least + 1, 0, true};
  }
  Bounds result{std::numeric_limits<Int>::max(), std::numeric_limits<Int>::min(), true};
  for (const Int x : {a.least, a.most})
    for (const Int y : {b.least, b.most}) {
      const std::optional<Int> found = arithmetic(kind, x, y);
      if (!found) return {};
      result.least = std::min(result.least, *found), result.most = std::max(result.most, *found);
    }
  return result;
}

}  // namespace

struct Compiled : Parts {
  explicit Compiled(Parts all) : Parts(std::move(all)), bounds(tables.size()) {
    for (const Part& part : parts) {
      if (part.kind != Kind::index || !bounds[part.of].empty()) continue;
      const Table& table = tables[part.of];
      const auto elements = table.elements.data<Int>();
      for (std::size_t row = 0; table.columns > 0 && row < table.items * table.rows; ++row)
        bounds[part.of].emplace_back(elements.data() + row * table.columns, table.columns);
    }
  }

  std::vector<std::vector<RangeBounds>> bounds;  ///< of each row of each item of each table
};

class Evaluator {
 public:
  Evaluator(const Compiled& rule, const TokenPositions& tokens, std::size_t item, std::size_t head)
      : rule_(rule),
        tokens_(tokens),
        pair_{.item = item, .head = static_cast<Int>(head)},
        bounds_(rule.parts.size()),
        narrow_(rule.parts.size()),
        wide_(rule.parts.size()) {
    const TokenPositions::Side& keys = tokens.keys;
    if (keys.positions.empty()) k_is_j_ = keys.offset == 0;
    for (std::size_t key = 0; key < keys.positions.size() && k_is_j_; ++key)
      k_is_j_ = keys.positions[key] == static_cast<Int>(key);
    if (k_is_j_) return;
    std::vector<Int> positions(keys.count);
    for (std::size_t key = 0; key < keys.count; ++key) positions[key] = keys.position(key);
    positions_.emplace(positions.data(), positions.size());
  }

  /// RuleRows::show(), and RuleRows::narrow() if `visible` is null.
  bool evaluate(std::size_t query, std::size_t begin, std::size_t end, bool* visible) {
    pair_.query = static_cast<Int>(query), pair_.position = tokens_.queries.position(query);
    visible_ = visible, run_begin_ = run_end_ = begin;
    for (std::size_t n = 0; n < rule_.parts.size(); ++n)
      if (!rule_.parts[n].is_of_key) bounds_[n] = bounds_of(rule_.parts[n]);
    return begin >= end || split(begin, end);
  }
  std::size_t run_begin() const { return run_begin_; }
  std::size_t run_end() const { return run_end_; }

 private:
  /// Spans of at most this many keys are computed key by key, if they are not decided as a whole.
  static constexpr std::size_t kFewKeys = 128;
  template <class T>
  using Numbers = std::vector<std::array<T, kFewKeys>>;  ///< of each part

  /// Keys [begin, end) are visible or hidden. False if the visible ones are not contiguous, where
  /// they must be.
  bool set(std::size_t begin, std::size_t end, bool is_visible) {
    if (visible_ != nullptr) {
      std::fill(visible_ + begin, visible_ + end, is_visible);
    } else if (is_visible) {
      if (run_begin_ == run_end_)
        run_begin_ = begin;
      else if (run_end_ != begin)
        return false;
      run_end_ = end;
    }
    return true;
  }

  bool split(std::size_t begin, std::size_t end) {
    begin_ = begin, end_ = end;
    for (std::size_t n = 0; n < rule_.parts.size(); ++n)
      if (rule_.parts[n].is_of_key) bounds_[n] = bounds_of(rule_.parts[n]);
    const Bounds all = truth(bounds_.back());
    if (all.is_constant()) return set(begin, end, all.least != 0);
    if (end - begin > kFewKeys) {
      const std::size_t middle = begin + (end - begin) / 2;
      return split(begin, middle) && split(middle, end);
    }
    const std::size_t whole = rule_.parts.size() - 1;
    if (all.is_safe) return are_narrow() ? compute_all(narrow_) : compute_all(wide_);
    for (key_ = begin; key_ < end; ++key_)
      if (!set(key_, key_ + 1, value(whole) != 0)) return false;
    return true;
  }

  static Bounds truth(const Bounds& x) {
    if (!x.is_safe) return {0, 1, false};
    const bool is_zero = x.least == 0 && x.most == 0;
    return {x.least > 0 || x.most < 0 ? 1 : 0, is_zero ? 0 : 1, true};
  }

  Bounds bounds_of(const Part& part) const {
    const auto of = [&](std::size_t n) { return bounds_[part.operands[n]]; };
    switch (part.kind) {
      case Kind::number:
        return exactly(part.number);
      case Kind::name:
        if (!part.is_of_key) return exactly(number_of(part.name, pair_, rule_));
        if (part.name == Name::k && !k_is_j_) return positions_->of(begin_, end_ - 1);
        return {static_cast<Int>(begin_), static_cast<Int>(end_) - 1, true};
      case Kind::negate:
        return arithmetic(Kind::subtract, exactly(0), of(0));
      case Kind::call:
        return bounds_of_call(part);
      case Kind::index:
        return bounds_of_elements(part);
      case Kind::comparison:
        return bounds_of_comparison(part);
      case Kind::logical_not: {
        const Bounds x = truth(of(0));
        return {1 - x.most, 1 - x.least, x.is_safe};
      }
      case Kind::logical_and:
      case Kind::logical_or:
        return bounds_of_list(part, part.kind == Kind::logical_or ? 1 : 0);
      default:
        return arithmetic(part.kind, of(0), of(1));
    }
  }

  Bounds bounds_of_call(const Part& part) const {
    Bounds found = bounds_[part.operands[0]];
    if (!found.is_safe) return {};
    if (kFunctions[part.of] == "abs") {
      const Bounds negative = arithmetic(Kind::subtract, exactly(0), found);
      if (!negative.is_safe) return {};
      const Int least = found.least > 0 ? found.least : found.most < 0 ? negative.least : 0;
      return {least, std::max(found.most, negative.most), true};
    }
    for (const std::size_t operand : part.operands) {
      const Bounds& other = bounds_[operand];
      if (!other.is_safe) return {};
      const bool is_min = kFunctions[part.of] == "min";
      found.least =
          is_min ? std::min(found.least, other.least) : std::max(found.least, other.least);
      found.most = is_min ? std::min(found.most, other.most) : std::max(found.most, other.most);
    }
    return found;
  }

  static bool is_within(const Bounds& index, std::size_t length) {
    return index.is_safe && index.least >= 0 && index.most < static_cast<Int>(length);
  }

  Bounds bounds_of_elements(const Part& part) const {
    const Table& table = rule_.tables[part.of];
    const Bounds row = table.has_rows ? bounds_[part.operands[0]] : exactly(0);
    const Bounds column = bounds_[part.operands.back()];
    if (!is_within(row, table.rows) || !is_within(column, table.columns)) return {};
    const std::size_t first = (table.items == 1 ? 0 : pair_.item) * table.rows;
    const std::vector<RangeBounds>& bounds = rule_.bounds[part.of];
    Bounds found = bounds[first + static_cast<std::size_t>(row.least)].of(
        static_cast<std::size_t>(column.least), static_cast<std::size_t>(column.most));
    for (Int other = row.least + 1; other <= row.most; ++other) {
      const Bounds more = bounds[first + static_cast<std::size_t>(other)].of(
          static_cast<std::size_t>(column.least), static_cast<std::size_t>(column.most));
      found = {std::min(found.least, more.least), std::max(found.most, more.most), true};
    }
    return found;
  }

  /// a < b < c is a < b and b < c.
  Bounds bounds_of_comparison(const Part& part) const {
    Bounds all = exactly(1);
    for (std::size_t n = 0; n < part.relations.size(); ++n) {
      const Bounds &a = bounds_[part.operands[n]], &b = bounds_[part.operands[n + 1]];
      if (!a.is_safe || !b.is_safe) return {0, 1, false};
      const Bounds here = bounds_of_relation(part.relations[n], a, b);
      all = {std::min(all.least, here.least), std::min(all.most, here.most), true};
    }
    return all;
  }

  /// "or" is decided by an operand that is 1, "and" by one that is 0. Those that follow do not
  /// count, as in Python.
  Bounds bounds_of_list(const Part& part, Int decides) const {
    Bounds all = exactly(1 - decides);
    for (const std::size_t operand : part.operands) {
      const Bounds here = truth(bounds_[operand]);
      if (!here.is_safe) return {0, 1, false};
      all = decides == 1
                ? Bounds{std::max(all.least, here.least), std::max(all.most, here.most), true}
                : Bounds{std::min(all.least, here.least), std::min(all.most, here.most), true};
      if (here.is_constant() && here.least == decides) break;
    }
    return all;
  }

  /// Whether all numbers have 32 bits. Division is twice as fast then.
  bool are_narrow() const {
    constexpr Int kMost = std::numeric_limits<std::int32_t>::max();
    return std::all_of(bounds_.begin(), bounds_.end(), [](const Bounds& bounds) {
      return bounds.is_safe && bounds.least >= -kMost && bounds.most <= kMost;
    });
  }

  /// Computes all parts that differ between the keys [begin_, end_), without checks.
  template <class T>
  bool compute_all(Numbers<T>& numbers) {
    compute(rule_.parts.size() - 1, numbers);
    const std::array<T, kFewKeys>& shown = numbers.back();
    const std::size_t count = end_ - begin_;
    if (visible_ != nullptr) {
      for (std::size_t n = 0; n < count; ++n) visible_[begin_ + n] = shown[n] != 0;
      return true;
    }
    for (std::size_t n = 0; n < count; ++n)
      if (!set(begin_ + n, begin_ + n + 1, shown[n] != 0)) return false;
    return true;
  }

  template <class T>
  void compute(std::size_t number, Numbers<T>& numbers) {
    const Part& part = rule_.parts[number];
    std::array<T, kFewKeys>& out = numbers[number];
    const std::size_t count = end_ - begin_;
    if (bounds_[number].is_constant())
      return void(std::fill_n(out.begin(), count, static_cast<T>(bounds_[number].least)));
    for (const std::size_t operand : part.operands) compute(operand, numbers);
    const auto each = [&](auto f) {
      for (std::size_t n = 0; n < count; ++n) out[n] = static_cast<T>(f(n));
    };
    const auto& a = numbers[part.operands.empty() ? number : part.operands.front()];
    const auto& b = numbers[part.operands.empty() ? number : part.operands.back()];
    switch (part.kind) {
      case Kind::number:
      case Kind::name:
        return each([&](std::size_t n) {
          return part.name == Name::k ? tokens_.keys.position(begin_ + n)
                                      : static_cast<Int>(begin_ + n);
        });
      case Kind::negate:
        return each([&](std::size_t n) { return -a[n]; });
      case Kind::add:
        return each([&](std::size_t n) { return a[n] + b[n]; });
      case Kind::subtract:
        return each([&](std::size_t n) { return a[n] - b[n]; });
      case Kind::multiply:
        return each([&](std::size_t n) { return a[n] * b[n]; });
      case Kind::floor_divide:
        return each([&](std::size_t n) { return floor_quotient(a[n], b[n]); });
      case Kind::logical_not:
        return each([&](std::size_t n) { return a[n] == 0 ? 1 : 0; });
      case Kind::index: {
        const Table& table = rule_.tables[part.of];
        const std::span<const Int> elements = table.of_item<Int>(pair_.item);
        return each([&](std::size_t n) {
          const auto row = table.has_rows ? static_cast<std::size_t>(a[n]) : 0;
          return elements[row * table.columns + static_cast<std::size_t>(b[n])];
        });
      }
      case Kind::call:
        if (kFunctions[part.of] == "abs")
          return each([&](std::size_t n) { return std::abs(a[n]); });
        return combine(part, numbers, out, count, [&](T x, T y) {
          return kFunctions[part.of] == "min" ? std::min(x, y) : std::max(x, y);
        });
      case Kind::comparison:
        std::fill_n(out.begin(), count, 1);
        for (std::size_t r = 0; r < part.relations.size(); ++r) {
          const auto &x = numbers[part.operands[r]], &y = numbers[part.operands[r + 1]];
          with_relation(part.relations[r], [&](auto relation) {
            for (std::size_t n = 0; n < count; ++n) out[n] &= relation(x[n], y[n]) ? 1 : 0;
          });
        }
        return;
      case Kind::logical_and:
      case Kind::logical_or:
        return combine_truths(part, numbers, out, count);
      default:
        return each([&](std::size_t n) { return floor_remainder(a[n], b[n]); });
    }
  }

  template <class T, class F>
  static void combine(const Part& part, const Numbers<T>& numbers, std::array<T, kFewKeys>& out,
                      std::size_t count, F f) {
    for (std::size_t m = 0; m < part.operands.size(); ++m) {
      const auto& x = numbers[part.operands[m]];
      for (std::size_t n = 0; n < count; ++n) out[n] = m == 0 ? x[n] : f(out[n], x[n]);
    }
  }

  /// No operand decides for all keys, otherwise bounds_ would.
  template <class T>
  static void combine_truths(const Part& part, const Numbers<T>& numbers,
                             std::array<T, kFewKeys>& out, std::size_t count) {
    const bool is_or = part.kind == Kind::logical_or;
    std::fill_n(out.begin(), count, is_or ? 0 : 1);
    for (const std::size_t operand : part.operands) {
      const auto& x = numbers[operand];
      if (is_or)
        for (std::size_t n = 0; n < count; ++n) out[n] |= x[n] != 0 ? 1 : 0;
      else
        for (std::size_t n = 0; n < count; ++n) out[n] &= x[n] != 0 ? 1 : 0;
    }
  }

  [[noreturn]] void fail_here(const Part& part, const std::string& message) const {
    fail_at_pair(mask_rules(), part, message, pair());
  }

  /// Of key_.
  Pair pair() const {
    Pair pair = pair_;
    pair.key = static_cast<Int>(key_), pair.key_position = tokens_.keys.position(key_);
    return pair;
  }

  /// The value of a part for key_, with checks.
  Int value(std::size_t number) const {
    const Part& part = rule_.parts[number];
    const auto of = [&](std::size_t n) { return value(part.operands[n]); };
    const auto checked = [&](std::optional<Int> result, const char* why) {
      if (!result) fail_here(part, why);
      return *result;
    };
    constexpr const char* kOverflow = "the result does not fit into 64 bits";
    switch (part.kind) {
      case Kind::number:
        return part.number;
      case Kind::name:
        return number_of(part.name, pair(), rule_);
      case Kind::negate:
        return checked(arithmetic(Kind::subtract, 0, of(0)), kOverflow);
      case Kind::floor_divide:
      case Kind::remainder: {
        const Int a = of(0), b = of(1);
        return checked(arithmetic(part.kind, a, b), b == 0 ? "division by zero" : kOverflow);
      }
      case Kind::call: {
        Int found = of(0);
        if (kFunctions[part.of] == "abs")
          return found < 0 ? checked(arithmetic(Kind::subtract, 0, found), kOverflow) : found;
        for (std::size_t n = 1; n < part.operands.size(); ++n)
          found = kFunctions[part.of] == "min" ? std::min(found, of(n)) : std::max(found, of(n));
        return found;
      }
      case Kind::index: {
        const Table& table = rule_.tables[part.of];
        const Int row = table.has_rows ? of(0) : 0, column = of(part.operands.size() - 1);
        const auto check = [&](Int index, std::size_t length) {
          if (index < 0 || index >= static_cast<Int>(length))
            fail_here(part, "index " + std::to_string(index) + " of " + table.name +
                                " is not in [0, " + std::to_string(length) + ")");
        };
        check(row, table.rows), check(column, table.columns);
        return table.of_item<Int>(pair_.item)[static_cast<std::size_t>(row) * table.columns +
                                              static_cast<std::size_t>(column)];
      }
      case Kind::logical_not:
        return of(0) == 0 ? 1 : 0;
      case Kind::comparison:
      case Kind::logical_and:
      case Kind::logical_or:
        return truth_of(part, of) ? 1 : 0;
      default:
        return checked(arithmetic(part.kind, of(0), of(1)), kOverflow);
    }
  }

  const Compiled& rule_;
  const TokenPositions& tokens_;
  Pair pair_;                             ///< without a key
  bool k_is_j_ = true;                    ///< the position of each key is its index
  std::optional<RangeBounds> positions_;  ///< of the keys, otherwise
  std::size_t begin_ = 0, end_ = 0, key_ = 0;
  std::vector<Bounds> bounds_;  ///< of each part, for keys [begin_, end_)
  Numbers<std::int32_t> narrow_;
  Numbers<Int> wide_;
  bool* visible_ = nullptr;                  ///< of key 0 of the row; nullptr: find the only run
  std::size_t run_begin_ = 0, run_end_ = 0;  ///< of the visible keys
};

}  // namespace rule

Expression parse_mask_rule(const std::string& text, const TensorMap& tensors) {
  return parse_expression(text, 0, rule::language_of(rule::mask_rules(), tensors));
}

MaskRule::MaskRule(const std::vector<std::string>& rules, const TensorMap& tensors,
                   const Inputs& in)
    : compiled_(std::make_unique<const rule::Compiled>(
          rule::parts_of(rule::mask_rules(), rules, tensors, in))) {}

MaskRule::~MaskRule() = default;
bool MaskRule::uses_items() const { return compiled_->of_items; }
bool MaskRule::uses_heads() const { return compiled_->of_heads; }

RuleRows::RuleRows(const Inputs& in, std::size_t entry, std::size_t head)
    : evaluator_(std::make_unique<rule::Evaluator>(*in.mask_rule->compiled_,
                                                   in.token_positions[entry], in.first_item + entry,
                                                   in.first_head + head)) {}
RuleRows::~RuleRows() = default;

bool RuleRows::narrow(std::size_t query, kernel::KeyRange& range) {
  if (!evaluator_->evaluate(query, static_cast<std::size_t>(range.begin),
                            static_cast<std::size_t>(range.end), nullptr))
    return false;
  range.begin = static_cast<std::int64_t>(evaluator_->run_begin());
  range.end = static_cast<std::int64_t>(evaluator_->run_end());
  return true;
}

void RuleRows::show(std::size_t query, std::size_t begin, std::size_t end, bool* visible) {
  evaluator_->evaluate(query, begin, end, visible);
}

}  // namespace attn
