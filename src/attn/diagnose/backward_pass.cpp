#include "attn/diagnose/backward_pass.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "attn/attention/derivatives.h"
#include "attn/attention/formula.h"
#include "attn/attention/fused_gradients.h"
#include "attn/attention/gemm.h"
#include "attn/attention/grad_ops.h"
#include "attn/attention/inputs_part.h"
#include "attn/attention/score.h"
#include "attn/attention/tensor_ops.h"
#include "attn/base/error.h"
#include "attn/problem/layout.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

using Change = BackwardChange;

/// Elements of the matrices of a head that are in memory at once, about ten of them.
constexpr std::size_t kScoresOfRows = std::size_t{1} << 18;

Tensor times(Tensor x, double factor) {
  for (double& value : x.mutable_data<double>()) value *= factor;
  return x;
}

void add_to(std::optional<Tensor>& sum, Tensor x) {
  sum = sum ? sum_of(*std::move(sum), x) : std::move(x);
}

bool is_same(const Variant& a, const Variant& b) {
  return a.options == b.options && a.row_change == b.row_change &&
         a.tensors.size() == b.tensors.size() &&
         std::all_of(a.tensors.begin(), a.tensors.end(), [&](const TensorMap::Entry& entry) {
           const Tensor* other = b.tensors.find(entry.first);
           return other != nullptr && other->raw() == entry.second.raw();
         });
}

/// The variant without gates, for the kernels. Errors: data; usage, for other scores or weights.
Inputs checked(Variant variant) {
  variant.erase({Input::gate});
  report_natural_logsumexp(variant.options);
  variant.options.path = Path::automatic;
  Inputs in = make_inputs(variant);
  if (in.options.score != Score::dot || in.options.normaliser != Normaliser::softmax ||
      in.options.softmax_axis != SoftmaxAxis::keys || in.options.empty_rows == EmptyRows::uniform ||
      variant.row_change != RowChange::none)
    fail_usage("derivatives of other scores or weights");
  return in;
}

Biases<Tensor> biases_of(const Inputs& in) {
  Biases<Tensor> biases;
  for (const Input input : kBiasInputs)
    if (in[input] && is_added(input, *in[input])) biases.push_back({input, *in[input]});
  return biases;
}

/// Operands of one query head: (1, 1, R, D), (1, 1, S, D), (1, 1, S, Dv).
struct HeadOperands {
  Tensor queries, keys, values;
};

/// Scores of some queries of one query head.
struct HeadScores {
  /// `in` is head_of() a problem.
  HeadScores(const Inputs& in, const HeadOperands& of, std::size_t first, std::size_t count)
      : part(part_of(in, {{first, count}})) {
    const TensorOps ops(part);
    queries = sliced(of.queries, 2, first, count);
    scaled = ops.scale(ops.score(queries, of.keys, {}), part[Input::head_scale]);
    std::tie(masked, visible) = ops.mask(scaled, biases_of(part));
  }

  /// exp(x / temperature - logsumexp of the row) where keys are visible, and 0 elsewhere.
  Tensor weights(const Tensor& logsumexp, std::size_t first) const {
    Tensor result = masked;
    std::size_t i = first * part.S;
    for (double& x : result.mutable_data<double>()) {
      const double of_row = logsumexp.data<double>()[i++ / part.S];
      const bool is_hidden = std::isinf(x) && x < 0;
      x = is_hidden || std::isinf(of_row) ? 0 : std::exp(x / part.options.temperature - of_row);
    }
    return result;
  }

  Tensor dropped(const Tensor& x) const {
    return part[Input::dropout_mask] ? TensorOps(part).dropped(x) : x;
  }

  Inputs part;
  Tensor queries, scaled, masked;
  VisibleKeys visible;
};

template <class F>
void for_rows(const Inputs& in, F f) {
  const std::size_t R = in.rows.size();
  const std::size_t step = std::max<std::size_t>(1, kScoresOfRows / std::max<std::size_t>(1, in.S));
  for (std::size_t first = 0; first < R; first += step) f(first, std::min(step, R - first));
}

/// Whether a bias is the same for several of the queries or keys.
bool is_broadcast_in_head(const Shape& bias) {
  return bias.size() != 4 || bias[2] == 1 || bias[3] == 1;
}

}  // namespace

