// The backward kernels compared with the formula in plain loops, and the formula with finite
// differences.
#include "attn/kernel/backward.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "attn/kernel/reference.h"
#include "support/backward_case.h"

using namespace attn;
using namespace attn::test;
using kernel::ThreadPool;
namespace reference = kernel::reference;

namespace {

template <class T>
void check_gradients(const BackwardCase<T>& c, const Case<T>& of, ThreadPool& pool) {
  const auto [value, tolerance] = expect(c, of);
  for (const kernel::Isa isa : kernel::available_isas()) {
    INFO(of.text() << ' ' << name_of(isa));
    const BackwardAnswer<T> found = compute(c, of, pool, isa);
    REQUIRE(difference(found.v, value.v, tolerance.v) == "");
    REQUIRE(difference(found.q, value.q, tolerance.q) == "");
    REQUIRE(difference(found.k, value.k, tolerance.k) == "");
    REQUIRE(difference(found.sinks, value.sinks, tolerance.sinks) == "");
    for (std::size_t m = 0; m < found.biases.size(); ++m)
      REQUIRE(difference(found.biases[m], value.biases[m], tolerance.biases[m]) == "");
  }
}

/// Whether results depend on the order of sums, or on whether small weights underflow to 0.
template <class T>
bool has_undefined_gradients(const Case<T>& of) {
  const auto any = [&](bool (*is)(double)) {
    return std::any_of(of.v.values.begin(), of.v.values.end(), is);
  };
  const bool steep = !of.distances.empty() || of.problem.scale < 0 || of.problem.temperature < 1;
  return any([](double x) { return std::isinf(x); }) ||
         (steep && any([](double x) { return std::isnan(x); }));
}

template <class T>
void sweep_gradients(std::uint64_t seed, int problems) {
  std::mt19937_64 random(seed);
  ThreadPool pool(3);
  for (int n = at_most(problems); n > 0; --n) {
    Case<T> of;
    fill_random(of, random);
    if (has_undefined_gradients(of)) continue;
    BackwardCase<T> c;
    fill_backward(c, of, random, true);
    check_gradients(c, of, pool);
  }
}

}  // namespace

TEST_CASE("kernel: gradients of random problems in f32", "[kernel][backward]") {
  sweep_gradients<float>(21, 60);
}
TEST_CASE("kernel: gradients of random problems in f64", "[kernel][backward]") {
  sweep_gradients<double>(22, 40);
}

TEST_CASE("kernel: gradients have the same bytes for any number of threads",
          "[kernel][backward][threads]") {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    std::mt19937_64 random(seed);
    Case<float> of;
    fill_plain(of, random, {2, 4, 2, 110, 500, 40, 24}, DType::f32);
    if (seed > 1)
      add_options(of, random);
    else
      set_key_ranges(of, {.causal = true, .offset = 390});
    BackwardCase<float> c;
    fill_backward(c, of, random, true);
    const kernel::Isa isa = kernel::available_isas().back();
    ThreadPool one(1);
    const BackwardAnswer<float> expected = compute(c, of, one, isa);
    for (std::size_t threads : {2, 3, 7}) {
      INFO(of.text() << " " << threads << " threads");
      ThreadPool pool(threads);
      const BackwardAnswer<float> found = compute(c, of, pool, isa);
      REQUIRE(same_bytes(found.q, expected.q));
      REQUIRE(same_bytes(found.k, expected.k));
      REQUIRE(same_bytes(found.v, expected.v));
      REQUIRE(same_bytes(found.sinks, expected.sinks));
      REQUIRE(same_bytes(found.biases[0], expected.biases[0]));
      REQUIRE(same_bytes(found.biases[1], expected.biases[1]));
    }
  }
}

TEST_CASE("kernel: gradients of a batch item do not depend on the others", "[kernel][backward]") {
  std::mt19937_64 random(31);
  Case<float> of;
  fill_plain(of, random, {3, 4, 2, 70, 410, 20, 33}, DType::f32);
  set_key_ranges(of, {.causal = true, .left = 200, .offset = 340, .lengths = {410, 260, 17}});
  BackwardCase<float> c;
  fill_backward(c, of, random, false);
  ThreadPool pool(2);
  const kernel::Isa isa = kernel::available_isas().back();
  const BackwardAnswer<float> all = compute(c, of, pool, isa);
  for (std::size_t b = 0; b < 3; ++b) {
    kernel::BackwardProblem<float> one = c.problem;
    kernel::AttentionProblem<float>& p = one.problem;
    const auto move = [&](kernel::Operand& x) {
      x.data = static_cast<const float*>(x.data) + static_cast<std::int64_t>(b) * x.strides.batch;
    };
    p.B = 1;
    for (kernel::Operand* x : {&p.q, &p.k, &p.v, &one.grad_context}) move(*x);
    p.key_ranges += static_cast<std::int64_t>(b) * p.key_ranges_batch;
    one.logsumexp += b * p.H * p.L, one.delta += b * p.H * p.L;
    std::vector<float> q(all.q.size() / 3), k(all.k.size() / 3), v(all.v.size() / 3);
    kernel::BackwardResults<float> gradients;
    gradients.q = q.data(), gradients.k = k.data(), gradients.v = v.data();
    kernel::attend_backward(one, gradients, pool, isa);
    const auto part = [&](const std::vector<float>& of_all, std::size_t size) {
      const auto from = of_all.begin() + static_cast<std::ptrdiff_t>(b * size);
      return std::vector<float>(from, from + static_cast<std::ptrdiff_t>(size));
    };
    CHECK(same_bytes(q, part(all.q, q.size())));
    CHECK(same_bytes(k, part(all.k, k.size())));
    CHECK(same_bytes(v, part(all.v, v.size())));
  }
}

