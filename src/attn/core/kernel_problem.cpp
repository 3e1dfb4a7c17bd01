#include "attn/core/kernel_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "attn/core/mask.h"
#include "attn/core/relative_bias.h"

namespace attn {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

/// The keys [first, last) of each document, in which key j has the place j - first; nothing where
/// there is a document whose keys do not stand so.
std::optional<std::map<std::int64_t, Range>> ranges_of(const Places::Side& keys) {
  std::map<std::int64_t, Range> ranges;
  Range* latest = nullptr;
  for (std::size_t key = 0; key < keys.document.size(); ++key) {
    const std::int64_t document = keys.document[key];
    if (document == Places::kPadding) continue;
    const auto j = static_cast<std::int64_t>(key);
    if (latest == nullptr || keys.document[key - 1] != document)
      latest = &ranges.try_emplace(document, j, j).first->second;
    if (latest->second != j || keys.place[key] != j - latest->first) return std::nullopt;
    ++latest->second;
  }
  return ranges;
}

/// The range of keys around `center` that causality and the window leave of one.
kernel::KeyRange limited(Range range, std::int64_t center, const Options& options) {
  constexpr std::int64_t kFar = std::int64_t{1} << 48;  // no key is so far from any other
  auto [first, last] = range;
  if (options.causal) last = std::min(last, center + 1);
  if (options.window.right >= 0)
    last = std::min(last, center + std::min(options.window.right, kFar) + 1);
  if (options.window.left >= 0)
    first = std::max(first, center - std::min(options.window.left, kFar));
  first = std::min(first, range.second);
  return {.begin = first, .end = std::max(first, last), .center = center};
}

/// (batch rows or 1, rows), or nothing where a query's keys are no range.
std::optional<std::vector<kernel::KeyRange>> places_of(const Inputs& in, const Options& options) {
  std::vector<kernel::KeyRange> places;
  const auto keys = static_cast<std::int64_t>(in.P + in.N);
  for (const Places& each : in.places) {
    const auto ranges = ranges_of(each.keys);
    if (!ranges) return std::nullopt;
    for (const std::size_t i : in.rows) {
      const std::int64_t document = each.queries.document[i];
      const auto range = ranges->find(document);
      kernel::KeyRange place{.padding = document == Places::kPadding};
      if (range != ranges->end())
        place = limited(range->second, range->second.first + each.queries.place[i], options);
      if (in.E > 0 && !place.padding) {  // the keys behind all others are always seen
        if (place.begin > 0 || place.end < keys) return std::nullopt;
        place.end = static_cast<std::int64_t>(in.S);
      }
      places.push_back(place);
    }
  }
  return places;
}

/// Places that leave it to a mask what is seen.
std::vector<kernel::KeyRange> open_places(const Inputs& in) {
  std::vector<kernel::KeyRange> places;
  for (const Places& each : in.places)
    for (const std::size_t i : in.rows)
      places.push_back({.end = static_cast<std::int64_t>(in.S),
                        .padding = each.queries.document[i] == Places::kPadding});
  return places;
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

/// ALiBi and the relative bias as one table of all distances, (B or 1, H, distances).
template <class T>
void add_distances(KernelProblem<T>& to, const Inputs& in, const Options& options) {
  std::int64_t least = 0, most = 0;  // centers
  for (const kernel::KeyRange& place : to.places) {
    least = std::min(least, place.center);
    most = std::max(most, place.center);
  }
  const auto keys = static_cast<std::int64_t>(in.S);
  const auto width = static_cast<std::size_t>(keys - least + most);
  const std::size_t batches = in.slopes ? in.slopes->shape()[0] : 1;
  const Tensor slopes = in.slopes ? cast(*in.slopes, DType::f64) : Tensor();
  const Tensor bias = in.relative_bias ? cast(*in.relative_bias, DType::f64) : Tensor();
  to.distances.resize(batches * in.H * width);
  for (std::size_t d = 0; d < width; ++d) {
    const std::int64_t distance = static_cast<std::int64_t>(d) - most;
    const std::size_t bucket = in.relative_bias ? bucket_of(distance, bias.shape()[0], options) : 0;
    for (std::size_t bh = 0; bh < batches * in.H; ++bh) {
      double term = 0;
      if (in.slopes) term -= slopes.data<double>()[bh] * std::fabs(static_cast<double>(distance));
      if (in.relative_bias) term += bias.data<double>()[bucket * in.H + bh % in.H];
      to.distances[bh * width + d] = static_cast<T>(term);
    }
  }
  const auto stride = static_cast<std::int64_t>(width);
  to.problem.distances = {
      to.distances.data() + most,
      {batches == 1 ? 0 : stride * static_cast<std::int64_t>(in.H), stride, 0, 1}};
}

double factor_of(const Options& options, std::size_t D) {
  if (options.scale.kind == Scale::Kind::number) return options.scale.number;
  const bool divides = options.scale.kind == Scale::Kind::automatic && options.score == Score::dot;
  return divides ? 1 / std::sqrt(static_cast<double>(D)) : 1;
}

template <class T>
T empty_weight(const Inputs& in, const Options& options) {
  if (options.empty_rows == EmptyRows::nan) return std::numeric_limits<T>::quiet_NaN();
  if (options.empty_rows == EmptyRows::zero || in.S == 0) return 0;
  return static_cast<T>(1.0 / static_cast<double>(in.S));
}

/// beyond_kernels() where they compute in T.
template <class T>
const char* beyond(const Inputs& in, const Options& options) {
  const auto fits = [](double x) { return x == 0 || std::isnormal(static_cast<T>(x)); };
  const double log2e = 1 / std::log(2.0), unit = log2e / options.temperature;
  const double factor = in.D == 0 ? 1 : factor_of(options, in.D);
  if (!fits(options.temperature) || !fits(unit)) return "temperature";
  if (!fits(factor) || !fits(factor * unit)) return "scale";
  if (options.softcap > 0 && (!fits(options.softcap) || !fits(4 * log2e / options.softcap)))
    return "softcap";
  if (!in.sinks) return nullptr;
  const Tensor sinks = cast(*in.sinks, DType::f64);
  const auto numbers = sinks.data<double>();
  const auto taken = [&](double sink) { return sink <= std::numeric_limits<T>::max() / log2e; };
  return std::all_of(numbers.begin(), numbers.end(), taken) ? nullptr : "sinks";
}

}  // namespace

kernel::Strides strides_of(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  std::int64_t strides[4], step = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    strides[axis] = shape[axis] == 1 ? 0 : step;
    step *= static_cast<std::int64_t>(shape[axis]);
  }
  return {strides[0], strides[1], strides[2], strides[3]};
}