/// The formula with everything from scores to head_context as one operation, and mistakes.
class BackwardPass::Ops : public GradOps {
 public:
  /// All must outlive this object. `changed` is the checked variant. Without `wanted`, delta is
  /// computed.
  Ops(const BackwardPass& pass, std::optional<Input> wanted, const Inputs& changed,
      const BackwardChanges& changes, const std::vector<KvHead>* heads)
      : GradOps(pass.given_, wanted ? std::set{*wanted} : std::set<Input>(), !wanted),
        pass_(pass),
        given_(pass.given_),
        job_(*pass.job_),
        changed_(changed),
        changes_(changes),
        is_of_queries_(wanted == Input::Q),
        heads_(heads) {
    if (const std::optional<Tensor>& seed = given_[Input::grad_logsumexp])
      of_logsumexp_ = exact_.in_lse_base(cast(*seed, DType::f64));
    if (const std::optional<Tensor>& seed = given_[Input::grad_weights]; seed && !wants_delta_)
      of_weights_ = cast(*seed, DType::f64);
  }

  Traced rotated_queries(const Traced& x, const Operand& cos, const Operand& sin) {
    return rotated(x, GradOps::rotated_queries(x, cos, sin), [=, this](const Tensor& g) {
      return exact_.rotated_queries(g, value_of(cos), value_of(sin));
    });
  }
  Traced rotated_keys(const Traced& x, const Operand& cos, const Operand& sin) {
    return rotated(x, GradOps::rotated_keys(x, cos, sin), [=, this](const Tensor& g) {
      return exact_.rotated_keys(g, value_of(cos), value_of(sin));
    });
  }

  Traced attended(const Traced& queries, const Traced& keys, const Traced& values,
                  const Biases<Traced>& biases, const Operand& sinks, const Operand& head_scale) {
    const std::size_t R = given_.rows.size(), Dv = values.value.shape()[3];
    Tensor context(DType::f64, {given_.B, given_.H, R, Dv});
    if (heads_ == nullptr)  // derivatives by what follows need it
      for (std::size_t i = 0; i < given_.B * given_.H; ++i) {
        const HeadOperands of = operands(queries, keys, values, i);
        const Tensor own = is_backward_only() ? of_job(of, i).context
                                              : forward(head_of_index(changed_, i), of).context;
        std::copy_n(
            own.data<double>().begin(), own.size(),
            context.mutable_data<double>().begin() + static_cast<std::ptrdiff_t>(i * own.size()));
      }
    std::vector<Operand> operands_of_node = {queries, keys, values, sinks, head_scale};
    for (const auto& [input, bias] : biases) operands_of_node.emplace_back(bias);
    if (wants_delta_) operands_of_node.push_back(Traced{{}, tape_.add(nullptr)});
    return record(context, operands_of_node, [=, this](const Tensor& g) {
      if (wants_delta_) {
        delta_.emplace(DType::f64, Shape{given_.B, given_.H, R});
        for (std::size_t i = 0; i < given_.B * given_.H; ++i) {
          const Tensor part = delta_of_head(operands(queries, keys, values, i),
                                            matrix_of(g, i / given_.H, i % given_.H), i);
          std::copy_n(part.data<double>().begin(), R,
                      delta_->mutable_data<double>().begin() + static_cast<std::ptrdiff_t>(i * R));
        }
        return;
      }
      Sums sums(*this, queries, keys, values, biases, sinks, head_scale);
      for (std::size_t i = 0; i < given_.B * given_.H; ++i)
        if (is_wanted_head(i))
          add_head(operands(queries, keys, values, i), matrix_of(g, i / given_.H, i % given_.H), i,
                   sums);
      tape_.pass(queries, [&] { return sums.queries; });
      tape_.pass(keys, [&] { return sums.keys; });
      tape_.pass(values, [&] { return sums.values; });
      if (sinks) tape_.pass(*sinks, [&] { return sums.sinks; });
      if (head_scale) tape_.pass(*head_scale, [&] { return sums.head_scale; });
      for (std::size_t k = 0; k < biases.size(); ++k)
        tape_.pass(biases[k].value, [&] { return sums.biases[k]; });
    });
  }

