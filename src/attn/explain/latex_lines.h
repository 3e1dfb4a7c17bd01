// Derivations in LaTeX: lines that are aligned at the first "=", and broken if they are too wide.
#pragma once

#include <string>

#include "attn/explain/worked_steps.h"

namespace attn {

struct LatexLayout {
  std::string end;   ///< the text between two lines
  double max_width;  ///< of a line, in digits
};

/// A line that is too wide is broken before its last "="; a sum that is too wide, before some "+".
/// Other formulas and matrices may remain wider.
std::string latex_lines(const Derivation& derivation, const LatexLayout& layout);

}  // namespace attn
