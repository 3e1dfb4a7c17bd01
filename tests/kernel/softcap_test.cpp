// cap * tanh(x / cap) of the kernels against long double, over all magnitudes of x.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/kernel/attend.h"

using namespace attn;

namespace {

/// Softcapped scores of one query and keys of one column, so that the scores are x.
template <class T>
std::vector<T> softcap(const std::vector<T>& x, T cap, kernel::Isa isa) {
  const T one = 1;
  const auto keys = static_cast<std::int64_t>(x.size());
  kernel::AttentionProblem<T> p;
  p.L = p.D = p.Dv = 1;
  p.S = x.size();
  p.softcap = cap;
  p.q = {&one, dtype_of<T>, {1, 1, 1, 1}};
  p.k = p.v = {x.data(), dtype_of<T>, {keys, keys, 1, 1}};
  T context = 0;
  std::vector<T> scaled(x.size());
  kernel::Results<T> results;
  results.context = &context;
  results.scaled = true;
  results.on_rows = [&](const kernel::FinishedRows<T>& rows) {
    std::copy_n(rows.scaled, scaled.size(), scaled.begin());
  };
  kernel::ThreadPool pool(1);
  kernel::attend(p, results, pool, isa);
  return scaled;
}

/// The distance of `found` from `expected` in units of the last place of `expected`.
template <class T>
double units(T found, long double expected) {
  const auto most = static_cast<T>(std::abs(expected));
  const T unit = std::nextafter(most, std::numeric_limits<T>::infinity()) - most;
  return std::abs(static_cast<double>((found - expected) / unit));
}

/// Numbers of both signs, from far below `cap` to far above, most of them where tanh bends.
template <class T>
std::vector<T> arguments(T cap) {
  std::vector<T> x;
  for (int i = -40000; i <= 40000; ++i) x.push_back(cap * static_cast<T>(i) / 2000);
  for (T y = cap / 1000000; y > cap * std::numeric_limits<T>::epsilon() / 1000; y /= 3)
    x.insert(x.end(), {y, -y});
  for (T y = 20 * cap; y < std::sqrt(std::numeric_limits<T>::max()); y *= 7)
    x.insert(x.end(), {y, -y});
  return x;
}

template <class T>
void check_units(double most) {
  for (kernel::Isa isa : kernel::available_isas())
    for (T cap : {T(0.5), T(5), T(30), T(1000)}) {
      const std::vector<T> x = arguments(cap), found = softcap(x, cap, isa);
      double worst = 0;
      T greatest = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto c = static_cast<long double>(cap);
        greatest = std::max(greatest, std::abs(found[i]));
        worst = std::max(worst, units(found[i], c * std::tanh(x[i] / c)));
      }
      INFO(name_of(isa) << ", cap " << cap << ", " << worst << " units in the last place");
      CHECK(worst <= most);
      CHECK(greatest <= cap);
    }
}

}  // namespace

TEST_CASE("kernel: softcap is accurate to a few units in the last place", "[kernel]") {
  check_units<float>(7);
  check_units<double>(8);
}

TEST_CASE("kernel: softcap of infinity is the cap, of NaN is NaN", "[kernel]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (kernel::Isa isa : kernel::available_isas()) {
    INFO(name_of(isa));
    const std::vector<float> found = softcap(
        {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 0.0f, 3e38f, -3e38f},
        30.0f, isa);
    CHECK(units(found[0], 30) <= 1);
    CHECK(units(found[1], -30) <= 1);
    CHECK(std::isnan(found[2]));
    CHECK(found[3] == 0);
    CHECK(units(found[4], 30) <= 1);
    CHECK(units(found[5], -30) <= 1);
  }
}