 private:
  /// Of the context, or of the weights that only the backward pass has, (1, 1, R).
  Tensor delta_of_head(const HeadOperands& of, const Tensor& g, std::size_t i) const {
    const Inputs in = head_of_index(changed_, i);
    const Forward own = &changed_ == &job_ ? of_job(of, i) : forward(in, of);
    Tensor delta;
    if (is_backward_only() && &changed_ != &job_) {
      const bool owns_logsumexp = has(Change::own_logsumexp);
      delta = row_sums(in, of, own, owns_logsumexp ? own.logsumexp : of_job(of, i).logsumexp, g, i);
    } else {
      Tensor context = own.context;
      if (has(Change::of_f16_context)) context = cast(cast(context, DType::f16), DType::f64);
      if (has(Change::of_bf16_context)) context = cast(cast(context, DType::bf16), DType::f64);
      delta = delta_of(context, g);
    }
    if (has(Change::scaled_delta)) delta = times(std::move(delta), changed_.scale.factor());
    if (!has(Change::minus_of_logsumexp)) return delta;
    return sum_of(std::move(delta), times(*seed_of_head(of_logsumexp_, i), -1));
  }

  /// The derivatives by all operands that are wanted.
  struct Sums {
    Sums(const Ops& ops, const Traced& of_queries, const Traced& of_keys, const Traced& of_values,
         const Biases<Traced>& of_biases, const Operand& of_sinks, const Operand& of_head_scale)
        : wants_queries(of_queries.node),
          wants_keys(of_keys.node),
          wants_values(of_values.node),
          wants_sinks(of_sinks && of_sinks->node),
          wants_head_scale(of_head_scale && of_head_scale->node) {
      const auto zeros = [](bool is_wanted, const Tensor& like) {
        return is_wanted ? Tensor(DType::f64, like.shape()) : Tensor();
      };
      queries = zeros(wants_queries, of_queries.value);
      keys = zeros(wants_keys, of_keys.value), values = zeros(wants_values, of_values.value);
      if (wants_sinks) sinks = Tensor(DType::f64, {ops.given_.H});
      if (wants_head_scale) head_scale = Tensor(DType::f64, {ops.given_.H});
      for (const auto& [input, bias] : of_biases) {
        bias_inputs.push_back(input);
        bias_shapes.push_back(bias.value.shape());
        wants_biases.push_back(bias.node.has_value());
        biases.push_back(zeros(bias.node.has_value(), bias.value));
      }
    }
    bool wants_any_bias() const {
      return std::find(wants_biases.begin(), wants_biases.end(), true) != wants_biases.end();
    }

    /// Whether derivatives by scores are needed.
    bool wants_scores() const {
      return wants_queries || wants_keys || wants_head_scale || wants_any_bias();
    }

    bool wants_queries, wants_keys, wants_values, wants_sinks, wants_head_scale;
    std::vector<bool> wants_biases;
    std::vector<Input> bias_inputs;
    std::vector<Shape> bias_shapes;
    Tensor queries, keys, values, sinks, head_scale;
    std::vector<Tensor> biases;
  };

  /// Those of one query head.
  struct OfHead {
    std::optional<Tensor> queries, keys, values;
  };

  bool has(Change change) const { return changes_.contains(change); }
  bool is_backward_only() const { return has(Change::only); }

  static Inputs head_of_index(const Inputs& in, std::size_t i) {
    return head_of(in, i / in.H, i % in.H);
  }

  std::size_t of_group() const { return given_.H / given_.G; }
  /// The key/value head to which query head h contributes.
  std::size_t target(std::size_t h) const {
    return has(Change::tiled_groups) ? h % given_.G : h / of_group();
  }

  bool is_wanted_head(std::size_t i) const {
    if (heads_ == nullptr) return true;
    const std::size_t h = i % given_.H;
    const KvHead own{i / given_.H, is_of_queries_ ? h / of_group() : target(h)};
    return std::find(heads_->begin(), heads_->end(), own) != heads_->end();
  }

  HeadOperands operands(const Traced& queries, const Traced& keys, const Traced& values,
                        std::size_t i) const {
    const std::size_t b = i / given_.H, h = i % given_.H, g = h / of_group();
    return {matrix_of(queries.value, b, h), matrix_of(keys.value, b, g),
            matrix_of(values.value, b, g)};
  }

  template <class Forwards>
  Traced rotated(const Traced& x, const Traced& y, Forwards forwards) {
    if (has(Change::not_rotated_back)) return {y.value, x.node};
    return has(Change::rotated_again) ? unary(x, y.value, forwards) : y;
  }

