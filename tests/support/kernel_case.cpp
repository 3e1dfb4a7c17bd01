#include "support/kernel_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>

namespace attn::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t index(const kernel::Strides& s, std::size_t b, std::size_t h, std::size_t i,
                  std::size_t j) {
  return b * s.batch + h * s.head + i * s.row + j * s.column;
}

std::size_t pick(std::mt19937_64& random, std::initializer_list<std::size_t> choices) {
  return choices.begin()[random() % choices.size()];
}

bool chance(std::mt19937_64& random, double probability) {
  return std::uniform_real_distribution<>()(random) < probability;
}

}  // namespace

bool is_limited() { return std::getenv("ATTN_TEST_PROBLEMS") != nullptr; }

int at_most(int problems) {
  return is_limited() ? std::min(problems, std::atoi(std::getenv("ATTN_TEST_PROBLEMS"))) : problems;
}

double CaseTensor::at(std::size_t b, std::size_t h, std::size_t i, std::size_t j) const {
  return values[index(strides, b, h, i, j)];
}

void CaseTensor::set(std::size_t b, std::size_t h, std::size_t i, std::size_t j, double value) {
  const std::size_t at = index(strides, b, h, i, j);
  visit(dtype, [&](auto type) {
    using X = typename decltype(type)::type;
    const X stored(static_cast<X>(value));
    std::memcpy(bytes.data() + at * sizeof(X), &stored, sizeof(X));
    if constexpr (std::is_same_v<X, Half> || std::is_same_v<X, BFloat16>)
      values[at] = double(float(stored));
    else
      values[at] = static_cast<double>(stored);
  });
}

CaseTensor make_elements(DType dtype, std::array<std::size_t, 4> shape, Order order) {
  const auto [b, h, l, d] = shape;
  const auto s = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  CaseTensor e;
  e.dtype = dtype;
  e.holds_bf16 = dtype == DType::bf16;
  if (order == Order::bhld) e.strides = {s(h * l * d), s(l * d), s(d), 1};
  if (order == Order::blhd) e.strides = {s(l * h * d), s(d), s(h * d), 1};
  if (order == Order::transposed) e.strides = {s(h * l * d), s(l * d), 1, s(l)};
  e.values.resize(b * h * l * d + 1);
  e.bytes.resize(e.values.size() * size_of(dtype));
  return e;
}

template <class T>
void Case<T>::point() {
  problem.q = q.operand();
  problem.k = k.operand();
  problem.v = v.operand();
  const auto data = [](const auto& of) { return of.empty() ? nullptr : of.data(); };
  problem.key_ranges = data(key_ranges);
  problem.key_ranges_batch =
      key_ranges.size() > problem.L ? static_cast<std::int64_t>(problem.L) : 0;
  for (std::size_t m = 0; m < masks.size(); ++m) problem.masks[m].data = data(masks[m]);
  for (std::size_t m = 0; m < biases.size(); ++m) problem.biases[m].data = data(biases[m]);
  problem.distances.data = distances.empty() ? nullptr : distances.data() + zero;
  problem.sinks = data(sinks);
  problem.head_scales = data(head_scales);
  problem.score_weights = data(score_weights);
  problem.dropout.data = data(dropout);
}

template <class T>
std::string Case<T>::text() const {
  const auto& p = problem;
  std::ostringstream out;
  out << (sizeof(T) == 4 ? "f32" : "f64") << " of " << name_of(q.dtype) << " B" << p.B << " H"
      << p.H << " G" << p.G << " L" << p.L << " S" << p.S << " D" << p.D << " Dv" << p.Dv
      << " scale " << p.scale << " softcap " << p.softcap << (p.softcap_last ? " last" : "")
      << " score " << static_cast<int>(p.score) << " normaliser " << static_cast<int>(p.normaliser)
      << " top_k " << p.top_k << " temperature " << p.temperature << " empty " << p.empty_weight;
  const auto strides = [&](const char* name, const kernel::Strides& by) {
    out << name << by.batch << "," << by.head << "," << by.row << "," << by.column;
  };
  for (const kernel::Mask& mask : p.masks)
    if (mask.data) strides(mask.hides ? " hide " : " mask ", mask.strides);
  for (const kernel::Bias<T>& bias : p.biases)
    if (bias.data) strides(" bias ", bias.strides);
  if (p.distances.data) out << " distances";
  if (p.sinks) out << " sinks";
  if (p.head_scales) out << " head scales";
  if (p.dropout.data) strides(p.dropout.hides ? " drop " : " keep ", p.dropout.strides);
  if (p.key_ranges) out << " key_ranges" << p.key_ranges_batch;
  return out.str();
}

