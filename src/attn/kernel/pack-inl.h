// Conversion of matrix rows, and packing of values (see kernels.h).
#pragma once

#include <type_traits>

#include "attn/kernel/kernels.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/tile-inl.h"

namespace attn::kernel::HWY_NAMESPACE {

template <class In, class T>
void convert(const In* in, std::int64_t stride, std::size_t count, T* out) {
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<T>(in[static_cast<std::int64_t>(i) * stride]);
}

// Highway's emulated conversion does not support infinity and NaN.
template <class Narrow>
inline constexpr bool kWidensAll =
    std::is_same_v<Narrow, hwy::bfloat16_t> || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

/// hwy::float16_t or hwy::bfloat16_t to float or double.
template <class Narrow, class In, class T>
void convert_narrow(const In* in, std::int64_t stride, std::size_t count, T* out) {
  std::size_t done = 0;
  if constexpr (std::is_same_v<T, float> && kWidensAll<Narrow>) {
    const Tag<float> d;
    const hn::Rebind<Narrow, Tag<float>> narrow;
    if (stride == 1)
      for (; done + kLanes<float> <= count; done += kLanes<float>)
        hn::StoreU(hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const Narrow*>(in) + done)),
                   d, out + done);
  }
  for (; done < count; ++done)
    out[done] = static_cast<T>(float(in[static_cast<std::int64_t>(done) * stride]));
}

/// Converts `count` elements of any floating point dtype, `stride` elements apart.
template <class T>
HWY_NOINLINE void widen(const std::byte* in, DType dtype, std::int64_t stride, std::size_t count,
                        T* out) {
  switch (dtype) {
    case DType::f16:
      return convert_narrow<hwy::float16_t>(reinterpret_cast<const Half*>(in), stride, count, out);
    case DType::bf16:
      return convert_narrow<hwy::bfloat16_t>(reinterpret_cast<const BFloat16*>(in), stride, count,
                                             out);
    case DType::f64:
      return convert(reinterpret_cast<const double*>(in), stride, count, out);
    default:
      convert(reinterpret_cast<const float*>(in), stride, count, out);
  }
}

/// The rows of a matrix as contiguous T: in place if possible, otherwise converted one by one.
template <class T>
class Rows {
 public:
  Rows(const Matrix& matrix, std::size_t columns)
      : matrix_(matrix),
        columns_(columns),
        row_bytes_(matrix.row * static_cast<std::int64_t>(size_of(matrix.dtype))),
        in_place_(matrix.dtype == dtype_of<T> && matrix.column == 1) {}

  bool in_place() const { return in_place_; }

  /// The distance in bytes between rows [first, first + count), 0 if it is not the same for all.
  std::int64_t step(std::size_t first, std::size_t count) const {
    if (matrix_.rows == nullptr) return row_bytes_;
    const std::int64_t* rows = matrix_.rows + first;
    const std::int64_t step = count > 1 ? rows[1] - rows[0] : 0;
    bool even = step > 0 && rows[0] >= 0;
    for (std::size_t i = 1; i < count; ++i) even = even && rows[i] - rows[i - 1] == step;
    return even ? step * static_cast<std::int64_t>(size_of(matrix_.dtype)) : 0;
  }

  /// Row i, converted into `buffer` if necessary. A row of zeros is always in `buffer`.
  const T* at(std::size_t i, T* buffer) const {
    const std::byte* row = start(i);
    if (row == nullptr) {
      for (std::size_t j = 0; j < columns_; ++j) buffer[j] = 0;
      return buffer;
    }
    if (in_place_) return reinterpret_cast<const T*>(row);
    widen(row, matrix_.dtype, matrix_.column, columns_, buffer);
    return buffer;
  }

  /// Where row i is; nullptr: a row of zeros.
  const std::byte* start(std::size_t i) const {
    if (matrix_.rows == nullptr) return matrix_.data + static_cast<std::int64_t>(i) * row_bytes_;
    if (matrix_.rows[i] < 0) return nullptr;
    return matrix_.data + matrix_.rows[i] * static_cast<std::int64_t>(size_of(matrix_.dtype));
  }

 private:
  Matrix matrix_;
  std::size_t columns_;
  std::int64_t row_bytes_;
  bool in_place_;
};

/// Prefetches the first rows that will be read in place; later rows are prefetched during the
/// product.
template <class T>
void prefetch_rows(const Rows<T>& rows, std::size_t first, std::size_t count, std::size_t columns) {
  if (!rows.in_place()) return;
  for (std::size_t i = first; i < first + count; ++i)
    if (const std::byte* row = rows.start(i))
      prefetch_elements(reinterpret_cast<const T*>(row), columns);
}

template <class T>
using BlockTag = hn::CappedTag<T, 16 / sizeof(T)>;  ///< 128 bits, within which lanes interleave
template <class T>
inline constexpr std::size_t kBlockLanes = 16 / sizeof(T);

