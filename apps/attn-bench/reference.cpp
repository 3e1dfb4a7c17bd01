#include "reference.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

namespace attn::bench {
namespace {

template <class T>
void gemm(CBLAS_TRANSPOSE transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, const T* b, T* c) {
  const auto i = [](std::size_t x) { return static_cast<blasint>(x); };
  const blasint ldb = transpose_b == CblasTrans ? i(k) : i(n);
  if constexpr (std::is_same_v<T, float>)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose_b, i(m), i(n), i(k), alpha, a, i(k), b, ldb,
                0, c, i(n));
  else
    cblas_dgemm(CblasRowMajor, CblasNoTrans, transpose_b, i(m), i(n), i(k), alpha, a, i(k), b, ldb,
                0, c, i(n));
}

template <class T>
void softmax(T* row, std::size_t visible, std::size_t count) {
  const T max = *std::max_element(row, row + visible);
  T sum = 0;
  for (std::size_t j = 0; j < visible; ++j) sum += row[j] = std::exp(row[j] - max);
  for (std::size_t j = 0; j < visible; ++j) row[j] /= sum;
  std::fill(row + visible, row + count, T(0));
}

}  // namespace

template <class T>
void blas_attention(const kernel::AttentionProblem<T>& p, T* context, std::size_t threads) {
  openblas_set_num_threads(static_cast<int>(threads));
  std::vector<T> scores(p.L * p.S);
  for (std::size_t h = 0; h < p.H; ++h) {
    const std::size_t g = h / (p.H / p.G);
    const T* q = static_cast<const T*>(p.q.data) + h * p.L * p.D;
    const T* k = static_cast<const T*>(p.k.data) + g * p.S * p.D;
    const T* v = static_cast<const T*>(p.v.data) + g * p.S * p.Dv;
    gemm(CblasTrans, p.L, p.S, p.D, p.scale, q, k, scores.data());
    for (std::size_t i = 0; i < p.L; ++i)
      softmax(scores.data() + i * p.S, static_cast<std::size_t>(p.key_ranges[i].end), p.S);
    gemm(CblasNoTrans, p.L, p.Dv, p.S, T(1), scores.data(), v, context + h * p.L * p.Dv);
  }
}

template void blas_attention(const kernel::AttentionProblem<float>&, float*, std::size_t);
template void blas_attention(const kernel::AttentionProblem<double>&, double*, std::size_t);

}  // namespace attn::bench
