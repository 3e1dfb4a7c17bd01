#include "attn/cli/steps_text.h"

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/explain/worked_text.h"

namespace attn {

StepsFormat steps_format(const std::string& option, const std::string& path) {
  if (path == "-" || path.ends_with(".txt")) return StepsFormat::text;
  if (path.ends_with(".md")) return StepsFormat::markdown;
  if (path.ends_with(".html")) return StepsFormat::html;
  if (path.ends_with(".tex")) return StepsFormat::latex;
  fail_usage(option + " " + printable(path) +
             ": expected a name that ends in .txt, .md, .html or .tex");
}

std::string steps_text(const WorkedSteps& steps, StepsFormat format, const TerminalStyle& style) {
  switch (format) {
    case StepsFormat::text:
      return printable_lines(text_of(steps, style), true);
    case StepsFormat::markdown:
      return printable_lines(markdown_of(steps));
    case StepsFormat::html:
      return html_of(steps);
    case StepsFormat::latex:
      break;
  }
  return latex_of(steps);
}

}  // namespace attn
