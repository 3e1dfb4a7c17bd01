#include "attn/core/fast.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>

#include "attn/core/gemm.h"
#include "attn/core/kernel_problem.h"
#include "attn/core/score.h"
#include "attn/kernel/attend.h"

namespace attn {
namespace {

thread_local std::size_t t_threads = 0;
thread_local std::unique_ptr<kernel::ThreadPool> t_pool;

kernel::ThreadPool& pool() {
  if (!t_pool)
    t_pool =
        std::make_unique<kernel::ThreadPool>(t_threads == 0 ? kernel::available_cpus() : t_threads);
  return *t_pool;
}

kernel::Operand operand(const Tensor& tensor) {
  return {tensor.raw(), tensor.dtype(), strides_of(tensor)};
}

/// The largest of a row; NaN where there is one, as nothing is more than that.
template <class T>
T largest(const T* row, std::size_t count) {
  T most = -std::numeric_limits<T>::infinity();
  bool has_nan = false;
  for (std::size_t j = 0; j < count; ++j) {
    has_nan |= row[j] != row[j];
    most = row[j] > most ? row[j] : most;
  }
  return has_nan ? std::numeric_limits<T>::quiet_NaN() : most;
}

/// A tensor to be filled where it is wanted.
template <class T>
T* made(Tensor& tensor, bool wanted, const Shape& shape) {
  if (!wanted) return nullptr;
  tensor = Tensor(dtype_of<T>, shape);
  return tensor.mutable_data<T>().data();
}

/// One of the matrices that have a row for each query, as its rows come.
template <class T>
struct Taken {
  const T* kernel::FinishedRows<T>::*rows;  ///< where the kernels give them
  T* kept;
  const RowSink* to;
};

/// Takes rows of a matrix, which may hold NaN or do not.
template <class T>
void take(const Taken<T>& matrix, const kernel::FinishedRows<T>& rows, std::size_t S,
          bool may_hold_nan) {
  const T* const data = rows.*matrix.rows;
  if (matrix.kept)
    for (std::size_t i = 0; i < rows.count; ++i)
      std::copy_n(data + i * rows.stride, S, matrix.kept + (rows.first + i) * S);
  if (matrix.to)
    (*matrix.to)({.first = rows.first,
                  .count = rows.count,
                  .columns = S,
                  .dtype = dtype_of<T>,
                  .data = reinterpret_cast<const std::byte*>(data),
                  .stride = rows.stride * sizeof(T),
                  .may_hold_nan = may_hold_nan});
}

/// Has the kernels give what is wanted of the matrices that have a row for each query.
template <class T>
void set_sink(kernel::Results<T>& results, FastStages& stages, const FastWanted& wanted,
              const Shape& matrix) {
  using Rows = kernel::FinishedRows<T>;
  const std::size_t S = matrix[3];
  const auto taken = [&](const T* Rows::*rows, Tensor& tensor, const FastWanted::Matrix& asked) {
    return Taken<T>{rows, made<T>(tensor, asked.kept, matrix), asked.to};
  };
  const auto scores = taken(&Rows::scores, stages.scores, wanted.scores);
  const auto scaled = taken(&Rows::scaled, stages.scaled_scores, wanted.scaled_scores);
  const auto masked = taken(&Rows::masked, stages.masked_scores, wanted.masked_scores);
  const auto weights = taken(&Rows::weights, stages.weights, wanted.weights);
  T* const row_max = made<T>(stages.row_max, wanted.row_max, {matrix[0], matrix[1], matrix[2]});
  results.scores = static_cast<bool>(wanted.scores);
  results.scaled = static_cast<bool>(wanted.scaled_scores);
  results.masked = wanted.masked_scores || row_max;
  results.weights = static_cast<bool>(wanted.weights);
  results.sink = [=, logsumexp = results.logsumexp](const Rows& rows) {
    // Where nothing seen is NaN or infinite, so is the sum of the exponentials.
    const T* const logs = logsumexp + rows.first;
    const bool finite =
        std::all_of(logs, logs + rows.count, [](T log) { return std::isfinite(log); });
    take(scores, rows, S, true);
    take(scaled, rows, S, true);
    take(masked, rows, S, !finite);
    take(weights, rows, S, !finite);
    for (std::size_t i = 0; row_max && i < rows.count; ++i)
      row_max[rows.first + i] = largest(rows.masked + i * rows.stride, S);
  };
}

/// The kernels divide by the sum of the exponentials last: what they sum up to then may overflow
/// though the context, a mean of values, does not. Such elements are computed again, from values
/// that a power of two makes small enough, and stay infinite or NaN where they are so again;
/// `problem` is left with these.
template <class T>
void mend_overflows(kernel::Problem<T>& problem, const Tensor& values, Tensor& context) {
  const auto finite = [](T x) { return x - x == 0; };
  bool all = true;  // looked at without a way out, which compilers make quick
  for (const T x : context.data<T>()) all &= finite(x);
  if (all) return;
  const int shift = std::ilogb(static_cast<double>(problem.S)) + 2;
  const T most = std::ldexp(std::numeric_limits<T>::max(), -shift);  // of what is made small
  Tensor small = cast(values, dtype_of<T>);
  bool overflows = false;
  for (T& value : small.mutable_data<T>()) {
    overflows |= std::isfinite(value) && std::fabs(value) > most;
    value = std::ldexp(value, -shift);
  }
  if (!overflows) return;
  problem.v = operand(small);
  Tensor again(dtype_of<T>, context.shape());
  kernel::Results<T> results;
  results.context = again.mutable_data<T>().data();
  results.context_strides = strides_of(again);
  kernel::attend(problem, results, pool());
  const auto from = again.data<T>();
  const auto to = context.mutable_data<T>();
  for (std::size_t i = 0; i < to.size(); ++i)
    if (!finite(to[i]) && finite(from[i]))  // no mean is beyond all values, however it is rounded
      to[i] = std::ldexp(std::clamp(from[i], -most, most), shift);
}

template <class T>
FastStages computed(const Tensor& queries, const Tensor& keys, const Tensor& values,
                    const Inputs& in, const Options& options, FastWanted wanted) {
  KernelProblem<T> given(in, options);
  kernel::Problem<T>& problem = given.problem;
  problem.D = keys.shape()[3], problem.Dv = wanted.context ? in.Dv : 0;
  problem.q = operand(queries), problem.k = operand(keys);
  if (wanted.context) problem.v = operand(values);

  FastStages stages;
  kernel::Results<T> results;
  results.logsumexp = made<T>(stages.logsumexp, true, {in.B, in.H, problem.L});
  results.context = made<T>(stages.head_context, true, {in.B, in.H, problem.L, problem.Dv});
  results.context_strides = strides_of(stages.head_context);
  set_sink(results, stages, wanted, {in.B, in.H, problem.L, in.S});
  kernel::attend(problem, results, pool());
  if (wanted.context) mend_overflows<T>(problem, values, stages.head_context);
  return stages;
}

/// Scores that are q . k of something that queries and keys are made into first.
bool is_product(Score score) {
  return score == Score::dot || score == Score::cosine || score == Score::general;
}

/// Queries or keys of which the scores are products.
Tensor factors(const Tensor& x, const Inputs& in, Score score, bool queries) {
  if (score == Score::cosine) return unit_rows(x, in.compute);
  if (score == Score::general && queries) return matmul(x, *in.W_score, Second::plain, "scores");
  return x;
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether softmax is computed in the precision that everything else is.
bool in_one_precision(const Inputs& in, SoftmaxPrecision precision) {
  return precision == SoftmaxPrecision::automatic ||
         precision == (in.compute == DType::f64 ? SoftmaxPrecision::f64 : SoftmaxPrecision::f32);
}

}  // namespace

const char* unknown_to_kernels(const Inputs& in, const Options& options) {
  Options unknown = options;
  unknown.heads = unknown.kv_heads = 0;
  unknown.layout = Layout::bhld;
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
  unknown.alignment = Alignment::top_left;  // in the places already
  unknown.window = {};
  unknown.temperature = 1;
  unknown.empty_rows = EmptyRows::zero;
  unknown.position = {};           // in the inputs already
  unknown.qk_norm = QkNorm::none;  // in queries and keys already, as the rotary positions are
  unknown.qk_norm_epsilon = 0;
  unknown.rotary = {};
  unknown.rows.clear();
  unknown.compute = Compute::automatic;
  if (!is_product(options.score) || (options.score != Score::dot && in.D == 0)) return "score";
  unknown.score = Score::dot;
  if (options.normaliser != Normaliser::softmax) return "normaliser";
  if (options.softmax_axis != SoftmaxAxis::keys) return "softmax.axis";
  if (!in_one_precision(in, options.softmax_precision)) return "softmax.precision";
  unknown.softmax_precision = SoftmaxPrecision::automatic;
  if (options.path != Path::automatic) return "path";
  if (!(unknown == Options{})) return "another option";
  if (const char* option = beyond_kernels(in, options)) return option;
  return has_kernel_problem(in, options) ? nullptr : in.slopes ? "alibi" : "relative_bias";
}

bool needs_scores(const std::vector<std::string>& outputs) {
  return std::any_of(outputs.begin(), outputs.end(), [](const std::string& name) {
    return is_any_of(
        name, {"scores", "scaled_scores", "masked_scores", "weights", "mean_weights", "key_weights",
               "row_max", "logsumexp", "head_context", "context", "output"});
  });
}

bool takes_fast_path(const Inputs& in, const Options& options,
                     const std::vector<std::string>& outputs) {
  return needs_scores(outputs) && unknown_to_kernels(in, options) == nullptr;
}

bool streams(std::string_view name, const std::vector<std::string>& outputs) {
  const bool summed = std::any_of(outputs.begin(), outputs.end(), [](const std::string& other) {
    return is_any_of(other, {"mean_weights", "key_weights"});
  });
  return is_any_of(name, {"scores", "scaled_scores", "masked_scores"}) ||
         (name == "weights" && !summed);
}

FastStages attend_fast(const Tensor& queries, const Tensor& keys, const Tensor& values,
                       const Inputs& in, const Options& options, FastWanted wanted) {
  const Tensor q = factors(queries, in, options.score, true);
  const Tensor k = factors(keys, in, options.score, false);
  return in.compute == DType::f32 ? computed<float>(q, k, values, in, options, wanted)
                                  : computed<double>(q, k, values, in, options, wanted);
}

void set_threads(std::size_t threads) {
  // The C library notes with a thread's first use of its pool that it has to go, and ends the
  // program where it finds no memory for that: so it is asked for here first.
  constexpr std::size_t kNoteBytes = 64;
  ::operator delete(::operator new(kNoteBytes));
  t_threads = threads;
  t_pool.reset();
}

}  // namespace attn
