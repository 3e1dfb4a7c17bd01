// Conversion of matrix rows, and packing of values (see kernels.h).
#pragma once

#include <type_traits>

#include "attn/kernel/kernels.h"
#include "attn/kernel/simd-inl.h"
#include "attn/kernel/terms-inl.h"
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
    case DType::i8:
      return convert(reinterpret_cast<const std::int8_t*>(in), stride, count, out);
    case DType::u8:
      return convert(reinterpret_cast<const std::uint8_t*>(in), stride, count, out);
    default:
      convert(reinterpret_cast<const float*>(in), stride, count, out);
  }
}

/// The upper bytes of 16-bit integers, of which kLanes make a vector of floats.
inline constexpr std::size_t kCodesAtOnce = HWY_MAX(16, kLanes<float>);

/// Calls store(numbers, i) for vectors of binary16 numbers, widened, of which the upper bytes are
/// codes [i, i + kLanes) and the lower ones 0, after `change`, for kCodesAtOnce codes.
template <std::size_t Lanes = kLanes<float>, class Change, class Store>
HWY_INLINE void widen_codes(const std::uint8_t* codes, Change change, Store store) {
  const Tag<float> d;
  const hn::Rebind<std::int16_t, Tag<float>> d16;
  const hn::Rebind<hwy::float16_t, Tag<float>> half;
  const auto numbers = [&](auto bits) { return hn::PromoteTo(d, hn::BitCast(half, change(bits))); };
  if constexpr (Lanes == 8) {
    const hn::CappedTag<std::uint8_t, 2 * Lanes> d8;
    const auto all = hn::LoadU(d8, codes);
    store(numbers(hn::BitCast(d16, hn::InterleaveLower(d8, hn::Zero(d8), all))), 0);
    store(numbers(hn::BitCast(d16, hn::InterleaveUpper(d8, hn::Zero(d8), all))), 8);
  } else {
    const hn::Rebind<std::uint8_t, Tag<float>> d8;
    for (std::size_t i = 0; i < kCodesAtOnce; i += kLanes<float>)
      store(numbers(hn::ShiftLeft<8>(hn::PromoteTo(d16, hn::LoadU(d8, codes + i)))), i);
  }
}

/// Part of a row of stored elements, and what makes numbers of them.
template <class T>
struct StoredPart {
  const std::byte* row;
  std::size_t first, count;  ///< columns
  T factor, zero;
};

/// Integers of one byte, in whole vectors. Returns the number of columns.
template <class In>
HWY_INLINE std::size_t decode_bytes(const StoredPart<float>& part, float* out) {
  const auto* bytes = reinterpret_cast<const In*>(part.row) + part.first;
  const Tag<float> d;
  const hn::Rebind<In, Tag<float>> narrow;
  const hn::Rebind<std::int32_t, Tag<float>> wide;
  const Vec<float> by = hn::Set(d, part.factor), zero = hn::Set(d, part.zero);
  const bool is_moved = part.zero != 0;
  std::size_t i = 0;
  for (; i + kLanes<float> <= part.count; i += kLanes<float>) {
    Vec<float> numbers = hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(narrow, bytes + i)));
    if (is_moved) numbers = hn::Sub(numbers, zero);
    hn::StoreU(hn::Mul(numbers, by), d, out + i);
  }
  return i;
}

/// The same for e5m2, which are the upper bytes of binary16 numbers.
HWY_INLINE std::size_t decode_e5m2(const StoredPart<float>& part, float* out) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(part.row) + part.first;
  const Tag<float> d;
  const Vec<float> by = hn::Set(d, part.factor), zero = hn::Set(d, part.zero);
  std::size_t i = 0;
  for (; i + kCodesAtOnce <= part.count; i += kCodesAtOnce)
    widen_codes(
        codes + i, [](auto bits) { return bits; },
        [&](Vec<float> x, std::size_t at) {
          hn::StoreU(hn::Mul(hn::Sub(x, zero), by), d, out + i + at);
        });
  return i;
}

