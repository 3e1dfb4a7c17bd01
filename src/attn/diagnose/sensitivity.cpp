#include "attn/diagnose/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "attn/attention/inputs_part.h"
#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/diagnose/adversarial.h"
#include "attn/diagnose/evaluation.h"
#include "attn/diagnose/hypotheses.h"

namespace attn {
namespace {

constexpr std::size_t kMostSampled = 128, kMostSampledScores = std::size_t{1} << 21;

/// Blocks of the sampled queries whose scores fit in memory.
std::vector<std::vector<std::size_t>> blocks_of_queries(const Inputs& in) {
  const std::size_t of_query = std::max<std::size_t>(1, in.B * in.H * in.S);
  const std::size_t count = std::clamp<std::size_t>(kMostSampledScores / of_query, 8, kMostSampled);
  std::vector<std::size_t> edges;
  for (const std::int64_t edge : {in.options.window.left, in.options.window.right})
    if (edge >= 0) edges.push_back(static_cast<std::size_t>(edge));
  const std::vector<double> errors(in.rows.size());
  const std::size_t block = std::max<std::size_t>(1, (std::size_t{1} << 20) / of_query);
  std::vector<std::vector<std::size_t>> blocks;
  std::size_t taken = 0;
  for (const std::size_t row : sampled_rows(errors, count, edges)) {
    if (taken++ % block == 0) blocks.emplace_back();
    blocks.back().push_back(in.rows[row]);
  }
  return blocks;
}

/// Collects the changes of all elements.
class Changes {
 public:
  explicit Changes(const Test& test) : test_(test) {}

  void add(const Tensor& values, const Evaluated& base) {
    const auto a = values.data<double>(), b = base.values.data<double>();
    double largest = 0;
    for (const double x : b)
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double change = is_within(a[i], b[i], 0) ? 0
                            : std::isfinite(a[i]) && std::isfinite(b[i])
                                ? std::abs(a[i] - b[i])
                                : std::numeric_limits<double>::infinity();
      if (base.bounds)
        of_bound_ = std::max(of_bound_, ratio(change, base.bounds->data<double>()[i]));
      const double accepted = test_.tolerance ? bound_of(*test_.tolerance, b[i], DType::f64)
                              : base.bounds   ? base.bounds->data<double>()[i]
                                              : kRounding * std::abs(b[i]);
      of_tolerance_ = std::max(of_tolerance_, ratio(change, accepted));
      outside_ += change > accepted ? 1 : 0;
      changed_ += change > std::max(kRounding * accepted, 1e-13 * largest) ? 1 : 0;
      ++elements_;
    }
    has_bounds_ = base.bounds.has_value();
  }

  /// Evaluates the gates, for all sampled queries together.
  void judge(const Tensor& values, const Evaluated& base) {
    is_accepted_ = test_.gate(values, base);
    is_tenth_accepted_ = test_.gate(tenth(values, base.values), base);
  }

  bool has_effect() const { return changed_ > 0; }

  void store(Effect& effect) const {
    if (!test_.gate) effect.of_tolerance = of_tolerance_;
    if (has_bounds_) effect.of_bound = of_bound_;
    effect.outside = share(outside_, elements_);
    effect.verdict = Effect::Verdict::not_seen;
    const double outside = share(outside_, changed_);
    const bool is_large = outside >= 0.5 || (outside >= 0.01 && of_tolerance_ >= 10);
    if (test_.gate ? !is_accepted_ : outside_ > 0) {
      effect.verdict = (test_.gate ? !is_tenth_accepted_ : is_large) ? Effect::Verdict::seen
                                                                     : Effect::Verdict::barely;
    }
  }

 private:
  /// What differs by less, relative to what is accepted, is equal: the f64 evaluations round, too.
  static constexpr double kRounding = 1e-6;

  static double ratio(double change, double accepted) {
    return change == 0 ? 0 : change / accepted;
  }
  static double share(std::size_t part, std::size_t all) {
    return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
  }
  /// right + (result - right) / 10
  static Tensor tenth(const Tensor& result, const Tensor& right) {
    Tensor mixed = right;
    const auto a = result.data<double>();
    const auto out = mixed.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!is_within(a[i], out[i], 0))
        out[i] = std::isfinite(a[i]) ? out[i] + (a[i] - out[i]) / 10 : a[i];
    return mixed;
  }

  const Test& test_;
  double of_tolerance_ = 0, of_bound_ = 0;
  std::size_t outside_ = 0, changed_ = 0, elements_ = 0;
  bool has_bounds_ = false, is_accepted_ = true, is_tenth_accepted_ = true;
};

/// The job in f64, from its queries on.
struct Base {
  Variant given, attention;
  Inputs given_in, in;

  explicit Base(const Variant& job) : given(job) {
    given.options.compute = Compute::f64;
    for (const auto& [name, tensor] : job.tensors)
      if (is_float(tensor.dtype())) given.tensors.set(name, cast(tensor, DType::f64));
    given_in = make_inputs(given);
    attention = attention_only(given);
    attention.options.rows = given.options.rows;
    in = make_inputs(attention);
  }

