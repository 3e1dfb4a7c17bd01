#include "attn/job/limits.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/process_memory.h"

namespace attn {
namespace {

constexpr std::string_view kUnits = "KMGT";

/// "K" or "k" is 1024, "M" its square, ...; 0 for anything else. "B" and "iB" may follow.
double unit_named(std::string_view text) {
  if (text.empty() || text == "B") return 1;
  const auto letter = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  const std::size_t place = kUnits.find(letter);
  const std::string_view rest = text.substr(1);
  const bool known = rest.empty() || rest == "B" || rest == "iB";
  return place == std::string_view::npos || !known
             ? 0
             : std::pow(1024.0, static_cast<double>(place + 1));
}

}  // namespace

std::size_t parse_size(const std::string& text, const std::string& flag) {
  double number = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const double bytes =
      number * unit_named(std::string_view(rest, static_cast<std::size_t>(end - rest)));
  if (error != std::errc() || !(bytes >= 1) || bytes >= 0x1p63)
    throw Error(ErrorKind::usage, flag + ": expected a size such as 500M or 8G, found '" +
                                      printable(text) + "'; K, M, G and T are powers of 1024");
  return static_cast<std::size_t>(bytes);
}

std::string size_text(std::size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  double number = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; number >= 1024 && unit + 1 < kUnits.size(); ++unit) number /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %ciB", number, kUnits[unit]);
  return text;
}

std::size_t default_memory() { return memory_of_this_process() / 10 * 9; }

}  // namespace attn
