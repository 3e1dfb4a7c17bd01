// The results have the same bytes for all numbers of threads, and whether or not weights or scores
// are requested.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "support/kernel_case.h"

using namespace attn;
using namespace attn::test;
using kernel::ThreadPool;

namespace {

template <class T>
void check_threads(const Case<T>& c, kernel::Isa isa, std::span<const Ask> asks = kAsks) {
  for (const Ask ask : asks) {
    ThreadPool one(1);
    const Answer<T> expected = compute(c.problem, ask, one, isa);
    for (std::size_t threads : {2, 3, 4, 7}) {
      INFO(c.text() << " " << name_of(isa) << " " << threads << " threads, ask "
                    << static_cast<int>(ask));
      ThreadPool pool(threads);
      const Answer<T> found = compute(c.problem, ask, pool, isa);
      REQUIRE(same_bytes(found.context, expected.context));
      REQUIRE(same_bytes(found.logsumexp, expected.logsumexp));
      REQUIRE(same_bytes(found.weights, expected.weights));
      REQUIRE(same_bytes(found.scores, expected.scores));
      REQUIRE(same_bytes(found.scaled, expected.scaled));
      REQUIRE(same_bytes(found.masked, expected.masked));
    }
  }
}

/// A mask and a bias for all heads, with rows `step` elements apart. Keys are hidden one at a time,
/// 600 at a time, and by the lowest finite numbers.
void share_masks(Case<float>& c, std::size_t step, std::mt19937_64& random) {
  const kernel::AttentionProblem<float>& p = c.problem;
  for (std::size_t i = 0; i < (p.L - 1) * step + p.S; ++i) {
    c.masks[0].push_back(i / 600 % 3 != 0 && random() % 5 != 0);
    const float low = random() % 2 ? -INFINITY : std::numeric_limits<float>::lowest();
    c.biases[0].push_back(
        i / 600 % 4 == 0 || random() % 9 == 0 ? low : static_cast<float>(random() % 64) / 16 - 2);
  }
  const auto row = static_cast<std::int64_t>(step);
  c.problem.masks[0].strides = c.problem.biases[0].strides = {0, 0, row, 1};
  c.point();
}

template <class T>
void check_threads(std::array<std::size_t, 7> shape, bool causal, bool bf16_products = false) {
  std::mt19937_64 random(7);
  Case<T> c;
  fill_plain(c, random, shape, dtype_of<T>);
  c.problem.bf16_products = bf16_products;
  if (causal) set_key_ranges(c, {.causal = true});
  const std::vector<kernel::Isa>& isas = kernel::available_isas();
  // The division of work among threads is the same for all instruction sets.
  for (std::size_t i = is_limited() ? isas.size() - 1 : 0; i < isas.size(); ++i)
    check_threads(c, isas[i]);
}

}  // namespace

TEST_CASE("kernel: any number of threads gives the same bytes", "[kernel][threads]") {
  check_threads<float>({1, 4, 2, 300, 300, 64, 64}, true);
  check_threads<float>({2, 3, 3, 97, 1100, 40, 24}, false);
  check_threads<double>({1, 2, 1, 200, 600, 64, 64}, false);
}

TEST_CASE("kernel: any number of threads gives the same bytes with products in bfloat16",
          "[kernel][threads]") {
  check_threads<float>({1, 4, 2, 300, 300, 64, 64}, true, true);
  check_threads<float>({2, 3, 3, 97, 1100, 41, 24}, false, true);
  check_threads<float>({1, 2, 1, 1, 20000, 64, 64}, false, true);
}

TEST_CASE("kernel: any number of threads gives the same bytes with every option",
          "[kernel][threads]") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 random(seed);
    Case<float> c;
    const std::size_t rows = seed % 3 == 0 ? 3 : 110;  // few rows: keys are split
    fill_plain(c, random, {2, 4, 2, rows, 1200, 40, 24}, DType::f32);
    add_options(c, random);
    check_threads(c, kernel::available_isas().back());
  }
}

TEST_CASE("kernel: splitting keys among threads gives the same bytes", "[kernel][threads]") {
  check_threads<float>({1, 2, 1, 1, 20000, 64, 64}, false);
  check_threads<double>({1, 1, 1, 3, 9000, 32, 48}, false);
}

TEST_CASE("kernel: any number of threads gives the same bytes with large shared masks",
          "[kernel][threads]") {
  const auto check = [](std::size_t tokens, std::size_t step, std::span<const Ask> asks) {
    std::mt19937_64 random(9);
    Case<float> c;
    fill_plain(c, random, {1, 4, 2, tokens, tokens, 8, 8}, DType::f32);
    share_masks(c, step, random);
    check_threads(c, kernel::available_isas().back(), asks);
  };
  check(700, 700, kAsks);
  // These shapes exceed the caches, so heads are computed in parallel.
  check(3700, 5, std::array{Ask::sums});
}

namespace {

/// Weights and scores are the same alone and together, and so is the context with them.
void check_outputs(const Case<float>& c, kernel::Isa isa) {
  INFO(c.text() << " " << name_of(isa));
  const kernel::AttentionProblem<float>& p = c.problem;
  ThreadPool pool(2);
  const Answer<float> both = compute(p, Ask::ends, pool, isa);
  Answer<float> alone = both;
  kernel::Results<float> results;
  results.context = alone.context.data();
  results.context_strides = {0, static_cast<std::int64_t>(p.L * p.Dv),
                             static_cast<std::int64_t>(p.Dv), 1};
  for (bool weights : {false, true}) {
    std::vector<float> found(both.weights.size());
    results.weights = weights;
    results.scores = !weights;
    results.on_rows = [&](const kernel::FinishedRows<float>& rows) {
      for (std::size_t i = 0; i < rows.count; ++i)
        std::copy_n((weights ? rows.weights : rows.scores) + i * rows.stride, p.S,
                    found.data() + (rows.first + i) * p.S);
    };
    kernel::attend(p, results, pool, isa);
    CHECK(same_bytes(found, weights ? both.weights : both.scores));
    CHECK(same_bytes(alone.context, both.context));
  }
}

}  // namespace

TEST_CASE("kernel: requesting scores changes no weight, and requesting weights no score",
          "[kernel]") {
  for (kernel::Isa isa : kernel::available_isas()) {
    std::mt19937_64 random(8);
    Case<float> plain, masked;
    fill_plain(plain, random, {1, 2, 2, 50, 700, 64, 16}, DType::f32);
    check_outputs(plain, isa);
    fill_plain(masked, random, {1, 2, 2, 50, 700, 64, 16}, DType::f32);
    share_masks(masked, masked.problem.S, random);
    check_outputs(masked, isa);
  }
}