template <class T>
void set_key_ranges(Case<T>& c, const Limits& limits) {
  const auto& p = c.problem;
  const auto keys = static_cast<std::int64_t>(p.S);
  c.key_ranges.clear();
  for (std::size_t b = 0; b < p.B; ++b)
    for (std::size_t l = 0; l < p.L; ++l) {
      kernel::KeyRange range{.begin = 0, .end = keys};
      range.center = static_cast<std::int64_t>(l) + limits.offset;
      if (!limits.lengths.empty()) range.end = std::min(range.end, limits.lengths[b]);
      if (limits.causal) range.end = std::min(range.end, range.center + 1);
      if (limits.right >= 0) range.end = std::min(range.end, range.center + limits.right + 1);
      if (limits.left >= 0) range.begin = std::max(range.begin, range.center - limits.left);
      range.begin = std::min(range.begin, keys);
      range.end = std::max(range.end, range.begin);
      c.key_ranges.push_back(range);
    }
  c.point();
}

namespace {

void fill_normal(CaseTensor& e, std::array<std::size_t, 4> shape, std::mt19937_64& random,
                 double spread) {
  std::normal_distribution<> normal(0, spread);
  for (std::size_t b = 0; b < shape[0]; ++b)
    for (std::size_t h = 0; h < shape[1]; ++h)
      for (std::size_t i = 0; i < shape[2]; ++i)
        for (std::size_t j = 0; j < shape[3]; ++j) e.set(b, h, i, j, normal(random));
}

/// Strides of a (B, H, L, S) array in which some axes are broadcast; returns its size.
std::size_t random_strides(kernel::Strides& strides, std::array<std::size_t, 4> shape,
                           std::mt19937_64& random) {
  std::size_t size = 1;
  std::int64_t* const all[] = {&strides.batch, &strides.head, &strides.row, &strides.column};
  for (std::size_t axis = 4; axis-- > 0;) {
    const bool broadcast = chance(random, axis == 3 ? 0.1 : 0.4);
    *all[axis] = broadcast ? 0 : static_cast<std::int64_t>(size);
    if (!broadcast) size *= shape[axis];
  }
  return size;
}

template <class T>
void add_mask(Case<T>& c, std::size_t which, std::mt19937_64& random) {
  auto& p = c.problem;
  auto& [data, strides, hides] = p.masks[which];
  const std::size_t size =
      std::max<std::size_t>(1, random_strides(strides, {p.B, p.H, p.L, p.S}, random));
  const double marked = std::array{0.0, 0.05, 0.6, 0.98, 1.0}[random() % 5];
  const std::size_t run = pick(random, {1, 1, 70, 600});  // long runs hide whole panels and blocks
  hides = chance(random, 0.3);
  auto& mask = c.masks[which];
  for (std::size_t i = 0; i < size; ++i)
    mask.push_back(i % run != 0             ? mask.back()
                   : chance(random, marked) ? static_cast<std::uint8_t>(1 + random() % 255)
                                            : 0);
}

template <class T>
void add_dropout(Case<T>& c, std::mt19937_64& random) {
  auto& p = c.problem;
  auto& [data, strides, hides] = p.dropout;
  c.dropout.resize(std::max<std::size_t>(1, random_strides(strides, {p.B, p.H, p.L, p.S}, random)));
  hides = chance(random, 0.5);
  const double dropped = std::array{0.0, 0.1, 0.5, 0.9, 1.0}[random() % 5];
  for (std::uint8_t& mark : c.dropout)
    mark = chance(random, dropped) == hides ? static_cast<std::uint8_t>(1 + random() % 255) : 0;
  p.dropout_factor = static_cast<T>(std::array{1 / 0.9, 2.0, 10.0}[random() % 3]);
}

template <class T>
void add_bias(Case<T>& c, std::size_t which, std::mt19937_64& random) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  auto& p = c.problem;
  const std::size_t size = std::max<std::size_t>(
      1, random_strides(p.biases[which].strides, {p.B, p.H, p.L, p.S}, random));
  const bool hides = chance(random, 0.5);
  const std::size_t run = pick(random, {1, 70, 600});
  std::normal_distribution<> normal;
  auto& bias = c.biases[which];
  for (std::size_t i = 0; i < size; ++i) {
    const bool hidden = i % run == 0 ? hides && chance(random, 0.4) : bias.back() == kHidden;
    bias.push_back(hidden ? kHidden : static_cast<T>(normal(random)));
  }
}

