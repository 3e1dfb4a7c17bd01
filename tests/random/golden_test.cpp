// All random methods compared with NumPy 1.24 for the same seeds (tests/golden/README.md).
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>

#include "attn/random/generator.h"
#include "attn/random/random_state.h"
#include "attn/random/selection.h"

using namespace attn;

namespace {

using Draws = std::vector<Tensor>;
template <class Stream>
using Call = std::function<Draws(Stream&)>;
template <class Stream>
using Calls = std::map<std::string, Call<Stream>>;

constexpr std::size_t kDraws = 320, kIntegers = 160;

/// The elements of a golden file. Reads only files written by golden.py.
Tensor golden(const std::string& name) {
  std::ifstream file(ATTN_TEST_DIR "/golden/random/" + name + ".npy", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  INFO(name);
  REQUIRE(bytes.size() > 128);
  const std::size_t descr = bytes.find("'descr': '") + 10, end = bytes.find('\n') + 1;
  const char kind = bytes[descr + 1];
  const int width = bytes[descr + 2] - '0';
  const auto dtype =
      kind == 'b' ? DType::boolean : dtype_named(std::string(1, kind) + std::to_string(8 * width));
  REQUIRE(dtype.has_value());
  Tensor tensor(*dtype, {(bytes.size() - end) / static_cast<std::size_t>(width)});
  std::memcpy(tensor.mutable_raw(), bytes.data() + end, tensor.bytes());
  return tensor;
}

Tensor arange(const Shape& shape) {
  Tensor tensor(DType::i64, shape);
  const auto values = tensor.mutable_data<std::int64_t>();
  std::iota(values.begin(), values.end(), std::int64_t{0});
  return tensor;
}

Tensor shuffled(RandomState& stream, const Shape& shape) {
  Tensor tensor = arange(shape);
  stream.shuffle(tensor);
  return tensor;
}

std::vector<double> weights() {
  std::vector<double> p(64);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<double>(i) / 2016;  // 0 + … + 63
  return p;
}

struct Range {
  DType dtype;
  int128 low, high;
};

/// The ranges of golden.py, by the suffix of the file's name.
std::map<std::string, Range> ranges() {
  const auto power = [](int exponent) { return int128{1} << exponent; };
  return {{"bool_0", {DType::boolean, 0, 1}},
          {"bool_1", {DType::boolean, 1, 2}},
          {"bool_2", {DType::boolean, 0, 2}},
          {"int8_0", {DType::i8, -128, 128}},
          {"int8_1", {DType::i8, -5, 95}},
          {"uint8_0", {DType::u8, 0, 256}},
          {"uint8_1", {DType::u8, 3, 4}},
          {"uint8_2", {DType::u8, 0, 130}},
          {"int16_0", {DType::i16, -power(15), power(15)}},
          {"int16_1", {DType::i16, -1000, 30001}},
          {"uint16_0", {DType::u16, 0, power(16)}},
          {"uint16_1", {DType::u16, 0, 3}},
          {"int32_0", {DType::i32, -power(31), power(31)}},
          {"int32_1", {DType::i32, -7, power(31) - 9}},
          {"uint32_0", {DType::u32, 0, power(32)}},
          {"uint32_1", {DType::u32, 0, power(31) + 1}},
          {"int64_0", {DType::i64, -power(63), power(63)}},
          {"int64_1", {DType::i64, -power(62), power(40)}},
          {"int64_2", {DType::i64, 0, power(32)}},
          {"int64_3", {DType::i64, 0, 3}},
          {"uint64_0", {DType::u64, 0, power(64)}},
          {"uint64_1", {DType::u64, 5, power(63) + 6}},
          {"uint64_2", {DType::u64, 0, power(32) + 1}},
          {"uint64_3", {DType::u64, 1, 7}}};
}

Draws crossing(RandomState& r) {
  return {r.standard_normal({3}),
          r.randint(0, 200, DType::u8, {5}),
          r.random_sample({2}),
          r.standard_normal({2}),
          r.randint(0, 2, DType::boolean, {3}),
          r.permutation(5),
          r.randint(0, 900, DType::i16, {3}),
          r.normal(1.5, 2.5, {3}),
          r.choice(9, {4}, false, {}),
          r.uniform(-1, 3, {3}),
          r.standard_normal({1})};
}

Draws crossing(Generator& r) {
  return {r.integers(0, 1000, DType::i64, {3}),
          r.random({2}),
          r.random_f32({3}),
          r.integers(0, 7, DType::u8, {5}),
          r.uniform(-1, 3, {3}),
          r.integers(0, 2, DType::boolean, {3}),
          r.integers(0, int128{1} << 40, DType::i64, {2}),
          r.integers(0, 10, DType::i64, {1})};
}

Calls<RandomState> legacy_calls() {
  using R = RandomState;
  Calls<R> calls = {
      {"random_sample", [](R& r) { return Draws{r.random_sample({kDraws})}; }},
      {"uniform", [](R& r) { return Draws{r.uniform(-2.5, 7.25, {kDraws})}; }},
      {"standard_normal", [](R& r) { return Draws{r.standard_normal({kDraws})}; }},
      {"normal", [](R& r) { return Draws{r.normal(-1.25, 0.1, {kDraws})}; }},
      {"permutation", [](R& r) { return Draws{r.permutation(kDraws)}; }},
      {"permutation_rows",
       [](R& r) {
         return Draws{picked(arange({40, 4, 2}), r.permutation(40))};
       }},
      {"shuffle", [](R& r) { return Draws{shuffled(r, {kDraws})}; }},
      {"shuffle_rows",
       [](R& r) {
         return Draws{shuffled(r, {40, 4, 2})};
       }},
      {"choice", [](R& r) { return Draws{r.choice(1000, {kDraws}, true, {})}; }},
      {"choice_no_replace", [](R& r) { return Draws{r.choice(1000, {kDraws}, false, {})}; }},
      {"choice_p", [](R& r) { return Draws{r.choice(64, {kDraws}, true, weights())}; }},
      {"choice_no_replace_p",
       [](R& r) {
         Draws draws;
         for (int i = 0; i < 10; ++i) draws.push_back(r.choice(64, {32}, false, weights()));
         return draws;
       }},
      {"crossing", [](R& r) { return crossing(r); }}};
  for (const auto& [name, range] : ranges())
    calls["randint_" + name] = [range = range](R& r) {
      return Draws{r.randint(range.low, range.high, range.dtype, {kIntegers})};
    };
  return calls;
}

Calls<Generator> rng_calls() {
  using G = Generator;
  Calls<G> calls = {{"rng_random", [](G& r) { return Draws{r.random({kDraws})}; }},
                    {"rng_random_f32", [](G& r) { return Draws{r.random_f32({kDraws})}; }},
                    {"rng_uniform", [](G& r) { return Draws{r.uniform(-2.5, 7.25, {kDraws})}; }},
                    {"rng_crossing", [](G& r) { return crossing(r); }}};
  for (const auto& [name, range] : ranges())
    calls["rng_integers_" + name] = [range = range](G& r) {
      return Draws{r.integers(range.low, range.high, range.dtype, {kIntegers})};
    };
  return calls;
}

template <class Stream>
void compare(const Calls<Stream>& calls, const std::vector<Stream>& streams) {
  for (const auto& [name, call] : calls) {
    const Tensor expected = golden(name);
    std::size_t offset = 0;
    for (Stream stream : streams)
      for (const Tensor& drawn : call(stream)) {
        const Tensor found = cast(drawn, expected.dtype());  // throws where a value does not fit
        INFO(name << ", element " << offset / size_of(expected.dtype()));
        REQUIRE(offset + found.bytes() <= expected.bytes());
        REQUIRE(std::memcmp(found.raw(), expected.raw() + offset, found.bytes()) == 0);
        offset += found.bytes();
      }
    INFO(name);
    CHECK(offset == expected.bytes());
  }
}

}  // namespace

TEST_CASE("RandomState gives the bits of NumPy") {
  std::vector<std::uint32_t> long_key(700);  // longer than the state
  std::iota(long_key.begin(), long_key.end(), 0u);
  using Key = std::vector<std::uint32_t>;
  compare<RandomState>(legacy_calls(),
                       {RandomState(0), RandomState(1), RandomState(42), RandomState(0xFFFFFFFFu),
                        RandomState(Key{0}), RandomState(Key{1, 2, 3}), RandomState(long_key)});
}

TEST_CASE("Generator gives the bits of NumPy") {
  using Words = std::vector<std::uint32_t>;
  compare<Generator>(rng_calls(), {Generator(0), Generator(1), Generator(42),
                                   Generator(0xFFFFFFFFu), Generator(std::uint64_t{1} << 32),
                                   Generator(*entropy_words("18446744073709551621")),
                                   Generator(Words{0}), Generator(Words{7, 0, 256, 0, 1, 2, 3})});
}
