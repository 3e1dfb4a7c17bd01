#include "attn/base/error.h"

#include <utility>

namespace attn {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

/// The first 100 lines; the last one says how many more there were.
std::vector<std::string>& cut(std::vector<std::string>& lines) {
  constexpr std::size_t kMost = 100;
  if (lines.size() <= kMost) return lines;
  const std::string more = "and " + std::to_string(lines.size() - kMost + 1) + " more errors";
  lines.resize(kMost);
  lines.back() = more;
  return lines;
}

}  // namespace

Error::Error(ErrorKind kind, const std::string& text)
    : std::runtime_error(text), kind_(kind), lines_{text} {}

Error::Error(ErrorKind kind, std::vector<std::string> lines)
    : std::runtime_error(joined(cut(lines))), kind_(kind), lines_(std::move(lines)) {}

}  // namespace attn
