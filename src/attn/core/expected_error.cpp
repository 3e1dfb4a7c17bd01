#include "attn/core/expected_error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attn/base/error.h"
#include "attn/core/attention.h"
#include "attn/core/gemm.h"
#include "attn/core/heads.h"
#include "attn/core/stages.h"

namespace attn {
namespace {

constexpr double kSpread = 4;  // standard deviations, and more, that roundings add up to

/// f(element, elements...) of tensors of one shape, f64; in the first's own memory where nobody
/// else holds it.
template <class F, class... Others>
Tensor each(F f, Tensor first, const Others&... others) {
  double* const out = first.mutable_data<double>().data();
  const std::size_t count = first.size();
  for (std::size_t i = 0; i < count; ++i) out[i] = f(out[i], others.template data<double>()[i]...);
  return first;
}

double finite(double value) { return std::isfinite(value) ? value : 0; }

Tensor wide(const Tensor& x) { return cast(x, DType::f64); }

/// |x|; 0 where x is not finite, as such elements meet weights of 0 or are compared by themselves.
Tensor magnitude(const Tensor& x) {
  return each([](double v) { return finite(std::abs(v)); }, wide(x));
}

Tensor plus(Tensor a, const Tensor& b) { return each(std::plus<>(), std::move(a), b); }

Tensor times(Tensor a, double factor) {
  return each([=](double v) { return v * factor; }, std::move(a));
}

Tensor product(const Tensor& a, const Tensor& b, Second second = Second::plain) {
  return matmul(a, b, second, "error");
}

double growth(std::size_t roundings) {
  const auto n = static_cast<double>(roundings);
  return std::min(n, kSpread * std::sqrt(n));
}

/// The errors of every stage; letters as in the header.
class Errors {
 public:
  Errors(const Inputs& in, const Options& options, const Precision& precision)
      : in_(in),
        options_(options),
        r_(precision.result),
        f_(precision.factor),
        s_(precision.sum),
        precision_(precision),
        stages_(in, options, outputs_) {}

  Tensor of(const std::string& name) {
    if (name == "queries") return queries();
    if (name == "keys") return keys();
    if (name == "values") return values();
    if (name == "present_K") return present(in_.past_K, keys());
    if (name == "present_V") return present(in_.past_V, values());
    if (name == "scores") return stored(scores(), stages_.scores());
    if (name == "scaled_scores") return stored(scaled(), stages_.scaled_scores());
    if (name == "masked_scores") return stored(masked(), stages_.masked_scores());
    if (name == "weights") return stored(softmax().weights, stages_.weights());
    if (name == "logsumexp") return stored(softmax().logsumexp, stages_.logsumexp());
    if (name == "output") return output();
    return stored(head_context(), stages_.head_context());
  }

 private:
  /// |x - x as stored|. Errors: data.
  Tensor given(const Tensor& x) const {
    if (!is_float(x.dtype()) && precision_.stored == DType::f64)
      return Tensor(DType::f64, x.shape());
    const Tensor exact = cast(x, DType::f64);
    const Tensor kept = cast(cast(exact, precision_.stored), DType::f64);
    return each(
        [&](double a, double b) {
          if (std::isfinite(a) && !std::isfinite(b))
            throw Error(ErrorKind::data, "inputs: found " + std::to_string(a) + ", which " +
                                             std::string(name_of(precision_.stored)) +
                                             " cannot hold");
          return finite(std::abs(a - b));
        },
        exact, kept);
  }

  Tensor stored(Tensor error, const Tensor& x) const {
    return each([&](double e, double v) { return e + r_ * finite(std::abs(v)) + precision_.least; },
                std::move(error), wide(x));
  }

  /// c(n)
  double sum_of_products(std::size_t n) const { return growth(n) * s_ + (f_ > r_ ? 2 * f_ : 0); }

  /// X W + b, which is y, stored.
  Tensor projected(const Tensor& X, const Tensor& error, const std::optional<Tensor>& W,
                   const std::optional<Tensor>& b, const Tensor& y) const {
    if (!W && !b) return error;
    Tensor total = error;
    if (W) {
      const Tensor x = magnitude(X), w = magnitude(*W);
      total = plus(plus(product(error, w), product(x, given(*W))),
                   times(product(x, w), sum_of_products(W->shape()[0])));
    }
    if (b) {
      const Tensor of_bias = given(*b);
      const auto e = of_bias.data<double>();
      const auto out = total.mutable_data<double>();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += e[i % e.size()];
    }
    return stored(plus(total, times(magnitude(y), s_)), y);
  }

  /// Embeddings times their scale plus positions.
  Tensor inputs() {
    const Position& position = options_.position;
    const bool plain = position.kind == Position::Kind::none && position.embedding_scale == 1 &&
                       !position.embedding_scale_sqrt;
    Tensor error = given(in_.embeddings);
    if (plain) return stages_.chosen(error);
    const double scale = position.embedding_scale_sqrt
                             ? std::sqrt(static_cast<double>(in_.embeddings.shape()[2]))
                             : std::abs(position.embedding_scale);
    // An angle grows with its position, and so does what it is off by.
    const auto last = static_cast<double>(in_.L + in_.P) + std::abs(double(position.first));
    const double angle = position.kind == Position::Kind::none ? 0 : (last + 4) * s_;
    error = each([&](double e, double x) { return e * scale + 2 * s_ * x + angle; }, error,
                 magnitude(stages_.inputs()));
    return stages_.chosen(stored(error, stages_.inputs()));
  }

