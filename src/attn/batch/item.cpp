#include "attn/batch/item.h"

#include <algorithm>
#include <cmath>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/io/json_write.h"

namespace attn {
namespace {

std::string digests_json(const std::vector<FileDigest>& digests) {
  std::string text = "{";
  for (const auto& [file, digest] : digests) {
    if (text.size() > 1) text += ",";
    text.append(json_quoted(text_of_name(file))).append(":").append(json_quoted(digest));
  }
  return text + "}";
}

std::string error_members(const Outcome& outcome) {
  std::string text = "\"error\":[";
  for (const std::string& line : outcome.error)
    text += (text.back() == '[' ? "" : ",") + json_quoted(line);
  return text + "],\"code\":" + std::to_string(outcome.code);
}

}  // namespace

const char* name_of(Status status) {
  switch (status) {
    case Status::done:
      return "done";
    case Status::failed:
      return "failed";
    case Status::removed:
      return "removed";
    case Status::skipped:
      break;
  }
  return "skipped";
}

std::string reason_of(Change change, const std::string& file) {
  switch (change) {
    case Change::error:
      return "its last run ended with an error";
    case Change::options:
      return "the flags, the base or the version of attn changed";
    case Change::input:
    case Change::output:
      return printable(file) + " changed or is missing";
    case Change::manifest:
      return "its line in the manifest is corrupt";
    case Change::none:
      break;
  }
  return "";
}

void sort_outcomes(std::vector<Outcome>& outcomes,
                   bool (*precedes)(const Outcome& a, const Outcome& b)) {
  std::sort(outcomes.begin(), outcomes.end(), precedes);
}

std::string identity_members(const Outcome& outcome) {
  std::string text = "\"job\":" + json_quoted(text_of_name(outcome.name));
  if (!outcome.id.empty()) text += ",\"id\":" + outcome.id;
  return text;
}

std::string outcome_json(const Outcome& outcome, const std::string& options) {
  std::string text = "{" + identity_members(outcome);
  text += ",\"item\":" + std::to_string(outcome.number);
  text += std::string(",\"status\":\"") + name_of(outcome.status) + "\",\"seconds\":";
  append_number(text, std::round(outcome.seconds * 1e6) / 1e6);
  if (!options.empty()) text += ",\"options\":" + json_quoted(options);
  text += ",\"inputs\":" + digests_json(outcome.inputs) +
          ",\"outputs\":" + digests_json(outcome.outputs);
  if (outcome.change != Change::none)
    text += ",\"reason\":" + json_quoted(reason_of(outcome.change, outcome.changed_file));
  if (!outcome.statistics.empty()) text += ",\"statistics\":" + outcome.statistics;
  if (!outcome.warning.empty()) text += ",\"warning\":" + json_quoted(outcome.warning);
  if (outcome.status == Status::failed) text += "," + error_members(outcome);
  return text + "}";
}

std::string failure_json(const Outcome& outcome) {
  return "{\"schema\":\"attn/1\"," + identity_members(outcome) + "," + error_members(outcome) + "}";
}

}  // namespace attn
