#include "workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace attn::bench {

std::string_view name_of(Extra extra) {
  constexpr std::array names = {"full", "causal", "window",  "lengths", "mask",
                                "bias", "alibi",  "softcap", "f16",     "weights"};
  return names[static_cast<std::size_t>(extra)];
}

std::string name_of(const Shape& s) {
  std::string name = s.f64 ? "f64" : "f32";
  name += " H" + std::to_string(s.H) + ":" + std::to_string(s.G) + " L" + std::to_string(s.L);
  name += " S" + std::to_string(s.S) + " D" + std::to_string(s.D) + " ";
  return name += name_of(s.extra);
}

std::vector<Shape> shapes(bool quick) {
  std::vector<Shape> all;
  for (std::size_t n : {128, 512, 2048, 8192})
    for (std::size_t d : {64, 128})
      for (Extra extra : {Extra::none, Extra::causal})
        if (!quick || n < 8192) all.push_back({"size", false, 8, 8, n, n, d, extra, n <= 2048});
  all.push_back({"grouped", false, 8, 2, 2048, 2048, 64});
  for (std::size_t groups : {8, 2})
    for (std::size_t d : {64, 128}) all.push_back({"decode", false, 8, groups, 1, 8192, d});
  all.push_back({"decode", true, 8, 8, 1, 8192, 64});
  for (std::size_t d : {64, 128})
    for (Extra extra : {Extra::none, Extra::causal})
      all.push_back({"double", true, 8, 8, 2048, 2048, d, extra, true});
  for (int extra = 0; extra <= static_cast<int>(Extra::weights); ++extra)
    all.push_back({"options", false, 8, 8, 2048, 2048, 64, static_cast<Extra>(extra)});
  return all;
}

namespace {

template <class T>
std::vector<T> normal(std::size_t count, std::mt19937& random) {
  std::normal_distribution<T> distribution;
  std::vector<T> values(count);
  for (T& value : values) value = distribution(random);
  return values;
}

kernel::Strides strides(std::size_t heads, std::size_t rows, std::size_t columns) {
  return {static_cast<std::int64_t>(heads * rows * columns),
          static_cast<std::int64_t>(rows * columns), static_cast<std::int64_t>(columns), 1};
}

}  // namespace

template <class T>
Workload<T>::Workload(const Shape& s) {
  std::mt19937 random(1);
  auto& p = problem_;
  p.H = s.H;
  p.G = s.G;
  p.L = s.L;
  p.S = s.S;
  p.D = p.Dv = s.D;
  p.scale = T(1) / std::sqrt(static_cast<T>(s.D));
  q_ = normal<T>(s.H * s.L * s.D, random);
  k_ = normal<T>(s.G * s.S * s.D, random);
  v_ = normal<T>(s.G * s.S * s.D, random);
  p.q = {q_.data(), dtype_of<T>, strides(s.H, s.L, s.D)};
  p.k = {k_.data(), dtype_of<T>, strides(s.G, s.S, s.D)};
  p.v = {v_.data(), dtype_of<T>, strides(s.G, s.S, s.D)};
  context_.resize(q_.size());
  results_.context = context_.data();
  results_.context_strides = p.q.strides;
  add(s.extra);
}

template <class T>
void Workload<T>::add(Extra extra) {
  auto& p = problem_;
  std::mt19937 random(2);
  const auto keys = static_cast<std::int64_t>(p.S);
  p.causal = extra == Extra::causal;
  if (extra == Extra::window) p.left = p.right = keys / 16;
  if (extra == Extra::lengths) {
    lengths_ = {keys - keys / 4};
    p.lengths = lengths_.data();
  }
  if (extra == Extra::softcap) p.softcap = 30;
  if (extra == Extra::alibi) {
    for (std::size_t h = 1; h <= p.H; ++h) alibi_.push_back(std::ldexp(T(1), -static_cast<int>(h)));
    p.alibi = alibi_.data();
  }
  if (extra == Extra::mask) {
    for (std::size_t i = 0; i < p.L * p.S; ++i) mask_.push_back(random() % 10 != 0);
    p.mask = mask_.data();
    p.mask_strides = {0, 0, keys, 1};
  }
  if (extra == Extra::bias) {
    bias_ = normal<T>(p.L * p.S, random);
    p.bias = bias_.data();
    p.bias_strides = {0, 0, keys, 1};
  }
  if (extra == Extra::half) {
    for (const auto* values : {&q_, &k_, &v_})
      for (T x : *values) half_.push_back(Half(x).bits);
    p.q.data = half_.data();
    p.k.data = half_.data() + q_.size();
    p.v.data = half_.data() + q_.size() + k_.size();
    p.q.dtype = p.k.dtype = p.v.dtype = DType::f16;
  }
  if (extra == Extra::weights) {  // made, and left where they are made
    results_.weights = true;
    results_.sink = [](const kernel::FinishedRows<T>&) {};
  }
}

template <class T>
double Workload<T>::flops() const {
  const auto& p = problem_;
  double visible = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(p.L); ++i) {
    std::int64_t first = 0, last = static_cast<std::int64_t>(p.S);
    if (p.lengths) last = p.lengths[0];
    if (p.causal) last = std::min(last, i + 1);
    if (p.right >= 0) last = std::min(last, i + p.right + 1);
    if (p.left >= 0) first = std::max(first, i - p.left);
    visible += static_cast<double>(last - first);
  }
  return 4.0 * visible * static_cast<double>(p.B * p.H * p.D);
}

template <class T>
double Workload<T>::bytes_read() const {
  const auto& p = problem_;
  return 2.0 * static_cast<double>(p.B * p.G * p.S * p.D * size_of(p.k.dtype));
}

template class Workload<float>;
template class Workload<double>;

}  // namespace attn::bench
