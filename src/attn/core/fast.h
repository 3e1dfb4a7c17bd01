// The fast path: which problems the kernels compute, and handing them over.
//
// Two ways to compute one thing: the stages in attention.cpp are the formula, step by step; kernel/
// is the same thing fast, and is held to the first in tests.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/core/row_block.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// Whether the kernels compute what these options mean, on these places: anything that they do not
/// know makes this false, so that no option can be dropped on the way.
bool fast_path_knows(const Inputs& in, const Options& options);

/// Whether attend() computes these outputs by the kernels when queries, keys and values are floats
/// of one dtype. The kernels pass over the stages between scores and weights, and are not needed
/// for the scores alone.
bool takes_fast_path(const Inputs& in, const Options& options,
                     const std::vector<std::string>& outputs);

/// Whether the kernels can hand an output's rows on without keeping them, when these outputs are
/// computed: scores, and weights where nothing is computed from them.
bool streams(const std::string& name, const std::vector<std::string>& outputs);

/// What one pass over the keys gives; scores and weights only where they are kept.
struct FastStages {
  Tensor scores;        ///< (B, H, L, S)
  Tensor weights;       ///< (B, H, L, S)
  Tensor logsumexp;     ///< (B, H, L)
  Tensor head_context;  ///< (B, H, L, Dv)
};

/// Kept whole, or handed on as their rows are finished, or both.
struct FastWanted {
  bool scores = false, weights = false;
  RowSink scores_to = {}, weights_to = {};
};

/// `queries` (B, H, rows, D), `keys` (B, G, S, D), `values` (B, G, S, Dv), the past included, all
/// of dtype in.compute.
FastStages attend_fast(const Tensor& queries, const Tensor& keys, const Tensor& values,
                       const Inputs& in, const Options& options, FastWanted wanted);

/// How many threads the calling thread's computations use from now on; 0: as many as there are
/// processors for it. The results' bytes do not depend on it.
void set_threads(std::size_t threads);

}  // namespace attn
