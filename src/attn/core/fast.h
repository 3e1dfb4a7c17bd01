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

/// The first option, by its key in a job, that keeps a problem from the kernels; nullptr where they
/// compute what the options mean. Anything that they do not know is one, so that no option can be
/// dropped on the way. The options, and why, stand in docs/semantics.md, "Numbers".
const char* unknown_to_kernels(const Inputs& in, const Options& options);

/// Whether any of these outputs is computed from scores.
bool needs_scores(const std::vector<std::string>& outputs);

/// Whether attend() computes these outputs by the kernels when queries, keys and values are floats
/// of one dtype.
bool takes_fast_path(const Inputs& in, const Options& options,
                     const std::vector<std::string>& outputs);

/// Whether the kernels can hand an output's rows on without keeping them, when these outputs are
/// computed: matrices that have a row for each query, and that nothing is computed from.
bool streams(std::string_view name, const std::vector<std::string>& outputs);

/// What one pass over the keys gives; everything but logsumexp only where it is kept.
struct FastStages {
  Tensor scores;         ///< (B, H, L, S)
  Tensor scaled_scores;  ///< (B, H, L, S)
  Tensor masked_scores;  ///< (B, H, L, S)
  Tensor weights;        ///< (B, H, L, S)
  Tensor row_max;        ///< (B, H, L)
  Tensor logsumexp;      ///< (B, H, L)
  Tensor head_context;   ///< (B, H, L, Dv)
};

/// Kept whole, or handed on as their rows are finished, or both.
struct FastWanted {
  struct Matrix {
    bool kept = false;
    const RowSink* to = nullptr;
    explicit operator bool() const { return kept || to != nullptr; }
  };
  Matrix scores, scaled_scores, masked_scores, weights;
  bool row_max = false, context = false;
};

/// `queries` (B, H, rows, D), `keys` (B, G, S, Dk), the past included, all of dtype in.compute;
/// `values` (B, G, S, Dv), too, where the context is wanted.
FastStages attend_fast(const Tensor& queries, const Tensor& keys, const Tensor& values,
                       const Inputs& in, const Options& options, FastWanted wanted);

/// How many threads the calling thread's computations use from now on; 0: as many as there are
/// processors for it. The results' bytes do not depend on it.
void set_threads(std::size_t threads);

}  // namespace attn
