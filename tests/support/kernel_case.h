// Random attention problems, and the formula in plain loops that answers them.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "attn/kernel/attend.h"

namespace attn::test {

/// Elements of an operand with the dtype that they are stored in, and what they mean in double.
struct Elements {
  DType dtype = DType::f32;
  kernel::Strides strides;
  std::vector<std::byte> bytes;
  std::vector<double> values;  ///< by the same strides

  double at(std::size_t b, std::size_t h, std::size_t i, std::size_t j) const;
  void set(std::size_t b, std::size_t h, std::size_t i, std::size_t j, double value);
  kernel::Operand operand() const { return {bytes.data(), dtype, strides}; }
};

enum class Order { bhld, blhd, transposed };
Elements make_elements(DType dtype, std::array<std::size_t, 4> shape, Order order);

/// A problem that owns what it points to. Copying would leave the pointers behind.
template <class T>
struct Case {
  kernel::Problem<T> problem;
  Elements q, k, v;
  std::vector<kernel::Place> places;  ///< (B, L) or (L); empty: all keys for all
  std::array<std::vector<std::uint8_t>, 3> masks;
  std::array<std::vector<T>, 2> biases;
  std::vector<T> distances;  ///< of the distance -zero and on, (B or 1, H, ...)
  std::size_t zero = 0;
  std::vector<T> sinks;

  Case() = default;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  void point();  ///< sets the problem's pointers to what stands here
  std::string text() const;
};

/// What core makes places of: query i stands at i + offset.
struct Limits {
  bool causal = false;
  std::int64_t left = -1, right = -1, offset = 0;
  std::vector<std::int64_t> lengths = {};  ///< of each batch item
};
template <class T>
void set_places(Case<T>& c, const Limits& limits);

/// Sizes with tails on every side, every option in every combination.
template <class T>
void fill_random(Case<T>& c, std::mt19937_64& random);

/// Everything beside operands and scale, in every combination.
template <class T>
void add_options(Case<T>& c, std::mt19937_64& random);

/// Normal(0, spread) operands of one dtype, nothing else set.
template <class T>
void fill_plain(Case<T>& c, std::mt19937_64& random, std::array<std::size_t, 7> bhglsdv,
                DType dtype, double spread = 1);

template <class N>
struct Answer {
  std::vector<N> context, logsumexp, scores, weights, scaled, masked;
};

/// Which outputs beside context and logsumexp: none, scores and weights, or all that is between
/// them, too.
enum class Ask { sums, ends, stages };
inline constexpr Ask kAsks[] = {Ask::sums, Ask::ends, Ask::stages};
template <class T>
Answer<T> compute(const kernel::Problem<T>& problem, Ask ask, kernel::ThreadPool& pool,
                  kernel::Isa isa);

/// The formula, and how far rounding in T may take each output from it.
template <class T>
struct Expected {
  Answer<double> value, tolerance;
};
template <class T>
Expected<T> expect(const Case<T>& c);

/// "" or the first difference. NaN is to be met by NaN, an infinity by itself.
template <class T>
std::string difference(const std::vector<T>& found, const std::vector<double>& expected,
                       const std::vector<double>& tolerance);

}  // namespace attn::test
