#include "attn/attention/kernel_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "attn/attention/normalise.h"
#include "attn/attention/score.h"
#include "attn/kernel/schedule.h"
#include "attn/problem/bias_rule.h"
#include "attn/problem/key_lists.h"
#include "attn/problem/mask.h"
#include "attn/problem/position_bias.h"
#include "attn/problem/threads.h"
#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/rearrange.h"

namespace attn {
namespace {

/// Ranges that contain all keys, for each of in.rows and each entry of in.token_positions. A mask
/// marks the visible keys.
std::vector<kernel::KeyRange> whole_ranges(const Inputs& in) {
  std::vector<kernel::KeyRange> ranges;
  for (std::size_t b = 0; b < in.token_positions.size(); ++b)
    for (const std::size_t i : in.rows)
      ranges.push_back({.end = static_cast<std::int64_t>(in.S), .padding = is_padding(in, b, i)});
  return ranges;
}

template <class T>
void add_mask(KernelProblem<T>& to, const Tensor& mask, bool hides) {
  auto& problem = to.problem;
  to.masks.push_back(mask);
  const auto free = [](const auto& slot) { return slot.data == nullptr; };
  if (mask.dtype() == DType::boolean)
    *std::find_if(problem.masks.begin(), problem.masks.end(), free) = {
        reinterpret_cast<const std::uint8_t*>(mask.raw()), strides_of(mask), hides};
  else
    *std::find_if(problem.biases.begin(), problem.biases.end(), free) = {mask.data<T>().data(),
                                                                         strides_of(mask)};
}

/// The shape of the sum of two tensors of which axes of length 1 are broadcast.
Shape shape_of_sum(Shape a, const Shape& b) {
  for (std::size_t axis = 0; axis < a.size(); ++axis)
    if (a[axis] == 1) a[axis] = b[axis];
  return a;
}

/// Calls f(b, h, row) for all rows of a (B, H, R, S) tensor, on several threads.
template <class F>
void each_row(const Shape& shape, F f) {
  constexpr std::size_t kAtOnce = 64;
  const std::size_t rows = shape[0] * shape[1] * shape[2];
  run_in_parallel((rows + kAtOnce - 1) / kAtOnce, thread_count(), [&](std::size_t part) {
    for (std::size_t i = part * kAtOnce; i < std::min(rows, (part + 1) * kAtOnce); ++i)
      f(i / shape[2] / shape[1], i / shape[2] % shape[1], i % shape[2]);
  });
}

/// The sum of two biases: -inf where one of them is, and otherwise finite unless one is not, or too
/// large.
template <class T>
Tensor sum_of_biases(const Tensor& a, const Tensor& b) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  Tensor sum(dtype_of<T>, shape_of_sum(a.shape(), b.shape()));
  const Shape& shape = sum.shape();
  const kernel::Strides by_a = strides_of(a), by_b = strides_of(b);
  T* const out = sum.mutable_data<T>().data();
  each_row(shape, [&](std::size_t batch, std::size_t h, std::size_t row) {
    const auto row_of = [&](const Tensor& x, const kernel::Strides& by) {
      return x.data<T>().data() + static_cast<std::int64_t>(batch) * by.batch +
             static_cast<std::int64_t>(h) * by.head + static_cast<std::int64_t>(row) * by.row;
    };
    const T *const from_a = row_of(a, by_a), *const from_b = row_of(b, by_b);
    T* const to = out + ((batch * shape[1] + h) * shape[2] + row) * shape[3];
    for (std::size_t j = 0; j < shape[3]; ++j) {
      const T x = from_a[static_cast<std::int64_t>(j) * by_a.column];
      const T y = from_b[static_cast<std::int64_t>(j) * by_b.column];
      const T both =
          x + y < std::numeric_limits<T>::lowest() ? std::numeric_limits<T>::lowest() : x + y;
      to[j] = x == kHidden || y == kHidden ? kHidden : both;
    }
  });
  return sum;
}

/// The sum of all biases, from small tensors to large ones.
template <class T>
Tensor sum_of_all(std::vector<Tensor> biases) {
  std::stable_sort(biases.begin(), biases.end(),
                   [](const Tensor& a, const Tensor& b) { return a.size() < b.size(); });
  Tensor sum = biases.front();
  for (std::size_t i = 1; i < biases.size(); ++i) sum = sum_of_biases<T>(sum, biases[i]);
  return sum;
}

/// ALiBi and the relative bias of `width` distances from `least` on, (B or 1, H, width).
template <class T>
std::vector<T> distance_terms(const Inputs& in, std::int64_t least, std::size_t width) {
  const std::size_t batches = in[Input::alibi_slopes] ? in[Input::alibi_slopes]->shape()[0] : 1;
  const Tensor slopes =
      in[Input::alibi_slopes] ? cast(*in[Input::alibi_slopes], DType::f64) : Tensor();
  const Tensor bias =
      in[Input::relative_bias] ? cast(*in[Input::relative_bias], DType::f64) : Tensor();
  std::vector<T> terms(batches * in.H * width);
  for (std::size_t d = 0; d < width; ++d) {
    const std::int64_t distance = least + static_cast<std::int64_t>(d);
    const std::size_t bucket =
        in[Input::relative_bias] ? bucket_of(distance, bias.shape()[0], in.options) : 0;
    for (std::size_t bh = 0; bh < batches * in.H; ++bh) {
      double term = 0;
      if (in[Input::alibi_slopes])
        term -= slopes.data<double>()[bh] * std::fabs(static_cast<double>(distance));
      if (in[Input::relative_bias]) term += bias.data<double>()[bucket * in.H + bh % in.H];
      terms[bh * width + d] = static_cast<T>(term);
    }
  }
  return terms;
}

/// ALiBi and the relative bias as one table of all distances. The table has no distances beyond
/// those that occur, so the centers are moved to the first keys.
template <class T>
void add_distances(KernelProblem<T>& to, const Inputs& in) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t min = kNone, max = 0;  // centers
  for (const kernel::KeyRange& range : *in.key_ranges) {
    if (range.begin == range.end) continue;
    max = min == kNone ? range.center : std::max(max, range.center);
    min = std::min(min, range.center);
  }
  if (min == kNone) min = 0;
  to.own_ranges = *in.key_ranges;
  for (kernel::KeyRange& range : to.own_ranges)
    range.center = range.begin == range.end ? 0 : range.center - min;
  const auto width = in.S + static_cast<std::size_t>(max - min);
  to.distances = distance_terms<T>(in, -max, width);
  const auto stride = static_cast<std::int64_t>(width);
  const bool is_shared = to.distances.size() == in.H * width;
  to.problem.distances = {to.distances.data() + (max - min),
                          {is_shared ? 0 : stride * static_cast<std::int64_t>(in.H), stride, 0, 1}};
}

