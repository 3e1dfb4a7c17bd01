// What the golden files do not cover: edge cases, errors and dtypes.
#include "attn/random/random_state.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/base/error.h"
#include "attn/random/generator.h"

using namespace attn;

namespace {

template <class T>
std::vector<T> values(const Tensor& tensor) {
  const auto data = tensor.data<T>();
  return {data.begin(), data.end()};
}

template <class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "nothing was refused";
}

bool same_next(RandomState a, RandomState b) {
  return values<double>(a.random_sample({2})) == values<double>(b.random_sample({2}));
}

using I64 = std::vector<std::int64_t>;
const double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("seed 42 gives the well-known numbers") {
  RandomState stream(42);
  CHECK(values<std::int64_t>(stream.randint(0, 3, DType::i64, {3, 3})) ==
        I64{2, 0, 2, 2, 0, 0, 2, 1, 2});
  CHECK(values<std::int64_t>(stream.randint(0, 3, DType::i64, {3, 3})) ==
        I64{2, 2, 2, 0, 2, 1, 0, 1, 1});
}

TEST_CASE("seed(42) and seed([42]) are two streams") {
  CHECK_FALSE(same_next(RandomState(42), RandomState(std::vector<std::uint32_t>{42})));
  CHECK(refusal([] { RandomState(std::vector<std::uint32_t>{}); }) ==
        "seed: expected at least one number, found none");
}

TEST_CASE("draws have the requested shape and dtype") {
  RandomState stream(1);
  Generator rng(1);
  const DType integers[] = {DType::i8,  DType::i16, DType::i32, DType::i64,    DType::u8,
                            DType::u16, DType::u32, DType::u64, DType::boolean};
  for (const DType dtype : integers) {
    CHECK(stream.randint(0, 2, dtype, {2, 3}).dtype() == dtype);
    CHECK(rng.integers(0, 2, dtype, {}).dtype() == dtype);
  }
  CHECK(stream.random_sample({}).size() == 1);
  CHECK(stream.normal(0, 1, {0, 3}).shape() == Shape{0, 3});
  CHECK(rng.random_f32({2}).dtype() == DType::f32);
  const Tensor population = Tensor::of<float>({3}, {1, 2, 3});
  CHECK(stream.choice(population, {2, 2}, true, {}).dtype() == DType::f32);
  CHECK(stream.choice(population, {2, 2}, true, {}).shape() == Shape{2, 2});
}

TEST_CASE("the second normal number of a pair is kept for the next draw") {
  RandomState together(7), apart(7);
  const auto pair = values<double>(together.standard_normal({2}));
  CHECK(values<double>(apart.standard_normal({1}))[0] == pair[0]);
  const auto uniform = apart.random_sample({3});
  CHECK(values<double>(apart.standard_normal({1}))[0] == pair[1]);
  CHECK(values<double>(together.random_sample({3})) == values<double>(uniform));
}

TEST_CASE("empty draws do not advance the stream") {
  const RandomState fresh(3);
  RandomState stream = fresh;
  Tensor empty_rows(DType::f64, {5, 0});
  stream.shuffle(empty_rows);
  stream.randint(4, 5, DType::i64, {100});
  stream.randint(9, 2, DType::i64, {3, 0});  // not even checked
  stream.permutation(1);
  stream.permutation(-3);
  stream.choice(0, {0}, true, {});
  CHECK(same_next(stream, fresh));
  stream.permutation(5);
  CHECK_FALSE(same_next(stream, fresh));
}

TEST_CASE("rows move as a whole, as permutation orders them") {
  const Tensor matrix = Tensor::of<std::int16_t>({3, 2}, {0, 1, 10, 11, 20, 21});
  RandomState a(5), b(5);
  const auto order = values<std::int64_t>(a.permutation(3));
  Tensor shuffled = matrix;
  b.shuffle(shuffled);
  const auto rows = values<std::int16_t>(shuffled);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(rows[2 * i] == 10 * order[i]);
    CHECK(rows[2 * i + 1] == 10 * order[i] + 1);
  }
  CHECK(values<std::int16_t>(matrix) == std::vector<std::int16_t>{0, 1, 10, 11, 20, 21});
}

TEST_CASE("choice picks elements at the indices that it would draw") {
  const Tensor letters = Tensor::of<std::uint8_t>({4}, {'a', 'b', 'c', 'd'});
  RandomState a(11), b(11);
  const auto indices = values<std::int64_t>(a.choice(4, {20}, true, {}));
  const auto picked = values<std::uint8_t>(b.choice(letters, {20}, true, {}));
  for (std::size_t i = 0; i < 20; ++i) CHECK(picked[i] == 'a' + indices[i]);
}