  /// `in` is that of the head.
  static Forward forward(const Inputs& in, const HeadOperands& of) {
    if (gradient_fallback_reason(in, {}) == nullptr)
      if (auto attended = attend_for_gradients(of.queries, of.keys, of.values, in, in))
        return {std::move(attended->logsumexp), std::move(attended->context)};
    const std::size_t R = in.rows.size(), Dv = of.values.shape()[3];
    Forward result{Tensor(DType::f64, {1, 1, R}), Tensor(DType::f64, {1, 1, R, Dv})};
    const auto lse = result.logsumexp.mutable_data<double>();
    const auto context = result.context.mutable_data<double>();
    for_rows(in, [&](std::size_t first, std::size_t count) {
      const HeadScores scores(in, of, first, count);
      const TensorOps ops(scores.part);
      const auto [weights, logsumexp] =
          ops.normalise(scores.masked, scores.visible, scores.part[Input::sinks]);
      const Tensor rows = ops.weighted_values(scores.dropped(weights), of.values, scores.visible);
      std::copy_n(logsumexp.data<double>().begin(), count,
                  lse.begin() + static_cast<std::ptrdiff_t>(first));
      std::copy_n(rows.data<double>().begin(), rows.size(),
                  context.begin() + static_cast<std::ptrdiff_t>(first * Dv));
    });
    return result;
  }

  const Forward& of_job(const HeadOperands& of, std::size_t i) const {
    OfJob& saved = pass_.of_job_[i];
    const std::lock_guard lock(saved.mutex);
    if (!saved.forward) saved.forward = forward(head_of_index(job_, i), of);
    return *saved.forward;
  }

  std::optional<Tensor> seed_of_head(const std::optional<Tensor>& seed, std::size_t i) const {
    return seed ? std::optional(matrix_of(*seed, i / given_.H, i % given_.H)) : std::nullopt;
  }

  /// The sums over keys of weights times their derivatives, (1, 1, R), of a problem with this
  /// forward pass, whose weights are computed from `logsumexp`.
  Tensor row_sums(const Inputs& in, const HeadOperands& of, const Forward& own,
                  const Tensor& logsumexp, const Tensor& g, std::size_t i) const {
    Tensor sums = delta_of(own.context, g);
    const auto out = sums.mutable_data<double>();
    for (std::size_t row = 0; row < out.size(); ++row) {
      const double factor =
          std::exp(own.logsumexp.data<double>()[row] - logsumexp.data<double>()[row]);
      out[row] = std::isfinite(logsumexp.data<double>()[row]) ? chained(out[row], factor) : 0;
    }
    if (const std::optional<Tensor> seed = seed_of_head(of_weights_, i))
      for_rows(in, [&](std::size_t first, std::size_t count) {
        const Tensor P = HeadScores(in, of, first, count).weights(logsumexp, first);
        for (std::size_t k = 0; k < P.size(); ++k)
          out[first + k / in.S] +=
              chained(P.data<double>()[k], seed->data<double>()[first * in.S + k]);
      });
    return sums;
  }

  /// Adds what query head i contributes.
  void add_head(const HeadOperands& of, const Tensor& g, std::size_t i, Sums& sums) const {
    const Inputs in = head_of_index(changed_, i);
    std::optional<Forward> own;  // of the variant
    const bool needs_own =
        !is_backward_only() || has(Change::own_logsumexp) || has(Change::own_row_sums);
    if (needs_own) own = forward(in, of);
    Tensor logsumexp = !is_backward_only() || has(Change::own_logsumexp) ? own->logsumexp
                                                                         : of_job(of, i).logsumexp;
    Tensor rows;
    if (!is_backward_only() || has(Change::own_row_sums)) {
      rows = row_sums(in, of, *own, logsumexp, g, i);
    } else {
      const Forward& job = of_job(of, i);
      OfJob& saved = pass_.of_job_[i];
      const std::lock_guard lock(saved.mutex);
      if (!saved.row_sums)
        saved.row_sums = row_sums(head_of_index(job_, i), of, job, job.logsumexp, g, i);
      rows = *saved.row_sums;
    }
    const std::optional<Tensor> of_lse = seed_of_head(of_logsumexp_, i);
    if (sums.wants_sinks) add_sink(logsumexp, rows, of_lse, i, sums);
    if (!sums.wants_scores() && !sums.wants_values) return;
    change(logsumexp);
    if (has(Change::maximum_as_logsumexp)) logsumexp = largest_of_rows(in, of);
    if (has(Change::no_row_sums)) rows = Tensor(DType::f64, rows.shape());
    if (has(Change::double_row_sums)) rows = times(std::move(rows), 2);
    if (has(Change::added_row_sums)) rows = times(std::move(rows), -1);
    OfHead result = is_for_kernels(in, sums)
                        ? with_kernels(in, of, g, logsumexp, rows, of_lse, i, sums)
                        : with_matrices(in, of, g, logsumexp, rows, of_lse, i, sums);
    put(result, i, sums);
  }

