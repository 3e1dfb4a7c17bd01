// Random attention problems, and their results by the formula in plain loops.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "attn/kernel/attend.h"

namespace attn::test {

/// The elements of an operand in the dtype in which they are stored, and as doubles.
struct CaseTensor {
  DType dtype = DType::f32;
  bool holds_bf16 = false;  ///< as in kernel::Operand
  kernel::Strides strides;
  std::vector<std::byte> bytes;
  std::vector<double> values;  ///< by the same strides

  double at(std::size_t b, std::size_t h, std::size_t i, std::size_t j) const;
  void set(std::size_t b, std::size_t h, std::size_t i, std::size_t j, double value);
  kernel::Operand operand() const {
    return {.data = bytes.data(), .dtype = dtype, .strides = strides, .holds_bf16 = holds_bf16};
  }
};

enum class Order { bhld, blhd, transposed };
CaseTensor make_elements(DType dtype, std::array<std::size_t, 4> shape, Order order);

/// A problem that owns its operands. It cannot be copied, because its pointers would refer to the
/// original.
template <class T>
struct Case {
  kernel::AttentionProblem<T> problem;
  CaseTensor q, k, v;
  std::vector<kernel::KeyRange> key_ranges;  ///< (B, L) or (L); empty: all keys for all
  std::array<std::vector<std::uint8_t>, 3> masks;
  std::array<std::vector<T>, 2> biases;
  std::vector<T> distances;  ///< of the distance -zero and on, (B or 1, H, ...)
  std::size_t zero = 0;
  std::vector<T> sinks, head_scales, score_weights;
  std::vector<std::uint8_t> dropout;

  Case() = default;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  void point();  ///< sets the problem's pointers to the members
  std::string text() const;
};

/// The limits from which core computes key ranges: query i is at position i + offset.
struct Limits {
  bool causal = false;
  std::int64_t left = -1, right = -1, offset = 0;
  std::vector<std::int64_t> lengths = {};  ///< of each batch item
};
template <class T>
void set_key_ranges(Case<T>& c, const Limits& limits);

/// Sizes with remainders in all dimensions, and all options in all combinations.
template <class T>
void fill_random(Case<T>& c, std::mt19937_64& random);

/// All options except operands and scale, in all combinations.
template <class T>
void add_options(Case<T>& c, std::mt19937_64& random);

/// Normal(0, spread) operands of one dtype, without options.
template <class T>
void fill_plain(Case<T>& c, std::mt19937_64& random, std::array<std::size_t, 7> bhglsdv,
                DType dtype, double spread = 1);

template <class N>
struct Answer {
  std::vector<N> context, logsumexp, scores, weights, scaled, masked, dropped;
};

/// Outputs in addition to context and logsumexp: none, scores and weights, or these, all stages
/// between them, and weights after dropout if there is dropout.
enum class Ask { sums, ends, stages };
inline constexpr Ask kAsks[] = {Ask::sums, Ask::ends, Ask::stages};
template <class T>
Answer<T> compute(const kernel::AttentionProblem<T>& problem, Ask ask, kernel::ThreadPool& pool,
                  kernel::Isa isa);

/// The environment variable ATTN_TEST_PROBLEMS=N limits the number of random problems, for
/// sanitizers and valgrind, which slow down the program.
bool is_limited();
int at_most(int problems);

template <class N>
bool same_bytes(const std::vector<N>& a, const std::vector<N>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(N)) == 0);
}

/// The formula, with error bounds for each output in T.
template <class T>
struct Expected {
  Answer<double> value, tolerance;
};
template <class T>
Expected<T> expect(const Case<T>& c);

/// "" or the first difference. NaN equals NaN here, and an infinity equals itself.
template <class T>
std::string difference(const std::vector<T>& found, const std::vector<double>& expected,
                       const std::vector<double>& tolerance);

}  // namespace attn::test
