#include "attn/report/worked_steps.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <span>
#include <string_view>

#include "attn/base/utf8.h"
#include "attn/report/heat_picture.h"
#include "attn/report/markup.h"
#include "attn/report/page.h"
#include "attn/report/svg.h"

namespace attn {
namespace {

/// Escapes characters that are special in Markdown.
std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_[]<>|~$&").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Whether pdfLaTeX with T1 fonts has the character: Latin letters and some signs.
bool latex_has(std::uint32_t c) {
  constexpr std::uint32_t kWithout[] = {0x126, 0x127, 0x138, 0x13F, 0x140,
                                        0x149, 0x166, 0x167, 0x17F};
  constexpr std::uint32_t kSigns[] = {0x2013, 0x2014, 0x2018, 0x2019, 0x201C,
                                      0x201D, 0x2022, 0x2026, 0x20AC, 0x2192};
  const auto holds = [c](std::span<const std::uint32_t> some) {
    return std::find(some.begin(), some.end(), c) != some.end();
  };
  return c < 0x80 || (c >= 0xA0 && c < 0x180 && !holds(kWithout)) || holds(kSigns);
}

/// A replacement for a character that LaTeX lacks: "U+6771".
std::string latex_code(std::uint32_t c) {
  char text[16];
  std::snprintf(text, sizeof text, "U+%04X", c);
  return std::string("\\texttt{") + text + "}";
}

std::string latex_text(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::string letter = text.substr(i, std::max<std::size_t>(utf8_length(text, i), 1));
    const std::uint32_t code = code_point(text, i);
    const char c = text[i];
    i += letter.size();
    if (!latex_has(code))
      out += latex_code(code);
    else if (c == '\\')
      out += "\\textbackslash{}";
    else if (c == '~' || c == '^')
      out.append("\\").append(1, c).append("{}");
    else if (std::string_view("{}$&#%_").find(c) != std::string_view::npos)
      out.append("\\").append(1, c);
    else
      out += letter;
  }
  return out;
}

/// The text between two lines and the greatest width of a line.
struct LatexLayout {
  std::string end;
  double most;
};
const LatexLayout kMarkdownLayout{" \\\\\n", std::numeric_limits<double>::infinity()};
const LatexLayout kPageLayout{" \\\\[3pt]\n", 88};  // digits on a page without margins

/// Breaks a line that is too wide before its last "=".
std::string latex_line(const Equation& line, const LatexLayout& layout) {
  double wide = width(line.left);
  for (const Math& right : line.rights) wide += width(right) + 3;
  std::string text = latex(line.left);
  for (std::size_t r = 0; r < line.rights.size(); ++r) {
    const bool broken = r > 0 && r + 1 == line.rights.size() && wide > layout.most;
    text += (broken ? layout.end + "&= " : r == 0 ? " &= " : " = ") + latex(line.rights[r]);
  }
  return text;
}

std::string latex_lines(const Derivation& derivation, const LatexLayout& layout) {
  std::string text = "\\begin{aligned}\n";
  for (std::size_t i = 0; i < derivation.lines.size(); ++i)
    text += (i == 0 ? "" : layout.end) + latex_line(derivation.lines[i], layout);
  return text + "\n\\end{aligned}";
}

std::string mathml_lines(const Derivation& derivation) {
  std::string rows;
  for (const Equation& line : derivation.lines) {
    std::string rights;
    for (const Math& right : line.rights) rights += "<mo>=</mo>" + mathml(right);
    rows += "<mtr><mtd class=\"left\">" + mathml(line.left) + "</mtd><mtd class=\"right\"><mrow>" +
            rights + "</mrow></mtd></mtr>";
  }
  return "<div class=\"math\"><math display=\"block\"><mtable displaystyle=\"true\">" + rows +
         "</mtable></math></div>\n";
}

struct Markdown {
  std::string operator()(const Heading& block) const {
    return "## " + markdown_text(block.text) + "\n\n";
  }
  std::string operator()(const Paragraph& block) const {
    return markdown_text(block.text) + "\n\n";
  }
  std::string operator()(const Derivation& block) const {
    return "$$\n" + latex_lines(block, kMarkdownLayout) + "\n$$\n\n";
  }
  std::string operator()(const HeatMap&) const { return ""; }
};

struct Html {
  std::string operator()(const Heading& block) const {
    return "<h2>" + markup(block.text) + "</h2>\n";
  }
  std::string operator()(const Paragraph& block) const {
    return "<p>" + markup(block.text) + "</p>\n";
  }
  std::string operator()(const Derivation& block) const { return mathml_lines(block); }
  std::string operator()(const HeatMap& map) const {
    return "<figure>" + svg_of(heat_picture(map)) + "</figure>\n";
  }
};

struct Latex {
  std::string operator()(const Heading& block) const {
    return "\\section*{" + latex_text(block.text) + "}\n";
  }
  std::string operator()(const Paragraph& block) const { return latex_text(block.text) + "\n"; }
  std::string operator()(const Derivation& block) const {
    return "\\[\n" + latex_lines(block, kPageLayout) + "\n\\]\n\n";
  }
  std::string operator()(const HeatMap&) const { return ""; }
};

template <class Writer>
std::string all(const WorkedSteps& steps, const Writer& writer) {
  std::string text;
  for (const auto& block : steps.blocks) text += std::visit(writer, block);
  return text;
}

}  // namespace

std::string markdown_of(const WorkedSteps& steps) {
  return "# " + markdown_text(steps.title) + "\n\n" + all(steps, Markdown{});
}

std::string html_of(const WorkedSteps& steps) {
  const EmbeddedFile style = embedded_steps_style();
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src " +
         hash_source(style) +
         "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         markup(steps.title) + "</title>\n<style>" + std::string(style.bytes) +
         "</style>\n</head>\n<body>\n<h1>" + markup(steps.title) + "</h1>\n" + all(steps, Html{}) +
         "</body>\n</html>\n";
}

std::string latex_of(const WorkedSteps& steps) {
  return "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n"
         "\\IfFileExists{lmodern.sty}{\\usepackage{lmodern}}{}\n"
         "\\usepackage{amsmath}\n\\usepackage[margin=2cm]{geometry}\n\\setlength{\\parindent}{0pt}"
         "\n"
         "\\setcounter{MaxMatrixCols}{20}\n\\begin{document}\n\\section*{\\LARGE " +
         latex_text(steps.title) + "}\n" + all(steps, Latex{}) + "\\end{document}\n";
}

}  // namespace attn