/// Transposes kBlockLanes rows within each 128-bit block.
template <class T>
HWY_INLINE void transpose_in_blocks(Vec<T> (&rows)[kBlockLanes<T>]) {
  const Tag<T> d;
  if constexpr (sizeof(T) == 8) {
    const Vec<T> a = rows[0], b = rows[1];
    rows[0] = hn::InterleaveLower(d, a, b);
    rows[1] = hn::InterleaveUpper(d, a, b);
  } else {
    const auto& [a, b, c, e] = rows;
    const Vec<T> ac_low = hn::InterleaveLower(d, a, c), be_low = hn::InterleaveLower(d, b, e);
    const Vec<T> ac_high = hn::InterleaveUpper(d, a, c), be_high = hn::InterleaveUpper(d, b, e);
    rows[0] = hn::InterleaveLower(d, ac_low, be_low);
    rows[1] = hn::InterleaveUpper(d, ac_low, be_low);
    rows[2] = hn::InterleaveLower(d, ac_high, be_high);
    rows[3] = hn::InterleaveUpper(d, ac_high, be_high);
  }
}

template <class T>
HWY_INLINE bool is_finite(T x) {
  return x - x == 0;
}

/// Copies `count` elements and pads with zeros up to `width`. Returns whether all are finite.
template <class T>
HWY_INLINE bool copy_row(const T* in, std::size_t count, std::size_t width, T* out) {
  const Tag<T> d;
  Vec<T> nonfinite_probe = hn::Zero(d);  // 0 * x + probe is 0 as long as every x is finite
  std::size_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Vec<T> v = hn::LoadU(d, in + i);
    hn::StoreU(v, d, out + i);
    nonfinite_probe = hn::MulAdd(v, hn::Zero(d), nonfinite_probe);
  }
  bool finite = is_finite(total<T>(nonfinite_probe));
  for (; i < count; ++i) {
    out[i] = in[i];
    finite = finite && is_finite(in[i]);
  }
  for (; i < width; ++i) out[i] = 0;
  return finite;
}

/// Whether `count` elements, whole vectors, are finite.
template <class T>
bool all_finite(const T* x, std::size_t count) {
  constexpr std::size_t kChains = 8;  // independent, to hide the latency of each
  const Tag<T> d;
  Vec<T> nonfinite_probe[kChains];
  for (Vec<T>& chain : nonfinite_probe) chain = hn::Zero(d);
  const auto probe = [&](Vec<T>& chain, std::size_t at) {
    chain = hn::MulAdd(hn::LoadU(d, x + at), hn::Zero(d), chain);
  };
  std::size_t i = 0;
  for (; i + kChains * kLanes<T> <= count; i += kChains * kLanes<T>)
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kChains; ++j) probe(nonfinite_probe[j], i + j * kLanes<T>);
  for (; i < count; i += kLanes<T>) probe(nonfinite_probe[0], i);
  for (std::size_t j = 1; j < kChains; ++j)
    nonfinite_probe[0] = hn::Add(nonfinite_probe[0], nonfinite_probe[j]);
  return is_finite(total<T>(nonfinite_probe[0]));
}

/// Packs values even if they could be read in place.
template <class T>
ValueKind pack_all_values(const Matrix& v, std::size_t first, std::size_t count, std::size_t Dv,
                          T* widened, T* packed, std::size_t keys, std::size_t at) {
  const Rows<T> source(v, Dv);
  bool non_finite = false;
  for (std::size_t i = 0; i < count; ++i) {
    const T* row = source.at(first + i, widened);
    for (std::size_t column = 0; column < Dv; column += kPanel<T>) {
      const std::size_t used = HWY_MIN(kPanel<T>, Dv - column);
      const std::size_t width = round_up(used, kLanes<T>);
      T* out = packed + column * keys + (at + i) * width;
      if (copy_row(row + column, used, width, out)) continue;
      non_finite = true;
      for (std::size_t j = 0; j < used; ++j)
        if (!is_finite(out[j])) out[j] = 0;
    }
  }
  return non_finite ? ValueKind::non_finite : ValueKind::packed;
}

/// Packs values unless they can be read in place as fast as packed ones. That requires whole
/// vectors, adjacent rows (rows further apart map to few cache sets) and few bytes (large arrays in
/// small pages are slow).
template <class T>
ValueKind pack_values(const Matrix& v, std::size_t first, std::size_t count, std::size_t Dv,
                      T* widened, T* packed, std::size_t keys, std::size_t at) {
  constexpr std::size_t kMaxRowBytes = 1024, kMaxBytes = 256u << 10;  // bytes
  const Rows<T> source(v, Dv);
  if (source.in_place() && v.row == static_cast<std::int64_t>(Dv) && Dv % kLanes<T> == 0 &&
      Dv * sizeof(T) <= kMaxRowBytes && keys * Dv * sizeof(T) <= kMaxBytes &&
      all_finite(source.at(first, nullptr), count * Dv))
    return ValueKind::in_place;
  return pack_all_values(v, first, count, Dv, widened, packed, keys, at);
}

}  // namespace attn::kernel::HWY_NAMESPACE
