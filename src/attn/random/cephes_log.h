// The constants of logf in Cephes, the library of S. L. Moshier, which PyTorch (for vectors) and
// XLA use, too. They order the operations differently.
#pragma once

#include <array>

namespace attn {

/// P of log(1 + x) = x - x^2/2 + x^3 P(x), x in [sqrt(1/2) - 1, sqrt(2) - 1]; highest power first.
inline constexpr std::array<float, 9> kCephesLogTerms = {
    7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f, 1.4249322787e-1f,
    -1.6668057665e-1f, 2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
inline constexpr float kCephesSqrtHalf = 0.707106781186547524f;
inline constexpr float kCephesLog2High = 0.693359375f;  ///< few bits: its products are exact
inline constexpr float kCephesLog2Low = -2.12194440e-4f;

}  // namespace attn
