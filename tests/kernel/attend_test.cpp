// The fused kernels compared with the formula in plain loops, on all instruction sets of this
// machine.
#include "attn/kernel/attend.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "support/kernel_case.h"

using namespace attn;
using namespace attn::test;
using kernel::Isa;
using kernel::ThreadPool;

namespace {

template <class T>
void check(const Case<T>& c, const Expected<T>& expected, ThreadPool& pool, Isa isa) {
  for (const Ask ask : kAsks) {
    INFO(c.text() << " ask " << static_cast<int>(ask) << " " << name_of(isa));
    const Answer<T> found = compute(c.problem, ask, pool, isa);
    const auto& [value, tolerance] = expected;
    REQUIRE(difference(found.context, value.context, tolerance.context) == "");
    REQUIRE(difference(found.logsumexp, value.logsumexp, tolerance.logsumexp) == "");
    if (ask == Ask::sums) continue;
    REQUIRE(difference(found.scores, value.scores, tolerance.scores) == "");
    REQUIRE(difference(found.weights, value.weights, tolerance.weights) == "");
    if (ask == Ask::ends) continue;
    REQUIRE(difference(found.scaled, value.scaled, tolerance.scaled) == "");
    REQUIRE(difference(found.masked, value.masked, tolerance.masked) == "");
    if (c.problem.dropout.data)
      REQUIRE(difference(found.dropped, value.dropped, tolerance.dropped) == "");
  }
}

/// A problem with only row l of head h of batch item b; it refers to `range`.
template <class T>
kernel::AttentionProblem<T> row_alone(const kernel::AttentionProblem<T>& p, std::size_t b,
                                      std::size_t h, std::size_t l, kernel::KeyRange& range) {
  const auto moved = [](const auto* data, const kernel::Strides& s, std::size_t batch,
                        std::size_t head, std::size_t i) {
    return data ? data + batch * s.batch + head * s.head + i * s.row : nullptr;
  };
  const auto operand = [&](const kernel::Operand& o, std::size_t head, std::size_t i) {
    const auto size = static_cast<std::int64_t>(size_of(o.dtype));
    const kernel::Strides& s = o.strides;
    kernel::Operand alone = o;
    alone.data = moved(static_cast<const std::byte*>(o.data),
                       {s.batch * size, s.head * size, s.row * size, 1}, b, head, i);
    return alone;
  };
  kernel::AttentionProblem<T> one = p;
  one.B = one.H = one.G = one.L = 1;
  one.q = operand(p.q, h, l);
  one.k = operand(p.k, h / (p.H / p.G), 0);
  one.v = operand(p.v, h / (p.H / p.G), 0);
  if (p.key_ranges) range = p.key_ranges[b * p.key_ranges_batch + l];
  one.key_ranges = p.key_ranges ? &range : nullptr;
  for (kernel::Mask& mask : one.masks) mask.data = moved(mask.data, mask.strides, b, h, l);
  for (kernel::Bias<T>& bias : one.biases) bias.data = moved(bias.data, bias.strides, b, h, l);
  one.dropout.data = moved(p.dropout.data, p.dropout.strides, b, h, l);
  one.distances.data = moved(p.distances.data, p.distances.strides, b, h, 0);
  if (p.sinks) one.sinks = p.sinks + h;
  if (p.head_scales) one.head_scales = p.head_scales + h;
  return one;
}

/// Checks that a row has the same bytes if it is computed alone.
template <class T>
void check_alone(const Case<T>& c, std::mt19937_64& random, ThreadPool& pool, Isa isa) {
  const auto& p = c.problem;
  if (p.B * p.H * p.L == 0) return;
  const std::size_t b = random() % p.B, h = random() % p.H, l = random() % p.L;
  const std::size_t row = (b * p.H + h) * p.L + l;
  kernel::KeyRange range;
  const kernel::AttentionProblem<T> one = row_alone(p, b, h, l, range);
  for (const Ask ask : kAsks) {
    INFO(c.text() << " ask " << static_cast<int>(ask) << " " << name_of(isa) << " row " << row);
    const Answer<T> all = compute(p, ask, pool, isa), alone = compute(one, ask, pool, isa);
    const auto part = [&](const std::vector<T>& of, std::size_t width) {
      return of.empty() ? of
                        : std::vector<T>(of.begin() + row * width, of.begin() + (row + 1) * width);
    };
    REQUIRE(same_bytes(part(all.context, p.Dv), alone.context));
    REQUIRE(same_bytes(part(all.logsumexp, 1), alone.logsumexp));
    REQUIRE(same_bytes(part(all.scores, p.S), alone.scores));
    REQUIRE(same_bytes(part(all.weights, p.S), alone.weights));
    REQUIRE(same_bytes(part(all.scaled, p.S), alone.scaled));
    REQUIRE(same_bytes(part(all.masked, p.S), alone.masked));
    REQUIRE(same_bytes(part(all.dropped, p.S), alone.dropped));
  }
}

/// Other scores than products, which have no scales by head.
template <class T>
void change_score(Case<T>& c, kernel::Score score, std::mt19937_64& random) {
  std::normal_distribution<> normal;
  c.head_scales.clear();
  for (std::size_t d = 0; d < c.problem.D; ++d)
    c.score_weights.push_back(static_cast<T>(normal(random)));
  c.problem.score = score;
  c.point();
}

template <class T>
void sweep(std::uint64_t seed, int problems, bool bf16_products = false,
           kernel::Score score = kernel::Score::product) {
  std::mt19937_64 random(seed);
  ThreadPool pool(4);
  for (int n = at_most(problems); n > 0; --n) {
    Case<T> c;
    fill_random(c, random);
    c.problem.bf16_products = bf16_products;
    if (score != kernel::Score::product) change_score(c, score, random);
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

TEST_CASE("kernel: random problems with products in bfloat16", "[kernel]") {
  sweep<float>(11, 400, true);
}

TEST_CASE("kernel: random problems with distances as scores", "[kernel][scores]") {
  sweep<float>(21, 300, false, kernel::Score::distance);
  sweep<double>(22, 200, false, kernel::Score::distance);
}

TEST_CASE("kernel: random problems with sums of tanh as scores", "[kernel][scores]") {
  sweep<float>(23, 300, false, kernel::Score::tanh);
  sweep<double>(24, 200, false, kernel::Score::tanh);
}

namespace {

/// Whether all instruction sets compute scores of these queries and keys within the tolerance.
void check_bf16(std::array<std::size_t, 7> shape, DType dtype, double spread, bool rounds = true) {
  std::mt19937_64 random(12);
  ThreadPool pool(2);
  Case<float> c;
  fill_plain(c, random, shape, dtype, spread);
  c.problem.bf16_products = rounds;
  const Expected<float> expected = expect(c);
  for (const Isa isa : kernel::available_isas()) {
    check(c, expected, pool, isa);
    check_alone(c, random, pool, isa);
  }
}

}  // namespace

TEST_CASE("kernel: products in bfloat16 of every width and number of rows", "[kernel]") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::size_t rows : {1, 2, 5, 6, 7, 13, 16, 17, 50, 100}) {
      check_bf16({1, 2, 1, rows, 70, 31 + rows, 8}, dtype, 1);
      if (rows > 17 && dtype != DType::bf16) continue;  // many keys for many rows take long
      check_bf16({1, 1, 1, rows, 600, rows % 2 == 0 ? 129u : 64u, 3 + 21 * rows % 140}, dtype, 0.5);
    }
}

TEST_CASE("kernel: operands that are stored in bfloat16", "[kernel]") {
  for (const std::size_t rows : {1, 4, 6, 7, 16, 17, 50, 100})
    check_bf16({1, 2, 1, rows, 560, 30 + rows, 1 + 37 * rows % 140}, DType::bf16, 1, false);
}

TEST_CASE("kernel: a few queries read elements of every type where they are", "[kernel]") {
  std::mt19937_64 random(14);
  ThreadPool pool(2);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const bool rounds : {false, true})
      for (const std::size_t rows : {1, 2, 3, 4, 5, 30}) {
        if (is_limited() && rows > 2) continue;
        Case<float> c;
        fill_plain(c, random, {1, 2, 1, rows, 1100 + rows, 30 + 2 * rows, 16 * rows}, dtype);
        c.problem.bf16_products = rounds;
        if (rows % 2 != 0) set_key_ranges(c, {.left = 600, .right = 430, .offset = 611});
        const double small = dtype == DType::f16 ? 3e-7 : 1e-39;  // subnormal
        for (std::size_t i = 0; i < c.problem.D; ++i) c.k.set(0, 0, 600, i, small);
        for (std::size_t key = 0; key < c.problem.S; ++key) c.v.set(0, 0, key, 1, small);
        c.v.set(0, 0, 1090, 0, INFINITY);  // the last row sees it if there are ranges
        c.point();
        const Expected<float> expected = expect(c);
        for (const Isa isa : kernel::available_isas()) {
          check(c, expected, pool, isa);
          for (int i = 0; i < 3; ++i) check_alone(c, random, pool, isa);
        }
      }
}

