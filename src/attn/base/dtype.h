// Element types of tensors.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attn {

enum class DType { f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean };

/// The bits of an IEEE 754 binary16. float represents every value exactly and is used for
/// arithmetic.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(double value);  ///< rounds once, to nearest even; overflow gives infinity
  explicit operator float() const;
  explicit operator double() const { return float(*this); }
};

/// The bits of a bfloat16, the upper half of an IEEE 754 binary32.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(double value);  ///< rounds once, to nearest even; overflow gives infinity
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  explicit operator double() const { return float(*this); }
};

template <class T>
struct Type {
  using type = T;
};

/// Calls f(Type<T>{}) with the C++ type of `dtype`; bool is one byte, 0 or 1.
template <class F>
constexpr decltype(auto) visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(Type<double>{});
    case DType::f32:
      return f(Type<float>{});
    case DType::f16:
      return f(Type<Half>{});
    case DType::bf16:
      return f(Type<BFloat16>{});
    case DType::i8:
      return f(Type<std::int8_t>{});
    case DType::i16:
      return f(Type<std::int16_t>{});
    case DType::i32:
      return f(Type<std::int32_t>{});
    case DType::i64:
      return f(Type<std::int64_t>{});
    case DType::u8:
      return f(Type<std::uint8_t>{});
    case DType::u16:
      return f(Type<std::uint16_t>{});
    case DType::u32:
      return f(Type<std::uint32_t>{});
    case DType::u64:
      return f(Type<std::uint64_t>{});
    case DType::boolean:
      break;
  }
  return f(Type<bool>{});
}

/// The dtype of a C++ type; the inverse of visit().
template <class T>
inline constexpr DType dtype_of = DType::boolean;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<Half> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::i16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::u16;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::u32;
template <>
inline constexpr DType dtype_of<std::uint64_t> = DType::u64;

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  constexpr auto kSizes = [] {
    std::array<std::size_t, static_cast<std::size_t>(DType::boolean) + 1> sizes{};
    for (std::size_t i = 0; i < sizes.size(); ++i)
      sizes[i] = visit(static_cast<DType>(i), []<class T>(Type<T>) { return sizeof(T); });
    return sizes;
  }();
  return kSizes[static_cast<std::size_t>(dtype)];
}

bool is_float(DType dtype);    ///< f64, f32, f16, bf16
bool is_signed(DType dtype);   ///< i8 to i64
bool is_integer(DType dtype);  ///< i8 to i64, u8 to u64; bool is not one

/// NumPy's name: "float64", "int8", "bool"; bfloat16 is "bfloat16".
std::string_view name_of(DType dtype);

/// The dtype with this NumPy name ("int8", "np.int8", "torch.int8") or short name ("i8", "bf16").
std::optional<DType> dtype_named(std::string_view name);

}  // namespace attn
