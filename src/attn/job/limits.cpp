#include "attn/job/limits.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/json.h"

namespace attn {
namespace {

constexpr std::string_view kUnits = "KMGT";
constexpr std::size_t kTextBytes = 50;  // of an element: its digits, twice while their string grows

/// "K" or "k" is 1024, "M" its square, ...; 0 for what is no unit. "B" and "iB" may follow.
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

std::string scientific(double number) {
  char text[32];
  std::snprintf(text, sizeof text, number < 1e6 ? "%.0f" : "%.3g", number);
  return text;
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

namespace {

/// As size_text(), and to the byte, as two sizes that differ may look alike.
std::string exact_size(std::size_t bytes) {
  return size_text(bytes) + (bytes < 1024 ? "" : " (" + std::to_string(bytes) + " bytes)");
}

}  // namespace

std::size_t default_memory() { return memory_of_this_process() / 10 * 9; }

void add_text(Plan& plan) {
  for (const PlannedOutput& output : plan.outputs) {
    const double bytes = static_cast<double>(output.bytes) /
                             static_cast<double>(size_of(output.dtype)) *
                             static_cast<double>(kTextBytes) +
                         static_cast<double>(plan.bytes);
    plan.bytes = bytes < 0x1p63 ? static_cast<std::size_t>(bytes) : std::size_t{1} << 63;
  }
}

void require_memory(const Plan& plan, const std::string& job, std::size_t most,
                    const std::string& views) {
  if (plan.bytes <= most) return;
  throw Error(ErrorKind::data,
              Problem{.where = job.empty() ? std::vector<std::string>{} : std::vector{job},
                      .message = "needs " + exact_size(plan.bytes) +
                                 " of memory, expected at most " + exact_size(most),
                      .hint = "--max-memory permits more, --outputs and --rows ask for less" +
                              (views.empty() ? "" : ", as does a run without " + views)});
}

std::string plan_json(const Plan& plan) {
  std::string text = "{\"outputs\":[";
  for (const PlannedOutput& output : plan.outputs) {
    if (text.back() != '[') text += ",";
    text += "{\"name\":" + json_quoted(output.name) + ",\"shape\":[";
    for (const std::size_t extent : output.shape)
      text += (text.back() == '[' ? "" : ",") + std::to_string(extent);
    text += "],\"dtype\":" + json_quoted(name_of(output.dtype)) +
            ",\"bytes\":" + std::to_string(output.bytes) +
            ",\"flops\":" + scientific(output.flops) +
            (output.streamed ? ",\"streamed\":true}" : "}");
  }
  text += "],\"memory\":" + std::to_string(plan.bytes) + ",\"flops\":" + scientific(plan.flops);
  if (plan.path) text += ",\"path\":" + json_quoted(plan.path);
  if (plan.fallback_reason) text += ",\"kept_by\":" + json_quoted(plan.fallback_reason);
  return text + "}";
}

std::string plan_text(const Plan& plan) {
  std::string text;
  for (const PlannedOutput& output : plan.outputs)
    text += output.name + " " + to_string(output.shape) + " " + std::string(name_of(output.dtype)) +
            ": " + size_text(output.bytes) + ", " + scientific(output.flops) + " flops" +
            (output.streamed ? ", written while it is computed\n" : "\n");
  text += "in all: at most " + size_text(plan.bytes) + " of memory, " + scientific(plan.flops) +
          " flops";
  if (plan.path) text += std::string(", by the ") + plan.path;
  if (plan.fallback_reason) text += std::string(" (") + plan.fallback_reason + ")";
  return text + "\n";
}

}  // namespace attn