TEST_CASE("kernel: values of NaN that some queries do not see", "[kernel][backward]") {
  std::mt19937_64 random(32);
  ThreadPool pool(2);
  Case<double> of;
  fill_plain(of, random, {1, 2, 1, 60, 250, 24, 17}, DType::f64);
  set_key_ranges(of, {.causal = true, .offset = 180});
  of.k.set(0, 0, 230, 3, std::nan(""));  // visible to the last rows only
  of.v.set(0, 0, 215, 5, std::nan(""));
  BackwardCase<double> c;
  fill_backward(c, of, random, false);
  c.grad.set(0, 1, 4, 6, std::nan(""));
  c.problem.grad_context = c.grad.operand();
  c.delta[60 + 4] = std::nan("");
  check_gradients(c, of, pool);
  const BackwardExpected<double> expected = expect(c, of);
  CHECK(std::count_if(expected.value.q.begin(), expected.value.q.end(),
                      [](double x) { return !std::isnan(x); }) > 60 * 24);
}

namespace {

/// The number whose gradients are computed.
long double loss(const BackwardCase<double>& c, const kernel::AttentionProblem<double>& p) {
  const reference::Outputs<long double> out = reference::attend<long double>(p);
  long double sum = 0;
  for (std::size_t i = 0; i < p.B * p.H * p.L; ++i) {
    const reference::Query q{i / p.L / p.H, i / p.L % p.H, i % p.L};
    bool sees_any = false;
    for (std::size_t j = 0; j < p.S; ++j) {
      if (!reference::is_visible(p, q, j)) continue;
      sees_any = true;
      for (std::size_t d = 0; d < p.Dv; ++d)
        sum += out.dropped[i * p.S + j] * reference::element(p.v, q.b, q.h / (p.H / p.G), j, d) *
               c.grad.at(q.b, q.h, q.l, d);
    }
    const bool finite = sees_any || !std::isinf(reference::sink(p, q));
    if (finite && c.problem.grad_logsumexp) sum += out.logsumexp[i] * c.problem.grad_logsumexp[i];
  }
  return sum;
}

}  // namespace

TEST_CASE("kernel: the formula of gradients agrees with finite differences", "[kernel][backward]") {
  std::mt19937_64 random(33);
  for (int n = at_most(40); n > 0; --n) {
    Case<double> of;
    fill_plain(of, random, {2, 4, 2, 7, 9, 5, 3}, DType::f64);
    add_options(of, random);
    BackwardCase<double> c;
    fill_backward(c, of, random, true);
    const reference::BackwardOutputs<long double> exact =
        reference::attend_backward<long double>(c.problem);
    INFO(of.text());
    constexpr double kStep = 1e-4;
    const auto differs = [&](double& element, double gradient) {
      if (!std::isfinite(element)) return false;  // hidden
      const double at = element;
      element = at + kStep;
      const long double above = loss(c, of.problem);
      element = at - kStep;
      const long double below = loss(c, of.problem);
      element = at;
      const auto slope = static_cast<double>((above - below) / (2 * kStep));
      return !(std::abs(slope - gradient) <= 1e-6 * (1 + std::abs(gradient)));
    };
    const auto stored = [](CaseTensor& x, std::size_t i) -> double& {
      return reinterpret_cast<double*>(x.bytes.data())[i];
    };
    for (int tries = 0; tries < 4; ++tries) {
      const std::size_t q = random() % exact.q.size(), k = random() % exact.k.size(),
                        v = random() % exact.v.size(), h = random() % of.problem.H;
      CHECK_FALSE(differs(stored(of.q, q), static_cast<double>(exact.q[q])));
      CHECK_FALSE(differs(stored(of.k, k), static_cast<double>(exact.k[k])));
      CHECK_FALSE(differs(stored(of.v, v), static_cast<double>(exact.v[v])));
      if (!of.sinks.empty()) CHECK_FALSE(differs(of.sinks[h], static_cast<double>(exact.sinks[h])));
    }
  }
}
