#include "attn/bounds/attended_errors.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "attn/attention/derivatives.h"
#include "attn/attention/fused_gradients.h"
#include "attn/attention/inputs_part.h"
#include "attn/attention/tensor_ops.h"
#include "attn/base/memory_limit.h"
#include "attn/problem/threads.h"
#include "attn/tensor/shape.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

/// Elements of the matrices that a thread computes at once, about twenty of them.
constexpr std::size_t kScoresAtOnce = std::size_t{1} << 17;
constexpr std::size_t kMatrices = 20, kOfKeys = 14;

constexpr std::size_t kMostGradientThreads = 4;

/// Scores of all heads that are not worth another thread.
constexpr std::size_t kFewScores = std::size_t{1} << 18;

double number(const Tensor& x, std::size_t i) { return bounds::finite(x.data<double>()[i]); }

std::optional<Bounded> value_and_error(const Inputs& in, const ErrorOps& errors, Input input) {
  return in[input] ? std::optional(errors.given(input)) : std::nullopt;
}

Bounded matrix_of(const Bounded& x, std::size_t b, std::size_t h) {
  return {attn::matrix_of(x.value, b, h), attn::matrix_of(x.error, b, h), x.is_stored};
}

Bounded rows_of_part(const Bounded& x, std::size_t first, std::size_t count) {
  return {sliced(x.value, 2, first, count), sliced(x.error, 2, first, count), x.is_stored};
}

Bounded transposed(const Bounded& x) {
  return {transposed_matrices(bounds::wide(x.value)), transposed_matrices(x.error), x.is_stored};
}

Bounded zeros(const Shape& shape) { return {Tensor(DType::f64, shape), Tensor(DType::f64, shape)}; }

/// A product of the weights, or of the derivatives of the scores, with a sum over queries:
/// (1, 1, S, columns).
struct SumOverQueries {
  std::optional<Tensor> value = {};
  ErrorOps::WeightedSum error = {};

  /// The weights are those of the first of `keys` keys; x are some of `queries` queries.
  void add(const ErrorOps& errors, const Bounded& weights, const Bounded& x, std::size_t keys,
           std::size_t queries) {
    const Bounded back = transposed(weights);
    const Tensor product = chained_product(back.value, bounds::wide(x.value));
    const ErrorOps::WeightedSum of_error = errors.weighted_sum(back, x, queries);
    if (!value) {
      Shape shape = product.shape();
      shape[2] = keys;
      const Tensor zero(DType::f64, shape);
      value = zero, error.errors = zero;
      if (of_error.terms) error.terms = error.squares = zero;
      if (of_error.sizes) error.sizes = zero;
    }
    add_first(product, *value);
    add_first(of_error.errors, error.errors);
    if (of_error.terms)
      add_first(*of_error.terms, *error.terms), add_first(*of_error.squares, *error.squares);
    if (of_error.sizes) add_first(*of_error.sizes, *error.sizes);
  }

  static void add_first(const Tensor& part, Tensor& sum) {
    const auto to = sum.mutable_data<double>();
    std::size_t i = 0;
    for (const double x : part.data<double>()) to[i++] += x;
  }
};

/// With all keys up to the last one that some row sees.
Inputs seen_part(const Inputs& in) {
  const KeySpan seen = seen_keys(in);
  return with_keys(in, {0, seen.first + seen.count});
}

/// Writes a matrix to rows `first` and following of matrix `index` of `whole`.
void put_rows(const Tensor& part, std::size_t index, std::size_t first, std::size_t rows,
              std::size_t columns, double* whole) {
  std::copy_n(part.data<double>().begin(), part.size(), whole + (index * rows + first) * columns);
}

}  // namespace

bool AttendedErrors::Wanted::any_but_values() const {
  return queries || keys || sinks || head_scale ||
         std::find(biases.begin(), biases.end(), true) != biases.end();
}

/// The derivative by a bias, without the rounding of its sums.
struct AttendedErrors::BiasSums {
  Tensor value, error, sizes;
  std::size_t terms = 1;
};

