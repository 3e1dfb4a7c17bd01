#include "attn/attention/fused.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <numbers>
#include <utility>

#include "attn/attention/gemm.h"
#include "attn/attention/inputs_part.h"
#include "attn/attention/kernel_problem.h"
#include "attn/attention/reductions.h"
#include "attn/attention/score.h"
#include "attn/base/float_arrays.h"
#include "attn/kernel/attend.h"
#include "attn/problem/threads.h"
#include "attn/tensor/gathered_rows.h"

namespace attn {
namespace {

/// The data of a new tensor, or nullptr if it is not wanted.
template <class T>
T* allocate_if(bool wanted, std::optional<Tensor>& tensor, const Shape& shape) {
  if (!wanted) return nullptr;
  tensor.emplace(dtype_of<T>, shape);
  return tensor->mutable_data<T>().data();
}

/// The targets of the finished rows of a score matrix.
template <class T>
struct RowOutput {
  const T* kernel::FinishedRows<T>::*rows;
  T* kept;
  const RowConsumer* consumer;
};

/// A reduction of rows and its target.
template <class T>
struct ReducedOutput {
  RowFormula formula;
  const T* kernel::FinishedRows<T>::*rows;
  T* kept;
};

template <class T>
void pass_on(const RowOutput<T>& output, const kernel::FinishedRows<T>& rows, std::size_t S,
             bool may_hold_nan) {
  const T* const data = rows.*output.rows;
  if (output.kept)
    for (std::size_t i = 0; i < rows.count; ++i)
      std::copy_n(data + i * rows.stride, S, output.kept + (rows.first + i) * S);
  if (output.consumer)
    (*output.consumer)({.first = rows.first,
                        .count = rows.count,
                        .columns = S,
                        .dtype = dtype_of<T>,
                        .data = reinterpret_cast<const std::byte*>(data),
                        .stride = rows.stride * sizeof(T),
                        .may_hold_nan = may_hold_nan});
}

/// A score matrix in the kernels' interface: its rows, and the flag that requests them.
template <class T>
struct MatrixRows {
  Output output;
  const T* kernel::FinishedRows<T>::*rows;
  bool kernel::Results<T>::*wanted;
};
template <class T>
constexpr std::array<MatrixRows<T>, 5> kMatrixRows = {{
    {Output::scores, &kernel::FinishedRows<T>::scores, &kernel::Results<T>::scores},
    {Output::scaled_scores, &kernel::FinishedRows<T>::scaled, &kernel::Results<T>::scaled},
    {Output::masked_scores, &kernel::FinishedRows<T>::masked, &kernel::Results<T>::masked},
    {Output::weights, &kernel::FinishedRows<T>::weights, &kernel::Results<T>::weights},
    {Output::dropped_weights, &kernel::FinishedRows<T>::dropped, &kernel::Results<T>::dropped},
}};

/// The largest magnitude; NaN if an element is not finite.
template <class T>
double largest_magnitude(std::span<const T> elements) {
  T largest = 0, others = 0;  // a loop without an exit, which compilers vectorise
  for (const T x : elements) {
    const T magnitude = std::fabs(x);
    largest = magnitude > largest ? magnitude : largest;
    others += x - x;
  }
  return static_cast<double>(largest + others);
}

/// The same without a copy of numbers that are stored in a narrower type.
template <class T>
double largest_magnitude(const Tensor& tensor) {
  constexpr std::size_t kMostElements = 8192;
  const Tensor all = tensor.reshaped({tensor.size()});
  double largest = 0, others = 0;
  for (std::size_t first = 0; first < all.size(); first += kMostElements) {
    const Tensor some = all.range(first, std::min(kMostElements, all.size() - first));
    const double here = largest_magnitude(some.data<T>());
    largest = std::max(largest, here);
    others += here - here;
  }
  return largest + others;
}

/// Finds the rows of FusedResult::overflowed by their logsumexp. Thread-safe.
template <class T>
class OverflowedRows {
 public:
  /// `keys` and `problem` must outlive this object.
  OverflowedRows(const Tensor& queries, const Tensor& keys, const Inputs& in,
                 const kernel::AttentionProblem<T>& problem)
      : queries_(queries.reshaped(
            {queries.shape()[0] * queries.shape()[1] * queries.shape()[2], queries.shape()[3]})),
        keys_(keys),
        problem_(problem),
        factor_(static_cast<double>(queries.shape()[3]) * std::fabs(in.scale.factor()) /
                in.options.temperature) {
    if (in[Input::head_scale])
      factor_ *= largest_magnitude(cast(*in[Input::head_scale], DType::f64).data<double>());
    const auto adds = [](const std::optional<Tensor>& mask) {
      return mask && is_float(mask->dtype());
    };
    biased_ = in[Input::bias] || adds(in[Input::mask]) || adds(in[Input::key_mask]) ||
              in[Input::relative_bias] || in[Input::alibi_slopes] || in.bias_rule;
  }