/// The same for e4m3 with `factor` in place of the part's, without a zero point. Moved such that
/// its exponent ends at bit 10, a code is a binary16 of 2^-8 times its value (bias 15 instead of
/// 7). Returns 0 if a code is NaN, which is another code in binary16.
HWY_INLINE std::size_t decode_e4m3(const StoredPart<float>& part, float factor, float* out) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(part.row) + part.first;
  const Tag<float> d;
  const hn::Rebind<std::int16_t, Tag<float>> d16;
  const hn::CappedTag<std::uint8_t, kCodesAtOnce> d8;
  const Vec<float> by = hn::Set(d, factor);
  const auto kept = hn::Set(d16, static_cast<std::int16_t>(0xbfff));
  const auto magnitude = hn::Set(d8, 0x7f);
  auto largest = hn::Zero(d8);
  std::size_t i = 0;
  for (; i + kCodesAtOnce <= part.count; i += kCodesAtOnce) {
    largest = hn::Max(largest, hn::And(hn::LoadU(d8, codes + i), magnitude));
    widen_codes(
        codes + i, [&](auto bits) { return hn::And(hn::ShiftRight<1>(bits), kept); },
        [&](Vec<float> x, std::size_t at) { hn::StoreU(hn::Mul(x, by), d, out + i + at); });
  }
  return hn::AllFalse(d8, hn::Eq(largest, magnitude)) ? i : 0;
}

/// The columns that have a fast conversion: from the first on.
HWY_INLINE std::size_t decode_fast(Code code, DType dtype, const StoredPart<float>& part,
                                   float* out) {
  if (code == Code::none && dtype == DType::i8) return decode_bytes<std::int8_t>(part, out);
  if (code == Code::none && dtype == DType::u8) return decode_bytes<std::uint8_t>(part, out);
  if constexpr (kWidensAll<hwy::float16_t>) {
    if (code == Code::e5m2) return decode_e5m2(part, out);
    // 2^8 times the factor is exact, and so is the product, unless they are very large or small.
    const float size = part.factor < 0 ? -part.factor : part.factor;
    if (code == Code::e4m3 && part.zero == 0 && size > 0x1p-64F && size < 0x1p64F)
      return decode_e4m3(part, part.factor * 256, out);
  }
  return 0;
}

/// The numbers of a part of a row with contiguous columns from column `done` of it on.
template <class T>
void decode_rest(Code code, DType dtype, const StoredPart<T>& part, std::size_t done, T* out) {
  const std::size_t left = part.count - done, from = part.first + done;
  if (code == Code::none)
    widen(part.row + from * size_of(dtype), dtype, 1, left, out + done);
  else
    decode(code, reinterpret_cast<const std::uint8_t*>(part.row), from, left, out + done);
  for (; done < part.count; ++done) out[done] = (out[done] - part.zero) * part.factor;
}

/// The numbers of a part of a row with contiguous columns.
template <class T>
HWY_INLINE void decode_part(Code code, DType dtype, const StoredPart<T>& part, T* out) {
  std::size_t done = 0;
  if constexpr (std::is_same_v<T, float>) done = decode_fast(code, dtype, part, out);
  if (done < part.count) decode_rest(code, dtype, part, done, out);
}

/// Row i of a matrix with contiguous columns, which starts at `row`.
template <class T>
HWY_NOINLINE void decode_row(const Matrix& matrix, std::size_t i, const std::byte* row,
                             std::size_t count, T* out) {
  const Decoding& decoding = *matrix.decoding;
  if (matrix.factors == nullptr)
    return decode_part(decoding.code, matrix.dtype, StoredPart<T>{row, 0, count, 1, 0}, out);
  auto at = first_factor(matrix, i);
  for (std::size_t column = 0; column < count; column += decoding.columns, ++at)
    decode_part(decoding.code, matrix.dtype,
                StoredPart<T>{row, column, HWY_MIN(decoding.columns, count - column),
                              static_cast<T>(matrix.factors[at]),
                              matrix.zeros ? static_cast<T>(matrix.zeros[at]) : T(0)},
                out + column);
}