/// The stages of some queries of one query head.
class AttendedErrors::Head {
 public:
  /// `precision` must outlive this object. `count` of the rows of `in` from `first` on.
  Head(const Inputs& in, const Precision& precision, std::size_t first, std::size_t count)
      : in_(seen_part(part_of(in, {{first, count}}))),
        exact_(in_),
        errors_(in_, precision, nullptr, in.S),
        keys_(in.S),
        s_(precision.sum),
        first_(first),
        count_(count) {}

  /// Computes everything up to the weights. The operands are those of this head, with all rows.
  void attend(const AttendedOperands& of) {
    scores_ = errors_.score(rows_of_part(of.queries, first_, count_), seen(of.keys), {});
    scaled_ = errors_.scale(scores_, of.head_scale);
    if (!of.head_scale) scores_ = {};
    Biases<Bounded> biases;
    for (const auto& [input, bias] : of.biases)
      biases.push_back({input, {*in_[input], bias.error, bias.is_stored}});
    std::tie(masked_, visible_) = errors_.mask(scaled_, std::move(biases));
    if (in_.options.softcap == 0) scaled_ = {};
    std::tie(weights_, logsumexp_) = errors_.normalise(masked_, visible_, of.sinks);
    kept_ = in_[Input::dropout_mask] ? errors_.dropped(weights_) : weights_;
  }
  Bounded context(const Bounded& values) const {
    return errors_.stored(errors_.weighted_values(kept_, seen(values), visible_));
  }

  /// Keys or values of which some query of this part sees some.
  Bounded seen(const Bounded& x) const { return rows_of_part(x, 0, in_.S); }

  /// Of each row: delta, what is subtracted from the derivatives of its weights, and its error.
  struct RowSums {
    Bounded delta;  ///< (1, 1, R)
    std::vector<double> centers, errors, sizes;
  };
  /// The seeds are those of this head, with all rows.
  struct Seeds {
    std::optional<Bounded> weights, logsumexp;
  };