/// The shape of distance_bias(): (B or 1, H, rows, S).
Shape shape_of_distance_bias(const Inputs& in) {
  const std::size_t tables = in[Input::alibi_slopes] ? in[Input::alibi_slopes]->shape()[0] : 1;
  return {std::max(tables, in.token_positions.size()), in.H, in.rows.size(), in.S};
}

/// The positions of the first `count` tokens.
std::vector<std::int64_t> positions_of(const TokenPositions::Side& side, std::size_t count) {
  std::vector<std::int64_t> positions(count);
  for (std::size_t i = 0; i < count; ++i) positions[i] = side.position(i);
  return positions;
}

/// ALiBi and the relative bias for each query and key, where keys are not at consecutive positions.
/// Appended keys get 0.
template <class T>
Tensor distance_bias(const Inputs& in) {
  std::vector<std::vector<std::int64_t>> of_queries, of_keys;
  std::int64_t least = 0, most = 0;
  for (const auto& [queries, keys] : in.token_positions) {
    of_queries.push_back(positions_of(queries, in.L));
    of_keys.push_back(positions_of(keys, in.P + in.N));
  }
  const auto ends = [](const std::vector<std::vector<std::int64_t>>& all) {
    std::pair<std::int64_t, std::int64_t> found{std::numeric_limits<std::int64_t>::max(),
                                                std::numeric_limits<std::int64_t>::min()};
    for (const auto& positions : all)
      for (const std::int64_t position : positions)
        found = {std::min(found.first, position), std::max(found.second, position)};
    return found;
  };
  const auto [first_query, last_query] = ends(of_queries);
  const auto [first_key, last_key] = ends(of_keys);
  if (first_query <= last_query && first_key <= last_key)
    least = first_key - last_query, most = last_key - first_query;
  const auto width = static_cast<std::size_t>(most - least + 1);
  const std::vector<T> terms = distance_terms<T>(in, least, width);
  Tensor bias(dtype_of<T>, shape_of_distance_bias(in));
  const Shape& shape = bias.shape();
  const std::size_t tables = terms.size() / width / in.H;
  T* const out = bias.mutable_data<T>().data();
  each_row(shape, [&, base = least](std::size_t b, std::size_t h, std::size_t row) {
    const std::size_t item = of_keys.size() == 1 ? 0 : b, table = tables == 1 ? 0 : b;
    const std::vector<std::int64_t>& keys = of_keys[item];
    const std::int64_t start = of_queries[item][in.rows[row]] + base;
    const T* const from = terms.data() + (table * in.H + h) * width;
    T* const to = out + ((b * shape[1] + h) * shape[2] + row) * shape[3];
    for (std::size_t j = 0; j < keys.size(); ++j) to[j] = from[keys[j] - start];
  });
  return bias;
}