template <class T>
HWY_INLINE void copy_elements(const T* from, std::size_t count, T* to) {
  const Tag<T> d;
  std::size_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = from[i];
}

/// A row, which may be in the buffer, rounded to bfloat16.
template <class T>
HWY_INLINE const T* rounded_row(const T* row, std::size_t count, T* buffer) {
  if (row != buffer) copy_elements(row, count, buffer);
  round_to_bfloat16(buffer, count);
  return buffer;
}

/// A value as a factor of weights. Rounding may make it infinite.
template <class T>
T value_factor(const AttentionProblem<T>& p, const Matrix& v, std::size_t key, std::size_t column) {
  T value = element<T>(v, key, column);
  if (p.bf16_products) round_to_bfloat16(&value, 1);
  return value;
}

template <class T>
HWY_INLINE void set_zeros(std::size_t count, T* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = 0;
}

/// The rows of a matrix as contiguous T: in place if possible, otherwise converted one by one.
template <class T>
class Rows {
 public:
  Rows(const Matrix& matrix, std::size_t columns)
      : matrix_(matrix),
        columns_(columns),
        element_bytes_(size_of(matrix.dtype)),
        row_bytes_(matrix.row * static_cast<std::int64_t>(element_bytes_)),
        bytes_((matrix.rest ? matrix.width : columns) * element_bytes_),
        in_place_(matrix.dtype == dtype_of<T> && matrix.column == 1 && !matrix.decoding &&
                  !matrix.rest) {
    if (matrix.decoding) bytes_ /= codes_per_byte(matrix.decoding->code);
  }

  bool in_place() const { return in_place_; }
  bool is_table() const { return matrix_.rows != nullptr; }
  /// Of a row without `rest`, rounded down to elements.
  std::size_t bytes() const { return bytes_; }

  /// The distance in bytes between rows [first, first + count), 0 if it is not the same for all.
  std::int64_t step(std::size_t first, std::size_t count) const {
    if (matrix_.rows == nullptr) return row_bytes_;
    const std::int64_t* rows = matrix_.rows + first;
    const std::int64_t step = count > 1 ? rows[1] - rows[0] : 0;
    bool even = step > 0 && rows[0] >= 0;
    for (std::size_t i = 1; i < count; ++i) even = even && rows[i] - rows[i - 1] == step;
    return even ? step * static_cast<std::int64_t>(element_bytes_) : 0;
  }

  /// Row i, converted into `buffer` if necessary. A row of zeros is always in `buffer`.
  const T* at(std::size_t i, T* buffer) const {
    const std::byte* row = start(i);
    if (row == nullptr) {
      set_zeros(columns_, buffer);
      return buffer;
    }
    if (in_place_) return reinterpret_cast<const T*>(row);
    const std::size_t own = matrix_.rest ? matrix_.width : columns_;
    if (matrix_.decoding)
      decode_row(matrix_, i, row, own, buffer);
    else
      widen(row, matrix_.dtype, matrix_.column, own, buffer);
    if (own < columns_) copy_rest(i, buffer + own);
    return buffer;
  }