  Tensor memory() {
    if (in_.memory) return given(*in_.memory);
    return inputs_of_all_rows();
  }

  /// Keys and values come from all tokens, whatever rows are asked for.
  Tensor inputs_of_all_rows() {
    if (options_.rows.empty()) return inputs();
    Options all = options_;
    all.rows.clear();
    Inputs in = in_;
    in.rows.resize(in.L);
    for (std::size_t i = 0; i < in.L; ++i) in.rows[i] = i;
    return Errors(in, all, precision_).inputs();
  }

  Tensor queries() {  // (B, H, rows, D)
    if (!in_.projected) return stages_.chosen(given(in_.Q));
    const Tensor y = side_by_side(cast(stages_.queries(), DType::f64));
    return split_heads(projected(stages_.chosen(stages_.inputs()), inputs(), in_.W_Q, in_.b_Q, y),
                       in_.H);
  }

  Tensor keys() {  // (B, G, N, D)
    if (!in_.projected) return given(in_.K);
    const Tensor y = side_by_side(cast(stages_.keys(), DType::f64));
    const Tensor& from = in_.memory ? *in_.memory : stages_.inputs();
    return split_heads(projected(from, memory(), in_.W_K, in_.b_K, y), in_.G);
  }

  Tensor values() {  // (B, G, N, Dv)
    if (!in_.projected) return given(in_.V);
    const Tensor y = side_by_side(cast(stages_.values(), DType::f64));
    const Tensor& from = in_.memory_V ? *in_.memory_V : in_.memory ? *in_.memory : stages_.inputs();
    const Tensor error = in_.memory_V ? given(*in_.memory_V) : memory();
    return split_heads(projected(from, error, in_.W_V, in_.b_V, y), in_.G);
  }

  Tensor present(const std::optional<Tensor>& past, const Tensor& error) const {
    return past ? append_rows(given(*past), error) : error;
  }

  /// Of all keys or values that stand in a row, appended ones among them.
  Tensor appended(const std::optional<Tensor>& past, const Tensor& error,
                  const std::optional<Tensor>& bias) const {
    Tensor all = present(past, error);
    if (bias) all = append_rows(all, given(*bias));
    return options_.zero_key ? append_rows(all, zeros_behind(all)) : all;
  }

  static Tensor zeros_behind(const Tensor& x) {
    Shape one = x.shape();
    one[2] = 1;
    return Tensor(DType::f64, one);
  }

  Tensor scores() {  // (B, H, rows, S)
    const Tensor q = magnitude(stages_.queries());
    const Tensor k = magnitude(stages_.appended(stages_.present_keys(), in_.bias_K));
    const Tensor of_keys = appended(in_.past_K, keys(), in_.bias_K);
    Tensor total = times(product(q, k, Second::transposed), sum_of_products(in_.D));
    total = plus(std::move(total), product(queries(), k, Second::transposed));
    return plus(std::move(total), product(q, of_keys, Second::transposed));
  }

  Tensor scaled() {
    const double scale = options_.scale.kind == Scale::Kind::none ? 1
                         : options_.scale.kind == Scale::Kind::number
                             ? std::abs(options_.scale.number)
                             : 1 / std::sqrt(static_cast<double>(in_.D));
    const double own = options_.softcap > 0 ? 6 * s_ : 2 * s_;
    return each(
        [&](double e, double s, double x) {
          return (e + 2 * s_ * finite(std::abs(s))) * scale + own * finite(std::abs(x));
        },
        scores(), wide(stages_.scores()), wide(stages_.scaled_scores()));
  }

  bool biases_are_rounded() const {
    for (const auto* bias : {&in_.mask, &in_.key_mask, &in_.slopes, &in_.relative_bias})
      if (*bias && is_float((*bias)->dtype())) {
        const Tensor error = given(**bias);
        for (const double e : error.data<double>())
          if (e > 0) return true;
      }
    return false;
  }

  /// Hidden scores are exact.
  Tensor masked() {
    const double of_bias = 2 * s_ + (biases_are_rounded() ? r_ : 0);
    const double own = options_.softcap > 0 ? 5 * s_ : s_;
    return each(
        [&](double e, double before, double x) {
          return std::isfinite(x) ? e + of_bias * finite(std::abs(x - before)) + own * std::abs(x)
                                  : 0;
        },
        scaled(), cast(stages_.scaled_scores(), DType::f64), stages_.masked_scores());
  }

  struct Softmax {
    Tensor weights;    ///< (B, H, rows, S)
    Tensor logsumexp;  ///< (B, H, rows)
  };

