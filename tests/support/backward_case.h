// Random gradients of attention problems, and those of its inputs by the formula in plain loops.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "attn/kernel/backward.h"
#include "support/kernel_case.h"

namespace attn::test {

/// The inputs of the backward pass of a Case, which it owns; `of` must outlive it.
template <class T>
struct BackwardCase {
  kernel::BackwardProblem<T> problem;
  CaseTensor grad;
  std::vector<T> logsumexp, delta, grad_logsumexp;

  BackwardCase() = default;
  BackwardCase(const BackwardCase&) = delete;
  BackwardCase& operator=(const BackwardCase&) = delete;
};

/// Adds random gradients and, if `options`, gradients of logsumexp, and NaN in keys, values and
/// queries that are hidden. logsumexp and delta are those of the formula, rounded to T.
template <class T>
void fill_backward(BackwardCase<T>& c, Case<T>& of, std::mt19937_64& random, bool options);

template <class N>
struct BackwardAnswer {
  std::vector<N> q, k, v, sinks;
  std::array<std::vector<N>, 2> biases;
};

template <class T>
BackwardAnswer<T> compute(const BackwardCase<T>& c, const Case<T>& of, kernel::ThreadPool& pool,
                          kernel::Isa isa);

/// The formula, with error bounds for each gradient in T.
template <class T>
struct BackwardExpected {
  BackwardAnswer<double> value, tolerance;
};
template <class T>
BackwardExpected<T> expect(const BackwardCase<T>& c, const Case<T>& of);

}  // namespace attn::test
