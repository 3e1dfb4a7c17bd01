// A calculation, step by step, as plain text, Markdown, HTML or LaTeX.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "attn/draw/heat_map.h"
#include "attn/draw/markup.h"

namespace attn {

struct Heading {
  std::string text;
};

/// May contain tokens; each format escapes them.
struct Paragraph {
  std::string text;
};

/// Equations below each other, aligned at the first "=".
struct Derivation {
  std::vector<Equation> lines;
};

struct WorkedSteps {
  std::string title;
  std::vector<std::variant<Heading, Paragraph, Derivation, HeatMap>> blocks;
};

/// Formulas are LaTeX between $$, without labels; heat maps are omitted.
std::string markdown_of(const WorkedSteps& steps);

/// A complete document without scripts or external resources. Formulas are MathML, heat maps SVG.
std::string html_of(const WorkedSteps& steps);

/// A complete document for LaTeX with amsmath; heat maps are omitted.
std::string latex_of(const WorkedSteps& steps);

}  // namespace attn
