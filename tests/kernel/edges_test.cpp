// Edge cases: no visible keys, huge numbers, NaN, infinity and finite masks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "attn/base/error.h"
#include "support/kernel_case.h"

using namespace attn;
using namespace attn::test;
using kernel::ThreadPool;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// One head with the given queries, keys and values: D = Dv = 1.
struct Column {
  Case<float> c;
  Column(std::vector<double> q, std::vector<double> k, std::vector<double> v) {
    auto& p = c.problem;
    p.L = q.size();
    p.S = k.size();
    p.D = p.Dv = 1;
    const auto fill = [](CaseTensor& e, const std::vector<double>& values) {
      e = make_elements(DType::f32, {1, 1, values.size(), 1}, Order::bhld);
      for (std::size_t i = 0; i < values.size(); ++i) e.set(0, 0, i, 0, values[i]);
    };
    fill(c.q, q);
    fill(c.k, k);
    fill(c.v, v);
    c.point();
  }
  Answer<float> operator()(kernel::Isa isa, Ask ask = Ask::ends) {
    ThreadPool pool(1);
    return compute(c.problem, ask, pool, isa);
  }
};

void on_every_isa(const std::function<void(kernel::Isa)>& check) {
  for (kernel::Isa isa : kernel::available_isas()) {
    INFO(name_of(isa));
    check(isa);
  }
}

}  // namespace

TEST_CASE("kernel: a query without visible keys has context 0 and logsumexp -inf", "[kernel]") {
  using Hide = std::function<void(Case<float>&)>;
  const std::pair<const char*, Hide> ways[] = {
      {"place",
       [](auto& c) {
         c.key_ranges = {{0, 0}, {2, 2}};
       }},
      {"padding",
       [](auto& c) {
         c.key_ranges = {{0, 0, 0, true}, {0, 0, 0, true}};
       }},
      {"mask",
       [](auto& c) {
         c.masks[1] = {0, 0, 0};
       }},
      {"mask that hides",
       [](auto& c) {
         c.masks[0] = {1, 255, 7};
         c.problem.masks[0].hides = true;
       }},
      {"both masks",
       [](auto& c) {
         c.masks[0] = {1, 0, 0};
         c.masks[1] = {0, 1, 1};
       }},
      {"bias",
       [](auto& c) {
         c.biases[1] = {-kInf, -kInf, -kInf};
       }},
      {"causal", [](auto& c) { set_key_ranges(c, {.causal = true, .offset = -2}); }},
      {"window", [](auto& c) { set_key_ranges(c, {.left = 0, .offset = 3}); }}};
  on_every_isa([&](kernel::Isa isa) {
    for (const auto& [way, hide] : ways) {
      INFO(way);
      Column x({1, 2}, {1, kNaN, 3}, {4, kNaN, kInf});
      hide(x.c);
      x.c.point();
      for (const Ask ask : kAsks) {
        const Answer<float> found = x(isa, ask);
        CHECK(found.context == std::vector<float>{0, 0});
        CHECK(found.logsumexp == std::vector<float>{-kInf, -kInf});
        if (ask != Ask::sums) CHECK(found.weights == std::vector<float>(6, 0));
      }
    }
  });
}

TEST_CASE("kernel: no keys at all", "[kernel]") {
  on_every_isa([](kernel::Isa isa) {
    Column x({1, 2}, {}, {});
    CHECK(x(isa).context == std::vector<float>{0, 0});
    CHECK(x(isa).logsumexp == std::vector<float>{-kInf, -kInf});
  });
}

TEST_CASE("kernel: scores of +-1e30 select keys without overflow", "[kernel]") {
  on_every_isa([](kernel::Isa isa) {
    Column x({1e30, -1e30, 1e-30}, {1, -1, 0.5}, {10, 20, 30});
    const Answer<float> found = x(isa);
    CHECK(found.weights[0] == 1);
    CHECK(found.weights[1] == 0);
    CHECK(found.weights[2] == 0);
    CHECK(found.weights[4] == 1);
    CHECK(found.context[0] == 10);
    CHECK(found.context[1] == 20);
    CHECK(found.context[2] == Approx(20));
    CHECK(found.logsumexp[0] == Approx(1e30));
    CHECK(found.scores[0] == 1e30f);
    CHECK(found.scores[1] == -1e30f);
  });
}