  Softmax softmax() {
    const Tensor &x = stages_.masked_scores(), &w = stages_.weights();
    // The errors of the scores become those of the weights, row by row.
    Softmax result{masked(), Tensor(DType::f64, stages_.logsumexp().shape())};
    const auto out = result.weights.mutable_data<double>();
    const auto sums = result.logsumexp.mutable_data<double>();
    const double roundings = growth(in_.S) * s_;
    std::vector<double> n(in_.S);
    for (std::size_t row = 0; row < sums.size(); ++row) {
      const std::size_t from = row * in_.S;
      const auto scores = x.data<double>().subspan(from, in_.S);
      const auto weights = w.data<double>().subspan(from, in_.S);
      double largest = 0, shared = 0;
      for (const double score : scores) largest = std::max(largest, finite(std::abs(score)));
      for (std::size_t j = 0; j < in_.S; ++j) {
        const double own = out[from + j];
        const double argument = finite(std::abs(scores[j])) + largest;
        n[j] = (own + 2 * s_ * argument) / std::abs(options_.temperature) + 4 * s_;
        shared += finite(weights[j]) * n[j];
      }
      for (std::size_t j = 0; j < in_.S; ++j)
        out[from + j] = finite(weights[j]) * std::expm1(n[j] + shared + roundings + 2 * s_);
      const double lse = finite(std::abs(stages_.logsumexp().data<double>()[row]));
      sums[row] = shared + roundings + 4 * s_ + 2 * s_ * lse;
    }
    return result;
  }

  Tensor head_context() {  // (B, H, rows, Dv)
    const Tensor v = magnitude(stages_.appended(stages_.present_values(), in_.bias_V));
    Tensor total = product(softmax().weights, v);
    const auto square = [](double x) { return x * x; };
    const Tensor w = magnitude(stages_.weights()), v2 = each(square, v);
    const Tensor terms = product(w, v), squares = product(each(square, w), v2);
    const Tensor seen = product(each([](double x) { return x > 0 ? 1.0 : 0.0; }, w), v2);
    const double of_sum = sum_of_products(in_.S);
    total = each(
        [&](double e, double t, double t2, double s2) {
          return e + of_sum * t + f_ * std::min(t, kSpread * std::sqrt(t2)) +
                 kSpread * precision_.least * std::sqrt(s2);
        },
        std::move(total), terms, squares, seen);
    return plus(std::move(total), product(w, appended(in_.past_V, values(), in_.bias_V)));
  }

  Tensor output() {
    const Tensor error = side_by_side(stored(head_context(), stages_.head_context()));
    return projected(stages_.context(), error, in_.W_O, in_.b_O, stages_.output());
  }

  const Inputs& in_;
  const Options& options_;
  const double r_, f_, s_;
  const Precision& precision_;
  const std::vector<std::string> outputs_;
  Stages stages_;
};

}  // namespace

std::optional<Precision> precision_named(std::string_view name) {
  const auto unit = [](int bits) { return std::ldexp(1.0, -bits); };
  if (name == "f64") return Precision{"f64", DType::f64, unit(53), unit(53), unit(53), unit(1022)};
  if (name == "f32") return Precision{"f32", DType::f32, unit(24), unit(24), unit(24), unit(126)};
  if (name == "tf32") return Precision{"tf32", DType::f32, unit(24), unit(11), unit(24), unit(126)};
  if (name == "f16") return Precision{"f16", DType::f16, unit(11), unit(11), unit(24), unit(24)};
  if (name == "bf16") return Precision{"bf16", DType::bf16, unit(8), unit(8), unit(24), unit(126)};
  return std::nullopt;
}

Precision with_sums_in(Precision precision, const Precision& sums) {
  precision.name += " with sums in " + sums.name;
  precision.sum = sums.result;
  return precision;
}

std::string no_error_known(const std::string& name, const Options& options) {
  constexpr const char* kKnown[] = {"queries",   "keys",      "values",        "present_K",
                                    "present_V", "scores",    "scaled_scores", "masked_scores",
                                    "weights",   "logsumexp", "head_context",  "context",
                                    "output"};
  if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown))
    return "for " + name;
  if (name == "values" || name == "present_V") return "";
  if (options.qk_norm != QkNorm::none) return "with qk_norm";
  if (options.rotary.kind != Rotary::Kind::none) return "with rotary positions";
  if (name == "queries" || name == "keys" || name == "present_K") return "";
  if (options.score != Score::dot) return "for other scores than dot";
  if (name.ends_with("scores")) return "";
  if (options.normaliser != Normaliser::softmax) return "for other normalisers than softmax";
  if (options.softmax_axis != SoftmaxAxis::keys) return "with softmax.axis all";
  if (options.softmax_precision != SoftmaxPrecision::automatic) return "with softmax.precision";
  return "";
}

Tensor expected_error(const std::string& name, const Inputs& in, const Options& options,
                      const Precision& precision) {
  const Tensor error = Errors(in, options, precision).of(name);
  const Tensor full = precision.stored == DType::f64 ? times(error, 2) : error;
  return as_given(name, full, in, options);
}

}  // namespace attn
