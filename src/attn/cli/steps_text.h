// Worked steps (explain/worked_steps.h) in the format of a file.
#pragma once

#include <string>

#include "attn/draw/heat_text.h"
#include "attn/explain/worked_steps.h"

namespace attn {

enum class StepsFormat { text, markdown, html, latex };

/// By suffix; "-" is text on standard output. Errors: usage, naming `option`, for an unknown
/// suffix.
StepsFormat steps_format(const std::string& option, const std::string& path);

/// `style` is that of text.
std::string steps_text(const WorkedSteps& steps, StepsFormat format,
                       const TerminalStyle& style = {});

}  // namespace attn