TEST_CASE("kernel: keys in bfloat16 whose rows are an odd number of elements apart", "[kernel]") {
  constexpr std::size_t kKeys = 40, kStep = 3;
  std::vector<BFloat16> keys(kKeys * kStep, BFloat16(7));
  for (std::size_t j = 0; j < kKeys; ++j) {
    keys[j * kStep] = BFloat16(static_cast<double>(j));
    keys[j * kStep + 1] = BFloat16(1);
  }
  const std::array<BFloat16, 2> query = {BFloat16(1), BFloat16(2)};
  kernel::AttentionProblem<float> p;
  p.L = 1, p.S = kKeys, p.D = 2, p.Dv = 0;
  p.q = {query.data(), DType::bf16, {0, 0, 2, 1}};
  p.k = {keys.data(), DType::bf16, {0, 0, kStep, 1}};
  p.bf16_products = true;
  ThreadPool pool(1);
  for (const Isa isa : kernel::available_isas()) {
    const Answer<float> found = compute(p, Ask::ends, pool, isa);
    for (std::size_t j = 0; j < kKeys; ++j) CHECK(found.scores[j] == static_cast<float>(j + 2));
  }
}

TEST_CASE("kernel: scores of numbers that are subnormal or overflow in bfloat16", "[kernel]") {
  ThreadPool pool(1);
  constexpr float kTiny = 1e-39F, kBelowOverflow = 3.3895e38F;
  for (const std::size_t rows : {1, 24}) {
    std::mt19937_64 random(13);
    Case<float> c;
    fill_plain(c, random, {1, 1, 1, rows, 40, 8, 4}, DType::f32);
    c.problem.bf16_products = true;
    c.q.set(0, 0, 0, 3, kTiny);
    c.k.set(0, 0, 1, 3, 1e38);
    c.k.set(0, 0, 2, 5, kTiny);
    c.k.set(0, 0, 3, 5, kBelowOverflow);
    for (std::size_t row = 0; row < rows; ++row) c.q.set(0, 0, row, 5, 1e-38 * double(row + 1));
    const Expected<float> expected = expect(c);
    for (const Isa isa : kernel::available_isas()) check(c, expected, pool, isa);
  }
}