TEST_CASE("integers outside the dtype's range are refused") {
  RandomState stream(0);
  Generator rng(0);
  const int128 top = int128{1} << 64;
  CHECK(refusal([&] { stream.randint(5, 5, DType::i64, {1}); }) ==
        "bounds: expected low < high, found [5, 5)");
  CHECK(refusal([&] { stream.randint(-1, 5, DType::u8, {1}); }) ==
        "bounds: uint8 holds [0, 256), found [-1, 5)");
  CHECK(refusal([&] { rng.integers(0, 129, DType::i8, {1}); }) ==
        "bounds: int8 holds [-128, 128), found [0, 129)");
  CHECK(refusal([&] { rng.integers(0, 3, DType::boolean, {1}); }) ==
        "bounds: bool holds [0, 2), found [0, 3)");
  CHECK(refusal([&] { stream.randint(0, top + 1, DType::u64, {1}); }) ==
        "bounds: uint64 holds [0, 18446744073709551616), found [0, 18446744073709551617)");
  CHECK(refusal([&] { stream.randint(0, 3, DType::f32, {1}); }) ==
        "dtype: expected an integer type or bool, found float32");
}

TEST_CASE("invalid bounds of floats are refused") {
  RandomState stream(0);
  CHECK(values<double>(stream.uniform(2, 1, {1}))[0] < 2);  // low > high is legal in RandomState
  CHECK(refusal([] { Generator(0).uniform(2, 1, {1}); }).find("low <= high") != std::string::npos);
  CHECK(refusal([&] { stream.uniform(-1e308, 1e308, {1}); }) ==
        "bounds: expected high - low to be finite, found [-1e+308, 1e+308)");
  CHECK(refusal([&] { stream.uniform(0, kNan, {1}); }).find("finite") != std::string::npos);
  CHECK(refusal([&] { stream.normal(0, -1, {1}); }).find("non-negative") != std::string::npos);
  CHECK(refusal([&] { stream.normal(0, -0.0, {1}); }).find("non-negative") != std::string::npos);
  CHECK(std::isnan(values<double>(stream.normal(0, kNan, {1}))[0]));
}

TEST_CASE("choice refuses what NumPy refuses") {
  RandomState stream(0);
  const auto refuse = [&](std::int64_t n, std::size_t size, bool replace,
                          const std::optional<std::vector<double>>& p) {
    return refusal([&] { stream.choice(n, {size}, replace, p); });
  };
  CHECK(refuse(0, 1, true, std::nullopt).find("found none") != std::string::npos);
  CHECK(refuse(3, 4, false, std::nullopt).find("from 3") != std::string::npos);
  CHECK(refuse(3, 3, false, std::vector<double>{0.5, 0.5, 0}).find("from 2 of non-zero") !=
        std::string::npos);
  CHECK(refuse(3, 1, true, std::vector<double>{}).find("expected 3 prob") != std::string::npos);
  CHECK(refuse(3, 1, true, std::vector<double>{0.5, 0.5}).find("expected 3 probabilities") !=
        std::string::npos);
  CHECK(refuse(2, 1, true, std::vector<double>{0.5, kNan}).find("NaN") != std::string::npos);
  CHECK(refuse(2, 1, true, std::vector<double>{1.5, -0.5}).find(">= 0") != std::string::npos);
  CHECK(refuse(2, 1, true, std::vector<double>{0.5, 0.75}) ==
        "p: expected probabilities that sum to 1, found a sum of 1.25");
  CHECK(refuse(2, 1, true, std::vector<double>{0.5, 0.5 + 2e-8}).find("sum to 1") !=
        std::string::npos);
  CHECK(stream.choice(2, {5}, true, std::vector<double>{0.5, 0.5 + 1e-8}).size() ==
        5);  // within the tolerance
  const Tensor matrix(DType::f64, {2, 2});
  CHECK(refusal([&] { stream.choice(matrix, {1}, true, std::nullopt); }).find("one axis") !=
        std::string::npos);
}

TEST_CASE("a tensor without axes cannot be shuffled") {
  Tensor number(DType::f64, {});
  CHECK(refusal([&] { RandomState(0).shuffle(number); }) ==
        "expected an array of at least one axis, found a number");
}

TEST_CASE("a seed of any size becomes 32-bit words") {
  using Words = std::vector<std::uint32_t>;
  CHECK(entropy_words("0") == Words{0});
  CHECK(entropy_words("0042") == Words{42});
  CHECK(entropy_words("4294967295") == Words{0xFFFFFFFFu});
  CHECK(entropy_words("4294967296") == Words{0, 1});
  CHECK(entropy_words("340282366920938463463374607431768211455") ==
        Words{0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu});
  CHECK_FALSE(entropy_words("").has_value());
  CHECK_FALSE(entropy_words("-1").has_value());
  CHECK_FALSE(entropy_words("1e3").has_value());
}
