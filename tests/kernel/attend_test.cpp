// The fast kernels against the formula in plain loops, on every instruction set of this machine.
#include "attn/kernel/attend.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/kernel_case.h"

using namespace attn;
using namespace attn::test;
using kernel::Isa;
using kernel::ThreadPool;

namespace {

template <class N>
bool same_bytes(const std::vector<N>& a, const std::vector<N>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(N)) == 0);
}

template <class T>
void check(const Case<T>& c, const Expected<T>& expected, ThreadPool& pool, Isa isa) {
  for (bool rows : {false, true}) {
    INFO(c.text() << (rows ? " strip " : " streaming ") << name_of(isa));
    const Answer<T> found = compute(c.problem, rows, pool, isa);
    const auto& [value, tolerance] = expected;
    REQUIRE(difference(found.context, value.context, tolerance.context) == "");
    REQUIRE(difference(found.logsumexp, value.logsumexp, tolerance.logsumexp) == "");
    if (!rows) continue;
    REQUIRE(difference(found.scores, value.scores, tolerance.scores) == "");
    REQUIRE(difference(found.weights, value.weights, tolerance.weights) == "");
  }
}

/// The same numbers for one row of the problem when it is the only one.
template <class T>
void check_alone(const Case<T>& c, std::mt19937_64& random, ThreadPool& pool, Isa isa) {
  const auto& p = c.problem;
  if (p.B * p.H * p.L == 0) return;
  const std::size_t b = random() % p.B, h = random() % p.H, l = random() % p.L;
  const std::size_t g = h / (p.H / p.G), row = (b * p.H + h) * p.L + l;
  const auto moved = [](const auto* data, const kernel::Strides& s, std::size_t batch,
                        std::size_t head, std::size_t i) {
    return data + batch * s.batch + head * s.head + i * s.row;
  };
  const auto operand = [&](const kernel::Operand& o, std::size_t head, std::size_t i) {
    kernel::Operand alone = o;
    const auto* from = moved(static_cast<const std::byte*>(nullptr), o.strides, b, head, i);
    alone.data = static_cast<const std::byte*>(o.data) +
                 (from - static_cast<const std::byte*>(nullptr)) * std::ptrdiff_t(size_of(o.dtype));
    return alone;
  };
  kernel::Problem<T> one = p;
  one.B = one.H = one.G = one.L = 1;
  one.q = operand(p.q, h, l);
  one.k = operand(p.k, g, 0);
  one.v = operand(p.v, g, 0);
  const std::int64_t position = p.positions ? p.positions[l] : static_cast<std::int64_t>(l);
  one.positions = &position;
  if (p.alibi) one.alibi = p.alibi + h;
  if (p.lengths) one.lengths = p.lengths + b;
  if (p.mask) one.mask = moved(p.mask, p.mask_strides, b, h, 0);
  if (p.bias) one.bias = moved(p.bias, p.bias_strides, b, h, 0);
  for (bool rows : {false, true}) {
    INFO(c.text() << (rows ? " strip " : " streaming ") << name_of(isa) << " row " << row);
    const Answer<T> all = compute(p, rows, pool, isa), alone = compute(one, rows, pool, isa);
    const auto part = [&](const std::vector<T>& of, std::size_t width) {
      return std::vector<T>(of.begin() + row * width, of.begin() + (row + 1) * width);
    };
    REQUIRE(same_bytes(part(all.context, p.Dv), alone.context));
    REQUIRE(same_bytes(part(all.logsumexp, 1), alone.logsumexp));
    if (!rows) continue;
    REQUIRE(same_bytes(part(all.scores, p.S), alone.scores));
    REQUIRE(same_bytes(part(all.weights, p.S), alone.weights));
  }
}

template <class T>
void sweep(std::uint64_t seed, int cases) {
  std::mt19937_64 random(seed);
  ThreadPool pool(4);
  for (int n = 0; n < cases; ++n) {
    Case<T> c;
    fill_random(c, random);
    const Expected<T> expected = expect(c);
    for (Isa isa : kernel::available_isas()) check(c, expected, pool, isa);
    check_alone(c, random, pool, kernel::available_isas().back());
  }
}

}  // namespace

TEST_CASE("kernel: random problems in f32, first half", "[kernel]") { sweep<float>(1, 700); }
TEST_CASE("kernel: random problems in f32, second half", "[kernel]") { sweep<float>(2, 700); }
TEST_CASE("kernel: random problems in f64, first half", "[kernel]") { sweep<double>(3, 400); }
TEST_CASE("kernel: random problems in f64, second half", "[kernel]") { sweep<double>(4, 400); }
