// A calculation, step by step, as plain text for terminals.
#pragma once

#include <string>

#include "attn/draw/heat_text.h"
#include "attn/explain/worked_steps.h"

namespace attn {

/// Paragraphs are wrapped at 80 columns or the style's width, if that is less. Formulas are on one
/// line each and may be wider. A matrix that does not fit beside its formula follows below it.
std::string text_of(const WorkedSteps& steps, const TerminalStyle& style);

}  // namespace attn
