#include "attn/core/fast.h"

#include <cmath>
#include <memory>

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

/// Strides of a contiguous (B, heads, rows, columns) tensor; an axis of 1 is repeated.
kernel::Strides strides_of(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  std::int64_t strides[4], step = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    strides[axis] = shape[axis] == 1 ? 0 : step;
    step *= static_cast<std::int64_t>(shape[axis]);
  }
  return {strides[0], strides[1], strides[2], strides[3]};
}

kernel::Operand operand(const Tensor& tensor) {
  return {tensor.raw(), tensor.dtype(), strides_of(tensor)};
}

double factor_of(const Scale& scale, std::size_t D) {
  if (scale.kind == Scale::Kind::number) return scale.number;
  return scale.kind == Scale::Kind::none ? 1 : 1 / std::sqrt(static_cast<double>(D));
}

Tensor inverted(const Tensor& mask) {
  Tensor result = mask;
  for (bool& cell : result.mutable_data<bool>()) cell = !cell;
  return result;
}

/// `mask` and `positions` keep alive what the problem points to.
template <class T>
void set_visibility(kernel::Problem<T>& problem, const Inputs& in, const Options& options,
                    Tensor& mask, std::vector<std::int64_t>& positions) {
  problem.causal = options.causal != Causal::none;
  problem.left = options.window.left;
  problem.right = options.window.right;
  if (options.causal == Causal::bottom_right)
    problem.offset = static_cast<std::int64_t>(in.S) - static_cast<std::int64_t>(in.L);
  if (!options.rows.empty()) {
    positions.assign(in.rows.begin(), in.rows.end());
    problem.positions = positions.data();
  }
  if (!in.mask) return;
  const bool boolean = in.mask->dtype() == DType::boolean;
  mask = boolean && options.mask_polarity == MaskPolarity::ignore ? inverted(*in.mask) : *in.mask;
  if (boolean) {
    problem.mask = reinterpret_cast<const std::uint8_t*>(mask.raw());
    problem.mask_strides = strides_of(mask);
  } else {
    problem.bias = mask.data<T>().data();
    problem.bias_strides = strides_of(mask);
  }
}

template <class T>
FastStages computed(const Tensor& queries, const Tensor& keys, const Tensor& values,
                    const Inputs& in, const Options& options, FastWanted wanted) {
  kernel::Problem<T> problem;
  problem.B = in.B, problem.H = in.H, problem.G = in.G;
  problem.L = in.rows.size(), problem.S = in.S, problem.D = in.D, problem.Dv = in.Dv;
  problem.q = operand(queries), problem.k = operand(keys), problem.v = operand(values);
  problem.scale = static_cast<T>(factor_of(options.scale, in.D));
  problem.softcap = static_cast<T>(options.softcap);
  Tensor mask;
  std::vector<std::int64_t> positions;
  set_visibility(problem, in, options, mask, positions);

  const Shape rows = {in.B, in.H, problem.L}, matrix = {in.B, in.H, problem.L, in.S};
  FastStages stages;
  stages.logsumexp = Tensor(dtype_of<T>, rows);
  stages.head_context = Tensor(dtype_of<T>, {in.B, in.H, problem.L, in.Dv});
  if (wanted.scores) stages.scores = Tensor(dtype_of<T>, matrix);
  if (wanted.weights) stages.weights = Tensor(dtype_of<T>, matrix);

  kernel::Results<T> results;
  results.context = stages.head_context.template mutable_data<T>().data();
  results.context_strides = strides_of(stages.head_context);
  results.logsumexp = stages.logsumexp.template mutable_data<T>().data();
  results.scores = wanted.scores, results.weights = wanted.weights;
  results.sink = kernel::store_rows<T>(
      wanted.scores ? stages.scores.template mutable_data<T>().data() : nullptr,
      wanted.weights ? stages.weights.template mutable_data<T>().data() : nullptr, in.S);
  kernel::attend(problem, results, pool());
  return stages;
}

}  // namespace

bool fast_path_knows(const Options& options) {
  Options unknown = options;
  unknown.heads = unknown.kv_heads = 0;
  unknown.layout = Layout::bhld;
  unknown.scale = {};
  unknown.softcap = 0;
  unknown.mask_polarity = MaskPolarity::attend;
  unknown.causal = Causal::none;
  unknown.window = {};
  unknown.position = {};  // in the inputs already
  unknown.rows.clear();
  unknown.compute = Compute::automatic;
  return unknown == Options{};
}

FastStages attend_fast(const Tensor& queries, const Tensor& keys, const Tensor& values,
                       const Inputs& in, const Options& options, FastWanted wanted) {
  return in.compute == DType::f32 ? computed<float>(queries, keys, values, in, options, wanted)
                                  : computed<double>(queries, keys, values, in, options, wanted);
}

void set_threads(std::size_t threads) {
  t_threads = threads;
  t_pool.reset();
}

}  // namespace attn