TEST_CASE("kernel: a context of zero is +0, whatever keys neighbouring queries see", "[kernel]") {
  on_every_isa([](kernel::Isa isa) {
    Column x({1, 1}, {0, -60, -60}, {0, -1e-30, 1});  // e^-60 1e-30 underflows
    x.c.key_ranges = {{.begin = 0, .end = 2}, {.begin = 0, .end = 3}};
    x.c.point();
    for (const Ask ask : kAsks) {
      const Answer<float> found = x(isa, ask);
      CHECK(found.context[0] == 0);
      CHECK(!std::signbit(found.context[0]));
    }
    x.c.key_ranges[1].end = 2;
    for (const Ask ask : kAsks) CHECK(!std::signbit(x(isa, ask).context[0]));
  });
}

TEST_CASE("kernel: the weights of a million keys sum to 1", "[kernel]") {
  // A single sum would have errors of 5e-4 (baseline) and 9e-5 (AVX2).
  const std::vector<double> ones(1000000, 1);
  std::vector<double> keys(ones.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = -0.1 * static_cast<double>(i % 7);
  on_every_isa([&](kernel::Isa isa) {
    Column x({1}, keys, ones);
    for (const Ask ask : {Ask::sums, Ask::ends})
      CHECK(std::abs(double(x(isa, ask).context[0]) - 1) < 3e-5);
  });
}

TEST_CASE("kernel: a visible NaN or infinite score makes only its own row NaN", "[kernel]") {
  on_every_isa([](kernel::Isa isa) {
    for (double bad : {double(kNaN), double(kInf)}) {
      Column x({1, bad, 1}, {1, 2, 3}, {1, 1, 1});
      for (const Ask ask : kAsks) {
        const Answer<float> found = x(isa, ask);
        CHECK(found.context[0] == Approx(1));
        CHECK(std::isnan(found.context[1]));
        CHECK(found.context[2] == Approx(1));
        if (std::isnan(bad))
          CHECK(std::isnan(found.logsumexp[1]));
        else
          CHECK(found.logsumexp[1] == kInf);
        if (ask != Ask::sums) CHECK(std::isnan(found.weights[3]));
      }
    }
  });
}

TEST_CASE("kernel: NaN of any payload stays NaN", "[kernel]") {
  on_every_isa([](kernel::Isa isa) {
    for (std::uint32_t bits : {0x7f800001u, 0x7fc00001u, 0x7fffffffu, 0xff8001ffu, 0xffc001ffu}) {
      Column x({1, 1}, {1, 2}, {1, 1});
      std::memcpy(x.c.q.bytes.data(), &bits, 4);
      CHECK(std::isnan(x(isa).context[0]));
      CHECK(x(isa).context[1] == 1);
    }
  });
}

TEST_CASE("kernel: weights of visible and of hidden infinite values", "[kernel]") {
  on_every_isa([](kernel::Isa isa) {
    Column x({1, 1}, {0, 0, 0}, {1, kInf, kNaN});
    set_key_ranges(x.c, {.causal = true});
    for (const Ask ask : kAsks) {
      const Answer<float> found = x(isa, ask);
      CHECK(found.context[0] == 1);
      CHECK(found.context[1] == kInf);
    }
    set_key_ranges(x.c, {.causal = true, .offset = 1});
    CHECK(x(isa).context[0] == kInf);
    CHECK(std::isnan(x(isa).context[1]));
  });
}

TEST_CASE("kernel: a mask of the lowest finite numbers leaves a row uniform", "[kernel]") {
  on_every_isa([](kernel::Isa isa) {
    const float low = std::numeric_limits<float>::lowest();
    Column x({1, 1}, {1, 2, 3, 4}, {1, 2, 3, 4});
    x.c.biases[0] = {low, low, low, low, 0, low, low, low};
    x.c.problem.biases[0].strides = {0, 0, 4, 1};
    x.c.point();
    const Answer<float> found = x(isa);
    CHECK(found.context[0] == Approx(2.5));
    CHECK(found.context[1] == 1);
  });
}

TEST_CASE("kernel: lowest finite masks in many rows, as distances, and with an equally low sink",
          "[kernel]") {
  constexpr float kLow = std::numeric_limits<float>::lowest();
  constexpr std::size_t kRows = 24, kKeys = 70;  // whole panels of keys and a partial one
  std::vector<double> values(kKeys);
  std::iota(values.begin(), values.end(), 0);
  const double mean = (kKeys - 1) / 2.0;
  on_every_isa([&](kernel::Isa isa) {
    for (const Ask ask : kAsks)
      for (const float temperature : {1.F, 0.25F, 4.F}) {
        INFO("ask " << static_cast<int>(ask) << " temperature " << temperature);
        const auto check = [&](bool biased, bool distant, bool sinks, double expected) {
          Column x(std::vector<double>(kRows, 1), std::vector<double>(kKeys, 0), values);
          x.c.problem.temperature = temperature;
          x.c.problem.biases[0].strides = {0, 0, 0, 1};
          if (biased) x.c.biases[0].assign(kKeys, kLow);
          x.c.zero = kRows;
          if (distant) x.c.distances.assign(kRows + kKeys, kLow);
          if (sinks) x.c.sinks = {kLow};
          x.c.point();
          const Answer<float> found = x(isa, ask);
          for (const float context : found.context) CHECK(context == Approx(expected));
          for (const float sum : found.logsumexp) CHECK(std::isfinite(sum));
        };
        check(true, false, false, mean);
        check(false, true, false, mean);
        if (temperature == 1)  // a sink is not divided by the temperature
          check(true, false, true, mean * kKeys / (kKeys + 1));
      }
  });
}

TEST_CASE("kernel: distances of -inf are visible, not hidden", "[kernel]") {
  constexpr std::size_t kRows = 24, kKeys = 70, kNear = 30;
  on_every_isa([&](kernel::Isa isa) {
    for (const Ask ask : kAsks)
      for (const bool biased : {false, true})
        for (const bool all : {false, true}) {
          INFO("ask " << static_cast<int>(ask) << " biased " << biased << " all " << all);
          Column x(std::vector<double>(kRows, 1), std::vector<double>(kKeys, 0),
                   std::vector<double>(kKeys, 0));
          x.c.v.set(0, 0, kNear, 0, 7);
          x.c.key_ranges.assign(kRows, {0, kKeys, 0});
          if (biased) x.c.biases[0].assign(kKeys, 0);
          x.c.problem.biases[0].strides = {0, 0, 0, 1};
          x.c.distances.assign(kKeys, -kInf);
          if (!all) x.c.distances[kNear] = 0;
          x.c.point();
          const Answer<float> found = x(isa, ask);
          for (const float context : found.context)
            CHECK((all ? std::isnan(context) : context == 7));
          for (const float sum : found.logsumexp) CHECK(sum == (all ? -kInf : 0));
          if (ask == Ask::stages) CHECK(found.masked[0] == -kInf);
        }
  });
}

TEST_CASE("kernel: NaN and infinity in one row, alone and among other rows", "[kernel]") {
  // Keys hidden after them are skipped for one row, but not if another row sees them.
  on_every_isa([](kernel::Isa isa) {
    for (const float odd : {kNaN, kInf})
      for (const Ask ask : kAsks) {
        INFO("odd " << odd << " ask " << static_cast<int>(ask));
        const auto row = [&](std::size_t rows) {
          Column x(std::vector<double>(rows, 1), std::vector<double>(200, 1),
                   std::vector<double>(200, 1));
          auto& bias = x.c.biases[0];
          bias.assign(rows * 200, 0);
          bias[3] = odd;
          bias[67] = kInf;
          std::fill(bias.begin() + 68, bias.begin() + 200, -kInf);
          x.c.problem.biases[0].strides = {0, 0, 200, 1};
          x.c.point();
          const Answer<float> found = x(isa, ask);
          CHECK(std::isnan(found.context[0]));
          return found.logsumexp[0];
        };
        for (const std::size_t rows : {1, 6, 7, 24}) CHECK(row(rows) == kInf);
      }
  });
}

TEST_CASE("kernel: heads not divisible by groups are refused", "[kernel]") {
  Column x({1}, {1}, {1});
  x.c.problem.H = 3;
  x.c.problem.G = 2;
  CHECK_THROWS_AS(x(kernel::Isa::baseline), Error);
}

TEST_CASE("kernel: an exception from on_rows is rethrown", "[kernel][threads]") {
  std::mt19937_64 random(3);
  Case<float> c;
  fill_plain(c, random, {1, 4, 4, 200, 200, 64, 64}, DType::f32);
  std::vector<float> context(4 * 200 * 64);
  kernel::Results<float> results;
  results.context = context.data();
  results.context_strides = {0, 200 * 64, 64, 1};
  results.weights = true;
  results.on_rows = [](const kernel::FinishedRows<float>& rows) {
    if (rows.first >= 400) throw Error(ErrorKind::io, "disk: no space left");
  };
  ThreadPool pool(3);
  CHECK_THROWS_AS(kernel::attend(c.problem, results, pool), Error);
  results.on_rows = {};
  CHECK_NOTHROW(kernel::attend(c.problem, results, pool));
}

TEST_CASE("kernel: on_rows receives each row once", "[kernel][threads]") {
  std::mt19937_64 random(4);
  Case<float> c;
  fill_plain(c, random, {2, 6, 2, 61, 130, 8, 8}, DType::f32);
  std::vector<float> context(2 * 6 * 61 * 8);
  std::vector<std::atomic<int>> seen(2 * 6 * 61);
  kernel::Results<float> results;
  results.context = context.data();
  results.context_strides = {6 * 61 * 8, 61 * 8, 8, 1};
  results.weights = true;
  results.on_rows = [&](const kernel::FinishedRows<float>& rows) {
    for (std::size_t i = 0; i < rows.count; ++i) {
      ++seen[rows.first + i];
      double sum = 0;
      for (std::size_t j = 0; j < c.problem.S; ++j) sum += rows.weights[i * rows.stride + j];
      if (std::abs(sum - 1) > 1e-5) seen[rows.first + i] = -1000;
    }
  };
  ThreadPool pool(3);
  kernel::attend(c.problem, results, pool);
  for (const auto& times : seen) CHECK(times == 1);
}

namespace {

/// Puts `odd` where only the last query of the first head sees it; L queries, the last of 100.
void check_hidden(float odd, std::size_t L, kernel::Isa isa) {
  const std::size_t S = 100, Dv = 64, column = 5;
  std::mt19937_64 random(3);
  Case<float> c;
  fill_plain(c, random, {1, 2, 2, L, S, 32, Dv}, DType::f32);
  set_key_ranges(c, {.causal = true, .offset = static_cast<std::int64_t>(S - L)});
  ThreadPool pool(1);
  const std::vector<float> plain = compute(c.problem, Ask::sums, pool, isa).context;
  c.v.set(0, 0, S - 1, column, odd);
  const std::vector<float> found = compute(c.problem, Ask::sums, pool, isa).context;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    INFO("element " << i << ", " << odd << ", " << L << " queries");
    if (i != (L - 1) * Dv + column)
      REQUIRE(found[i] == plain[i]);
    else
      REQUIRE((std::isnan(odd) ? std::isnan(found[i]) : found[i] == odd));
  }
}

}  // namespace

