// A calculation written out, as a page of Markdown, HTML or LaTeX.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "attn/report/heat_map.h"
#include "attn/report/math.h"

namespace attn {

struct Heading {
  std::string text;
};

/// Words may hold tokens: each format escapes them.
struct Words {
  std::string text;
};

/// Equations under each other, their first "=" aligned.
struct Derivation {
  std::vector<Equation> lines;
};

struct WorkedSteps {
  std::string title;
  std::vector<std::variant<Heading, Words, Derivation, HeatMap>> blocks;
};

/// Formulas are LaTeX between $$; heat maps are left out.
std::string markdown_of(const WorkedSteps& steps);

/// A document of its own: formulas are MathML, heat maps are SVG; nothing is loaded and no script
/// runs.
std::string html_of(const WorkedSteps& steps);

/// A document of its own, for any LaTeX with amsmath; heat maps are left out.
std::string latex_of(const WorkedSteps& steps);

}  // namespace attn
