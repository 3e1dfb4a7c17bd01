#include "attn/tensor/error.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "attn/tensor/utf8.h"

namespace attn {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

/// As many lines as anybody reads, and how many more there were.
std::vector<std::string>& cut(std::vector<std::string>& lines) {
  constexpr std::size_t kMost = 100;
  if (lines.size() <= kMost) return lines;
  const std::string more = "and " + std::to_string(lines.size() - kMost + 1) + " more errors";
  lines.resize(kMost);
  lines.back() = more;
  return lines;
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

Error::Error(ErrorKind kind, const std::string& text)
    : std::runtime_error(text), kind_(kind), lines_{text} {}

Error::Error(ErrorKind kind, std::vector<std::string> lines)
    : std::runtime_error(joined(cut(lines))), kind_(kind), lines_(std::move(lines)) {}

std::string printable(const std::string& text) {
  constexpr std::size_t kLongest = 200;  // characters shown; a name can be 64 KiB of anything
  const auto stands_for_itself = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (text.size() <= kLongest && std::all_of(text.begin(), text.end(), stands_for_itself))
    return text;
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= kLongest) return out + "...";
    const std::size_t length = utf8_length(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = byte < 0x20 || byte == 0x7F || (length > 1 && is_invisible(text, i));
    if (length == 0 || control) {
      constexpr char kHex[] = "0123456789abcdef";
      for (std::size_t k = 0; k < std::max<std::size_t>(length, 1); ++k, ++i) {
        const auto b = static_cast<unsigned char>(text[i]);
        out += {'\\', 'x', kHex[b >> 4], kHex[b & 15]};
      }
    } else {
      out.append(text, i, length);
      i += length;
    }
  }
  return out;
}

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  if (word.size() > 64) return best;
  const std::size_t letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  std::size_t least = std::max<std::size_t>(1, letters / 3) + 1;
  const std::string typed = lower(word);
  for (const std::string& candidate : known) {
    // A distance is never less than the difference in length.
    if (candidate.size() + least <= typed.size() || typed.size() + least <= candidate.size())
      continue;
    const std::size_t distance = edit_distance(typed, lower(candidate));
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
}

}  // namespace attn