  /// Whether a row of (B, H, rows) with this logsumexp must be recomputed. -inf is the logsumexp of
  /// rows without visible keys, and of rows whose scores all overflowed to -inf. Biases of the
  /// lowest finite number, which often hide keys, are clamped by the kernels and cause neither. NaN
  /// and infinity are correct if the row's query or a key is not finite.
  bool contains(std::size_t row, T logsumexp) {
    constexpr T kLargest = std::numeric_limits<T>::max() * T(0.693);
    if (std::isfinite(logsumexp)) return !biased_ && logsumexp < -kLargest;
    if (logsumexp < 0 && biased_) return false;
    const std::size_t D = queries_.shape()[1];
    const double query = queries_.narrow()
                             ? largest_magnitude<T>(queries_.at(row))
                             : largest_magnitude(queries_.data<T>().subspan(row * D, D));
    const double key = largest_key();
    if (logsumexp < 0) return factor_ * largest_term(query, key) > static_cast<double>(kLargest);
    return std::isfinite(query) && std::isfinite(key);
  }

 private:
  /// Of a score of a query and keys whose elements are at most these.
  double largest_term(double query, double key) const {
    if (problem_.score == kernel::Score::distance) return (query + key) * (query + key);
    if (problem_.score == kernel::Score::product) return query * key;
    return largest_magnitude(std::span(problem_.score_weights, problem_.D));
  }

  double largest_key() {
    const std::lock_guard lock(mutex_);
    if (!largest_key_) largest_key_ = largest_of_keys();
    return *largest_key_;
  }

  /// Without a copy of keys that are read where they are.
  double largest_of_keys() const {
    const RowTable* table = row_table_of(keys_);
    if (table == nullptr || table->is_stored() || table->pool.dtype() != dtype_of<T>)
      return largest_magnitude<T>(keys_);
    T largest = 0;
    bool all_finite = true;
    for (; table != nullptr; table = table->rest.get())
      for_each_part(
          *table, [&, pool = table->pool.template data<T>()](std::size_t first, std::size_t width) {
            const auto here = static_cast<T>(largest_magnitude(pool.subspan(first, width)));
            all_finite &= here == here;
            largest = std::max(largest, here);
          });
    return all_finite ? static_cast<double>(largest) : std::numeric_limits<double>::quiet_NaN();
  }

