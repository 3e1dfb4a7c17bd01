#include "attn/core/fast.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

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

/// Places as the kernels know them: query i stands at i + offset, key j at j, and of each batch
/// row's keys the first `lengths` are there.
struct PlainPlaces {
  std::int64_t offset = 0;
  std::vector<std::int64_t> lengths;  ///< (B)
};

std::optional<PlainPlaces> plain_places(const Inputs& in) {
  PlainPlaces plain;
  if (in.L > 0 && !in.places.empty()) plain.offset = in.places[0].queries.place[0];
  for (std::size_t b = 0; b < in.B; ++b) {
    const Places& places = in.places[in.places.size() == 1 ? 0 : b];
    const std::int64_t document = in.L > 0 ? places.queries.document[0] : 0;
    for (std::size_t i = 0; i < in.L; ++i)
      if (places.queries.document[i] != document || document == Places::kPadding ||
          places.queries.place[i] != static_cast<std::int64_t>(i) + plain.offset)
        return std::nullopt;
    std::size_t length = 0;
    while (length < in.S && places.keys.document[length] == document &&
           places.keys.place[length] == static_cast<std::int64_t>(length))
      ++length;
    for (std::size_t j = length; j < in.S; ++j)
      if (places.keys.document[j] != Places::kPadding) return std::nullopt;
    plain.lengths.push_back(static_cast<std::int64_t>(length));
  }
  return plain;
}

/// What the problem points to has to outlive it.
struct Kept {
  Tensor mask;
  std::vector<std::int64_t> positions;
  PlainPlaces places;
};

template <class T>
void set_visibility(kernel::Problem<T>& problem, const Inputs& in, const Options& options,
                    Kept& kept) {
  auto& [mask, positions, places] = kept;
  places = *plain_places(in);
  problem.causal = options.causal;
  problem.left = options.window.left;
  problem.right = options.window.right;
  problem.offset = places.offset;
  problem.lengths = places.lengths.data();
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
RowBlock block_of(const kernel::FinishedRows<T>& rows, const T* data, std::size_t S) {
  return {.first = rows.first,
          .count = rows.count,
          .columns = S,
          .dtype = dtype_of<T>,
          .data = reinterpret_cast<const std::byte*>(data),
          .stride = rows.stride * sizeof(T)};
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
  Kept kept;
  set_visibility(problem, in, options, kept);

  const Shape each_row = {in.B, in.H, problem.L}, matrix = {in.B, in.H, problem.L, in.S};
  FastStages stages;
  stages.logsumexp = Tensor(dtype_of<T>, each_row);
  stages.head_context = Tensor(dtype_of<T>, {in.B, in.H, problem.L, in.Dv});
  if (wanted.scores) stages.scores = Tensor(dtype_of<T>, matrix);
  if (wanted.weights) stages.weights = Tensor(dtype_of<T>, matrix);

  kernel::Results<T> results;
  results.context = stages.head_context.template mutable_data<T>().data();
  results.context_strides = strides_of(stages.head_context);
  results.logsumexp = stages.logsumexp.template mutable_data<T>().data();
  results.scores = wanted.scores || wanted.scores_to;
  results.weights = wanted.weights || wanted.weights_to;
  const auto store = kernel::store_rows<T>(
      wanted.scores ? stages.scores.template mutable_data<T>().data() : nullptr,
      wanted.weights ? stages.weights.template mutable_data<T>().data() : nullptr, in.S);
  results.sink = [&](const kernel::FinishedRows<T>& rows) {
    store(rows);
    if (wanted.scores_to) wanted.scores_to(block_of(rows, rows.scores, in.S));
    if (!wanted.weights_to) return;
    RowBlock weights = block_of(rows, rows.weights, in.S);
    // A weight is NaN only where the sum that it was divided by is.
    weights.may_hold_nan =
        std::any_of(results.logsumexp + rows.first, results.logsumexp + rows.first + rows.count,
                    [](T logsumexp) { return std::isnan(logsumexp); });
    wanted.weights_to(weights);
  };
  kernel::attend(problem, results, pool());
  return stages;
}

}  // namespace

bool fast_path_knows(const Inputs& in, const Options& options) {
  Options unknown = options;
  unknown.heads = unknown.kv_heads = 0;
  unknown.layout = Layout::bhld;
  unknown.scale = {};
  unknown.softcap = 0;
  unknown.batch_second = false;
  unknown.short_mask = ShortMask::refuse;
  unknown.mask_polarity = MaskPolarity::attend;
  unknown.causal = false;
  unknown.alignment = Alignment::top_left;  // in the places already
  unknown.window = {};
  unknown.position = {};           // in the inputs already
  unknown.qk_norm = QkNorm::none;  // in queries and keys already, as the rotary positions are
  unknown.qk_norm_epsilon = 0;
  unknown.rotary = {};
  unknown.rows.clear();
  unknown.compute = Compute::automatic;
  if (in.key_mask || in.E > 0 || in.slopes || in.relative_bias || in.sinks) return false;
  return unknown == Options{} && plain_places(in).has_value();
}

bool takes_fast_path(const Inputs& in, const Options& options,
                     const std::vector<std::string>& outputs) {
  const auto wants = [&](const char* name) {
    return std::find(outputs.begin(), outputs.end(), name) != outputs.end();
  };
  const bool past_scores = wants("weights") || wants("mean_weights") || wants("key_weights") ||
                           wants("logsumexp") || wants("head_context") || wants("context") ||
                           wants("output");
  return past_scores && !wants("scaled_scores") && !wants("masked_scores") && !wants("row_max") &&
         options.path == Path::automatic && fast_path_knows(in, options);
}

bool streams(const std::string& name, const std::vector<std::string>& outputs) {
  const auto wants = [&](const char* other) {
    return std::find(outputs.begin(), outputs.end(), other) != outputs.end();
  };
  return name == "scores" || (name == "weights" && !wants("mean_weights") && !wants("key_weights"));
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