  RowSums row_sums(const Bounded& context, const Bounded& g, const Seeds& seeds) const {
    const std::size_t columns = context.value.shape()[3], S = in_.S;
    RowSums rows;
    rows.delta = {delta_of(context.value, g.value), Tensor(DType::f64, {1, 1, count_})};
    const double base = in_.options.lse_base;
    const double factor = base == std::numbers::e ? 1 : 1 / std::log(base);
    const auto e = rows.delta.error.mutable_data<double>();
    for (std::size_t row = 0; row < e.size(); ++row) {
      double worst = 0, squares = 0, sizes = 0, errors = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
        const double of = std::abs(number(g.value, i)), x = std::abs(number(context.value, i));
        const double product = of * context.error.data<double>()[i];
        worst += product, squares += product * product;
        sizes += of * x;
        errors += g.error.data<double>()[i] * x;
      }
      e[row] = std::min(worst, bounds::kSpread * std::sqrt(squares)) + errors +
               bounds::growth(columns) * s_ * sizes;
      double center = number(rows.delta.value, row), error = e[row], size = std::abs(center);
      if (seeds.weights) {
        double sum = 0, magnitudes = 0;
        for (std::size_t j = 0; j < S; ++j) {
          const std::size_t i = row * S + j, at = (first_ + row) * keys_ + j;
          const double w = number(weights_.value, i), of = number(seeds.weights->value, at);
          sum += w * of;
          magnitudes += std::abs(w * of);
          error += weights_.error.data<double>()[i] * std::abs(of) +
                   w * seeds.weights->error.data<double>()[at];
        }
        center += sum, size += magnitudes, error += bounds::growth(keys_) * s_ * magnitudes;
      }
      if (seeds.logsumexp) {
        const double of = number(seeds.logsumexp->value, first_ + row) * factor;
        center -= of, size += std::abs(of);
        error +=
            seeds.logsumexp->error.data<double>()[first_ + row] * factor + 2 * s_ * std::abs(of);
      }
      rows.centers.push_back(center), rows.errors.push_back(error), rows.sizes.push_back(size);
    }
    return rows;
  }

  /// The derivative by the sum of scores and biases.
  Bounded of_masked_scores(const Bounded& all_values, const Bounded& g, const RowSums& rows,
                           const Seeds& seeds) const {
    const Bounded values = seen(all_values);
    const Tensor of = bounds::magnitude(g.value), v = bounds::magnitude(values.value);
    Bounded dP{matmul(g.value, bounds::wide(values.value), Second::transposed, "error"),
               bounds::times(bounds::product(of, v, Second::transposed),
                             errors_.sum_of_products(v.shape()[3]))};
    dP.error = bounds::plus_product(std::move(dP.error), g.error, v, Second::transposed);
    dP.error = bounds::plus_product(std::move(dP.error), of, values.error, Second::transposed);
    if (in_[Input::dropout_mask]) {
      dP.value = exact_.dropped(dP.value);
      dP.error = bounds::plus(exact_.dropped(dP.error),
                              bounds::times(bounds::magnitude(dP.value), 3 * s_));
    }
    if (seeds.weights) {
      const Bounded of_weights = rows_of_part(*seeds.weights, first_, count_);
      dP.value = bounds::plus(std::move(dP.value), sliced(of_weights.value, 3, 0, in_.S));
      dP.error =
          bounds::plus(bounds::plus(std::move(dP.error), sliced(of_weights.error, 3, 0, in_.S)),
                       bounds::times(bounds::magnitude(dP.value), s_));
    }
    const double temperature = in_.options.temperature;
    const auto visible = visible_.keys.data<bool>();
    const auto masked = masked_.value.data<double>(), weights = weights_.value.data<double>(),
               of_weights = weights_.error.data<double>();
    const auto value = dP.value.mutable_data<double>(), error = dP.error.mutable_data<double>();
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double w = bounds::finite(weights[i]);
      const double center = rows.centers[i / in_.S], size = rows.sizes[i / in_.S];
      const double slope = bounds::finite(value[i]), difference = slope - center;
      if (!visible[i] || !std::isfinite(masked[i])) {
        value[i] = error[i] = 0;
        continue;
      }
      error[i] = (of_weights[i] * std::abs(difference) + w * (error[i] + rows.errors[i / in_.S]) +
                  3 * s_ * w * (std::abs(slope) + size)) /
                 std::abs(temperature);
      value[i] = w * difference / temperature;
      error[i] += 2 * s_ * std::abs(value[i]);
    }
    return in_.options.softcap_order == SoftcapOrder::after_mask
               ? before_softcap(std::move(dP), masked_)
               : dP;
  }

  /// The derivative by the scores before the softcap.
  Bounded of_scaled_scores(const Bounded& of_masked) const {
    return in_.options.softcap_order == SoftcapOrder::before_mask
               ? before_softcap(of_masked, scaled_)
               : of_masked;
  }

  /// The derivative by the products of queries and keys.
  Bounded of_scores(const Bounded& of_scaled, const std::optional<Bounded>& head_scale) const {
    const auto scaled = [&](const Tensor& x) {
      Tensor result = bounds::times(x, in_.scale.factor());
      return head_scale ? times_by_head(result, bounds::wide(head_scale->value)) : result;
    };
    const Tensor value = scaled(of_scaled.value);
    Tensor error = bounds::plus(bounds::magnitude(scaled(of_scaled.error)),
                                bounds::times(bounds::magnitude(value), 4 * s_));
    if (head_scale)
      error = bounds::plus(std::move(error),
                           times_by_head(bounds::times(bounds::magnitude(of_scaled.value),
                                                       std::abs(in_.scale.factor())),
                                         head_scale->error));
    return {value, std::move(error)};
  }

  /// Adds the derivative by a bias of this head to that of all.
  void add_bias(const Bounded& of_masked, Input input, std::size_t b, std::size_t h,
                BiasSums& sums) const {
    Inputs local = in_;  // in which the rows are all rows
    const Tensor& bias = *in_[input];
    Tensor own = bias;
    const bool is_table = input == Input::alibi_slopes || input == Input::relative_bias;
    const bool has_rows = !is_table && bias.shape()[2] != 1;
    if (has_rows) {
      Shape shape = bias.shape();
      shape[2] = count_;
      own = Tensor(DType::f64, shape);
      std::iota(local.rows.own().begin(), local.rows.own().end(), std::size_t{0});
    }
    const GivenBias<Tensor> of{input, own};
    const Tensor parts[] = {
        bias_derivative(of_masked.value, of, local),
        bounds::magnitude(bias_derivative(of_masked.error, of, local)),
        bounds::magnitude(bias_derivative(bounds::magnitude(of_masked.value), of, local))};
    Tensor* const totals[] = {&sums.value, &sums.error, &sums.sizes};
    for (std::size_t k = 0; k < 3; ++k)
      add_bias_derivative(parts[k], input, b, h, has_rows ? &in_.rows.vector() : nullptr, 1,
                          *totals[k]);
  }

  Bounded of_sink(const Bounded& sink, const RowSums& rows, std::size_t all_rows) const {
    Bounded result = zeros({1});
    const double of_sum = bounds::growth(all_rows) * s_;
    const double x = number(sink.value, 0);
    if (!std::isfinite(bounds::wide(sink.value).data<double>()[0])) return result;
    for (std::size_t row = 0; row < rows.centers.size(); ++row) {
      const double log = logsumexp_.value.data<double>()[row];
      if (!std::isfinite(log)) continue;
      const double share = std::exp(x - log);
      const double relative = logsumexp_.error.data<double>()[row] + sink.error.data<double>()[0] +
                              2 * s_ * (std::abs(x) + std::abs(log)) + 8 * s_ + of_sum;
      result.value.mutable_data<double>()[0] -= share * rows.centers[row];
      result.error.mutable_data<double>()[0] +=
          rows.sizes[row] * ErrorOps::error_of_weight(share, x - log, relative, 8 * s_) +
          share * rows.errors[row];
    }
    return result;
  }

  /// Summed over `all` scores, with those of other items and queries.
  Bounded of_head_scale(const Bounded& of_scaled, std::size_t all) const {
    const double scale = in_.scale.factor(), of_sum = bounds::growth(all) * s_;
    Bounded result = zeros({1});
    double& value = result.value.mutable_data<double>()[0];
    double& error = result.error.mutable_data<double>()[0];
    for (std::size_t i = 0; i < scores_.value.size(); ++i) {
      const double g = number(of_scaled.value, i), x = number(scores_.value, i);
      const double of_g = of_scaled.error.data<double>()[i];
      const double of_x = scores_.error.data<double>()[i], size = std::abs(g * x);
      value += scale * g * x;
      error += std::abs(scale) *
               (of_g * (std::abs(x) + of_x) + of_x * std::abs(g) + 2 * s_ * size + of_sum * size);
    }
    return result;
  }

  /// Of the product of weights (1, 1, m, n) with x: summed over all keys.
  Tensor sum_error(const Bounded& weights, const Bounded& x, const Tensor& product) const {
    return errors_.weighted_sum_error(weights, x, keys_, product);
  }

  const Bounded& kept() const { return kept_; }
  const ErrorOps& errors() const { return errors_; }

 private:
  Bounded before_softcap(Bounded g, const Bounded& y) const {
    const double c = in_.options.softcap;
    if (c == 0) return g;
    const auto value = g.value.mutable_data<double>(), error = g.error.mutable_data<double>();
    const auto capped = y.value.data<double>(), of_capped = y.error.data<double>();
    for (std::size_t i = 0; i < value.size(); ++i) {
      const double t = bounds::finite(capped[i]) / c, of_t = of_capped[i] / c;
      const double slope = (1 - t) * (1 + t);
      error[i] =
          error[i] * slope + std::abs(value[i]) * (2 * std::abs(t) * of_t + of_t * of_t + 6 * s_);
      value[i] *= slope;
    }
    return g;
  }

  const Inputs in_;
  const TensorOps exact_;
  const ErrorOps errors_;
  const std::size_t keys_;  ///< also those that no query of this part sees
  const double s_;
  const std::size_t first_, count_;
  Bounded scores_, scaled_, masked_, weights_, logsumexp_, kept_;
  VisibleKeys visible_;
};

