#include "attn/report/ipython_text.h"

#include <algorithm>

#include "attn/base/text.h"

namespace attn {
namespace {

constexpr std::size_t kLineWidth = 79;

/// Indents every line after the first by one space.
std::string indented(const std::string& item) {
  std::string text;
  for (const char c : item) text += c == '\n' ? std::string("\n ") : std::string(1, c);
  return text;
}

}  // namespace

std::string ipython_sequence(Sequence sequence, const std::vector<std::string>& items) {
  const bool list = sequence == Sequence::list;
  const std::string open = list ? "[" : "(";
  const std::string close = list ? "]" : items.size() == 1 ? ",)" : ")";

  const std::string line = open + join(items, ", ") + close;
  const bool one_line = line.size() <= kLineWidth && line.find('\n') == std::string::npos;
  if (one_line) return line;

  std::vector<std::string> lines(items.size());
  std::transform(items.begin(), items.end(), lines.begin(), indented);
  return open + join(lines, ",\n ") + close;
}

}  // namespace attn