  /// Calls f(read), where read(i, to) copies row i, in the fastest way for these rows.
  template <class F>
  HWY_INLINE void with_reader(F f) const {
    if constexpr (std::is_same_v<T, float>) {
      const bool is_plain = matrix_.column == 1 && !matrix_.rest && !matrix_.decoding;
      if (is_plain && matrix_.dtype == DType::f16) return f(reader<hwy::float16_t, Half>());
      if (is_plain && matrix_.dtype == DType::bf16) return f(reader<hwy::bfloat16_t, BFloat16>());
      const bool has_one_factor =
          matrix_.factors && !matrix_.rest && matrix_.decoding->columns >= columns_;
      if (has_one_factor && matrix_.decoding->code == Code::none) {
        if (matrix_.dtype == DType::i8) return f(decoder<Code::none, DType::i8>());
        if (matrix_.dtype == DType::u8) return f(decoder<Code::none, DType::u8>());
      }
      if (has_one_factor && matrix_.decoding->code == Code::e4m3)
        return f(decoder<Code::e4m3, DType::u8>());
    }
    f([this](std::size_t i, T* to) ATTN_INLINE {
      const T* const row = at(i, to);
      if (row != to) copy_elements(row, columns_, to);
    });
  }

  /// Whether rows are contiguous elements of this dtype, which are numbers.
  bool is_plain(DType dtype) const {
    return matrix_.dtype == dtype && matrix_.column == 1 && !matrix_.rest && !matrix_.decoding;
  }

  /// Where row i is; nullptr: a row of zeros.
  const std::byte* start(std::size_t i) const {
    if (matrix_.rows == nullptr) return matrix_.data + static_cast<std::int64_t>(i) * row_bytes_;
    if (matrix_.rows[i] < 0) return nullptr;
    return matrix_.data + matrix_.rows[i] * static_cast<std::int64_t>(element_bytes_);
  }

 private:
  template <class Narrow, class In>
  HWY_INLINE auto reader() const {
    return [this](std::size_t i, T* to) ATTN_INLINE {
      if (const std::byte* const row = start(i))
        return convert_narrow<Narrow>(reinterpret_cast<const In*>(row), 1, columns_, to);
      set_zeros(columns_, to);
    };
  }

  /// For rows with one factor each.
  template <Code Stored, DType Type>
  HWY_INLINE auto decoder() const {
    return [this](std::size_t i, T* to) ATTN_INLINE {
      const std::byte* const row = start(i);
      if (row == nullptr) return set_zeros(columns_, to);
      const auto at = first_factor(matrix_, i);
      const StoredPart<T> part{row, 0, columns_, static_cast<T>(matrix_.factors[at]),
                               matrix_.zeros ? static_cast<T>(matrix_.zeros[at]) : T(0)};
      decode_part(Stored, Type, part, to);
    };
  }

  /// The columns of `rest` in row i.
  HWY_NOINLINE void copy_rest(std::size_t i, T* to) const {
    const Rows rest(matrix_of(*matrix_.rest, matrix_.batch, matrix_.head),
                    columns_ - matrix_.width);
    const T* const from = rest.at(i, to);
    if (from != to) copy_elements(from, rest.columns_, to);
  }

  Matrix matrix_;
  std::size_t columns_, element_bytes_;
  std::int64_t row_bytes_;
  std::size_t bytes_;
  bool in_place_;
};

template <class T>
HWY_INLINE void prefetch_row(const Rows<T>& rows, std::size_t i) {
  if (const std::byte* const row = rows.start(i))
    for (std::size_t byte = 0; byte < rows.bytes(); byte += 64) __builtin_prefetch(row + byte);
}

/// How many rows ahead the first line of a page of memory is prefetched: translating its address
/// takes long.
inline constexpr std::size_t kFarRows = 32;

/// Prefetches row i, and the start of row i + kFarRows if it is in another page than the row
/// before.
template <class T>
HWY_INLINE void prefetch_ahead(const Rows<T>& rows, std::size_t i, std::size_t all) {
  constexpr std::uintptr_t kPageBytes = 4096;
  if (i >= all) return;
  prefetch_row(rows, i);
  const std::size_t far = i + kFarRows;
  if (!rows.is_table() || far >= all) return;
  const auto before = reinterpret_cast<std::uintptr_t>(rows.start(far - 1));
  const auto at = reinterpret_cast<std::uintptr_t>(rows.start(far));
  if (at != 0 && at / kPageBytes != before / kPageBytes)
    __builtin_prefetch(reinterpret_cast<const void*>(at));
}

