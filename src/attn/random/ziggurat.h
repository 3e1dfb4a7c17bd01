// The ziggurat method for normal numbers, with the tables and streams of NumPy's default_rng:
// Marsaglia and Tsang, "The Ziggurat Method for Generating Random Variables", Journal of
// Statistical Software 5:8 (2000), with 256 layers of equal area.
#pragma once

#include "attn/random/generator.h"

namespace attn {

double ziggurat_normal(Pcg64& bits);     ///< float64: 52 bits, an index and a sign of one word
float ziggurat_normal_f32(Pcg64& bits);  ///< float32: 23 bits, an index and a sign of a half word

}  // namespace attn