template <class T>
KernelProblem<T>::KernelProblem(const Inputs& in, const Options& options) {
  problem.B = in.B, problem.H = in.H, problem.G = in.G;
  problem.L = in.rows.size(), problem.S = in.S;
  problem.scale = static_cast<T>(factor_of(options, in.D));
  problem.softcap = static_cast<T>(options.softcap);
  problem.softcap_last = options.softcap_order == SoftcapOrder::after_mask;
  problem.temperature = static_cast<T>(options.temperature);
  problem.empty_weight = attn::empty_weight<T>(in, options);
  if (auto ranges = places_of(in, options)) {
    places = std::move(*ranges);
  } else {
    places = open_places(in);
    add_mask(*this, visible_by_places(in, options), false);
  }
  problem.key_ranges = places.data();
  problem.key_ranges_batch = in.places.size() == 1 ? 0 : static_cast<std::int64_t>(problem.L);
  for (const std::optional<Tensor>* given : {&in.mask, &in.key_mask})
    if (*given)
      add_mask(*this, fitted_mask(**given, in, options.mask_polarity),
               options.mask_polarity == MaskPolarity::ignore);
  if (in.slopes || in.relative_bias) add_distances(*this, in, options);
  if (in.sinks) {
    const Tensor numbers = cast(*in.sinks, dtype_of<T>);
    sinks.assign(numbers.template data<T>().begin(), numbers.template data<T>().end());
    problem.sinks = sinks.data();
  }
}

const char* beyond_kernels(const Inputs& in, const Options& options) {
  return in.compute == DType::f32 ? beyond<float>(in, options) : beyond<double>(in, options);
}

bool has_kernel_problem(const Inputs& in, const Options& options) {
  const bool by_distance = in.slopes || in.relative_bias;
  return !by_distance || (in.E == 0 && places_of(in, options).has_value());
}

std::size_t bytes_of_kernel_problem(const Inputs& in, const Options& options) {
  const auto real = [](std::size_t n) { return static_cast<double>(n); };
  const double rows = real(in.places.size()) * real(in.rows.size());
  double bytes = rows * sizeof(kernel::KeyRange);
  if (in.slopes || in.relative_bias)
    bytes += real(in.B) * real(in.H) * real(in.L + in.S) * sizeof(double);
  if (!places_of(in, options)) bytes += rows * real(in.S);
  return static_cast<std::size_t>(std::min(bytes, 0x1p62));
}

template struct KernelProblem<float>;
template struct KernelProblem<double>;

}  // namespace attn
