// The workloads: attention problems of fixed shapes with random data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attn/kernel/attend.h"
#include "huge_pages.h"

namespace attn::bench {

/// An option of a workload.
enum class Extra {
  none,
  causal,
  window,
  lengths,
  documents,
  key_mask,
  mask,
  head_mask,
  bias,
  head_bias,
  distances,
  softcap,
  softcap_last,
  temperature,
  sinks,
  half,
  bfloat,
  weights,
  stages,
  e4m3,  ///< keys and values as 8-bit floats with a scale
  int8,  ///< keys and values as integers with a scale
  dropout,
};

struct Shape {
  const char* group;  ///< section of the table
  bool f64 = false;
  std::size_t H = 8, G = 8, L = 0, S = 0, D = 0;
  Extra extra = Extra::none;
  bool beside_blas = false;  ///< also measure the unfused BLAS reference
  bool backward = false;     ///< the derivatives by queries, keys and values
  bool bf16_products = false;
};

/// All workloads in the order of the table; `quick` omits the largest.
std::vector<Shape> shapes(bool quick);

/// "f32 H8:2 L2048 S2048 D64 causal", "... causal backward", "... causal bf16-products".
std::string name_of(const Shape& shape);
std::string_view name_of(Extra extra);

/// Owns the data of a problem. Copying would leave the pointers behind.
template <class T>
class Workload {
 public:
  explicit Workload(const Shape& shape);
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  const kernel::AttentionProblem<T>& problem() const { return problem_; }
  const kernel::Results<T>& results() const { return results_; }
  double flops() const;  ///< two per multiply-add, for visible keys only
  std::array<std::span<const std::byte>, 2> keys_and_values() const;

 private:
  void add(Extra extra);
  void add_key_ranges(Extra extra);
  void add_masks(Extra extra);
  void add_terms(Extra extra);
  void store_in(Extra extra);
  void store_as_bytes(Extra extra);

  kernel::AttentionProblem<T> problem_;
  kernel::Results<T> results_;
  Array<T> q_, k_, v_, context_, terms_;
  Array<std::uint16_t> half_;
  Array<std::uint8_t> mask_, bytes_;
  std::vector<std::int64_t> rows_;
  double factor_ = 0.02;
  std::vector<kernel::KeyRange> key_ranges_;
};

}  // namespace attn::bench