  /// The changed job; nullopt if the hypothesis does not apply.
  std::optional<std::pair<Claim, Variant>> changed(const Hypothesis& hypothesis) const {
    const bool projects = hypothesis.projects();
    Variant variant = projects ? given : attention;
    auto claim = hypothesis.change(variant, projects ? given_in : in);
    if (!claim) return std::nullopt;
    if (projects) variant = attention_only(variant);
    return std::pair{std::move(*claim), std::move(variant)};
  }
};

/// The rows of blocks of queries, one after another, (B, H, queries, C).
Tensor rows_joined(const std::vector<Tensor>& blocks, std::size_t queries) {
  Tensor all;
  std::size_t first = 0;
  for (const Tensor& block : blocks) {
    put_part(block, 2, first, queries, all);
    first += block.shape()[2];
  }
  return all;
}

/// A job and its result for the sampled queries.
struct Subject {
  Base base;
  Output output;
  const Precision* precision;
  std::vector<std::vector<std::size_t>> blocks;
  std::vector<Evaluated> right;
  std::size_t queries = 0;

  Subject(const Variant& given, Output tested, const Precision* of_bounds)
      : base(given), output(tested), precision(of_bounds), blocks(blocks_of_queries(base.in)) {
    for (const auto& block : blocks) {
      right.push_back(evaluate(base.attention, output, block, nullptr));
      if (precision != nullptr) right.back().bounds = bounds_of(block);
      queries += block.size();
    }
  }

  /// The bounds of attn compare: also those of projections, norms and rotary positions.
  std::optional<Tensor> bounds_of(const std::vector<std::size_t>& rows) const {
    Variant given = base.given;
    given.options.rows = {rows.begin(), rows.end()};
    return evaluate_given(given, output, precision).bounds;
  }

  /// The result for all sampled queries.
  Evaluated all_right() const {
    std::vector<Tensor> values, bounds;
    for (const Evaluated& block : right) {
      values.push_back(block.values);
      if (block.bounds) bounds.push_back(*block.bounds);
    }
    return {rows_joined(values, queries),
            bounds.empty() ? std::nullopt : std::optional(rows_joined(bounds, queries))};
  }

  /// What a variant changes; nullopt if its result has another shape.
  std::optional<Changes> changes(const Variant& variant, const Test& test) const {
    Changes all(test);
    std::vector<Tensor> results;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      results.push_back(evaluate(variant, output, blocks[k], nullptr).values);
      if (results.back().shape() != right[k].values.shape()) return std::nullopt;
      all.add(results.back(), right[k]);
    }
    if (test.gate && !results.empty()) all.judge(rows_joined(results, queries), all_right());
    return all;
  }
};

}  // namespace

Sensitivity sensitivity(const Variant& given, Output output, const Test& test,
                        const std::atomic<bool>* stop) {
  const Inputs in = make_inputs(given);
  const std::string why = missing_bound_reason(output, in);
  if (!test.tolerance && !test.gate && !why.empty())
    fail_usage("no error bound is known " + why + "; set --rtol or --atol");
  if (in.B == 0 || in.rows.empty())
    fail_data(std::string(name_of(output)) +
              " has no elements, in which a test could see mistakes");
  const Subject subject(given, output, why.empty() && test.precision ? &*test.precision : nullptr);
  Variant other{{adversarial_inputs(given, 0), given.options}};
  std::optional<Subject> adversarial;  // made when first used
  Sensitivity found;
  found.queries = subject.queries, found.all_queries = subject.base.in.rows.size();
  for (const Hypothesis& hypothesis : hypotheses()) {
    if (hypothesis.group() == "logsumexp" && output != Output::logsumexp) continue;
    if (stop != nullptr && *stop) {
      found.untested.emplace_back(hypothesis.id);
      continue;
    }
    try {
      const auto changed = subject.base.changed(hypothesis);
      if (!changed) continue;
      if (changed->first.too_large) {
        found.untested.emplace_back(hypothesis.id);
        continue;
      }
      const auto changes = subject.changes(changed->second, test);
      if (!changes) continue;
      if (!changes->has_effect()) {
        if (!adversarial) adversarial.emplace(other, output, subject.precision);
        const auto again = adversarial->base.changed(hypothesis);
        const auto others = again ? adversarial->changes(again->second, test) : std::nullopt;
        if (!others || !others->has_effect()) {
          found.without_effect.emplace_back(hypothesis.id);
          continue;
        }
      }
      Effect effect;
      effect.id = hypothesis.id, effect.kernel = changed->first.kernel;
      changes->store(effect);
      found.effects.push_back(std::move(effect));
    } catch (const Error&) {  // the changed job is not valid
    }
  }
  return found;
}

