// Decimal digits of binary floats: the fewest that name a value, or the exact value rounded.
//
// Values are handed over as double, in which every f32 and f16 is exact; the dtype says how far
// away the neighbours are, and so how few digits tell a value from them (Steele and White, "How to
// print floating-point numbers accurately", PLDI 1990). Texts always hold a '.', as in "12.",
// "0.001", "-1.5e-05"; exponents have at least two digits. All values are finite.
#pragma once

#include <string>

#include "attn/base/dtype.h"

namespace attn {

enum class Notation { positional, scientific };

/// Which digits a text shows.
struct DigitRule {
  bool unique = true;       ///< the fewest that name the value; false: exactly `most`
  int most = -1;            ///< digits after the point at most; -1: as many as it takes
  int fewest = -1;          ///< at least; 0 also asks for every digit before the point; -1: any
  bool trim_zeros = false;  ///< drop zeros at the end of the fraction
};

/// The fewest digits whose text reads back as `value` in `dtype` (f64, f32 or f16).
std::string shortest_text(double value, DType dtype, Notation notation);

/// The exact value, rounded half to even at `places` digits after the point.
std::string rounded_text(double value, int places, Notation notation);

/// The digits that `rule` asks for: the fewest that name the value where these are neither too many
/// nor too few, otherwise the exact value, rounded.
std::string number_text(double value, DType dtype, Notation notation, const DigitRule& rule);

/// A single value as NumPy's scalars and Python's floats print: "0.1", "65500.0", "1e-05", "nan".
std::string scalar_text(double value, DType dtype);

}  // namespace attn