  /// The logsumexp of which the weights are computed.
  void change(Tensor& logsumexp) const {
    for (const auto& [change, factor] : {std::pair{Change::no_logsumexp, 0.0},
                                         {Change::logsumexp_as_base_2, std::numbers::ln2},
                                         {Change::logsumexp_from_base_2, std::numbers::log2e}})
      if (has(change))
        for (double& x : logsumexp.mutable_data<double>())
          if (std::isfinite(x)) x *= factor;
  }

  /// Of scores / temperature, (1, 1, R). `in` is that of the head.
  static Tensor largest_of_rows(const Inputs& in, const HeadOperands& of) {
    Tensor largest(DType::f64, {1, 1, in.rows.size()});
    for_rows(in, [&](std::size_t first, std::size_t count) {
      const HeadScores scores(in, of, first, count);
      const auto x = scores.masked.data<double>();
      for (std::size_t row = 0; row < count && in.S > 0; ++row) {
        const auto of_row = x.subspan(row * in.S, in.S);
        largest.mutable_data<double>()[first + row] =
            *std::max_element(of_row.begin(), of_row.end()) / in.options.temperature;
      }
    });
    return largest;
  }

  bool is_for_kernels(const Inputs& in, const Sums& sums) const {
    const bool changes_scale = has(Change::unscaled_dQ) || has(Change::unscaled_dK);
    if (gradient_fallback_reason(in, {}) != nullptr || of_weights_ || sums.wants_head_scale ||
        ((has(Change::no_softcap) || has(Change::linear_softcap)) && in.options.softcap != 0) ||
        (changes_scale && in.scale.factor() == 0))
      return false;
    for (std::size_t k = 0; k < sums.biases.size(); ++k) {
      if (!sums.wants_biases[k]) continue;
      const bool is_kernel_bias = std::find(kKernelBiases.begin(), kKernelBiases.end(),
                                            sums.bias_inputs[k]) != kKernelBiases.end();
      const bool has_ends = has(Change::first_of_broadcast) || has(Change::last_of_broadcast);
      if (!is_kernel_bias || !in[sums.bias_inputs[k]] ||
          (has_ends && is_broadcast_in_head(sums.bias_shapes[k])))
        return false;
    }
    return true;
  }

  /// What the scale of the derivative by queries or keys is multiplied by.
  double scale_factor(Change unscaled, Change scaled_twice) const {
    const double scale = changed_.scale.factor();
    return has(unscaled) ? 1 / scale : has(scaled_twice) ? scale : 1;
  }

  OfHead with_kernels(const Inputs& in, const HeadOperands& of, const Tensor& g,
                      const Tensor& logsumexp, const Tensor& rows,
                      const std::optional<Tensor>& of_lse, std::size_t i, Sums& sums) const {
    const Attended attended{&in, of.queries, of.keys, of.values, {}, logsumexp};
    AttendedRequest request;
    request.queries = sums.wants_queries, request.keys = sums.wants_keys;
    request.values = sums.wants_values, request.delta = &rows;
    const auto slot = [](Input input) {
      return static_cast<std::size_t>(std::find(kKernelBiases.begin(), kKernelBiases.end(), input) -
                                      kKernelBiases.begin());
    };
    for (std::size_t k = 0; k < sums.biases.size(); ++k)
      if (sums.wants_biases[k]) request.biases[slot(sums.bias_inputs[k])] = true;
    AttendedDerivatives by = attended_derivatives(attended, g, of_lse, request);
    for (std::size_t k = 0; k < sums.biases.size(); ++k)
      if (sums.wants_biases[k])
        add_bias(*by.biases[slot(sums.bias_inputs[k])], i, nullptr, sums.bias_inputs[k],
                 sums.biases[k]);
    OfHead result;
    if (sums.wants_queries)
      result.queries =
          times(std::move(by.queries), scale_factor(Change::unscaled_dQ, Change::scaled_twice_dQ));
    if (sums.wants_keys)
      result.keys =
          times(std::move(by.keys), scale_factor(Change::unscaled_dK, Change::scaled_twice_dK));
    if (sums.wants_values) result.values = std::move(by.values);
    return result;
  }

