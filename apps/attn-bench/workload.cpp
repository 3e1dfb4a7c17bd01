#include "workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace attn::bench {

std::string_view name_of(Extra extra) {
  constexpr std::array names = {"full",      "causal",  "window",       "lengths",     "documents",
                                "key-mask",  "mask",    "head-mask",    "bias",        "head-bias",
                                "distances", "softcap", "softcap-last", "temperature", "sinks",
                                "f16",       "bf16",    "weights",      "stages",      "e4m3",
                                "int8",      "dropout"};
  return names[static_cast<std::size_t>(extra)];
}

std::string name_of(const Shape& s) {
  std::string name = s.f64 ? "f64" : "f32";
  name += " H" + std::to_string(s.H) + ":" + std::to_string(s.G) + " L" + std::to_string(s.L);
  name += " S" + std::to_string(s.S) + " D" + std::to_string(s.D) + " ";
  name += name_of(s.extra);
  if (s.bf16_products) name += " bf16-products";
  return s.backward ? name + " backward" : name;
}

std::vector<Shape> shapes(bool quick) {
  std::vector<Shape> all;
  const auto sizes = [&](const char* group, bool f64, std::size_t groups, bool beside_blas) {
    for (std::size_t n : {128, 512, 2048, 8192})
      for (std::size_t d : {64, 128})
        for (Extra extra : {Extra::none, Extra::causal})
          if (!quick || n < 8192)
            all.push_back({group, f64, 8, groups, n, n, d, extra, beside_blas && n <= 2048});
  };
  sizes("size", false, 8, true);
  sizes("grouped", false, 2, false);
  for (std::size_t groups : {8, 2})
    for (std::size_t d : {64, 128}) all.push_back({"decode", false, 8, groups, 1, 8192, d});
  all.push_back({"decode", true, 8, 8, 1, 8192, 64});
  for (Extra extra : {Extra::none, Extra::half, Extra::bfloat, Extra::e4m3, Extra::int8})
    for (std::size_t groups : {8, 2})
      all.push_back({"cache", false, 8, groups, 1, 32768, 128, extra});
  sizes("double", true, 8, true);
  for (std::size_t n : {512, 2048})
    for (std::size_t d : {64, 128})
      for (Extra extra : {Extra::none, Extra::causal})
        all.push_back({"backward", false, 8, 8, n, n, d, extra, false, true});
  for (std::size_t n : {512, 2048})
    for (std::size_t d : {64, 128})
      for (Extra extra : {Extra::none, Extra::causal, Extra::bfloat})
        all.push_back({"bf16", false, 8, 8, n, n, d, extra, false, false, true});
  for (std::size_t d : {64, 128})
    for (Extra extra : {Extra::none, Extra::bfloat})
      for (bool bf16_products : {false, true})
        all.push_back({"bf16", false, 8, 8, 1, 8192, d, extra, false, false, bf16_products});
  for (int extra = 0; extra <= static_cast<int>(Extra::dropout); ++extra)
    all.push_back({"options", false, 8, 8, 2048, 2048, 64, static_cast<Extra>(extra)});
  return all;
}

namespace {

template <class T>
Array<T> normal(std::size_t count, std::mt19937& random) {
  std::normal_distribution<T> distribution;
  Array<T> values(count);
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
  p.bf16_products = s.bf16_products;
  add(s.extra);
}

template <class T>
void Workload<T>::add(Extra extra) {
  add_key_ranges(extra);
  add_masks(extra);
  add_terms(extra);
  store_in(extra);
  store_as_bytes(extra);
  if (extra == Extra::temperature) problem_.temperature = 2;
  if (extra == Extra::softcap || extra == Extra::softcap_last) problem_.softcap = 30;
  problem_.softcap_last = extra == Extra::softcap_last;
  if (extra == Extra::weights || extra == Extra::stages) {  // computed, then discarded
    results_.weights = true;
    results_.scores = results_.scaled = results_.masked = extra == Extra::stages;
    results_.on_rows = [](const kernel::FinishedRows<T>&) {};
  }
}

template <class T>
void Workload<T>::add_key_ranges(Extra extra) {
  auto& p = problem_;
  const auto keys = static_cast<std::int64_t>(p.S), eighth = keys / 8;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(p.L); ++i) {
    kernel::KeyRange range{.begin = 0, .end = keys, .center = i};
    if (extra == Extra::causal) range.end = i + 1;
    if (extra == Extra::lengths) range.end = keys - keys / 4;
    if (extra == Extra::window) {
      range.begin = std::max<std::int64_t>(0, i - keys / 16);
      range.end = std::min(keys, i + keys / 16 + 1);
    }
    if (extra == Extra::documents) {
      range.begin = i / eighth * eighth;
      range.end = std::min(keys, range.begin + eighth);
    }
    key_ranges_.push_back(range);
  }
  p.key_ranges = key_ranges_.data();
}

