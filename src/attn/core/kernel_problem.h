// A proved problem as the kernels take it: where each query stands, what is added by distance, the
// masks.
#pragma once

#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/kernel/problem.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A kernels' problem without its queries, keys and values, and what it points to.
template <class T>
struct KernelProblem {
  kernel::Problem<T> problem;
  std::vector<kernel::KeyRange> places;
  std::vector<T> distances, sinks;
  std::vector<Tensor> masks;

  KernelProblem(const Inputs& in, const Options& options);
  KernelProblem(const KernelProblem&) = delete;
  KernelProblem& operator=(const KernelProblem&) = delete;
};

/// Whether there is one. Keys that a query sees by its place need not stand together (documents may
/// be mixed, and keys appended for all behind others that are hidden): then a mask says which they
/// are. But what is added by distance needs distances that grow by 1 from key to key.
bool has_kernel_problem(const Inputs& in, const Options& options);

/// The first option, by its key in a job, with a number that the kernels cannot take: it, or what
/// they make of it, is infinite or no longer normal in the dtype that they compute in. nullptr:
/// there is none.
const char* beyond_kernels(const Inputs& in, const Options& options);

/// How much memory it takes beside the inputs, at most.
std::size_t bytes_of_kernel_problem(const Inputs& in, const Options& options);

/// Strides of a contiguous (B, heads, rows, columns) tensor; an axis of 1 is repeated.
kernel::Strides strides_of(const Tensor& tensor);

}  // namespace attn