/// Random key ranges and centers for each query, or those of causality, windows and lengths.
template <class T>
void add_key_ranges(Case<T>& c, std::mt19937_64& random) {
  auto& p = c.problem;
  const auto keys = static_cast<std::int64_t>(p.S);
  const auto near = [&](std::size_t n) {
    return static_cast<std::int64_t>(random() % (n + 4)) - 2;
  };
  if (chance(random, 0.2)) return;
  if (chance(random, 0.25)) {
    c.key_ranges.resize(chance(random, 0.5) ? p.L : p.B * p.L);
    for (kernel::KeyRange& range : c.key_ranges) {
      range.center = near(p.S);
      range.padding = chance(random, 0.05);
      if (range.padding) continue;
      range.begin = std::clamp<std::int64_t>(near(p.S), 0, keys);
      range.end = std::clamp<std::int64_t>(near(p.S), range.begin, keys);
    }
    return;
  }
  Limits limits;
  limits.causal = chance(random, 0.4);
  if (chance(random, 0.3)) limits.left = std::max<std::int64_t>(-1, near(p.S));
  if (chance(random, 0.3)) limits.right = std::max<std::int64_t>(-1, near(p.S));
  if (chance(random, 0.4)) limits.offset = keys - static_cast<std::int64_t>(p.L);
  if (chance(random, 0.1)) limits.offset = near(p.S);
  if (chance(random, 0.25))
    for (std::size_t b = 0; b < p.B; ++b) limits.lengths.push_back(near(p.S));
  set_key_ranges(c, limits);
}

/// Biases for all distances, or slopes, which lower masked scores a lot.
template <class T>
void add_distances(Case<T>& c, std::mt19937_64& random) {
  auto& p = c.problem;
  std::int64_t least = 0, most = 0;
  for (const kernel::KeyRange& range : c.key_ranges) {
    least = std::min(least, range.center);
    most = std::max(most, range.center);
  }
  c.zero = static_cast<std::size_t>(most);
  const std::size_t width = p.S + static_cast<std::size_t>(most - least) + 1;
  const bool batches = chance(random, 0.3), heads = chance(random, 0.8);
  const bool slopes = chance(random, 0.5);
  const auto stride = [](bool varies, std::size_t by) {
    return varies ? static_cast<std::int64_t>(by) : 0;
  };
  p.distances.strides = {stride(batches, (heads ? p.H : 1) * width), stride(heads, width), 0, 1};
  std::normal_distribution<> normal;
  for (std::size_t table = 0; table < (batches ? p.B : 1) * (heads ? p.H : 1); ++table)
    for (std::size_t i = 0; i < width; ++i)
      c.distances.push_back(
          static_cast<T>(slopes ? -std::ldexp(1, -int(table % 8) - 1) *
                                      std::abs(static_cast<double>(i) - static_cast<double>(c.zero))
                                : normal(random)));
}

template <class T>
void choose_sizes(kernel::AttentionProblem<T>& p, std::mt19937_64& random) {
  do {
    p.B = pick(random, {1, 1, 2, 3});
    p.G = pick(random, {1, 1, 2, 3});
    p.H = p.G * pick(random, {1, 1, 2, 4});
    p.L = pick(random, {0, 1, 1, 1, 2, 3, 5, 6, 7, 12, 13, 31, 48, 61, 97, 130, 200});
    p.S = pick(random, {0,  1,  1,   2,   3,   8,   15,  16,  17,   31,  63,
                        64, 65, 100, 129, 511, 512, 513, 700, 1025, 1600});
    p.D = pick(random, {0, 1, 2, 3, 4, 7, 8, 16, 17, 32, 64, 80});
    p.Dv = pick(random, {0, 1, 3, 5, 8, 16, 33, 64, 65, 80, 130});
  } while (p.B * p.H * p.L * p.S * (p.D + p.Dv + 1) > 1500000);
}