  OfHead with_matrices(const Inputs& in, const HeadOperands& of, const Tensor& g,
                       const Tensor& logsumexp, const Tensor& rows,
                       const std::optional<Tensor>& of_lse, std::size_t i, Sums& sums) const {
    OfHead result;
    if (sums.wants_queries) result.queries = Tensor(DType::f64, of.queries.shape());
    const std::optional<Tensor> seed = seed_of_head(of_weights_, i);
    const Options& options = in.options;
    for_rows(in, [&](std::size_t first, std::size_t count) {
      const HeadScores scores(in, of, first, count);
      const Tensor P = scores.weights(logsumexp, first);
      const Tensor of_context = sliced(g, 2, first, count);
      if (sums.wants_values)
        add_to(result.values, transposed_product(scores.dropped(P), of_context));
      if (!sums.wants_scores()) return;
      Tensor ds = scores.dropped(matmul(of_context, of.values, Second::transposed, "gradients"));
      if (seed) ds = sum_of(std::move(ds), sliced(*seed, 2, first, count));
      const auto out = ds.mutable_data<double>();
      for (std::size_t k = 0; k < out.size(); ++k) {
        const std::size_t row = first + k / in.S;
        const double other = of_lse ? of_lse->data<double>()[row] : 0;
        out[k] = chained(P.data<double>()[k], out[k] - rows.data<double>()[row] + other) /
                 options.temperature;
      }
      const bool is_capped_last = options.softcap_order == SoftcapOrder::after_mask;
      if (is_capped_last) ds = before_softcap(std::move(ds), scores.masked);
      for (std::size_t k = 0; k < sums.biases.size(); ++k)
        if (sums.wants_biases[k])
          add_bias_of_rows(ds, scores.part, {first, count}, i, sums.bias_inputs[k],
                           sums.bias_shapes[k], sums.biases[k]);
      if (!is_capped_last) ds = before_softcap(std::move(ds), scores.scaled);
      if (sums.wants_head_scale) add_head_scale(ds, scores, of.keys, i, sums);
      if (in[Input::head_scale]) ds = times_by_head(ds, *in[Input::head_scale]);
      if (sums.wants_queries) {
        const Tensor part =
            chained_product(scaled(ds, Change::unscaled_dQ, Change::scaled_twice_dQ), of.keys);
        std::copy_n(part.data<double>().begin(), part.size(),
                    result.queries->mutable_data<double>().begin() +
                        static_cast<std::ptrdiff_t>(first * part.shape()[3]));
      }
      if (sums.wants_keys)
        add_to(result.keys,
               transposed_product(scaled(ds, Change::unscaled_dK, Change::scaled_twice_dK),
                                  scores.queries));
    });
    return result;
  }

  Tensor scaled(const Tensor& ds, Change unscaled, Change scaled_twice) const {
    const double scale = changed_.scale.factor();
    return times(ds, has(unscaled) ? 1 : has(scaled_twice) ? scale * scale : scale);
  }

  Tensor before_softcap(Tensor g, const Tensor& y) const {
    const double c = changed_.options.softcap;
    if (c == 0 || has(Change::no_softcap)) return g;
    std::size_t i = 0;
    for (double& value : g.mutable_data<double>()) {
      const double t = y.data<double>()[i++] / c;
      value = chained(value, has(Change::linear_softcap) ? 1 - t : (1 - t) * (1 + t));
    }
    return g;
  }

