// Arrays of floats: conversions between float and the narrower types, and searches for NaN and
// infinity, all as fast as memory.
#pragma once

#include <cstddef>
#include <span>

#include "attn/base/dtype.h"

namespace attn {

/// Converts `count` elements, as float(from[i]) does.
void convert_all(const Half* from, std::size_t count, float* to);
void convert_all(const BFloat16* from, std::size_t count, float* to);

/// Rounds `count` elements, as To(double(from[i])) does.
void convert_all(const float* from, std::size_t count, Half* to);
void convert_all(const float* from, std::size_t count, BFloat16* to);

/// T: double, float, Half or BFloat16.
template <class T>
bool any_nan(std::span<const T> numbers);
template <class T>
bool all_finite(std::span<const T> numbers);

}  // namespace attn