TEST_CASE("kernel: a hidden NaN changes nothing if values are read in place", "[kernel]") {
  on_every_isa([](kernel::Isa isa) {
    for (const float odd : {kNaN, kInf, -kInf})
      for (const std::size_t L : {3, 100})  // checked after and before values are used
        check_hidden(odd, L, isa);
  });
}

TEST_CASE("kernel: context rows may have any stride", "[kernel]") {
  const std::size_t H = 4, L = GENERATE(3, 60), Dv = GENERATE(16, 13);
  std::mt19937_64 random(4);
  Case<float> c;
  fill_plain(c, random, {1, H, 1, L, 70, 32, Dv}, DType::f32);
  ThreadPool pool(1);
  on_every_isa([&](kernel::Isa isa) {
    const std::vector<float> expected = compute(c.problem, Ask::sums, pool, isa).context;
    std::vector<float> found(expected.size());
    kernel::Results<float> results;
    results.context = found.data();  // packed heads, with strided rows
    results.context_strides = {0, static_cast<std::int64_t>(Dv), static_cast<std::int64_t>(H * Dv),
                               1};
    kernel::attend(c.problem, results, pool, isa);
    for (std::size_t h = 0; h < H; ++h)
      for (std::size_t l = 0; l < L; ++l)
        for (std::size_t j = 0; j < Dv; ++j)
          REQUIRE(found[(l * H + h) * Dv + j] == expected[(h * L + l) * Dv + j]);
  });
}
