// The inner loop of the micro-kernel for AVX2: a tile of six rows and two vectors, which takes 15
// of the 16 registers. Compilers keep a pointer for each row and copy sums between registers; this
// loop takes 20.6 instructions for 12 multiply-adds (scripts/bench/kernel-asm). AddressSanitizer
// needs the loop in tile-inl.h.
#pragma once

#include <type_traits>

#include "attn/kernel/simd-inl.h"

#if HWY_TARGET == HWY_AVX2 && !HWY_IS_ASAN
#define ATTN_UNROLLED_TILES 1
namespace attn::kernel::HWY_NAMESPACE {

/// The steps of one iteration.
inline constexpr std::size_t kSteps = 8;

/// The addresses of rows `stride` elements apart: a pointer and three distances, which reach six
/// rows in one instruction.
template <class T>
struct RowPointer {
  const T* at;
  std::size_t one, three, five;  ///< distances in bytes

  HWY_INLINE RowPointer(const T* first, std::size_t stride)
      : at(first), one(stride * sizeof(T)), three(3 * one), five(5 * one) {}
  static constexpr std::size_t scale(std::size_t row) { return row % 2 == 0 ? row : 1; }
  HWY_INLINE std::size_t distance(std::size_t row) const {
    return row == 5 ? five : row == 3 ? three : one;
  }
};

/// The same if the stride is known at compile time.
template <class T, std::size_t Stride>
struct PanelPointer {
  const T* at;
  HWY_INLINE PanelPointer(const T* first, Constant<Stride>) : at(first) {}
};

/// Loads two vectors of row From + Row, where `b` is at row From.
template <std::size_t From, std::size_t Row, class T>
HWY_INLINE void load_row(const RowPointer<T>& b, Vec<T> (&vectors)[2]) {
  if constexpr (Row == 0)
    asm volatile("vmovups (%2), %0\n\tvmovups 32(%2), %1"
                 : "=&x"(vectors[0].raw), "=x"(vectors[1].raw)
                 : "r"(b.at));
  else
    asm volatile("vmovups (%2,%3,%c4), %0\n\tvmovups 32(%2,%3,%c4), %1"
                 : "=&x"(vectors[0].raw), "=x"(vectors[1].raw)
                 : "r"(b.at), "r"(b.distance(Row)), "i"(b.scale(Row)));
}
/// The same, where `b` is at row 0.
template <std::size_t From, std::size_t Row, class T, std::size_t Stride>
HWY_INLINE void load_row(const PanelPointer<T, Stride>& b, Vec<T> (&vectors)[2]) {
  asm volatile("vmovups %c3(%2), %0\n\tvmovups %c3+32(%2), %1"
               : "=&x"(vectors[0].raw), "=x"(vectors[1].raw)
               : "r"(b.at), "i"((From + Row) * Stride * sizeof(T)));
}

/// Adds element K of `row` of A times a row of B to the sums.
#define ATTN_MULTIPLY_ROW(T, suffix)                                                            \
  template <std::size_t Row, std::size_t K>                                                     \
  HWY_INLINE void multiply_row(const RowPointer<T>& a, const Vec<T>(&b)[2], Vec<T>(&sums)[2]) { \
    constexpr std::size_t kAt = K * sizeof(T);                                                  \
    if constexpr (Row == 0)                                                                     \
      asm volatile("vbroadcasts" suffix                                                         \
                   " %c5(%4), %%ymm15\n\t"                                                      \
                   "vfmadd231p" suffix                                                          \
                   " %2, %%ymm15, %0\n\t"                                                       \
                   "vfmadd231p" suffix " %3, %%ymm15, %1"                                       \
                   : "+x"(sums[0].raw), "+x"(sums[1].raw)                                       \
                   : "x"(b[0].raw), "x"(b[1].raw), "r"(a.at), "i"(kAt)                          \
                   : "xmm15");                                                                  \
    else                                                                                        \
      asm volatile("vbroadcasts" suffix                                                         \
                   " %c5(%4,%6,%c7), %%ymm15\n\t"                                               \
                   "vfmadd231p" suffix                                                          \
                   " %2, %%ymm15, %0\n\t"                                                       \
                   "vfmadd231p" suffix " %3, %%ymm15, %1"                                       \
                   : "+x"(sums[0].raw), "+x"(sums[1].raw)                                       \
                   : "x"(b[0].raw), "x"(b[1].raw), "r"(a.at), "i"(kAt), "r"(a.distance(Row)),   \
                     "i"(a.scale(Row))                                                          \
                   : "xmm15");                                                                  \
  }
ATTN_MULTIPLY_ROW(float, "s")
ATTN_MULTIPLY_ROW(double, "d")
#undef ATTN_MULTIPLY_ROW

/// Adds row K of B times element From + K of each row of A to the sums.
template <std::size_t From, std::size_t K, class T, class B>
HWY_INLINE void multiply_step(const RowPointer<T>& a, const B& b, Vec<T> (&sums)[6][2]) {
  Vec<T> vectors[2];
  load_row<From, K>(b, vectors);
  multiply_row<0, From + K>(a, vectors, sums[0]);
  multiply_row<1, From + K>(a, vectors, sums[1]);
  multiply_row<2, From + K>(a, vectors, sums[2]);
  multiply_row<3, From + K>(a, vectors, sums[3]);
  multiply_row<4, From + K>(a, vectors, sums[4]);
  multiply_row<5, From + K>(a, vectors, sums[5]);
}

/// Adds the rows of B times elements [From, From + 4) of A to the sums.
template <std::size_t From, class T, class B>
HWY_INLINE void multiply_four_steps(const RowPointer<T>& a, const B& b, Vec<T> (&sums)[6][2]) {
  multiply_step<From, 0>(a, b, sums);
  multiply_step<From, 1>(a, b, sums);
  multiply_step<From, 2>(a, b, sums);
  multiply_step<From, 3>(a, b, sums);
}

template <class T>
HWY_INLINE RowPointer<T> rows_of(const T* first, std::size_t stride) {
  return {first, stride};
}
template <class T, std::size_t Stride>
HWY_INLINE PanelPointer<T, Stride> rows_of(const T* first, Constant<Stride> stride) {
  return {first, stride};
}

/// Adds the product of `depth` steps, a multiple of kSteps, to the sums.
template <class T, class BStride>
HWY_INLINE void multiply_unrolled(std::size_t depth, const T* a, std::size_t a_stride, const T* b,
                                  BStride b_stride, Vec<T> (&sums)[6][2]) {
  asm volatile("" ::: "memory");  // the instructions above read memory that was written before
  RowPointer<T> at_a(a, a_stride);
  auto at_b = rows_of(b, b_stride);
  constexpr bool kReachesFour = std::is_same_v<decltype(at_b), RowPointer<T>>;
  for (; depth != 0; depth -= kSteps, at_a.at += kSteps) {
    multiply_four_steps<0>(at_a, at_b, sums);
    if constexpr (kReachesFour) at_b.at += 4 * b_stride;
    multiply_four_steps<4>(at_a, at_b, sums);
    at_b.at += (kReachesFour ? 4 : 8) * b_stride;
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
#else
#define ATTN_UNROLLED_TILES 0
#endif