VisibleInputs visible_inputs(const Variant& given, Output output, std::uint64_t seed) {
  constexpr std::uint64_t kDraws = 8;
  const Test test{Tolerance{1e-2, 1e-2, {}, true}, std::nullopt};
  std::optional<VisibleInputs> best;
  for (std::uint64_t draw = 0; draw < kDraws && !(best && best->hidden == 0); ++draw) {
    VisibleInputs inputs{adversarial_inputs(given, seed + draw)};
    Variant changed = given;
    changed.tensors = inputs.tensors, changed.cache = nullptr;
    for (const Effect& effect : sensitivity(changed, output, test, nullptr).effects) {
      ++inputs.mistakes;
      if (effect.verdict != Effect::Verdict::seen) ++inputs.hidden;
    }
    if (!best || inputs.hidden < best->hidden) best = std::move(inputs);
  }
  return *best;
}

std::string_view name_of(Effect::Verdict verdict) {
  switch (verdict) {
    case Effect::Verdict::seen:
      return "seen";
    case Effect::Verdict::barely:
      return "barely";
    case Effect::Verdict::not_seen:
      break;
  }
  return "not seen";
}

namespace {

/// The median over the queries of the largest |score| before the softcap.
double median_of_largest_score(const Base& base) {
  Variant plain = base.attention;
  plain.options.softcap = 0, plain.options.softcap_order = SoftcapOrder::before_mask;
  const auto blocks = blocks_of_queries(base.in);
  std::vector<double> largest;
  const Tensor scores = evaluate(plain, Output::scaled_scores, blocks.front(), nullptr).values;
  const auto x = scores.data<double>();
  for (std::size_t from = 0; from < x.size(); from += base.in.S) {
    double most = 0;
    for (const double score : x.subspan(from, base.in.S)) most = std::max(most, std::abs(score));
    largest.push_back(most);
  }
  if (largest.empty()) return 0;
  std::nth_element(largest.begin(),
                   largest.begin() + static_cast<std::ptrdiff_t>(largest.size() / 2),
                   largest.end());
  return largest[largest.size() / 2];
}

/// The median logsumexp of the queries without sinks.
double median_of_logsumexp(const Base& base) {
  Variant plain = base.attention;
  plain.erase({Input::sinks});
  report_natural_logsumexp(plain.options);
  const Tensor sums =
      evaluate(plain, Output::logsumexp, blocks_of_queries(base.in).front(), nullptr).values;
  std::vector<double> all(sums.data<double>().begin(), sums.data<double>().end());
  std::erase_if(all, [](double x) { return !std::isfinite(x); });
  if (all.empty()) return 0;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                   all.end());
  return all[all.size() / 2];
}

}  // namespace

std::vector<std::string> suggestions(const Variant& given, const Sensitivity& found) {
  constexpr const char* kHiddenSoftcap = "softcap.of_hidden";
  std::set<std::string> groups;  // of mistakes, and one mistake that needs other inputs than these
  for (const Effect& effect : found.effects)
    if (effect.verdict != Effect::Verdict::seen)
      groups.insert(effect.id == kHiddenSoftcap ? effect.id
                                                : effect.id.substr(0, effect.id.find('.')));
  if (groups.empty()) return {};
  const Base base(given);
  std::vector<std::string> lines;
  const auto suggest = [&](const char* group, const std::string& line) {
    if (groups.contains(group)) lines.push_back(std::string(group) + ": " + line);
  };
  if (groups.contains("softcap")) {
    const double cap = base.in.options.softcap, largest = median_of_largest_score(base);
    if (largest > 0 && cap > 0)
      suggest("softcap", "multiply Q by " + six_digits(0.75 * cap / largest) +
                             ": the largest scores are about " + six_digits(largest) +
                             ", the softcap is " + six_digits(cap));
  }
  suggest(kHiddenSoftcap, "use queries whose scores are all below " +
                              six_digits(-2 * base.in.options.softcap) + ", -2 times the softcap");
  if (groups.contains("sink"))
    suggest("sink", "set sinks near " + six_digits(median_of_logsumexp(base)) +
                        ", the logsumexp of the scores, different in each head");
  suggest("cache",
          "use larger keys and values (8 times) in the last page, and lengths that are not "
          "multiples of 16");
  suggest("window", "use larger values (8 times), and keys that make the scores differ more");
  suggest("causal", "use larger values (8 times), and keys that make the scores differ more");
  suggest("mask", "use values 8 times as large in the keys that are hidden");
  suggest("heads", "use different values in every head and batch item");
  suggest("norm", "use some queries and keys with elements near the square root of epsilon");
  suggest("rotary", "use larger queries and keys, and more tokens");
  suggest("scale", "use larger queries, so that the weights of a row differ");
  suggest("softmax", "use queries whose scores are all negative");
  lines.emplace_back("all: attn random --kind adversarial --for JOB -o inputs.npz");
  return lines;
}

}  // namespace attn