  void add_sink(const Tensor& logsumexp, const Tensor& rows, const std::optional<Tensor>& of_lse,
                std::size_t i, Sums& sums) const {
    const std::size_t h = i % given_.H;
    const std::optional<Tensor>& changed = changed_[Input::sinks];
    const double given = cast(*given_[Input::sinks], DType::f64).data<double>()[h];
    const double sink = changed ? cast(*changed, DType::f64).data<double>()[h] : given;
    const double factor = has(Change::chained_sinks) && given != 0 ? sink / given : 1;
    double& sum = sums.sinks.mutable_data<double>()[h];
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (logsumexp.data<double>()[row] == -HUGE_VAL) continue;  // padding, which has no sink
      sum += factor * std::exp(sink - logsumexp.data<double>()[row]) *
             ((of_lse ? of_lse->data<double>()[row] : 0) - rows.data<double>()[row]);
    }
  }

  /// Of ds, the derivative by the scaled scores of some rows of a head.
  void add_head_scale(const Tensor& ds, const HeadScores& scores, const Tensor& keys, std::size_t i,
                      Sums& sums) const {
    const Tensor plain = TensorOps(scores.part).score(scores.queries, keys, {});
    const auto g = ds.data<double>(), x = plain.data<double>();
    double& sum = sums.head_scale.mutable_data<double>()[i % given_.H];
    for (std::size_t k = 0; k < g.size(); ++k) sum += chained(g[k], changed_.scale.factor() * x[k]);
  }

  /// The derivative by a bias from that by the scores of some rows of a head.
  void add_bias_of_rows(Tensor g, const Inputs& part, RowRange range, std::size_t i, Input input,
                        const Shape& shape, Tensor& sum) const {
    const bool first = has(Change::first_of_broadcast), last = has(Change::last_of_broadcast);
    const std::size_t S = part.S, R = given_.rows.size();
    const bool is_matrix = shape.size() == 4;
    if (is_matrix && (first || last)) {
      std::size_t k = 0;
      for (double& x : g.mutable_data<double>()) {
        const std::size_t row = range.first + k / S, column = k % S;
        ++k;
        if ((shape[2] == 1 && row != (first ? 0 : R - 1)) ||
            (shape[3] == 1 && column != (first ? 0 : S - 1)))
          x = 0;
      }
    }
    Inputs local = part;  // in which the rows are all rows
    Tensor own = matrix_bias(input, shape, range.count);
    const bool has_rows = is_matrix && shape[2] != 1;
    if (has_rows) std::iota(local.rows.own().begin(), local.rows.own().end(), std::size_t{0});
    add_bias(bias_derivative(g, {input, own}, local), i, has_rows ? &part.rows.vector() : nullptr,
             input, sum);
  }

  /// A tensor with the shape of a head's part of a bias.
  static Tensor matrix_bias(Input input, const Shape& shape, std::size_t count) {
    if (input == Input::relative_bias) return Tensor(DType::f64, {shape[0], 1});
    if (shape.size() != 4) return Tensor(DType::f64, {1, 1});
    return Tensor(DType::f64, {1, 1, shape[2] == 1 ? 1 : count, shape[3]});
  }

  /// Adds a head's part, of these rows or of all, to the derivative by a bias.
  void add_bias(const Tensor& part, std::size_t i, const std::vector<std::size_t>* rows,
                Input input, Tensor& sum) const {
    const std::array<std::size_t, 2> at = {i / given_.H, i % given_.H};
    const Shape& shape = sum.shape();
    double factor = 1;
    const std::array<std::size_t, 4> lengths = {given_.B, given_.H, given_.rows.size(), given_.S};
    for (std::size_t axis = 0; axis < 4 && shape.size() == 4; ++axis) {
      if (shape[axis] != 1) continue;
      if (has(Change::mean_of_broadcast)) factor /= static_cast<double>(lengths[axis]);
      if (axis >= 2) continue;
      if ((has(Change::first_of_broadcast) && at[axis] != 0) ||
          (has(Change::last_of_broadcast) && at[axis] + 1 != lengths[axis]))
        return;
    }
    add_bias_derivative(part, input, at[0], at[1], rows, factor, sum);
  }

  /// Adds the derivatives by queries, keys and values to those of all heads.
  void put(const OfHead& of, std::size_t i, Sums& sums) const {
    const std::size_t b = i / given_.H, h = i % given_.H, k = h % of_group();
    const auto add = [](const Tensor& part, std::size_t index, double factor, Tensor& sum) {
      const auto from = part.data<double>();
      const auto to = sum.mutable_data<double>().subspan(index * from.size(), from.size());
      for (std::size_t n = 0; n < from.size(); ++n) to[n] += factor * from[n];
    };
    if (of.queries) add(*of.queries, i, 1, sums.queries);
    if ((has(Change::first_of_group) && k != 0) ||
        (has(Change::last_of_group) && k + 1 != of_group()))
      return;
    const double factor = has(Change::mean_of_group) ? 1 / static_cast<double>(of_group()) : 1;
    const std::size_t index = b * given_.G + target(h);
    if (of.keys) add(*of.keys, index, factor, sums.keys);
    if (of.values) add(*of.values, index, factor, sums.values);
  }

  const BackwardPass& pass_;
  const Inputs &given_, &job_, &changed_;
  const BackwardChanges& changes_;
  const bool is_of_queries_;
  const std::vector<KvHead>* const heads_;
  /// Derivatives of the loss: by the natural logsumexp (B, H, R) and the weights (B, H, R, S).
  std::optional<Tensor> of_logsumexp_, of_weights_;
};

