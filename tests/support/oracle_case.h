// Random attention problems with all options, and the oracle's result for each output.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attn/core/options.h"
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