namespace {

/// The operands of query head h of item b; `in` is head_of() of it.
AttendedOperands operands_of(const AttendedOperands& all, const Inputs& in, std::size_t b,
                             std::size_t h, std::size_t g) {
  AttendedOperands of{matrix_of(all.queries, b, h),
                      matrix_of(all.keys, b, g),
                      matrix_of(all.values, b, g),
                      {},
                      {},
                      {}};
  for (const auto& [input, bias] : all.biases)
    of.biases.push_back({input, {*in[input], bias.error, bias.is_stored}});
  const auto number_of = [&](const std::optional<Bounded>& x) {
    return x ? std::optional<Bounded>(
                   {sliced(x->value, 0, h, 1), sliced(x->error, 0, h, 1), x->is_stored})
             : std::nullopt;
  };
  of.sinks = number_of(all.sinks), of.head_scale = number_of(all.head_scale);
  return of;
}

std::size_t rows_at_once(const Inputs& in) {
  return std::max<std::size_t>(
      1, std::min(in.rows.size(), kScoresAtOnce / std::max<std::size_t>(1, in.S)));
}

/// Sums over the query heads of a key/value head.
struct OfGroup {
  std::optional<Bounded> sum = {};
  Tensor sizes = {};

  /// `x`: what was summed over the queries.
  void add(const SumOverQueries& head, const ErrorOps& errors, const Bounded& x) {
    add({*head.value, errors.error_of(head.error, *head.value, sizes_of(x).norms)});
  }
  void add(Bounded x) {
    const Tensor size = bounds::magnitude(x.value);
    if (!sum) {
      sum = std::move(x), sizes = size;
      return;
    }
    sum->value = bounds::plus(std::move(sum->value), x.value);
    sum->error = bounds::plus(std::move(sum->error), x.error);
    sizes = bounds::plus(std::move(sizes), size);
  }

