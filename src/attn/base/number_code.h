// 8-bit and 4-bit number formats, as in quantised key/value caches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace attn {

/// e4m3 and e5m2 are those of OCP OFP8, e8m0 and e2m1 those of OCP MX 1.0; fnuz: finite numbers,
/// NaN and an unsigned zero (arXiv:2206.02915).
enum class Code : std::uint8_t {
  none,      ///< the elements are numbers
  e4m3,      ///< bias 7; 0x7f and 0xff are NaN, and none is infinite
  e5m2,      ///< the upper byte of a binary16
  e4m3fnuz,  ///< bias 8; 0x80 is NaN
  e5m2fnuz,  ///< bias 16; 0x80 is NaN
  e8m0,      ///< 2^(code - 127); 0xff is NaN
  e2m1,      ///< two in a byte, the first in its low half: 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3: sign
};

/// The code of 8-bit floats with this name in ml_dtypes and PyTorch, such as "float8_e4m3fn".
std::optional<Code> code_named(std::string_view name);

/// The numbers of all bytes; for e2m1, of the 4-bit codes 0 to 15.
const std::array<float, 256>& numbers_of(Code code);

constexpr std::size_t codes_per_byte(Code code) { return code == Code::e2m1 ? 2 : 1; }

/// The numbers of codes [first, first + count).
template <class T>
void decode(Code code, const std::uint8_t* codes, std::size_t first, std::size_t count, T* out) {
  const std::array<float, 256>& numbers = numbers_of(code);
  if (code != Code::e2m1) {
    for (std::size_t i = 0; i < count; ++i) out[i] = numbers[codes[first + i]];
    return;
  }
  for (std::size_t i = first; i < first + count; ++i)
    *out++ = numbers[codes[i / 2] >> 4 * (i % 2) & 15];
}

}  // namespace attn
