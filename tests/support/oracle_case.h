// Random attention problems with all options, and the oracle's result for each output.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"
#include "support/close.h"

struct OracleCase {
  attn::TensorMap tensors;
  attn::Options options;
  std::vector<std::pair<std::string, Expected>> expected;  ///< by output name
  attn::DType result = attn::DType::f64;                   ///< of float outputs
};

/// The same seed gives the same case.
OracleCase oracle_case(std::uint64_t seed);

/// `all`, or a quarter of it where the program runs slowly (see at_most() in
/// support/kernel_case.h).
std::uint64_t number_of_cases(std::uint64_t all);