  /// Stored.
  Bounded total(const ErrorOps& errors, std::size_t heads, double s) const {
    const double of_sums = heads == 1 ? 0 : bounds::growth(heads) * s;
    const Tensor error = bounds::plus(sum->error, bounds::times(sizes, of_sums));
    return {sum->value, errors.rounded(error, sum->value), true};
  }
};

/// The sums of (1) of all items for each head, in order.
Bounded sum_over_items(const std::vector<Bounded>& parts, std::size_t H) {
  Bounded sums = zeros({H});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    sums.value.mutable_data<double>()[i % H] += parts[i].value.data<double>()[0];
    sums.error.mutable_data<double>()[i % H] += parts[i].error.data<double>()[0];
  }
  return sums;
}

void add_number(const Bounded& part, Bounded& sum) {
  if (sum.value.size() == 0) sum = zeros({1});
  sum.value.mutable_data<double>()[0] += part.value.data<double>()[0];
  sum.error.mutable_data<double>()[0] += part.error.data<double>()[0];
}

}  // namespace

/// Matrices that are filled by several threads.
struct AttendedErrors::Filled {
  explicit Filled(const Shape& shape)
      : bounded(zeros(shape)),
        rows(shape[2]),
        columns(shape[3]),
        value(bounded.value.mutable_data<double>().data()),
        error(bounded.error.mutable_data<double>().data()) {}

  void put(const Bounded& part, std::size_t index, std::size_t first) {
    put_rows(part.value, index, first, rows, columns, value);
    put_rows(part.error, index, first, rows, columns, error);
  }

  Bounded bounded;
  std::size_t rows, columns;
  double *value, *error;
};

void AttendedErrors::for_each_kv_head(
    bool in_order, const std::function<void(std::size_t, std::size_t)>& f) const {
  const std::size_t scores = saturating_product({in_.B, in_.H, in_.rows.size(), in_.S});
  run_in_parallel(in_.B * in_.G, in_order || scores < kFewScores ? 1 : kMostGradientThreads,
                  [&](std::size_t i) { f(i / in_.G, i % in_.G); });
}

AttendedErrors::AttendedErrors(const Inputs& in, const Precision& precision,
                               AttendedOperands operands)
    : in_(in), precision_(precision), operands_(std::move(operands)) {
  const std::size_t R = in.rows.size(), Dv = operands_.values.value.shape()[3];
  Filled context({in.B, in.H, R, Dv});
  const std::size_t of_group = in.G == 0 ? 0 : in.H / in.G, step = rows_at_once(in);
  keep_freed_memory();
  for_each_kv_head(false, [&](std::size_t b, std::size_t g) {
    for (std::size_t h = g * of_group; h < (g + 1) * of_group; ++h) {
      const Inputs own = head_of(in, b, h);
      const AttendedOperands of = operands_of(operands_, own, b, h, g);
      for (std::size_t first = 0; first < R; first += step) {
        Head head(own, precision_, first, std::min(step, R - first));
        head.attend(of);
        context.put(head.context(of.values), b * in.H + h, first);
      }
    }
  });
  context_ = std::move(context.bounded);
  context_.is_stored = true;
}