/// unrepresentable_option() for computation in T.
template <class T>
const char* beyond(const Inputs& in) {
  const auto fits = [](double x) { return x == 0 || std::isnormal(static_cast<T>(x)); };
  const double log2e = 1 / std::log(2.0), unit = log2e / in.options.temperature;
  const double factor = in.scale.factor();
  if (!fits(in.options.temperature) || !fits(unit)) return "temperature";
  if (!fits(factor) || !fits(factor * unit)) return "scale";
  if (in.options.softcap > 0 &&
      (!fits(in.options.softcap) || !fits(4 * log2e / in.options.softcap)))
    return "softcap";
  if (in[Input::head_scale]) {
    const Tensor scales = cast(*in[Input::head_scale], DType::f64);
    for (const double scale : scales.data<double>())
      if (!fits(scale) || !fits(scale * factor) || !fits(scale * factor * unit))
        return "head_scale";
  }
  if (!in[Input::sinks]) return nullptr;
  const Tensor sinks = cast(*in[Input::sinks], DType::f64);
  const auto numbers = sinks.data<double>();
  const auto is_supported = [&](double sink) {
    return sink <= std::numeric_limits<T>::max() / log2e;
  };
  return std::all_of(numbers.begin(), numbers.end(), is_supported) ? nullptr : "sinks";
}

}  // namespace

std::size_t bytes_of_packed(const Inputs& in) {
  const std::size_t pair = saturating_product({in.S, in.D + in.Dv, size_of(in.compute)});
  return std::min(saturating_product({in.B, in.G, pair}), std::max(kernel::kChunkBytes, pair));
}

kernel::Strides strides_of(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  std::int64_t strides[4], step = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    strides[axis] = shape[axis] == 1 ? 0 : step;
    step *= static_cast<std::int64_t>(shape[axis]);
  }
  return {strides[0], strides[1], strides[2], strides[3]};
}

kernel::Operand operand_of(const Tensor& tensor) {
  return {tensor.stored().raw(), tensor.stored().dtype(), strides_of(tensor)};
}

namespace {

kernel::Operand operand_of(const RowTable& table) {
  const DType dtype = table.pool.dtype();
  kernel::Operand operand{table.pool.raw() + static_cast<std::size_t>(table.first) * size_of(dtype),
                          dtype,
                          {0, table.head, 0, 1},
                          table.rows->data(),
                          static_cast<std::int64_t>(table.keys)};
  operand.decoding.is_used = table.is_decoded();
  operand.decoding.code = table.code;
  operand.width = table.width;
  if (table.rest) operand.rest = std::make_shared<const kernel::Operand>(operand_of(*table.rest));
  if (const auto& factors = table.factors) {
    operand.decoding.factors = factors->factors.data();
    if (!factors->zeros.empty()) operand.decoding.zeros = factors->zeros.data();
    if (!factors->starts.empty()) operand.decoding.starts = factors->starts.data();
    operand.decoding.head = factors->head, operand.decoding.columns = factors->columns;
  }
  return operand;
}

}  // namespace

kernel::Operand row_operand_of(const Tensor& tensor) {
  const RowTable* table = row_table_of(tensor);
  // The kernels read factors by key/value head.
  const bool has_groups = table != nullptr && table->factors && table->factors->group > 1;
  return table == nullptr || has_groups ? operand_of(tensor) : operand_of(*table);
}