TEST_CASE("kernel: scores in bfloat16 are exact sums of rounded factors", "[kernel]") {
  // 1 + 2^-8 is halfway between two numbers and rounds to 1; 1 + 3/256 rounds to 1 + 1/64.
  constexpr std::size_t kKeys = 3;
  const std::array<float, 2 * kKeys> keys = {1 + 0x1p-8F, 0, 1 + 3 * 0x1p-8F, 0, 0, -3};
  const std::array<float, 2> query = {2, 1};
  const std::array<float, kKeys> expected = {2, 2 + 0x1p-5F, -3};
  kernel::AttentionProblem<float> p;
  p.L = 1, p.S = kKeys, p.D = 2, p.Dv = 0;
  p.q = {query.data(), DType::f32, {0, 0, 2, 1}};
  p.k = {keys.data(), DType::f32, {0, 0, 2, 1}};
  p.bf16_products = true;
  ThreadPool pool(1);
  for (const Isa isa : kernel::available_isas()) {
    const Answer<float> found = compute(p, Ask::ends, pool, isa);
    CHECK(std::equal(expected.begin(), expected.end(), found.scores.begin()));
  }
}

TEST_CASE("kernel: problems large enough for three threads", "[kernel][threads]") {
  // Numbers of segments not divisible by three, so that threads get unequal shares.
  constexpr std::array<std::size_t, 7> kShapes[] = {
      {1, 5, 5, 150, 300, 32, 32}, {1, 4, 2, 130, 600, 24, 40}, {2, 3, 1, 100, 520, 40, 16}};
  std::mt19937_64 random(6);
  ThreadPool pool(3);
  for (int n = is_limited() ? 2 : 4; n > 0; --n)
    for (const auto& shape : kShapes) {
      Case<float> c;
      fill_plain(c, random, shape, DType::f32);
      if (n > 1) add_options(c, random);
      const Expected<float> expected = expect(c);
      for (Isa isa : kernel::available_isas()) check(c, expected, pool, isa);
      check_alone(c, random, pool, kernel::available_isas().back());
    }
}