/// The derivatives, which are sums over heads, items or queries.
class AttendedErrors::DerivativeSums {
 public:
  /// All must outlive this object.
  DerivativeSums(const AttendedErrors& attended, const Bounded& g, const Wanted& wanted)
      : in_(attended.in_),
        attended_(attended),
        g_(g),
        wanted_(wanted),
        errors_(in_, attended.precision_),
        queries_(filled(wanted.queries, attended.operands_.queries)),
        keys_(filled(wanted.keys, attended.operands_.keys)),
        values_(filled(wanted.values, attended.operands_.values)),
        delta_({in_.B, in_.H, in_.rows.size(), 1}),
        sinks_(in_.B * in_.H),
        head_scale_(in_.B * in_.H) {
    const Biases<Bounded>& biases = attended.operands_.biases;
    biases_.resize(biases.size());
    for (std::size_t i = 0; i < biases.size(); ++i) {
      if (!wanted.biases[i]) continue;
      const Tensor zero(DType::f64, biases[i].value.value.shape());
      const std::size_t scores = in_.B * in_.H * in_.rows.size() * in_.S;
      biases_[i] = BiasSums{zero, zero, zero, zero.size() == 0 ? 0 : scores / zero.size()};
    }
  }

  bool has_biases() const {
    return std::any_of(biases_.begin(), biases_.end(), [](const auto& bias) { return !!bias; });
  }

  /// Adds the query heads of key/value head `group` of item b.
  void add_group(std::size_t b, std::size_t group) {
    const std::size_t of_group = in_.H / in_.G;
    OfGroup of_keys, of_values;
    for (std::size_t h = group * of_group; h < (group + 1) * of_group; ++h)
      add_head(b, h, group, of_keys, of_values);
    const double s = attended_.precision_.sum;
    const std::size_t index = b * in_.G + group;
    if (of_keys.sum) keys_->put(of_keys.total(errors_, of_group, s), index, 0);
    if (of_values.sum) values_->put(of_values.total(errors_, of_group, s), index, 0);
  }

  Derivatives result() {
    Derivatives result{stored(queries_), stored(keys_), stored(values_), {}, {}, {}, {}};
    if (wanted_.sinks) result.sinks = sum_over_items(sinks_, in_.H);
    if (wanted_.head_scale) result.head_scale = sum_over_items(head_scale_, in_.H);
    for (std::optional<BiasSums>& bias : biases_) {
      result.biases.emplace_back();
      if (!bias) continue;
      const double of_sums = bounds::growth(bias->terms) * attended_.precision_.sum;
      result.biases.back() = Bounded{
          std::move(bias->value),
          bounds::plus(std::move(bias->error), bounds::times(std::move(bias->sizes), of_sums))};
    }
    const Shape of_rows = {in_.B, in_.H, in_.rows.size()};
    result.delta = {delta_.bounded.value.reshaped(of_rows), delta_.bounded.error.reshaped(of_rows)};
    return result;
  }

 private:
  static std::optional<Filled> filled(bool is_wanted, const Bounded& like) {
    return is_wanted ? std::optional<Filled>(like.value.shape()) : std::nullopt;
  }

  static std::optional<Bounded> stored(std::optional<Filled>& of) {
    if (!of) return std::nullopt;
    of->bounded.is_stored = true;
    return std::move(of->bounded);
  }