/// Random queries, keys and values of any dtype and layout; returns the spread of the first two.
template <class T>
double fill_operands(Case<T>& c, std::mt19937_64& random) {
  const auto& p = c.problem;
  const DType narrow[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  const auto dtype = [&] { return chance(random, 0.7) ? dtype_of<T> : narrow[random() % 4]; };
  const auto order = [&] { return static_cast<Order>(random() % 8 < 5 ? 0 : random() % 3); };
  c.q = make_elements(dtype(), {p.B, p.H, p.L, p.D}, order());
  c.k = make_elements(dtype(), {p.B, p.G, p.S, p.D}, order());
  c.v = make_elements(dtype(), {p.B, p.G, p.S, p.Dv}, order());
  if (chance(random, 0.3)) c.q.holds_bf16 = false;  // as with `compute: f32`
  if (chance(random, 0.2)) c.v.holds_bf16 = false;
  const double spread = std::array{0.1, 1.0, 1.0, 3.0}[random() % 4];
  fill_normal(c.q, {p.B, p.H, p.L, p.D}, random, spread);
  fill_normal(c.k, {p.B, p.G, p.S, p.D}, random, spread);
  fill_normal(c.v, {p.B, p.G, p.S, p.Dv}, random, 1);
  return spread;
}

}  // namespace

template <class T>
void add_options(Case<T>& c, std::mt19937_64& random) {
  auto& p = c.problem;
  if (chance(random, 0.2)) p.softcap = static_cast<T>(std::array{0.5, 5.0, 30.0}[random() % 3]);
  p.softcap_last = p.softcap > 0 && chance(random, 0.3);
  if (chance(random, 0.15)) p.temperature = static_cast<T>(std::array{0.5, 2.0, 0.3}[random() % 3]);
  if (chance(random, 0.3))
    p.empty_weight = chance(random, 0.5) ? static_cast<T>(1 / std::max(1.0, double(p.S)))
                                         : std::numeric_limits<T>::quiet_NaN();
  if (chance(random, 0.25)) p.normaliser = static_cast<kernel::Normaliser>(1 + random() % 5);
  p.top_k = 1 + random() % (p.S + 2);
  add_key_ranges(c, random);
  if (chance(random, 0.2)) add_distances(c, random);
  for (std::size_t which = 0; which < p.masks.size(); ++which)
    if (chance(random, which == 0 ? 0.3 : 0.1)) add_mask(c, which, random);
  for (std::size_t which = 0; which < p.biases.size(); ++which)
    if (chance(random, which == 0 ? 0.3 : 0.1)) add_bias(c, which, random);
  if (chance(random, 0.2))
    for (std::size_t h = 0; h < p.H; ++h)
      c.sinks.push_back(chance(random, 0.1)
                            ? -std::numeric_limits<T>::infinity()
                            : static_cast<T>(std::normal_distribution<>(0, 4)(random)));
  if (chance(random, 0.2))
    for (std::size_t h = 0; h < p.H; ++h)
      c.head_scales.push_back(static_cast<T>(std::array{-1.5, 0.0, 0.3, 1.0, 2.5}[random() % 5]));
  if (chance(random, 0.25)) add_dropout(c, random);
  c.point();
}

template <class T>
void fill_random(Case<T>& c, std::mt19937_64& random) {
  auto& p = c.problem;
  choose_sizes(p, random);
  const double spread = fill_operands(c, random);
  p.scale = static_cast<T>(chance(random, 0.2) ? -0.3 : 1 / std::sqrt(double(p.D) + 1e-9));
  if (p.D == 0) p.scale = 1;
  add_options(c, random);
  if (chance(random, 0.25) && p.S > 0)  // NaN and infinity, hidden and not
    for (int n = 0; n < 3; ++n) {
      // Infinity times a weight that underflows in T, but not in the oracle, would be NaN.
      const bool spiky = spread > 2 || p.scale < 0 || !c.distances.empty() || p.temperature < 1;
      const double bad = std::array{std::nan(""), kInfinity, -kInfinity}[spiky ? 0 : random() % 3];
      if (p.Dv > 0) c.v.set(random() % p.B, random() % p.G, random() % p.S, random() % p.Dv, bad);
      if (p.D > 0 && n == 0)
        c.k.set(random() % p.B, random() % p.G, random() % p.S, random() % p.D, std::nan(""));
    }
  c.point();
}

