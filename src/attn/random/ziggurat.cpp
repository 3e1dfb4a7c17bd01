#include "attn/random/ziggurat.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace attn {
namespace {

constexpr std::size_t kLayers = 256;
constexpr double kTail = 3.6541528853610087963519472518;  ///< where the tail begins
constexpr double kInverseTail = 0.27366123732975827203338247596;
constexpr double kArea = 0.0049286732339746519;  ///< of each layer, and of the base with the tail

/// Layer i reaches to edge[i]; density[i] = exp(-edge[i]^2 / 2).
struct ZigguratLayers {
  std::array<double, kLayers> edge{}, density{};
};

/// A double that is rounded from a wider one: the tables do not depend on the library's last bits.
double rounded(long double value) { return static_cast<double>(value); }

ZigguratLayers compute_layers() {
  ZigguratLayers layers;
  layers.edge[kLayers - 1] = kTail;
  for (std::size_t i = kLayers - 1; i > 0; --i) {
    double& density = layers.density[i];
    density = rounded(std::exp(static_cast<long double>(-0.5 * layers.edge[i] * layers.edge[i])));
    // NumPy's tables were computed with a library whose exp() was off by one unit at this edge. The
    // layers below it follow from that.
    if (i == 38) density = std::nextafter(density, 1.0);
    if (i == 1) break;
    layers.edge[i - 1] = std::sqrt(
        -2 * rounded(std::log(static_cast<long double>(density + kArea / layers.edge[i]))));
  }
  layers.density[0] = 1;
  return layers;
}

/// For numbers with `kBits` random bits: a number below inside[i] is under the curve in layer i, in
/// units of width[i].
template <class T, class Word, int kBits>
struct Tables {
  std::array<Word, kLayers> inside{};
  std::array<T, kLayers> width{}, density{};

  Tables() {
    const ZigguratLayers layers = compute_layers();
    const double scale = std::ldexp(1.0, kBits), base = layers.density[kLayers - 1];
    inside[0] = static_cast<Word>(std::nearbyint(kTail * base / kArea * scale));
    width[0] = static_cast<T>(kArea / base / scale);
    for (std::size_t i = 1; i < kLayers; ++i) {
      inside[i] = static_cast<Word>(std::nearbyint(layers.edge[i - 1] / layers.edge[i] * scale));
      width[i] = static_cast<T>(layers.edge[i] / scale);
    }
    for (std::size_t i = 0; i < kLayers; ++i) density[i] = static_cast<T>(layers.density[i]);
  }
};

double uniform_of(Pcg64& bits, double) { return bits.next_double(); }
float uniform_of(Pcg64& bits, float) { return bits.next_float(); }

/// A number beyond kTail (Marsaglia 1964).
template <class T>
T tail(Pcg64& bits) {
  for (;;) {
    const T x = -static_cast<T>(kInverseTail) * std::log1p(-uniform_of(bits, T{}));
    const T y = -std::log1p(-uniform_of(bits, T{}));
    if (y + y > x * x) return static_cast<T>(kTail) + x;
  }
}

/// A word consists of an index (8 bits), a sign and `kBits` random bits, from the low end.
template <class T, class Word, int kBits, class Next>
T draw_normal(Pcg64& bits, const Tables<T, Word, kBits>& tables, const Next& next) {
  for (;;) {
    const Word word = next();
    const std::size_t layer = word & 0xFF;
    const bool negative = (word >> 8 & 1) != 0;
    const Word number = word >> 9 & ((Word{1} << kBits) - 1);
    const T x = static_cast<T>(number) * tables.width[layer];
    if (number < tables.inside[layer]) return negative ? -x : x;
    if (layer == 0) return (number >> 8 & 1) != 0 ? -tail<T>(bits) : tail<T>(bits);
    const T height = (tables.density[layer - 1] - tables.density[layer]) * uniform_of(bits, T{}) +
                     tables.density[layer];
    const double wide = static_cast<double>(x);
    if (static_cast<double>(height) < std::exp(-0.5 * wide * wide)) return negative ? -x : x;
  }
}

}  // namespace

double ziggurat_normal(Pcg64& bits) {
  static const Tables<double, std::uint64_t, 52> tables;
  return draw_normal(bits, tables, [&] { return bits.next64(); });
}

float ziggurat_normal_f32(Pcg64& bits) {
  static const Tables<float, std::uint32_t, 23> tables;
  return draw_normal(bits, tables, [&] { return bits.next32(); });
}

}  // namespace attn
