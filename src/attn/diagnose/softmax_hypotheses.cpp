// Mistakes about what becomes of the scores: sinks, softmax, dropout and logsumexp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attn/attention/attention.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/diagnose/row_changes.h"

namespace attn {
namespace {

double log_of_sum(double a, double b) {
  if (a < b) std::swap(a, b);
  return std::isinf(b) ? a : a + std::log1p(std::exp(b - a));
}

constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// One sum for all queries and keys of a head.
Found softmax_over_matrix(Variant& variant, const Inputs& in) {
  if (!may_change_rows(RowChange::times_sum, variant, in) ||
      in.options.softmax_axis == SoftmaxAxis::all || in.L < 2 || variant.has(Input::sinks))
    return std::nullopt;
  Options options = in.options;
  report_natural_logsumexp(options);
  options.path = Path::automatic;
  options.rows.clear();
  const Tensor of_rows =
      attend({variant.tensors, options}, {Output::logsumexp}).at(name_of(Output::logsumexp));
  Tensor terms(DType::f64, {in.B, in.H});
  for (std::size_t i = 0; i < terms.size(); ++i) {
    double sum = kNothing;
    for (const double x : of_rows.data<double>().subspan(i * in.L, in.L)) sum = log_of_sum(sum, x);
    terms.mutable_data<double>()[i] = std::isfinite(sum) ? -sum : 0;
  }
  variant.row_change = RowChange::times_sum;
  variant.of_heads = terms;
  return flag("--softmax-axis all", "keys");
}

/// An online softmax that does not rescale what it summed before the maximum grew.
void add_not_rescaled(Hypotheses& all) {
  static constexpr std::size_t kLeast = 16;  // keys of a block
  struct OnlineKind {
    RowChange change;
    const char *id, *what;
  };
  constexpr OnlineKind kinds[] = {
      {RowChange::sums_not_rescaled, "sums", "the sums"},
      {RowChange::context_not_rescaled, "context", "the context"},
      {RowChange::divisor_not_rescaled, "divisor", "the sum of the weights"},
  };
  for (const bool starts_at_sink : {false, true})
    for (const OnlineKind& kind : kinds)
      for (const std::size_t block : {kLeast, 2 * kLeast, 4 * kLeast, 8 * kLeast})
        all.push_back({"softmax." + std::string(kind.id) + "_not_rescaled_" +
                           (starts_at_sink ? "from_sink_" : "") + in_words(block),
                       kAttention, [=](Variant& variant, const Inputs& in) -> Found {
                         // One block of keys comes after the sink; a larger one is the same.
                         if (starts_at_sink ? !variant.has(Input::sinks) ||
                                                  (block > kLeast && 2 * in.S <= block)
                                            : in.S <= block)
                           return std::nullopt;
                         variant.block = block, variant.starts_at_sink = starts_at_sink;
                         return with_row_change(
                             variant, in, kind.change,
                             "an online softmax in blocks of " + in_words(block) +
                                 " keys that does not rescale " + kind.what + " of earlier blocks" +
                                 (starts_at_sink ? ", and starts with the sink as maximum" : ""));
                       }});
}

/// The weights of each key sum to 1.
Found softmax_over_queries(Variant& variant, const Inputs& in) {
  constexpr std::size_t kMostScores = std::size_t{1} << 25, kBlock = std::size_t{1} << 20;
  if (!may_change_rows(RowChange::times_sum, variant, in) || in.L < 2 || in.E > 0)
    return std::nullopt;
  const Claim claim = words("the softmax over the queries instead of the keys");
  const double temperature = in.options.temperature;
  const std::size_t of_query = std::max<std::size_t>(1, in.B * in.H * in.S);
  if (of_query > kMostScores / in.L) return Claim{claim.kernel, "", false, true};
  const std::size_t columns = in.B * in.H * in.S;
  std::vector<double> largest(columns, kNothing), total(columns);  // of exp(x - the largest)
  const std::size_t block = std::max<std::size_t>(1, kBlock / of_query);
  for (std::size_t first = 0; first < in.L; first += block) {
    Options options = in.options;
    options.rows.clear();
    const std::size_t count = std::min(block, in.L - first);
    for (std::size_t i = 0; i < count; ++i)
      options.rows.push_back(static_cast<std::int64_t>(first + i));
    const Tensor scores = attend({variant.tensors, options}, {Output::masked_scores})
                              .at(name_of(Output::masked_scores));
    const auto x = scores.data<double>();
    for (std::size_t row = 0; row < in.B * in.H * count; ++row)
      for (std::size_t j = 0; j < in.S; ++j) {
        const double score = x[row * in.S + j] / temperature;
        if (score == kNothing) continue;
        double& most = largest[row / count * in.S + j];
        double& sum = total[row / count * in.S + j];
        if (score > most) sum *= std::exp(most - score), most = score;
        sum += std::exp(score - most);
      }
  }
  Tensor sums(DType::f64, {in.B, in.H, 1, in.S});
  for (std::size_t i = 0; i < columns; ++i) {
    const double sum = largest[i] + std::log(total[i]);
    sums.mutable_data<double>()[i] = std::isfinite(sum) ? -sum * temperature : 0;
  }
  add_bias(variant, sums);
  variant.erase({Input::sinks});
  variant.row_change = RowChange::times_sum;
  return claim;
}

}  // namespace

Hypotheses sink_hypotheses() {
  return {
      {"sink.dropped", kAttention, dropped(Input::sinks)},
      {"sink.twice", kAttention,
       each_of(
           Input::sinks, [](double x) { return x + std::numbers::ln2; }, "sinks counted twice")},
      {"sink.exp2", kAttention,
       multiplied(Input::sinks, std::numbers::ln2, "sinks as 2^x instead of e^x")},
      {"sink.log2e", kAttention,
       multiplied(Input::sinks, std::numbers::log2e, "sinks multiplied by log2(e)")},
      {"sink.scaled", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_product(p, Input::sinks, in.scale.factor(), "sinks multiplied by the scale");
       }},
      {"sink.next_head", kAllHeads,
       [](Variant& p, const Inputs& in) -> Found {
         if (!p.has(Input::sinks) || in.H < 2) return std::nullopt;
         p.set(Input::sinks,
               reordered(*p.find(Input::sinks), 1, [&](std::size_t h) { return (h + 1) % in.H; }));
         return words("the sink of the next head");
       }},
      {"sink.head_0", kAllHeads,
       [](Variant& p, const Inputs& in) -> Found {
         if (!p.has(Input::sinks) || in.H < 2) return std::nullopt;
         p.set(Input::sinks, reordered(*p.find(Input::sinks), 1, [](std::size_t) { return 0; }));
         return words("the sink of head 0 for all heads");
       }},
      {"sink.value_of_key_0", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!may_change_rows(RowChange::sink_reads_key_0, p, in)) return std::nullopt;
         p.row_change = RowChange::sink_reads_key_0;
         return words("the weight of the sink multiplied with the value of key 0",
                      "a sink without a value");
       }},
      {"sink.not_shifted", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_row_change(
             p, in, RowChange::sink_not_shifted,
             "exp(sink) in the denominator without the largest score subtracted");
       }},
      {"sink.added", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (p.has(Input::sinks) || in.options.normaliser != Normaliser::softmax)
           return std::nullopt;
         p.set(Input::sinks, Tensor(DType::f64, {in.H}));
         const bool completes_page =
             in.token_positions.size() == 1 && keys_of(in, 0) % kSmallestPage == kSmallestPage - 1;
         return words(std::string("1 added to the denominator of the softmax (sinks of 0") +
                      (completes_page ? ", or a key of zeros after the last one)" : ")"));
       }},
  };
}

