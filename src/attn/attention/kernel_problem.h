// A problem converted for the kernels: key ranges, biases by distance, masks.
#pragma once

#include <vector>

#include "attn/kernel/problem.h"
#include "attn/problem/inputs.h"
#include "attn/problem/options.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A kernel::AttentionProblem without queries, keys, values and weights of scores, and the arrays
/// that it points to. It also points to arrays of `in`, which must outlive it.
template <class T>
struct KernelProblem {
  kernel::AttentionProblem<T> problem;
  std::vector<kernel::KeyRange> own_ranges;  ///< used instead of in.key_ranges, unless empty
  std::vector<T> distances, sinks, head_scales;
  std::vector<Tensor> masks;

  explicit KernelProblem(const Inputs& in);
  KernelProblem(const KernelProblem&) = delete;
  KernelProblem& operator=(const KernelProblem&) = delete;
};

/// Whether the biases by distance are a tensor, because keys are not at consecutive positions: they
/// have no in.key_ranges, or some are appended.
bool has_distance_bias(const Inputs& in);

/// Whether there are more than two additive tensors, the most that the kernels take. They are then
/// summed.
bool has_summed_biases(const Inputs& in);

/// The key of a tensor of biases by distance that a KernelProblem cannot add, because they are
/// infinite or may become so; nullptr if there is none.
const char* unbounded_distance_bias(const Inputs& in);

/// The key of the first option whose value, or a number that the kernels derive from it, is
/// infinite or subnormal in the dtype of the computation; nullptr if there is none.
const char* unrepresentable_option(const Inputs& in);

/// How many queries to compute at once, so that masks by position are not large.
std::size_t rows_of_kernel_problem(const Inputs& in);

/// Upper bound of the memory of a KernelProblem, for `of_all_rows` or for rows_of_kernel_problem().
std::size_t bytes_of_kernel_problem(const Inputs& in, bool of_all_rows);

/// The keys and values that the kernels pack at a time, in the type of the computation.
std::size_t bytes_of_packed(const Inputs& in);

/// Strides of a contiguous (B, heads, rows, columns) tensor; an axis of length 1 is broadcast.
kernel::Strides strides_of(const Tensor& tensor);
/// The data of such a tensor, which must outlive it.
kernel::Operand operand_of(const Tensor& tensor);
/// The same for keys or values, which are read where they are (tensor/gathered_rows.h).
kernel::Operand row_operand_of(const Tensor& tensor);

}  // namespace attn