  void add_head(std::size_t b, std::size_t h, std::size_t group, OfGroup& of_keys,
                OfGroup& of_values) {
    const Inputs own = head_of(in_, b, h);
    const ErrorOps own_errors(own, attended_.precision_);
    const AttendedOperands of = operands_of(attended_.operands_, own, b, h, group);
    const Head::Seeds seeds{value_and_error(own, own_errors, Input::grad_weights),
                            value_and_error(own, own_errors, Input::grad_logsumexp)};
    const Bounded of_context = matrix_of(g_, b, h), context = matrix_of(attended_.context_, b, h);
    const std::size_t R = in_.rows.size(), S = in_.S, index = b * in_.H + h;
    SumOverQueries keys, values;
    for (std::size_t first = 0, step = rows_at_once(in_); first < R; first += step) {
      const std::size_t count = std::min(step, R - first);
      Head head(own, attended_.precision_, first, count);
      head.attend(of);
      const Bounded of_rows = rows_of_part(of_context, first, count);
      const Head::RowSums rows = head.row_sums(rows_of_part(context, first, count), of_rows, seeds);
      delta_.put(rows.delta, index, first);
      if (wanted_.values) values.add(head.errors(), head.kept(), of_rows, S, R);
      if (!wanted_.any_but_values()) continue;
      if (wanted_.sinks) add_number(head.of_sink(*of.sinks, rows, in_.B * R), sinks_[index]);
      const Bounded of_masked = head.of_masked_scores(of.values, of_rows, rows, seeds);
      for (std::size_t i = 0; i < biases_.size(); ++i)
        if (biases_[i]) head.add_bias(of_masked, of.biases[i].input, b, h, *biases_[i]);
      const Bounded of_scaled = head.of_scaled_scores(of_masked);
      if (wanted_.head_scale)
        add_number(head.of_head_scale(of_scaled, in_.B * R * S), head_scale_[index]);
      if (!wanted_.queries && !wanted_.keys) continue;
      const Bounded of_scores = head.of_scores(of_scaled, of.head_scale);
      if (wanted_.queries) put_queries(head, of_scores, of.keys, index, first);
      if (wanted_.keys)
        keys.add(head.errors(), of_scores, rows_of_part(of.queries, first, count), S, R);
    }
    if (keys.value) of_keys.add(keys, errors_, of.queries);
    if (values.value) of_values.add(values, errors_, of_context);
  }

  void put_queries(const Head& head, const Bounded& of_scores, const Bounded& keys,
                   std::size_t index, std::size_t first) {
    const Bounded seen = head.seen(keys);
    const Tensor value = chained_product(of_scores.value, bounds::wide(seen.value));
    queries_->put({value, errors_.rounded(head.sum_error(of_scores, seen, value), value)}, index,
                  first);
  }

  const Inputs& in_;
  const AttendedErrors& attended_;
  const Bounded& g_;
  const Wanted& wanted_;
  const ErrorOps errors_;
  std::optional<Filled> queries_, keys_, values_;
  Filled delta_;
  std::vector<std::optional<BiasSums>> biases_;
  std::vector<Bounded> sinks_, head_scale_;  ///< (1) of each item and head
};

AttendedErrors::Derivatives AttendedErrors::derivatives(const Bounded& g,
                                                        const Wanted& wanted) const {
  DerivativeSums sums(*this, g, wanted);
  for_each_kv_head(sums.has_biases(),
                   [&](std::size_t b, std::size_t group) { sums.add_group(b, group); });
  return sums.result();
}

std::size_t bytes_of_attended_errors(const Inputs& in, bool has_wanted_biases) {
  const std::size_t threads =
      std::min({thread_count(), kMostGradientThreads,
                std::max<std::size_t>(1, saturating_product({in.B, in.G}))});
  const std::size_t columns = in.D + in.Dv;
  // Scores of some queries, and sums over queries of a head.
  std::size_t of_thread =
      saturating_sum(saturating_product({kMatrices, rows_at_once(in), in.S}),
                     saturating_product({kOfKeys, in.S + in.rows.size(), columns}));
  std::size_t elements = saturating_product({threads, of_thread});
  // Operands, context and derivatives, with their errors.
  elements = saturating_sum(elements, saturating_product({4, in.B, in.H, in.rows.size(), columns}));
  elements = saturating_sum(elements, saturating_product({4, in.B, in.G, in.S, columns}));
  if (has_wanted_biases)
    for (const Input input : kBiasInputs)
      if (in[input])
        elements = saturating_sum(elements, saturating_product({6, in[input]->size()}));
  return saturating_product({elements, sizeof(double)});
}

}  // namespace attn