Hypotheses softmax_hypotheses() {
  Hypotheses all = {
      {"dropout.not_divided", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!p.has(Input::dropout_mask) || in.options.dropout_p.value_or(0) == 0)
           return std::nullopt;
         p.options.dropout_p = 0;
         return flag("--dropout-p 0: kept weights are not divided by 1 - p",
                     in_words(*in.options.dropout_p));
       }},
      {"dropout.inverted", kAttention,
       each_of(
           Input::dropout_mask, [](double x) { return 1 - x; }, "the dropout mask inverted")},
      {"dropout.dropped", kAttention,
       [](Variant& p, const Inputs&) -> Found {
         if (!p.has(Input::dropout_mask)) return std::nullopt;
         p.options.dropout_p.reset();
         return without(p, {Input::dropout_mask}, "without --dropout-mask");
       }},

      {"softmax.not_normalised", kAttention,
       change_by(with_row_change, RowChange::times_shifted_sum,
                 "weights that are not divided by their sum")},
      {"softmax.exp_not_normalised", kAttention,
       change_by(with_row_change, RowChange::times_sum,
                 "exp(score) as weights, not divided by their sum")},
      {"softmax.twice", kAttention,
       change_by(with_row_change, RowChange::twice, "the softmax applied twice")},
      {"softmax.twice_masked", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!hides_keys(p, in)) return std::nullopt;
         return with_row_change(p, in, RowChange::twice_masked, "the softmax applied twice");
       }},
      {"softmax.over_queries", kAllScores, softmax_over_queries},
      {"softmax.whole_matrix", kAllScores, softmax_over_matrix},
      {"softmax.none", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.normaliser == Normaliser::none) return std::nullopt;
         p.options.normaliser = Normaliser::none;
         return flag("--normaliser none");
       }},
      {"softmax.sigmoid", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.normaliser == Normaliser::sigmoid || p.has(Input::sinks))
           return std::nullopt;
         p.options.normaliser = Normaliser::sigmoid;
         return flag("--normaliser sigmoid");
       }},
      {"softmax.temperature_dropped", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.temperature == 1) return std::nullopt;
         p.options.temperature = 1;
         return flag("without --temperature", in_words(in.options.temperature));
       }},
  };
  add_not_rescaled(all);
  return all;
}

Hypotheses logsumexp_hypotheses() {
  return {
      {"logsumexp.base", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         const bool natural = in.options.lse_base == std::numbers::e;
         p.options.lse_base = natural ? 2 : std::numbers::e;
         return flag(natural ? "--lse-base 2" : "--lse-base e", natural ? "e" : "2");
       }},
      {"logsumexp.sinks", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!p.has(Input::sinks)) return std::nullopt;
         p.options.lse_sinks = !in.options.lse_sinks;
         return in.options.lse_sinks ? flag("--lse-sinks excluded", "included")
                                     : flag("--lse-sinks included", "excluded");
       }},
      {"logsumexp.empty", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!has_empty_rows(in)) return std::nullopt;
         const bool is_negative = in.options.lse_empty == EmptyLogsumexp::minus_infinity;
         p.options.lse_empty =
             is_negative ? EmptyLogsumexp::infinity : EmptyLogsumexp::minus_infinity;
         return is_negative ? flag("--lse-empty inf", "-inf") : flag("--lse-empty=-inf", "inf");
       }},
      {"logsumexp.maximum", kAttention,
       change_by(with_row_change, RowChange::maximum,
                 "the largest score of each row instead of its logsumexp")},
      {"logsumexp.minus_maximum", kAttention,
       change_by(with_row_change, RowChange::minus_maximum,
                 "the logsumexp without the largest score")},
  };
}

}  // namespace attn