template <class T>
void fill_plain(Case<T>& c, std::mt19937_64& random, std::array<std::size_t, 7> bhglsdv,
                DType dtype, double spread) {
  auto& p = c.problem;
  std::tie(p.B, p.H, p.G, p.L, p.S, p.D, p.Dv) = std::tuple_cat(bhglsdv);
  c.q = make_elements(dtype, {p.B, p.H, p.L, p.D}, Order::bhld);
  c.k = make_elements(dtype, {p.B, p.G, p.S, p.D}, Order::bhld);
  c.v = make_elements(dtype, {p.B, p.G, p.S, p.Dv}, Order::bhld);
  fill_normal(c.q, {p.B, p.H, p.L, p.D}, random, spread);
  fill_normal(c.k, {p.B, p.G, p.S, p.D}, random, spread);
  fill_normal(c.v, {p.B, p.G, p.S, p.Dv}, random, 1);
  p.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(p.D)));
  c.point();
}

template <class T>
Answer<T> compute(const kernel::AttentionProblem<T>& p, Ask ask, kernel::ThreadPool& pool,
                  kernel::Isa isa) {
  const T unset = T(-12345);
  const std::size_t count = p.B * p.H * p.L;
  Answer<T> answer;
  answer.context.assign(count * p.Dv, unset);
  answer.logsumexp.assign(count, unset);
  kernel::Results<T> results;
  results.context = answer.context.data();
  results.context_strides = {static_cast<std::int64_t>(p.H * p.L * p.Dv),
                             static_cast<std::int64_t>(p.L * p.Dv), static_cast<std::int64_t>(p.Dv),
                             1};
  results.logsumexp = answer.logsumexp.data();
  if (ask != Ask::sums) {
    for (auto* matrix : {&answer.scores, &answer.weights}) matrix->assign(count * p.S, unset);
    results.scores = results.weights = true;
  }
  if (ask == Ask::stages) {
    for (auto* matrix : {&answer.scaled, &answer.masked}) matrix->assign(count * p.S, unset);
    results.scaled = results.masked = true;
    results.dropped = p.dropout.data != nullptr;
    if (results.dropped) answer.dropped.assign(count * p.S, unset);
  }
  if (ask != Ask::sums)
    results.on_rows = [&](const kernel::FinishedRows<T>& rows) {
      const auto store = [&](const T* from, std::vector<T>& to) {
        for (std::size_t i = 0; from && i < rows.count; ++i)
          std::copy_n(from + i * rows.stride, p.S, to.begin() + (rows.first + i) * p.S);
      };
      store(rows.scores, answer.scores);
      store(rows.weights, answer.weights);
      store(rows.scaled, answer.scaled);
      store(rows.masked, answer.masked);
      store(rows.dropped, answer.dropped);
    };
  kernel::attend(p, results, pool, isa);
  return answer;
}

template void set_key_ranges(Case<float>&, const Limits&);
template void set_key_ranges(Case<double>&, const Limits&);
template struct Case<float>;
template struct Case<double>;
template void add_options(Case<float>&, std::mt19937_64&);
template void add_options(Case<double>&, std::mt19937_64&);
template void fill_random(Case<float>&, std::mt19937_64&);
template void fill_random(Case<double>&, std::mt19937_64&);
template void fill_plain(Case<float>&, std::mt19937_64&, std::array<std::size_t, 7>, DType, double);
template void fill_plain(Case<double>&, std::mt19937_64&, std::array<std::size_t, 7>, DType,
                         double);
template Answer<float> compute(const kernel::AttentionProblem<float>&, Ask, kernel::ThreadPool&,
                               kernel::Isa);
template Answer<double> compute(const kernel::AttentionProblem<double>&, Ask, kernel::ThreadPool&,
                                kernel::Isa);

}  // namespace attn::test
