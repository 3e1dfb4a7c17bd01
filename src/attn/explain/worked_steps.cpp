#include "attn/explain/worked_steps.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <span>
#include <string_view>

#include "attn/base/utf8.h"
#include "attn/draw/heat_picture.h"
#include "attn/draw/markup.h"
#include "attn/draw/page.h"
#include "attn/draw/svg.h"
#include "attn/explain/latex_lines.h"

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

const LatexLayout kMarkdownLayout{" \\\\\n", std::numeric_limits<double>::infinity()};
const LatexLayout kPageLayout{" \\\\[3pt]\n", 96};  // digits between the margins of a page

std::string mathml_lines(const Derivation& derivation) {
  std::string rows;
  for (const Equation& line : derivation.lines) {
    std::string rights;
    for (const Math& right : line.rights) rights += "<mo form=\"infix\">=</mo>" + mathml(right);
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
    // Without labels: a program that does not know formulas would take a token for markup.
    Derivation unlabelled = block;
    for (Equation& line : unlabelled.lines)
      for (Math& right : line.rights) right.row_labels.clear();
    return "$$\n" + latex_lines(unlabelled, kMarkdownLayout) + "\n$$\n\n";
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
    return "\\[\n\\fitted{" + latex_lines(block, kPageLayout) + "}\n\\]\n\n";
  }
  std::string operator()(const HeatMap&) const { return ""; }
};

/// A formula, made smaller if it is wider than the text.
constexpr std::string_view kFitted =
    "\\newcommand{\\fitted}[1]{\\sbox0{$\\displaystyle#1$}\\ifdim\\wd0>\\linewidth\n"
    "  \\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi}\n";

template <class Writer>
std::string written_blocks(const WorkedSteps& steps, const Writer& writer) {
  std::string text;
  for (const auto& block : steps.blocks) text += std::visit(writer, block);
  return text;
}

}  // namespace

std::string markdown_of(const WorkedSteps& steps) {
  return "# " + markdown_text(steps.title) + "\n\n" + written_blocks(steps, Markdown{});
}

std::string html_of(const WorkedSteps& steps) {
  const EmbeddedFile style = embedded_steps_style();
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src " +
         hash_source(style) +
         "; img-src data:\">\n<meta name=\"viewport\" content=\"width=device-width, "
         "initial-scale=1\">\n<title>" +
         markup(steps.title) + "</title>\n<style>" + std::string(style.bytes) +
         "</style>\n</head>\n<body>\n<h1>" + markup(steps.title) + "</h1>\n" +
         written_blocks(steps, Html{}) + "</body>\n</html>\n";
}

std::string latex_of(const WorkedSteps& steps) {
  return "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n"
         "\\IfFileExists{lmodern.sty}{\\usepackage{lmodern}}{}\n"
         "\\usepackage{textcomp}\n\\usepackage{amsmath}\n\\usepackage{graphicx}\n\\usepackage["
         "margin=2cm]{geometry}\n"
         "\\setlength{\\parindent}{0pt}\n\\setlength{\\emergencystretch}{\\textwidth}\n"
         "\\setcounter{MaxMatrixCols}{20}\n" +
         std::string(kFitted) + "\\begin{document}\n\\section*{\\LARGE " + latex_text(steps.title) +
         "}\n" + written_blocks(steps, Latex{}) + "\\end{document}\n";
}

}  // namespace attn