namespace {

kernel::Normaliser kernel_normaliser(Normaliser normaliser) {
  switch (normaliser) {
    case Normaliser::sparsemax:
      return kernel::Normaliser::sparsemax;
    case Normaliser::entmax15:
      return kernel::Normaliser::entmax15;
    case Normaliser::hardmax:
      return kernel::Normaliser::hardmax;
    case Normaliser::sigmoid:
      return kernel::Normaliser::sigmoid;
    case Normaliser::top_k:
      return kernel::Normaliser::top_k;
    default:
      return kernel::Normaliser::softmax;
  }
}

kernel::Score kernel_score(Score score) {
  switch (score) {
    case Score::l2:
      return kernel::Score::distance;
    case Score::additive:
    case Score::concat:
      return kernel::Score::tanh;
    default:
      return kernel::Score::product;
  }
}

}  // namespace

template <class T>
KernelProblem<T>::KernelProblem(const Inputs& in) {
  problem.B = in.B, problem.H = in.H, problem.G = in.G;
  problem.L = in.rows.size(), problem.S = in.S;
  problem.score = kernel_score(in.options.score);
  problem.bf16_products = rounds_factors_to_bf16(in);
  problem.scale = static_cast<T>(in.scale.factor());
  problem.softcap = static_cast<T>(in.options.softcap);
  problem.softcap_last = in.options.softcap_order == SoftcapOrder::after_mask;
  problem.temperature = static_cast<T>(in.options.temperature);
  problem.normaliser = kernel_normaliser(in.options.normaliser);
  problem.top_k = static_cast<std::size_t>(in.options.top_k);
  problem.empty_weight = static_cast<T>(empty_weight(in.options.empty_rows, in.S));
  if (!in.key_ranges) {
    own_ranges = whole_ranges(in);
    add_mask(*this, visible_by_position(in), false);
  }
  problem.key_ranges_batch =
      in.token_positions.size() == 1 ? 0 : static_cast<std::int64_t>(problem.L);
  std::vector<Tensor> biases;
  if (in.bias_rule) biases.push_back(in.bias_rule->values_of_seen_keys(in));
  for (const std::optional<Tensor>* given :
       {&in[Input::bias], &in[Input::mask], &in[Input::key_mask]}) {
    if (!*given) continue;
    const Tensor fitted = fitted_mask(**given, in, in.options.mask_polarity);
    if (fitted.dtype() == DType::boolean)
      add_mask(*this, fitted, in.options.mask_polarity == MaskPolarity::ignore);
    else
      biases.push_back(fitted);
  }
  if (in[Input::key_indices]) biases.push_back(in.key_lists->log_counts(in));
  if (has_distance_bias(in))
    biases.push_back(distance_bias<T>(in));
  else if (in[Input::alibi_slopes] || in[Input::relative_bias])
    add_distances(*this, in);
  if (biases.size() > problem.biases.size()) biases = {sum_of_all<T>(biases)};
  for (const Tensor& bias : biases) add_mask(*this, bias, false);
  const bool has_own = !own_ranges.empty() || !in.key_ranges;
  problem.key_ranges = has_own ? own_ranges.data() : in.key_ranges->data();
  if (const std::optional<Tensor>& mask = in[Input::dropout_mask]) {
    masks.push_back(takes_rows(*mask, in) ? take_rows(*mask, in.rows) : *mask);
    problem.dropout = {reinterpret_cast<const std::uint8_t*>(masks.back().raw()),
                       strides_of(masks.back())};
    problem.dropout_factor = static_cast<T>(1 / (1 - *in.options.dropout_p));
  }
  if (in[Input::sinks]) {
    const Tensor numbers = cast(*in[Input::sinks], dtype_of<T>);
    sinks.assign(numbers.template data<T>().begin(), numbers.template data<T>().end());
    problem.sinks = sinks.data();
  }
  if (in[Input::head_scale]) {
    const Tensor numbers = cast(*in[Input::head_scale], dtype_of<T>);
    const auto scales = numbers.template data<T>();
    head_scales.assign(scales.begin(), scales.end());
    problem.head_scales = head_scales.data();
  }
}

