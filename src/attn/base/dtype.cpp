#include "attn/base/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace attn {
namespace {

struct NamesOfDType {
  DType dtype;
  std::string_view numpy, brief;
};

constexpr std::array<NamesOfDType, 13> kNames = {{{DType::f64, "float64", "f64"},
                                                  {DType::f32, "float32", "f32"},
                                                  {DType::f16, "float16", "f16"},
                                                  {DType::bf16, "bfloat16", "bf16"},
                                                  {DType::i8, "int8", "i8"},
                                                  {DType::i16, "int16", "i16"},
                                                  {DType::i32, "int32", "i32"},
                                                  {DType::i64, "int64", "i64"},
                                                  {DType::u8, "uint8", "u8"},
                                                  {DType::u16, "uint16", "u16"},
                                                  {DType::u32, "uint32", "u32"},
                                                  {DType::u64, "uint64", "u64"},
                                                  {DType::boolean, "bool", "bool"}}};

/// Rounds a double to a 16-bit format with `mantissa` fraction bits and exponents from 1 - `bias`
/// (smallest normal number) to `bias`. The scaled value is exact in double, so it is rounded once.
std::uint16_t round_to_bits(double value, int mantissa, int bias) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int exponent_bits = 15 - mantissa;
  const std::uint32_t infinity = ((1u << exponent_bits) - 1u) << mantissa;
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1u << (mantissa - 1));
  if (magnitude == 0) return sign;
  const int lowest = 1 - bias;
  const auto biased = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52);
  if (biased - 1023 > bias) return static_cast<std::uint16_t>(sign | infinity);
  const int exponent = std::max(biased - 1023, lowest);
  // Units in the last place, rounded half to even by adding a number whose unit is 1. A carry out
  // of the fraction increments the exponent, and turns the largest number into infinity.
  const auto power = static_cast<std::uint64_t>(mantissa - exponent + 1023);
  const double scaled = magnitude * std::bit_cast<double>(power << 52);
  const auto units = static_cast<std::uint32_t>(scaled + 0x1p52 - 0x1p52);
  const std::uint32_t bits = (static_cast<std::uint32_t>(exponent - lowest) << mantissa) + units;
  return static_cast<std::uint16_t>(sign | bits);
}

}  // namespace

Half::Half(double value) : bits(round_to_bits(value, 10, 15)) {}

Half::operator float() const {
  const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7FFFu;
  const std::uint32_t quiet = magnitude > 0x7C00u ? 0x400000u : 0;
  if (magnitude >= 0x7C00u)  // infinity, or NaN with its payload, made quiet as processors do
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | (magnitude & 0x3FFu) << 13);
  if (magnitude >= 0x0400u)  // the exponent's bias is 112 more
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float below_normal = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -below_normal : below_normal;
}

BFloat16::BFloat16(double value) : bits(round_to_bits(value, 7, 127)) {}

bool is_float(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

bool is_signed(DType dtype) {
  return dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
}

bool is_integer(DType dtype) { return !is_float(dtype) && dtype != DType::boolean; }

std::string_view name_of(DType dtype) {
  for (const NamesOfDType& names : kNames)
    if (names.dtype == dtype) return names.numpy;
  return "";
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const std::string_view module : {"torch.", "jnp.", "jax.numpy.", "np.", "numpy.", "tf."})
    if (name.starts_with(module)) {
      name.remove_prefix(module.size());
      break;
    }
  for (const NamesOfDType& names : kNames)
    if (names.numpy == name || names.brief == name) return names.dtype;
  return std::nullopt;
}

}  // namespace attn