/// How many bytes ahead values in main memory, and keys in tiles, are prefetched if they are read
/// in place; and the least number for other keys.
inline constexpr std::size_t kBytesAhead = 16384, kBytesAheadOfKeys = 4096;

/// The largest distance in bytes of keys or values in main memory that are read in place. At larger
/// ones, their lines share too few sets of a level 1 cache.
inline constexpr std::int64_t kMostStepInPlace = 1024;

/// By how many rows prefetching is ahead of copying `count` rows.
constexpr std::size_t rows_ahead(std::size_t count) { return HWY_MAX(count, std::size_t{16}); }

/// Copies rows [first, first + count) of `all` as contiguous T, while as many rows that follow are
/// prefetched. Processors read memory fastest row by row.
template <class T>
HWY_NOINLINE void copy_rows(const Rows<T>& rows, std::size_t first, std::size_t count,
                            std::size_t all, std::size_t columns, T* to) {
  rows.with_reader([&](auto read) ATTN_INLINE {
    for (std::size_t i = 0; i < count; ++i, to += columns) {
      prefetch_ahead(rows, first + rows_ahead(count) + i, all);
      read(first + i, to);
    }
  });
}

/// Row i as pairs, ceil(columns / 2) of them. `numbers` (columns) may overlap with `to` if it does
/// not start before it.
template <class T>
HWY_INLINE void read_pairs(const Rows<T>& rows, std::size_t i, std::size_t columns, T* numbers,
                           T* to) {
  const std::byte* const row = rows.start(i);
  if (row != nullptr && rows.is_plain(DType::bf16)) return copy_pairs_of_row(row, columns, to);
  round_to_pairs(rows.at(i, numbers), columns, to);
}

/// copy_rows() of pairs, with memory for a row of `numbers`.
template <class T>
HWY_INLINE void copy_pairs(const Rows<T>& rows, std::size_t first, std::size_t count,
                           std::size_t all, std::size_t columns, T* numbers, T* to) {
  for (std::size_t i = 0; i < count; ++i, to += depth_of(FactorForm::pairs, columns)) {
    prefetch_ahead(rows, first + rows_ahead(count) + i, all);
    read_pairs(rows, first + i, columns, numbers, to);
  }
}

/// Prefetches the first rows; later rows are prefetched while these are read.
template <class T>
void prefetch_rows(const Rows<T>& rows, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) prefetch_row(rows, i);
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

/// Packs values as numbers or as rounded ones.
template <class T>
ValueKind pack_all_values(const Matrix& v, FactorForm factors, std::size_t first, std::size_t count,
                          std::size_t Dv, T* widened, T* packed, std::size_t keys, std::size_t at) {
  const Rows<T> source(v, Dv);
  bool non_finite = false;
  for (std::size_t i = 0; i < count; ++i) {
    const T* row = source.at(first + i, widened);
    if (factors == FactorForm::rounded) row = rounded_row(row, Dv, widened);
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

/// Whether values can be read in place as fast as packed ones. That requires whole vectors,
/// adjacent rows (rows further apart map to few cache sets) and few bytes (large arrays in small
/// pages are slow).
template <class T>
bool may_stay_in_place(const Matrix& v, std::size_t first, std::size_t count, std::size_t keys,
                       std::size_t Dv) {
  constexpr std::size_t kMaxRowBytes = 1024, kMaxBytes = 256u << 10;  // bytes
  const Rows<T> source(v, Dv);
  return source.in_place() && v.row == static_cast<std::int64_t>(Dv) && Dv % kLanes<T> == 0 &&
         Dv * sizeof(T) <= kMaxRowBytes && keys * Dv * sizeof(T) <= kMaxBytes &&
         all_finite(source.at(first, nullptr), count * Dv);
}

}  // namespace attn::kernel::HWY_NAMESPACE
