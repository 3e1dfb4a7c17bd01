#include "backward.h"

#include <random>

namespace attn::bench {

template <class T>
BackwardWorkload<T>::BackwardWorkload(const Shape& shape, kernel::ThreadPool& pool)
    : forward_(shape) {
  const kernel::AttentionProblem<T>& p = forward_.problem();
  std::mt19937 random(4);
  std::normal_distribution<T> distribution;
  grad_.resize(p.H * p.L * p.Dv);
  for (T& value : grad_) value = distribution(random);
  q_.resize(p.H * p.L * p.D), k_.resize(p.G * p.S * p.D), v_.resize(p.G * p.S * p.Dv);
  logsumexp_.resize(p.H * p.L), delta_.resize(p.H * p.L);
  kernel::Results<T> results = forward_.results();
  results.logsumexp = logsumexp_.data();
  kernel::attend(p, results, pool);
  for (std::size_t i = 0; i < grad_.size(); ++i) delta_[i / p.Dv] += grad_[i] * results.context[i];
  in_.problem = p;
  in_.grad_context = {grad_.data(), dtype_of<T>, results.context_strides};
  in_.logsumexp = logsumexp_.data(), in_.delta = delta_.data();
  out_.q = q_.data(), out_.k = k_.data(), out_.v = v_.data();
}

template class BackwardWorkload<float>;
template class BackwardWorkload<double>;

}  // namespace attn::bench