template <class T>
void Workload<T>::add_masks(Extra extra) {
  auto& p = problem_;
  std::mt19937 random(2);
  const auto keys = static_cast<std::int64_t>(p.S), matrix = static_cast<std::int64_t>(p.L * p.S);
  const auto fill = [&](std::size_t count, kernel::Strides strides) {
    for (std::size_t i = 0; i < count; ++i) mask_.push_back(random() % 10 != 0);
    p.masks[0] = {mask_.data(), strides};
  };
  if (extra == Extra::key_mask) fill(p.S, {0, 0, 0, 1});
  if (extra == Extra::mask) fill(p.L * p.S, {0, 0, keys, 1});
  if (extra == Extra::head_mask) fill(p.H * p.L * p.S, {0, matrix, keys, 1});
  if (extra == Extra::dropout) {
    fill(p.H * p.L * p.S, {0, matrix, keys, 1});
    std::swap(p.masks[0], p.dropout);
    p.dropout_factor = static_cast<T>(1 / 0.9);
  }
}

template <class T>
void Workload<T>::add_terms(Extra extra) {
  auto& p = problem_;
  std::mt19937 random(3);
  const auto keys = static_cast<std::int64_t>(p.S), matrix = static_cast<std::int64_t>(p.L * p.S);
  const auto fill = [&](std::size_t count) { return (terms_ = normal<T>(count, random)).data(); };
  if (extra == Extra::bias) p.biases[0] = {fill(p.L * p.S), {0, 0, keys, 1}};
  if (extra == Extra::head_bias) p.biases[0] = {fill(p.H * p.L * p.S), {0, matrix, keys, 1}};
  if (extra == Extra::sinks) p.sinks = fill(p.H);
  if (extra == Extra::distances) {
    const std::size_t width = p.L + p.S;
    p.distances = {fill(p.H * width) + p.L, {0, static_cast<std::int64_t>(width), 0, 1}};
  }
}

/// Converts queries, keys and values to a 16-bit type.
template <class T>
void Workload<T>::store_in(Extra extra) {
  auto& p = problem_;
  if (extra != Extra::half && extra != Extra::bfloat) return;
  for (const auto* values : {&q_, &k_, &v_})
    for (T x : *values)
      half_.push_back(extra == Extra::half ? Half(x).bits : BFloat16(static_cast<float>(x)).bits);
  p.q.data = half_.data();
  p.k.data = half_.data() + q_.size();
  p.v.data = half_.data() + q_.size() + k_.size();
  p.q.dtype = p.k.dtype = p.v.dtype = extra == Extra::half ? DType::f16 : DType::bf16;
  p.q.holds_bf16 = p.k.holds_bf16 = p.v.holds_bf16 = extra == Extra::bfloat;
}

/// Replaces keys and values by random codes of numbers below 2.
template <class T>
void Workload<T>::store_as_bytes(Extra extra) {
  auto& p = problem_;
  if (extra != Extra::e4m3 && extra != Extra::int8) return;
  std::mt19937 random(4);
  const std::size_t keys = p.G * p.S * p.D;
  for (std::size_t i = 0; i < 2 * keys; ++i)
    bytes_.push_back(static_cast<std::uint8_t>(random() & (extra == Extra::e4m3 ? 0xbf : 0xff)));
  for (std::size_t i = 0; i < p.S; ++i) rows_.push_back(static_cast<std::int64_t>(i * p.D));
  for (kernel::Operand* operand : {&p.k, &p.v}) {
    operand->data = bytes_.data() + (operand == &p.k ? 0 : keys);
    operand->dtype = extra == Extra::e4m3 ? DType::u8 : DType::i8;
    operand->rows = rows_.data();
    operand->decoding.is_used = true;
    operand->decoding.code = extra == Extra::e4m3 ? Code::e4m3 : Code::none;
    operand->decoding.factors = &factor_;
    operand->decoding.columns = p.D;
  }
}

template <class T>
double Workload<T>::flops() const {
  const auto& p = problem_;
  double visible = 0;
  for (const kernel::KeyRange& range : key_ranges_)
    visible += static_cast<double>(range.end - range.begin);
  return 4.0 * visible * static_cast<double>(p.B * p.H * p.D);
}

template <class T>
std::array<std::span<const std::byte>, 2> Workload<T>::keys_and_values() const {
  const auto& p = problem_;
  const auto all = [&](const kernel::Operand& of, std::size_t width) {
    return std::span(static_cast<const std::byte*>(of.data),
                     p.B * p.G * p.S * width * size_of(of.dtype));
  };
  return {all(p.k, p.D), all(p.v, p.Dv)};
}

template class Workload<float>;
template class Workload<double>;

}  // namespace attn::bench