  const Tensor queries_;  ///< (rows, D)
  const Tensor& keys_;
  const kernel::AttentionProblem<T>& problem_;
  double factor_;
  bool biased_ = false;
  std::mutex mutex_;
  std::optional<double> largest_key_;  ///< computed when first needed
};

/// Part of `rows`, from row `from` on.
template <class T>
kernel::FinishedRows<T> part_of(const kernel::FinishedRows<T>& rows, std::size_t from,
                                std::size_t count) {
  kernel::FinishedRows<T> part = rows;
  part.first += from, part.count = count;
  for (const MatrixRows<T>& each : kMatrixRows<T>)
    if (part.*each.rows != nullptr) part.*each.rows += from * rows.stride;
  return part;
}

/// Requests the rows of the score matrices that are wanted or reduced, and sets their destinations.
template <class T>
void set_row_outputs(kernel::Results<T>& results, FusedOutputs& outputs,
                     const FusedRequest& request, const Shape& matrix, const Inputs& in,
                     OverflowedRows<T>& overflowed) {
  const std::size_t S = matrix[3];
  std::vector<RowOutput<T>> matrices;
  std::vector<ReducedOutput<T>> reductions;
  for (const MatrixRows<T>& each : kMatrixRows<T>) {
    if (request.wants(each.output)) {
      T* const kept = allocate_if<T>(request.kept.contains(each.output),
                                     outputs[index_of(each.output)], matrix);
      matrices.push_back({each.rows, kept, request.consumers[index_of(each.output)]});
      results.*each.wanted = true;
    }
    for (const RowStatistic& statistic : kRowStatistics) {
      const Output output = statistic.output;
      if (row_of(output).reduces != each.output || !request.wants(output)) continue;
      T* const kept =
          allocate_if<T>(true, outputs[index_of(output)], {matrix[0], matrix[1], matrix[2]});
      reductions.push_back({statistic.formula, each.rows, kept});
      results.*each.wanted = true;
    }
  }
  const auto queries = reductions.empty() ? nullptr : std::make_shared<const RowQueries>(in);
  const auto pass_all = [=](const kernel::FinishedRows<T>& rows, bool finite) {
    for (const RowOutput<T>& each : matrices) {
      const bool before_mask = each.rows == &kernel::FinishedRows<T>::scores ||
                               each.rows == &kernel::FinishedRows<T>::scaled;
      pass_on(each, rows, S, before_mask || !finite);
    }
    for (const ReducedOutput<T>& each : reductions)
      for (std::size_t i = 0; i < rows.count; ++i)
        each.kept[rows.first + i] = static_cast<T>(
            each.formula({rows.*each.rows + i * rows.stride, S}, queries->of(rows.first + i)));
  };
  results.on_rows = [pass_all, &overflowed,
                     logsumexp = results.logsumexp](const kernel::FinishedRows<T>& rows) {
    // logsumexp is finite only if all visible scores are.
    const T* const logs = logsumexp + rows.first;
    const bool finite =
        std::all_of(logs, logs + rows.count, [](T log) { return std::isfinite(log); });
    const auto is_overflowed = [&](std::size_t i) {
      return overflowed.contains(rows.first + i, logs[i]);
    };
    std::size_t first = 0;
    while (first < rows.count && !is_overflowed(first)) ++first;
    if (first == rows.count) return pass_all(rows, finite);
    for (std::size_t i = 0; i < rows.count; ++i)
      if (i < first || !is_overflowed(i)) pass_all(part_of(rows, i, 1), false);
  };
}

/// The kernels divide by the sum of the exponentials last, so a sum of weighted values may overflow
/// although the context, their mean, does not. Recomputes such elements from values scaled down by
/// a power of two; those that are still infinite or NaN are left unchanged. Leaves `problem` with
/// the scaled values.
template <class T>
void recompute_overflowed(kernel::AttentionProblem<T>& problem, const Tensor& values,
                          Tensor& context) {
  const auto finite = [](T x) { return x - x == 0; };
  if (all_finite(context.data<T>())) return;
  const bool is_mean =
      problem.dropout.data == nullptr && problem.normaliser != kernel::Normaliser::sigmoid;
  const int shift =
      std::ilogb(static_cast<double>(problem.S) * static_cast<double>(problem.dropout_factor)) + 2;
  const T limit = std::ldexp(std::numeric_limits<T>::max(), -shift);
  // A value that rounds to infinity stays infinite.
  Tensor small = problem.bf16_products ? rounded_to_bf16(values) : cast(values, dtype_of<T>);
  bool overflows = false;
  for (T& value : small.mutable_data<T>()) {
    overflows |= std::isfinite(value) && std::fabs(value) > limit;
    value = std::ldexp(value, -shift);
  }
  if (!overflows) return;
  problem.v = operand_of(small);
  Tensor again(dtype_of<T>, context.shape());
  kernel::Results<T> results;
  results.context = again.mutable_data<T>().data();
  results.context_strides = strides_of(again);
  kernel::attend(problem, results, thread_pool());
  const auto from = again.data<T>();
  const auto to = context.mutable_data<T>();
  for (std::size_t i = 0; i < to.size(); ++i)
    if (!finite(to[i]) && finite(from[i]))  // rounding must not make a mean exceed all values
      to[i] = std::ldexp(is_mean ? std::clamp(from[i], -limit, limit) : from[i], shift);
}

/// Neighbouring queries of one document, and the keys of which they see some.
struct PackedDocument {
  RowRange queries;
  std::size_t first_key = 0, keys = 0;
};

/// The documents of packed tokens if they can be computed one by one; fewer than two otherwise. As
/// a problem of its own, a document has the bytes that it has as a batch item, and no key is
/// packed or compared for queries that do not see it.
template <class T>
std::vector<PackedDocument> packed_documents(const Inputs& in,
                                             const kernel::AttentionProblem<T>& problem,
                                             const kernel::Results<T>& results) {
  const bool is_plain = problem.distances.data == nullptr && problem.masks[0].data == nullptr &&
                        problem.biases[0].data == nullptr && problem.dropout.data == nullptr &&
                        results.remainder == nullptr;
  const bool has_matrices =
      results.scores || results.scaled || results.masked || results.weights || results.dropped;
  std::vector<PackedDocument> documents;
  if (in.B != 1 || in.E > 0 || !in.key_ranges || !is_plain || has_matrices ||
      in.options.empty_rows != EmptyRows::zero)
    return documents;
  const TokenPositions::Side& queries = in.token_positions.front().queries;
  if (queries.documents.empty()) return documents;
  for (std::size_t row = 0; row < in.rows.size(); ++row) {
    const std::size_t query = in.rows[row];
    const bool is_next = row == 0 || queries.segment(query) != queries.segment(in.rows[row - 1]);
    if (is_next) documents.push_back({{row, 0}});
    PackedDocument& document = documents.back();
    ++document.queries.count;
    const kernel::KeyRange& range = (*in.key_ranges)[row];
    if (range.begin >= range.end) continue;
    const auto end = static_cast<std::size_t>(range.end);
    document.first_key = static_cast<std::size_t>(range.center - queries.position(query));
    document.keys = std::max(document.keys, end - document.first_key);
  }
  return documents;
}

/// Keys or values from key `first` on.
kernel::Operand rows_from(kernel::Operand operand, std::size_t first) {
  const auto rows = static_cast<std::ptrdiff_t>(first);
  if (operand.rows != nullptr) {
    operand.rows += rows;
    if (operand.decoding.starts != nullptr) operand.decoding.starts += rows;
    if (operand.rest != nullptr)
      operand.rest = std::make_shared<const kernel::Operand>(rows_from(*operand.rest, first));
  } else if (operand.data != nullptr) {
    const auto bytes = static_cast<std::ptrdiff_t>(size_of(operand.dtype));
    operand.data = static_cast<const std::byte*>(operand.data) + rows * operand.strides.row * bytes;
  }
  return operand;
}

template <class T>
void attend_document(const PackedDocument& document, const kernel::AttentionProblem<T>& all,
                     const kernel::Results<T>& to) {
  const auto [first, count] = document.queries;
  const auto first_key = static_cast<std::int64_t>(document.first_key);
  std::vector<kernel::KeyRange> ranges(all.key_ranges + first, all.key_ranges + first + count);
  for (kernel::KeyRange& range : ranges) {
    if (range.begin >= range.end) range.begin = range.end = first_key;
    range.begin -= first_key, range.end -= first_key, range.center -= first_key;
  }
  kernel::AttentionProblem<T> problem = all;
  problem.L = count, problem.S = document.keys;
  problem.key_ranges = ranges.data(), problem.key_ranges_batch = 0;
  problem.q = rows_from(all.q, first);
  problem.k = rows_from(all.k, document.first_key);
  problem.v = rows_from(all.v, document.first_key);
  std::vector<T> logsumexp(all.H * count);
  kernel::Results<T> results;
  results.logsumexp = logsumexp.data();
  results.context = to.context + static_cast<std::ptrdiff_t>(first) * to.context_strides.row;
  results.context_strides = to.context_strides;
  results.key_part = to.key_part;
  kernel::attend(problem, results, thread_pool());
  for (std::size_t h = 0; h < all.H; ++h)
    std::copy_n(&logsumexp[h * count], count, to.logsumexp + h * all.L + first);
}

template <class T>
void attend_documents(const std::vector<PackedDocument>& documents,
                      const kernel::AttentionProblem<T>& problem,
                      const kernel::Results<T>& results) {
  const auto attend = [&](std::size_t i) { attend_document(documents[i], problem, results); };
  if (documents.size() >= thread_pool().threads() && results.key_part == nullptr)
    return run_in_parallel(documents.size(), thread_pool().threads(), attend);
  for (std::size_t i = 0; i < documents.size(); ++i) attend(i);
}

/// Whether scores are sums of tanh.
bool is_additive(Score score) { return score == Score::additive || score == Score::concat; }

ScoreWeights<Tensor> score_weights_of(const Inputs& in) {
  return {in[Input::W_score], in[Input::W_score_Q], in[Input::W_score_K],
          in[Input::b_score], in[Input::v_score],   in[Input::g_score]};
}

/// kernel::AttentionProblem::score_weights.
template <class T>
std::vector<T> tanh_weights(const Inputs& in, std::size_t A) {
  if (!is_additive(in.options.score)) return {};
  const std::vector<double> weights = output_weights(score_weights_of(in), A);
  return {weights.begin(), weights.end()};
}

template <class T>
FusedResult attend_as(const Tensor& queries, const Tensor& keys, const Tensor& values,
                      const Inputs& in, const FusedRequest& request) {
  const bool wants_context = request.wants(Output::head_context);
  KernelProblem<T> given(in);
  kernel::AttentionProblem<T>& problem = given.problem;
  problem.D = keys.shape()[3], problem.Dv = wants_context ? in.Dv : 0;
  problem.q = operand_of(queries), problem.k = row_operand_of(keys);
  if (wants_context) problem.v = row_operand_of(values);
  problem.q.holds_bf16 = problem.k.holds_bf16 = in.has_bf16_factors;
  problem.v.holds_bf16 = in.has_bf16_values;
  const std::vector<T> weights = tanh_weights<T>(in, problem.D);
  problem.score_weights = weights.data();

  FusedResult result;
  FusedOutputs& outputs = result.outputs;
  OverflowedRows<T> overflowed(queries, keys, in, problem);
  kernel::Results<T> results;
  results.logsumexp =
      allocate_if<T>(true, outputs[index_of(Output::logsumexp)], {in.B, in.H, problem.L});
  results.remainder = allocate_if<T>(request.remainder, result.remainder, {in.B, in.H, problem.L});
  std::optional<Tensor>& context = outputs[index_of(Output::head_context)];
  results.context = allocate_if<T>(true, context, {in.B, in.H, problem.L, problem.Dv});
  results.context_strides = strides_of(*context);
  results.key_part = in.key_part;
  set_row_outputs(results, outputs, request, {in.B, in.H, problem.L, in.S}, in, overflowed);
  const std::vector<PackedDocument> documents = packed_documents(in, problem, results);
  if (documents.size() > 1)
    attend_documents(documents, problem, results);
  else
    kernel::attend(problem, results, thread_pool());
  const auto logs = outputs[index_of(Output::logsumexp)]->template data<T>();
  for (std::size_t i = 0; i < logs.size(); ++i)
    if (overflowed.contains(i, logs[i])) result.overflowed.push_back(i);
  if (wants_context)
    recompute_overflowed<T>(problem, values, *context);
  else
    context.reset();
  return result;
}

/// x (B, H, rows, A) + b (A), in float64, rounded once.
Tensor with_bias(const Tensor& x, const Tensor& b) {
  Tensor sum = cast(x, DType::f64);
  const Tensor terms = cast(b, DType::f64);
  const auto each = terms.data<double>();
  const auto out = sum.mutable_data<double>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += each[i % each.size()];
  return cast(sum, x.dtype());
}

/// The queries or keys of which the kernels compute scores.
Tensor factors(const Tensor& x, const Inputs& in, Score score, bool queries) {
  if (is_additive(score)) {
    const ScoreWeights<Tensor> weights = score_weights_of(in);
    const Tensor factor = additive_factor(x, weights, score, queries);
    return queries && weights.b ? with_bias(factor, *weights.b) : factor;
  }
  if (score == Score::cosine) return unit_rows(x, in.compute);
  if (score == Score::general && queries)
    return matmul(x, *in[Input::W_score], Second::plain, name_of(Output::scores));
  return x;
}

/// Whether softmax is computed in the precision of everything else.
bool in_one_precision(const Inputs& in, SoftmaxPrecision precision) {
  return precision == SoftmaxPrecision::automatic ||
         precision == (in.compute == DType::f64 ? SoftmaxPrecision::f64 : SoftmaxPrecision::f32);
}

}  // namespace

const char* fallback_reason(const Inputs& in) {
  Options unknown = in.options;
  unknown.heads = unknown.kv_heads = 0;
  unknown.layout = Layout::bhld;
  unknown.page_layout = PoolLayout::nhd;
  unknown.q_type = unknown.k_type = unknown.v_type = StoredType::as_given;
  unknown.weights_layout = WeightsLayout::in_out;
  unknown.batch_second = false;
  unknown.scale = {};
  unknown.softcap = 0;
  unknown.softcap_order = SoftcapOrder::before_mask;
  unknown.alibi = false;
  unknown.relative = {};
  unknown.zero_key = false;
  unknown.short_mask = ShortMask::refuse;
  unknown.mask_polarity = MaskPolarity::attend;
  unknown.causal = false;
  unknown.alignment = Alignment::top_left;  // resolved in in.key_ranges, as is the next
  unknown.causal_offset.reset();
  unknown.window = {};
  unknown.bias_rule.clear();
  unknown.mask_rule.clear();
  unknown.chunk = unknown.sink_tokens = 0;
  unknown.block_size.clear();
  unknown.index_block = 1;
  unknown.duplicates = Duplicates::error;
  unknown.temperature = 1;
  unknown.empty_rows = EmptyRows::zero;
  unknown.o_scale = 1;  // applied after the kernels
  unknown.dropout_p.reset();
  unknown.lse_base = std::numbers::e;  // converted after the kernels
  unknown.lse_empty = EmptyLogsumexp::minus_infinity;
  unknown.lse_sinks = true;  // without them, the kernels run once more
  unknown.position = {};     // already applied to the inputs
  unknown.clip_qkv = 0;
  unknown.input_norm = QkNorm::none;
  unknown.input_norm_epsilon = unknown.norm_offset = 0;
  unknown.qk_norm = QkNorm::none;  // already applied, as are the next three
  unknown.qk_norm_axis = QkNormAxis::head;
  unknown.qk_norm_epsilon = 0;
  unknown.rotary = {};
  unknown.query_scale = {};
  unknown.rows.clear();
  unknown.compute = Compute::automatic;
  unknown.bf16_products = false;
  if (in.options.score != Score::dot && in.D == 0) return "score";
  if (in[Input::head_scale] && (in.options.score == Score::l2 || is_additive(in.options.score)))
    return "head_scale";
  unknown.score = Score::dot;
  if (in.options.normaliser == Normaliser::none) return "normaliser";
  unknown.normaliser = Normaliser::softmax;
  unknown.top_k = Options{}.top_k;
  if (in.options.softmax_axis != SoftmaxAxis::keys) return "softmax.axis";
  if (!in_one_precision(in, in.options.softmax_precision)) return "softmax.precision";
  unknown.softmax_precision = SoftmaxPrecision::automatic;
  if (in.options.path != Path::automatic) return "path";
  if (!(unknown == Options{})) return "another option";
  if (const char* option = unrepresentable_option(in)) return option;
  return unbounded_distance_bias(in);
}

bool is_streamed(Output output, const OutputSet& outputs) {
  const bool is_reduced = output == Output::weights && (outputs.contains(Output::mean_weights) ||
                                                        outputs.contains(Output::key_weights));
  return is_score_matrix(output) && !is_reduced;
}

namespace {

FusedResult attend_rows(const Tensor& queries, const Tensor& keys, const Tensor& values,
                        const Inputs& in, const FusedRequest& request) {
  return in.compute == DType::f32 ? attend_as<float>(queries, keys, values, in, request)
                                  : attend_as<double>(queries, keys, values, in, request);
}

/// Passes rows of (matrices, part.count) on as those of (matrices, all).
RowConsumer of_whole(const RowConsumer& consumer, RowRange part, std::size_t all) {
  return [&consumer, part, all](const RowBlock& rows) {
    for (std::size_t i = 0; i < rows.count;) {
      const std::size_t row = rows.first + i, matrix = row / part.count, at = row % part.count;
      RowBlock some = rows;
      some.first = matrix * all + part.first + at;
      some.count = std::min(rows.count - i, part.count - at);
      some.data = rows.row(i);
      consumer(some);
      i += some.count;
    }
  };
}

/// Adds the results of a part of the rows.
void add_part(FusedResult part, RowRange rows, std::size_t all, FusedResult& whole) {
  const auto put_rows = [&](const std::optional<Tensor>& from, std::optional<Tensor>& to) {
    if (!from) return;
    if (!to) to.emplace();
    put_part(*from, 2, rows.first, all, *to);
  };
  for (std::size_t i = 0; i < part.outputs.size(); ++i) put_rows(part.outputs[i], whole.outputs[i]);
  put_rows(part.remainder, whole.remainder);
  for (const std::size_t row : part.overflowed)
    whole.overflowed.push_back(row / rows.count * all + rows.first + row % rows.count);
}

}  // namespace

FusedResult attend_fused(const Tensor& queries, const Tensor& keys, const Tensor& values,
                         const Inputs& in, const FusedRequest& request) {
  const Tensor q = factors(queries, in, in.options.score, true);
  const Tensor k = factors(keys, in, in.options.score, false);
  const std::size_t all = in.rows.size(), step = rows_of_kernel_problem(in);
  if (step >= all) return attend_rows(q, k, values, in, request);
  FusedResult whole;
  for (std::size_t first = 0; first < all; first += step) {
    const RowRange rows{first, std::min(step, all - first)};
    FusedRequest some = request;
    std::array<RowConsumer, kOutputs.size()> consumers;
    for (std::size_t i = 0; i < consumers.size(); ++i)
      if (request.consumers[i] != nullptr) {
        consumers[i] = of_whole(*request.consumers[i], rows, all);
        some.consumers[i] = &consumers[i];
      }
    const Tensor some_queries = sliced(q, 2, rows.first, rows.count);
    add_part(attend_rows(some_queries, k, values, part_of(in, {rows}), some), rows, all, whole);
  }
  std::sort(whole.overflowed.begin(), whole.overflowed.end());
  return whole;
}

void count_rows(std::atomic<std::size_t>* rows) { kernel::count_rows(rows); }

}  // namespace attn
