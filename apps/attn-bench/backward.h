// The backward pass of a workload: random derivatives of its context.
#pragma once

#include <vector>

#include "attn/kernel/backward.h"
#include "workload.h"

namespace attn::bench {

template <class T>
class BackwardWorkload {
 public:
  BackwardWorkload(const Shape& shape, kernel::ThreadPool& pool);
  BackwardWorkload(const BackwardWorkload&) = delete;
  BackwardWorkload& operator=(const BackwardWorkload&) = delete;

  void run(kernel::ThreadPool& pool) const { kernel::attend_backward(in_, out_, pool); }
  double flops() const { return 2.5 * forward_.flops(); }  ///< five products instead of two

 private:
  const Workload<T> forward_;
  kernel::BackwardProblem<T> in_;
  kernel::BackwardResults<T> out_;
  Array<T> grad_, q_, k_, v_;
  std::vector<T> logsumexp_, delta_;
};

}  // namespace attn::bench
