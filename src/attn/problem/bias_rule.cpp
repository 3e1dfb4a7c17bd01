#include "attn/problem/bias_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "attn/base/number_text.h"
#include "attn/problem/mask.h"
#include "attn/problem/rule_parts.h"
#include "attn/problem/threads.h"

namespace attn {
namespace rule {
namespace {

using Operation = Expression::Kind;

struct BiasFunction {
  std::string_view name;
  double (*of)(double);  ///< nullptr: of several numbers
};
constexpr std::array<BiasFunction, 8> kBiasFunctions = {
    {{"abs", [](double x) { return std::fabs(x); }},
     {"min", nullptr},
     {"max", nullptr},
     {"exp", [](double x) { return std::exp(x); }},
     {"exp2", [](double x) { return std::exp2(x); }},
     {"log", [](double x) { return std::log(x); }},
     {"log2", [](double x) { return std::log2(x); }},
     {"sqrt", [](double x) { return std::sqrt(x); }}}};

const RuleKind& bias_rules() {
  static const RuleKind kKind = [] {
    RuleKind kind{.key = "bias_rule",
                  .numbers = DType::f64,
                  .language = {.noun = "name",
                               .names = {},
                               .has_reals = true,
                               .rounds_down = true,
                               .truths_are_numbers = true}};
    for (const BiasFunction& function : kBiasFunctions)
      kind.language.functions.emplace_back(function.name);
    return kind;
  }();
  return kKind;
}

/// a % b, which has the sign of b, and a // b, as Python computes them. b is not 0.
double remainder_of(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
double quotient_of(double a, double b) { return std::round((a - remainder_of(a, b)) / b); }

constexpr auto smaller = [](double a, double b) { return std::min(a, b); };
constexpr auto larger = [](double a, double b) { return std::max(a, b); };

/// visible_keys(), computed when it is first used. Thread-safe.
class VisiblePairs {
 public:
  /// `in` must outlive this object.
  explicit VisiblePairs(const Inputs& in) : in_(in) {}
  const Tensor& get() {
    const std::lock_guard lock(mutex_);
    if (!visible_) visible_ = visible_keys(in_);
    return *visible_;
  }

 private:
  const Inputs& in_;
  std::mutex mutex_;
  std::optional<Tensor> visible_;  ///< guarded by mutex_
};

/// Computes the rule for some of the pairs of queries and keys.
class PairValues {
 public:
  /// All must outlive this object.
  PairValues(const Parts& rule, const Inputs& in, const Shape& shape, VisiblePairs& visible)
      : rule_(rule), in_(in), shape_(shape), numbers_(rule.parts.size()), visible_(visible) {}

  /// The values for keys [first, end) of an item, a head and one of in.rows. These are 0 where the
  /// rule does not differ.
  template <class T>
  void compute(const std::array<std::size_t, 3>& at, std::size_t first, std::size_t end, T* out) {
    at_ = {at[0], at[1], at[2], 0};
    for (begin_ = first; begin_ < end; begin_ += kKeys) {
      count_ = std::min(kKeys, end - begin_);
      at_[3] = begin_;
      pair_ = pair_at(at_);
      compute_parts(begin_ == first);
      T* const part = out + begin_;
      for (std::size_t n = 0; n < count_; ++n) {
        part[n] = static_cast<T>(numbers_.back()[n]);
        fails_[n] += static_cast<double>(part[n] - part[n]);
      }
      bool has_failed = false;
      for (std::size_t n = 0; n < count_; ++n) has_failed |= fails_[n] != 0;
      for (std::size_t n = 0; has_failed && n < count_; ++n)
        if (fails_[n] != 0) part[n] = checked<T>(begin_ + n);
    }
  }

 private:
  static constexpr std::size_t kKeys = 128;  ///< that are computed at once
  using Numbers = std::array<double, kKeys>;
  using Index = std::array<std::size_t, 4>;  ///< item, head, row and key

  Pair pair_at(const Index& at) const {
    const std::size_t query = in_.rows.empty() ? 0 : in_.rows[at[2]];
    const TokenPositions& tokens = in_.token_positions[in_.token_positions.size() == 1 ? 0 : at[0]];
    Pair pair{.item = in_.first_item + at[0],
              .head = static_cast<std::int64_t>(in_.first_head + at[1]),
              .query = static_cast<std::int64_t>(query),
              .key = static_cast<std::int64_t>(at[3])};
    if (rule_.of_queries) pair.position = tokens.queries.position(query);
    if (rule_.of_keys) pair.key_position = tokens.keys.position(at[3]);
    return pair;
  }

  /// Sets numbers_, and fails_ to NaN where a number is not finite. What "and" and "or" do not
  /// reach is computed, too.
  void compute_parts(bool is_first) {
    fails_.fill(0);
    for (std::size_t number = 0; number < numbers_.size(); ++number) {
      const Part& part = rule_.parts[number];
      Numbers& out = numbers_[number];
      if (part.is_of_key)
        compute_part(part, out, count_);
      else if (is_first)
        compute_part(part, out, 1), out.fill(out[0]);
      for (std::size_t n = 0; n < count_; ++n) fails_[n] += out[n] - out[n];
    }
  }

  void compute_part(const Part& part, Numbers& out, std::size_t count) const {
    const auto each = [&](auto f) {
      for (std::size_t n = 0; n < count; ++n) out[n] = static_cast<double>(f(n));
    };
    const auto& a = numbers_[part.operands.empty() ? 0 : part.operands.front()];
    const auto& b = numbers_[part.operands.empty() ? 0 : part.operands.back()];
    switch (part.kind) {
      case Operation::number:
        return each([&](std::size_t) { return part.real; });
      case Operation::name: {
        if (!part.is_of_key)
          return each([&](std::size_t) { return number_of(part.name, pair_, rule_); });
        if (part.name == Name::j) return each([&](std::size_t n) { return begin_ + n; });
        const TokenPositions::Side& keys =
            in_.token_positions[in_.token_positions.size() == 1 ? 0 : at_[0]].keys;
        return each([&](std::size_t n) { return keys.position(begin_ + n); });
      }
      case Operation::negate:
        return each([&](std::size_t n) { return -a[n]; });
      case Operation::add:
        return each([&](std::size_t n) { return a[n] + b[n]; });
      case Operation::subtract:
        return each([&](std::size_t n) { return a[n] - b[n]; });
      case Operation::multiply:
        return each([&](std::size_t n) { return a[n] * b[n]; });
      case Operation::divide:
        return each([&](std::size_t n) { return a[n] / b[n]; });
      case Operation::floor_divide:
        return each([&](std::size_t n) { return quotient_of(a[n], b[n]); });
      case Operation::remainder:
        return each([&](std::size_t n) { return remainder_of(a[n], b[n]); });
      case Operation::index: {
        const Table& table = rule_.tables[part.of];
        const auto elements = table.of_item<double>(pair_.item);
        return each([&](std::size_t n) {
          const double row = table.has_rows ? a[n] : 0;
          return is_index(row, table.rows) && is_index(b[n], table.columns)
                     ? elements[static_cast<std::size_t>(row) * table.columns +
                                static_cast<std::size_t>(b[n])]
                     : std::numeric_limits<double>::quiet_NaN();
        });
      }
      case Operation::call:
        if (kBiasFunctions[part.of].name == "abs")
          return each([&](std::size_t n) { return std::fabs(a[n]); });
        if (const auto of = kBiasFunctions[part.of].of)
          return each([&](std::size_t n) { return of(a[n]); });
        each([&](std::size_t n) { return a[n]; });
        return kBiasFunctions[part.of].name == "min" ? combine(part, out, count, smaller)
                                                     : combine(part, out, count, larger);
      case Operation::comparison:
        std::fill_n(out.begin(), count, 1);
        for (std::size_t r = 0; r < part.relations.size(); ++r) {
          const auto &x = numbers_[part.operands[r]], &y = numbers_[part.operands[r + 1]];
          with_relation(part.relations[r], [&](auto relation) {
            for (std::size_t n = 0; n < count; ++n) out[n] *= relation(x[n], y[n]) ? 1 : 0;
          });
        }
        return;
      case Operation::logical_not:
        return each([&](std::size_t n) { return 1 - a[n]; });
      case Operation::logical_and:
      case Operation::logical_or:
        each([&](std::size_t n) { return a[n]; });
        return part.kind == Operation::logical_or ? combine(part, out, count, larger)
                                                  : combine(part, out, count, smaller);
    }
  }

  template <class F>
  void combine(const Part& part, Numbers& out, std::size_t count, F f) const {
    for (const std::size_t operand : part.operands)
      for (std::size_t n = 0; n < count; ++n) out[n] = f(out[n], numbers_[operand][n]);
  }

  static double (*pick(const Part& part))(double, double) {
    return kBiasFunctions[part.of].name == "min" ? +smaller : +larger;
  }

  static bool is_index(double x, std::size_t length) {
    return x >= 0 && x < static_cast<double>(length) && x == std::floor(x);
  }

  /// The value for a key, if a pair that has it is visible.
  template <class T>
  T checked(std::size_t key) {
    const std::optional<Index> at = visible_pair(key);
    if (!at) return 0;
    const Pair of_keys = pair_;
    pair_ = pair_at(*at);
    const double value = value_of(rule_.parts.size() - 1);
    if (!std::isfinite(static_cast<T>(value)))
      fail(rule_.parts.back(), "the result does not fit into " + std::string(name_of(dtype_of<T>)));
    pair_ = of_keys;
    return static_cast<T>(value);
  }

  /// The first visible pair with the value for this key.
  std::optional<Index> visible_pair(std::size_t key) {
    const Shape& shape = visible_.get().shape();
    const auto flags = visible_.get().data<bool>();
    const Index lengths = {in_.B, in_.H, in_.rows.size(), in_.P + in_.N};
    Index first = at_, end;
    first[3] = key;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      const bool differs = axis == 3 ? rule_.of_keys : shape_[axis] != 1;
      end[axis] = differs ? first[axis] + 1 : lengths[axis];
    }
    const auto index = [&](std::size_t axis, std::size_t at) { return shape[axis] == 1 ? 0 : at; };
    Index at;
    for (at[0] = first[0]; at[0] < end[0]; ++at[0])
      for (at[1] = first[1]; at[1] < end[1]; ++at[1])
        for (at[2] = first[2]; at[2] < end[2]; ++at[2])
          for (at[3] = first[3]; at[3] < end[3]; ++at[3])
            if (flags[((index(0, at[0]) * shape[1] + index(1, at[1])) * shape[2] + at[2]) *
                          shape[3] +
                      at[3]])
              return at;
    return std::nullopt;
  }

  [[noreturn]] void fail(const Part& part, const std::string& message) const {
    fail_at_pair(bias_rules(), part, message, pair_);
  }

  /// The value of a part for pair_, with checks.
  double value_of(std::size_t number) const {
    const Part& part = rule_.parts[number];
    const auto of = [&](std::size_t n) { return value_of(part.operands[n]); };
    const auto finite = [&](double x) {
      if (!std::isfinite(x)) fail(part, "the result is not finite");
      return x;
    };
    switch (part.kind) {
      case Operation::number:
        return part.real;
      case Operation::name:
        return static_cast<double>(number_of(part.name, pair_, rule_));
      case Operation::negate:
        return -of(0);
      case Operation::add:
        return finite(of(0) + of(1));
      case Operation::subtract:
        return finite(of(0) - of(1));
      case Operation::multiply:
        return finite(of(0) * of(1));
      case Operation::divide:
      case Operation::floor_divide:
      case Operation::remainder: {
        const double a = of(0), b = of(1);
        if (b == 0) fail(part, "division by zero");
        return finite(part.kind == Operation::divide         ? a / b
                      : part.kind == Operation::floor_divide ? quotient_of(a, b)
                                                             : remainder_of(a, b));
      }
      case Operation::index:
        return finite(element_of(part));
      case Operation::call: {
        double found = of(0);
        if (const auto function = kBiasFunctions[part.of].of) return finite(function(found));
        for (std::size_t n = 1; n < part.operands.size(); ++n) found = pick(part)(found, of(n));
        return found;
      }
      case Operation::logical_not:
        return 1 - of(0);
      case Operation::comparison:
      case Operation::logical_and:
      case Operation::logical_or:
        break;
    }
    return truth_of(part, of) ? 1 : 0;
  }

  double element_of(const Part& part) const {
    const Table& table = rule_.tables[part.of];
    const double row = table.has_rows ? value_of(part.operands[0]) : 0;
    const double column = value_of(part.operands.back());
    const auto check = [&](double index, std::size_t length) {
      if (!is_index(index, length))
        fail(part, "index " + six_digits(index) + " of " + table.name + " is not " +
                       (index == std::floor(index) ? "in [0, " + std::to_string(length) + ")"
                                                   : "a whole number"));
    };
    check(row, table.rows), check(column, table.columns);
    return table.of_item<double>(pair_.item)[static_cast<std::size_t>(row) * table.columns +
                                             static_cast<std::size_t>(column)];
  }

  const Parts& rule_;
  const Inputs& in_;
  const Shape shape_;  ///< of all values
  std::vector<Numbers> numbers_;
  Numbers fails_;
  std::size_t begin_ = 0, count_ = 0;  ///< the keys of numbers_
  Index at_{};
  Pair pair_;
  VisiblePairs& visible_;
};

}  // namespace
}  // namespace rule

namespace {

constexpr std::size_t kNumbersOfTask = std::size_t{1} << 16;

/// Calls compute(first, end) for parts of `count` rows in parallel, and throws what the first part
/// that fails throws.
template <class Compute>
void run_in_parts(std::size_t count, std::size_t at_once, Compute compute) {
  std::vector<std::exception_ptr> failures((count + at_once - 1) / at_once);
  run_in_parallel(failures.size(), thread_count(), [&](std::size_t i) {
    try {
      compute(i * at_once, std::min(count, (i + 1) * at_once));
    } catch (...) {
      failures[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace

BiasRule::BiasRule(const std::string& text, const TensorMap& tensors, const Inputs& in)
    : parts_(std::make_unique<const rule::Parts>(
          rule::parts_of(rule::bias_rules(), {text}, tensors, in))) {}

BiasRule::~BiasRule() = default;

Shape BiasRule::shape_of_values(const Inputs& in) const {
  const bool of_positions = parts_->of_queries || parts_->of_keys;
  const bool of_items = parts_->of_items || (of_positions && in.token_positions.size() != 1);
  return {of_items ? in.B : 1, parts_->of_heads ? in.H : 1, parts_->of_queries ? in.rows.size() : 1,
          parts_->of_keys || in.E > 0 ? in.S : 1};
}

Tensor BiasRule::values(const Inputs& in, bool only_seen) const {
  const Shape shape = shape_of_values(in);
  Tensor values(in.compute, shape);
  const std::size_t rows = shape[0] * shape[1] * shape[2];
  const std::size_t at_once =
      std::max<std::size_t>(1, kNumbersOfTask / std::max<std::size_t>(1, shape[3]));
  const bool has_ranges = only_seen && in.key_ranges && parts_->of_queries && parts_->of_keys;
  const auto seen = [&](std::size_t item, std::size_t row) {
    const std::size_t all = parts_->of_keys ? in.P + in.N : 1;
    if (!has_ranges) return std::pair{std::size_t{0}, all};
    const kernel::KeyRange& range =
        (*in.key_ranges)[(in.token_positions.size() == 1 ? 0 : item) * in.rows.size() + row];
    const std::size_t end = std::min(static_cast<std::size_t>(range.end), all);
    return std::pair{std::min(static_cast<std::size_t>(range.begin), end), end};
  };
  rule::VisiblePairs visible(in);
  const auto fill = [&]<class T>(T* all) {
    run_in_parts(rows, at_once, [&](std::size_t first, std::size_t end) {
      rule::PairValues pairs(*parts_, in, shape, visible);
      for (std::size_t i = first; i < end; ++i) {
        const std::array at = {i / shape[2] / shape[1], i / shape[2] % shape[1], i % shape[2]};
        const auto [begin, end_of_seen] = seen(at[0], at[2]);
        T* const out = all + i * shape[3];
        pairs.compute(at, begin, end_of_seen, out);
        if (!parts_->of_keys) std::fill(out + 1, out + std::max<std::size_t>(1, shape[3]), out[0]);
        if (in.E > 0) std::fill(out + in.P + in.N, out + in.S, T{0});
      }
    });
  };
  if (in.compute == DType::f32)
    fill(values.mutable_data<float>().data());
  else
    fill(values.mutable_data<double>().data());
  return values;
}

}  // namespace attn