namespace {

/// A bias, a mask and distances, or some of them, which are applied to scores in registers. Keys
/// are hidden one at a time, 70 at a time, and by the lowest finite numbers.
template <class T>
void add_simple_terms(Case<T>& c, bool biased, bool masked, bool distant, std::mt19937_64& random) {
  auto& p = c.problem;
  const auto keys = static_cast<std::int64_t>(p.S);
  for (std::size_t i = 0; i < p.L * p.S; ++i) {
    const T low =
        random() % 2 ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    const bool hidden = i / 70 % 4 == 0 || random() % 9 == 0;
    if (masked) c.masks[0].push_back(i / 70 % 3 != 0 && random() % 5 != 0);
    if (biased) c.biases[0].push_back(hidden ? low : static_cast<T>(random() % 64) / 16 - 2);
  }
  if (distant)
    for (std::size_t i = 0; i < p.L + p.S; ++i) c.distances.push_back(static_cast<T>(i) / -64);
  c.zero = p.L;
  p.masks[0].strides = p.biases[0].strides = {0, 0, keys, 1};
  set_key_ranges(c, {.left = 500});
  c.point();
}

template <class T>
void check_simple_terms() {
  std::mt19937_64 random(10);
  ThreadPool pool(2);
  for (const bool hides : {false, true})
    for (unsigned kinds = 0; kinds < 8; ++kinds) {
      Case<T> c;
      fill_plain(c, random, {1, 2, 1, 26, 600, 24, 24}, dtype_of<T>);
      c.problem.temperature = hides ? T(0.5) : T(2);
      c.problem.masks[0].hides = hides;
      add_simple_terms(c, kinds & 1, kinds & 2, kinds & 4, random);
      const Expected<T> expected = expect(c);
      for (Isa isa : kernel::available_isas()) {
        check(c, expected, pool, isa);
        for (int rows = is_limited() ? 1 : 3; rows > 0; --rows) check_alone(c, random, pool, isa);
      }
    }
}

}  // namespace

TEST_CASE("kernel: bias, mask and distances, alone and combined", "[kernel]") {
  check_simple_terms<float>();
  check_simple_terms<double>();
}

TEST_CASE("kernel: short sums keep rounding errors small", "[kernel]") {
  // A single sum of 128 products, and one of 128 weighted values, would give an error of 3.3e-8.
  constexpr double kMostRms = 2.2e-8;
  std::mt19937_64 random(5);
  Case<float> c;
  fill_plain(c, random, {1, 1, 1, 48, 512, 128, 128}, DType::f32);
  const std::vector<double> exact = expect(c).value.context;
  ThreadPool pool(1);
  for (Isa isa : kernel::available_isas())
    for (const Ask ask : kAsks) {
      INFO("ask " << static_cast<int>(ask) << " " << name_of(isa));
      const std::vector<float> found = compute(c.problem, ask, pool, isa).context;
      double squares = 0;
      for (std::size_t i = 0; i < exact.size(); ++i)
        squares += (found[i] - exact[i]) * (found[i] - exact[i]);
      CHECK(std::sqrt(squares / static_cast<double>(exact.size())) < kMostRms);
    }
}
