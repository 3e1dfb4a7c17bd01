#include "attn/diagnose/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
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
  explicit Changes(const std::optional<Tolerance>& tolerance) : tolerance_(tolerance) {}

  void add(const Tensor& values, const Evaluated& base) {
    const auto a = values.data<double>(), b = base.values.data<double>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double change = is_within(a[i], b[i], 0) ? 0
                            : std::isfinite(a[i]) && std::isfinite(b[i])
                                ? std::abs(a[i] - b[i])
                                : std::numeric_limits<double>::infinity();
      if (base.bounds)
        of_bound_ = std::max(of_bound_, ratio(change, base.bounds->data<double>()[i]));
      const double accepted =
          tolerance_ ? bound_of(*tolerance_, b[i], DType::f64) : base.bounds->data<double>()[i];
      of_tolerance_ = std::max(of_tolerance_, ratio(change, accepted));
      outside_ += change > accepted ? 1 : 0;
      ++elements_;
    }
    has_bounds_ = base.bounds.has_value();
  }

  void store(Effect& effect) const {
    effect.of_tolerance = of_tolerance_;
    if (has_bounds_) effect.of_bound = of_bound_;
    effect.outside =
        elements_ == 0 ? 0 : static_cast<double>(outside_) / static_cast<double>(elements_);
    effect.verdict = outside_ == 0                                   ? Effect::Verdict::not_seen
                     : of_tolerance_ >= 10 && effect.outside >= 0.01 ? Effect::Verdict::seen
                                                                     : Effect::Verdict::barely;
  }

 private:
  static double ratio(double change, double accepted) {
    return change == 0 ? 0 : change / accepted;
  }

  const std::optional<Tolerance>& tolerance_;
  double of_tolerance_ = 0, of_bound_ = 0;
  std::size_t outside_ = 0, elements_ = 0;
  bool has_bounds_ = false;
};

/// The job in f64, from its queries on.
struct Base {
  Variant given, attention;
  Inputs given_in, in;

  explicit Base(const Variant& job) : given(job) {
    given.options.compute = Compute::f64;
    for (const auto& [name, tensor] : job.tensors)
      if (is_float(tensor.dtype())) given.tensors.set(name, cast(tensor, DType::f64));
    given_in = make_inputs(given.tensors, given.options);
    attention = attention_only(given);
    attention.options.rows = given.options.rows;
    in = make_inputs(attention.tensors, attention.options);
  }

  /// The changed job; nullopt if the hypothesis does not apply.
  std::optional<std::pair<Claim, Variant>> changed(const Hypothesis& hypothesis) const {
    const bool projects = hypothesis.stage == Hypothesis::Stage::projection;
    Variant variant = projects ? given : attention;
    auto claim = hypothesis.change(variant, projects ? given_in : in);
    if (!claim) return std::nullopt;
    if (projects) variant = attention_only(variant);
    return std::pair{std::move(*claim), std::move(variant)};
  }
};

}  // namespace

Sensitivity sensitivity(const Variant& given, Output output,
                        const std::optional<Tolerance>& tolerance, const Precision& precision,
                        const std::atomic<bool>* stop) {
  const Base base(given);
  const std::string why = missing_bound_reason(output, given.options);
  if (!tolerance && !why.empty())
    throw Error(ErrorKind::usage, "no error bound is known " + why + "; set --rtol or --atol");
  Sensitivity found;
  std::vector<Evaluated> values;
  const auto blocks = blocks_of_queries(base.in);
  for (const auto& queries : blocks) {
    values.push_back(evaluate(base.attention, output, queries, why.empty() ? &precision : nullptr));
    found.queries += queries.size();
  }
  found.all_queries = base.in.rows.size();
  for (const Hypothesis& hypothesis : hypotheses()) {
    if (hypothesis.group() == "logsumexp" && output != Output::logsumexp) continue;
    if (stop != nullptr && *stop) {
      found.untested.emplace_back(hypothesis.id);
      continue;
    }
    try {
      const auto changed = base.changed(hypothesis);
      if (!changed) continue;
      if (changed->first.too_large) {
        found.untested.emplace_back(hypothesis.id);
        continue;
      }
      Effect effect;
      effect.id = hypothesis.id, effect.kernel = changed->first.kernel;
      Changes changes(tolerance);
      bool fits = true;
      for (std::size_t k = 0; k < blocks.size() && fits; ++k) {
        const Tensor result = evaluate(changed->second, output, blocks[k], nullptr).values;
        fits = result.shape() == values[k].values.shape();
        if (fits) changes.add(result, values[k]);
      }
      if (!fits) continue;
      changes.store(effect);
      found.effects.push_back(std::move(effect));
    } catch (const Error&) {  // the changed job is not valid
    }
  }
  return found;
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
  plain.options.lse_base = std::numbers::e;
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
  std::set<std::string> groups;
  for (const Effect& effect : found.effects)
    if (effect.verdict != Effect::Verdict::seen)
      groups.insert(effect.id.substr(0, effect.id.find('.')));
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