BackwardPass::BackwardPass(const Inputs& given, const Variant& attention, const Request& of)
    : given_(given), attention_(attention), of_(of), of_job_(given.B * given.H) {
  try {
    job_ = checked(attention);
  } catch (const Error&) {  // no dot products, or no softmax
  }
}

bool BackwardPass::is_by_head() const {
  constexpr std::array kByHead = {Input::Q, Input::K, Input::V, Input::past_K, Input::past_V};
  const Options& options = given_.options;
  const Gradient* gradient = std::get_if<Gradient>(&of_);
  return gradient != nullptr &&
         std::find(kByHead.begin(), kByHead.end(), gradient->of) != kByHead.end() &&
         !given_.projected &&
         (given_.B == 1 || gradient_axes(gradient->of, given_).contains(Axis::B)) &&
         (options.qk_norm == QkNorm::none || options.qk_norm_axis == QkNormAxis::head);
}

Tensor BackwardPass::gradient(const Variant& variant, const std::vector<KvHead>* heads) const {
  const BackwardChanges& changes = variant.backward;
  const Gradient* gradient = std::get_if<Gradient>(&of_);
  std::optional<Input> wanted;
  if (gradient != nullptr)
    wanted = changes.contains(Change::of_queries)  ? Input::Q
             : changes.contains(Change::of_keys)   ? Input::K
             : changes.contains(Change::of_values) ? Input::V
                                                   : gradient->of;
  if (!job_ || (wanted && !given_[*wanted]) ||
      (changes.contains(Change::minus_of_logsumexp) && !given_[Input::grad_logsumexp]))
    fail_usage("the job does not have this gradient");
  std::optional<Inputs> other;
  if (!is_same(variant, attention_)) other = checked(variant);
  BackwardChanges all = changes;
  if (!other)
    all.insert(Change::only), all.erase(Change::own_logsumexp), all.erase(Change::own_row_sums);
  Ops ops(*this, wanted, other ? *other : *job_, all, heads);
  Formula<Ops> formula(ops, given_);
  const Traced context =
      ops.attended(formula.at(Output::queries), formula.all_keys(), formula.all_values(),
                   formula.biases(), formula.given(Input::sinks), formula.given(Input::head_scale));
  if (!given_[Input::grad_context] && !given_[Input::grad_output])
    ops.seed(context, Tensor(DType::f64, context.value.shape()));
  formula.provide(Output::head_context, formula.finished(context));
  for (const auto& [seed, output] : kSeeds)
    if (given_[seed] && seed != Input::grad_weights && seed != Input::grad_logsumexp)
      ops.seed(formula.at(same_numbers_as(output)), cast(*given_[seed], DType::f64));
  ops.run();
  const std::optional<Tensor> full = wanted ? ops.derivative(*wanted) : ops.delta();
  if (!full) fail_usage("the loss does not depend on this input");
  Tensor result = wanted ? to_user_layout(*wanted, *full, given_)
                         : to_user_layout(Output::delta, *full, given_);
  return changes.contains(Change::twice) ? times(std::move(result), 2) : result;
}

std::size_t bytes_of_backward_pass(const Inputs& given, std::size_t threads) {
  std::size_t inputs = 0;  // each with its derivative, in two layouts
  for (const auto& [name, tensor] : given.tensors) inputs = saturating_sum(inputs, tensor.size());
  const std::size_t columns = given.D + given.Dv, R = given.rows.size();
  const std::size_t of_head = saturating_sum(
      saturating_product({8, saturating_sum(R, given.S), columns}),
      saturating_product(
          {10, std::min(saturating_product({R, given.S}), std::max(kScoresOfRows, given.S))}));
  const std::size_t of_thread = saturating_sum(
      saturating_product({4, inputs}),
      saturating_sum(of_head, saturating_product({2, given.B, given.H, R, given.Dv})));
  const std::size_t saved = saturating_product({given.B, given.H, R, given.Dv + 2});
  return saturating_product(
      {sizeof(double), saturating_sum(saved, saturating_product({threads, of_thread}))});
}

}  // namespace attn
