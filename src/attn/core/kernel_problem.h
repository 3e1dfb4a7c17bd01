// A problem converted for the kernels: key ranges, biases by distance, masks.
#pragma once

#include <vector>

#include "attn/core/inputs.h"
#include "attn/core/options.h"
#include "attn/kernel/problem.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// kernel::Problem without queries, keys and values, and the arrays that it points to, apart from
/// those of `in`, which must outlive it.
template <class T>
struct KernelProblem {
  kernel::Problem<T> problem;
  std::vector<kernel::KeyRange> masked_ranges;  ///< used if there are no in.key_ranges
  std::vector<T> distances, sinks;
  std::vector<Tensor> masks;

  KernelProblem(const Inputs& in, const Options& options);
  KernelProblem(const KernelProblem&) = delete;
  KernelProblem& operator=(const KernelProblem&) = delete;
};

/// Whether the kernels can represent the problem. Without in.key_ranges, a mask says which keys are
/// visible, but biases by distance need distances that grow by 1 from key to key.
bool has_kernel_problem(const Inputs& in);

/// The key of the first option whose number, or a number that the kernels derive from it, is
/// infinite or subnormal in the dtype of the computation; nullptr: there is none.
const char* beyond_kernels(const Inputs& in, const Options& options);

/// Upper bound of the memory of a KernelProblem.
std::size_t bytes_of_kernel_problem(const Inputs& in);

/// Strides of a contiguous (B, heads, rows, columns) tensor; an axis of 1 is repeated.
kernel::Strides strides_of(const Tensor& tensor);

}  // namespace attn