const char* unrepresentable_option(const Inputs& in) {
  return in.compute == DType::f32 ? beyond<float>(in) : beyond<double>(in);
}

bool has_summed_biases(const Inputs& in) {
  const auto adds = [&](Input input) { return in[input] && is_added(input, *in[input]); };
  return (in.bias_rule != nullptr) + adds(Input::bias) + adds(Input::mask) + adds(Input::key_mask) +
             adds(Input::key_indices) + has_distance_bias(in) >
         2;
}

bool has_distance_bias(const Inputs& in) {
  const bool by_distance = in[Input::alibi_slopes] || in[Input::relative_bias];
  return by_distance && (in.E > 0 || !in.key_ranges.has_value());
}

const char* unbounded_distance_bias(const Inputs& in) {
  constexpr double kMost = 1e18;  // times a distance, far below the largest number
  if (!has_distance_bias(in)) return nullptr;
  for (const auto& [input, name] :
       {std::pair{Input::alibi_slopes, "alibi"}, {Input::relative_bias, "relative_bias"}}) {
    if (!in[input]) continue;
    const Tensor terms = cast(*in[input], DType::f64);
    for (const double term : terms.data<double>())
      if (!(std::fabs(term) <= kMost)) return name;
  }
  return nullptr;
}

namespace {

/// The shape of the sum of all biases.
Shape shape_of_all_biases(const Inputs& in) {
  Shape shape{1, 1, 1, in.S};
  const auto add = [&](const Shape& other) { shape = shape_of_sum(shape, other); };
  for (const Input input : {Input::bias, Input::mask, Input::key_mask})
    if (in[input] && is_added(input, *in[input])) add(in[input]->shape());
  if (in.bias_rule) add(in.bias_rule->shape_of_values(in));
  if (in[Input::key_indices]) add(in.key_lists->shape_of_log_counts(in));
  if (has_distance_bias(in)) add(shape_of_distance_bias(in));
  return shape;
}

/// The bytes of a row of the masks and biases by position that a KernelProblem makes.
double bytes_of_mask_row(const Inputs& in) {
  const auto bytes = [](Shape shape, std::size_t of_element) {
    shape[2] = 1;
    return static_cast<double>(element_count(shape)) * static_cast<double>(of_element);
  };
  double sum = in.key_ranges ? 0 : bytes(shape_of_visible_by_position(in), 1);
  if (in[Input::key_indices])
    sum += bytes(in.key_lists->shape_of_log_counts(in), size_of(in.compute));
  if (in.bias_rule) {
    const Shape shape = in.bias_rule->shape_of_values(in);
    if (shape[2] == in.rows.size()) sum += bytes(shape, size_of(in.compute));
    sum += bytes(shape_of_visible_keys(in), 2);  // if an operation has no result for some pairs
  }
  if (has_distance_bias(in)) sum += bytes(shape_of_distance_bias(in), size_of(in.compute));
  if (has_summed_biases(in))  // a sum of two, and the one that replaces it
    sum += bytes(shape_of_all_biases(in), 2 * size_of(in.compute));
  return sum;
}

}  // namespace

std::size_t rows_of_kernel_problem(const Inputs& in) {
  constexpr double kMostMaskBytes = 0x1p26;
  const double of_row = bytes_of_mask_row(in);
  if (of_row == 0 || in.key_part != nullptr) return in.rows.size();
  return static_cast<std::size_t>(std::max(1.0, kMostMaskBytes / of_row));
}

std::size_t bytes_of_kernel_problem(const Inputs& in, bool of_all_rows) {
  const auto real = [](std::size_t n) { return static_cast<double>(n); };
  const double rows = real(in.token_positions.size()) * real(in.rows.size());
  double bytes = rows * sizeof(kernel::KeyRange);
  if (in[Input::alibi_slopes] || in[Input::relative_bias])
    bytes += real(in.B) * real(in.H) * 2 * real(in.L + in.S) * sizeof(double);
  const std::size_t at_once = of_all_rows ? in.rows.size() : rows_of_kernel_problem(in);
  bytes += bytes_of_mask_row(in) * real(std::min(in.rows.size(), at_once));
  return static_cast<std::size_t>(std::min(bytes, 0x1p62));
}

template struct KernelProblem<float>;
template struct KernelProblem<double>;

}  // namespace attn
