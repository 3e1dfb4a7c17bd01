#include "attn/api/settings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/io/json_parse.h"
#include "attn/job/job.h"

namespace attn {
namespace {

/// A setting and the function that stores its value. The function returns what it expects, or "" if
/// the value is valid.
using Setting = std::pair<std::string, std::function<std::string(const Json&)>>;

/// Errors: usage, for text that is not an object, an unknown setting or an invalid value.
void apply(const char* json, const std::vector<Setting>& settings) {
  if (json == nullptr) return;
  const Json parsed = parse_json(json, "settings");
  const auto members = parsed.get<JsonObject>();
  if (members == nullptr) fail_usage("settings: expected an object, found " + parsed.kind());
  for (const auto& [name, value] : *members) {
    const auto setting = std::find_if(settings.begin(), settings.end(),
                                      [&name = name](const auto& s) { return s.first == name; });
    if (setting == settings.end()) {
      fail_usage("settings: unknown setting '" + printable(name) + "'" +
                 did_you_mean(name, texts_of(settings, &Setting::first), NameKind::other));
    }
    const std::string expected = setting->second(value);
    if (!expected.empty())
      fail_usage({.subject = name, .expected = expected, .found = to_json(value)});
  }
}

Setting max_memory(ReadLimits& limits) {
  return {"max_memory", [&limits](const Json& value) -> std::string {
            if (const auto text = value.get<std::string>()) {
              limits.memory = parse_size(*text, "max_memory");
              return "";
            }
            const auto bytes = value.get<std::int64_t>();
            if (bytes == nullptr || *bytes < 1) return "a size such as \"2G\", or bytes";
            limits.memory = static_cast<std::size_t>(*bytes);
            return "";
          }};
}

/// One of several words.
template <class Value>
Setting word(const std::string& name, Value& target, std::map<std::string, Value> words) {
  return {name, [&target, words = std::move(words)](const Json& value) -> std::string {
            const auto text = value.get<std::string>();
            const auto found = text == nullptr ? words.end() : words.find(*text);
            if (found != words.end()) {
              target = found->second;
              return "";
            }
            std::vector<std::string> names;
            for (const auto& [known, meaning] : words) names.push_back(known);
            return join_or(names);
          }};
}

Setting precision(const std::string& name, std::string& target, bool has_tf32) {
  std::map<std::string, std::string> words;
  for (const char* const known : {"f64", "f32", "f16", "bf16"}) words[known] = known;
  if (has_tf32) words["tf32"] = "tf32";
  return word(name, target, std::move(words));
}

/// A number that is not negative. Sets `is_given`.
Setting tolerance(const std::string& name, bool& is_given,
                  const std::function<void(double)>& store) {
  return {name, [&is_given, store](const Json& value) -> std::string {
            double number = 0;
            if (!value.as_number(number) || !(number >= 0)) return "a number of at least 0";
            is_given = true;
            store(number);
            return "";
          }};
}

/// A string, or an array of strings.
Setting words(const std::string& name, std::vector<std::string>& target) {
  return {name, [&target](const Json& value) -> std::string {
            const auto add = [&target](const Json& entry) {
              const auto text = entry.get<std::string>();
              if (text != nullptr) target.push_back(*text);
              return text != nullptr;
            };
            const auto array = value.get<JsonArray>();
            const bool is_valid =
                array == nullptr ? add(value) : std::all_of(array->begin(), array->end(), add);
            return is_valid ? "" : "a string or an array of strings";
          }};
}

/// true, for the default factor, or a factor.
Setting baseline(std::optional<std::string>& target) {
  return {"baseline", [&target](const Json& value) -> std::string {
            double factor = 0;
            const auto is_on = value.get<bool>();
            if (is_on != nullptr) {
              if (*is_on) target = "";
              return "";
            }
            if (!value.as_number(factor) || !(factor >= 0)) return "true or a number of at least 0";
            target = to_json(value);
            return "";
          }};
}

/// The default limit is found out once: that takes longer than a small job.
void complete(ReadLimits& limits) {
  static const std::size_t default_limit = default_memory();
  if (limits.memory == ReadLimits{}.memory) limits.memory = default_limit;
  limits.npz.expanded = std::min(limits.npz.expanded, limits.memory);
}

}  // namespace

RunSettings run_settings(const char* json) {
  RunSettings settings;
  const auto threads = [&settings](const Json& value) -> std::string {
    constexpr std::int64_t kMostThreads = 1024;
    const auto count = value.get<std::int64_t>();
    if (count == nullptr || *count < 0 || *count > kMostThreads) return "an integer from 0 to 1024";
    settings.threads = static_cast<std::size_t>(*count);
    return "";
  };
  if (json != nullptr)
    apply(json, {{"threads", threads},
                 max_memory(settings.limits),
                 word<NanPolicy>("nan", settings.nan,
                                 {{"warn", NanPolicy::warn},
                                  {"allow", NanPolicy::allow},
                                  {"refuse", NanPolicy::refuse}})});
  complete(settings.limits);
  return settings;
}

CompareSettings compare_settings(const char* json) {
  CompareSettings settings;
  ReferenceOptions& reference = settings.reference;
  Tolerance& used = reference.tolerance;
  bool& is_given = reference.has_tolerance;
  used.equal_nan = true;
  GateWords gates;
  apply(json, {words("gate", gates.gates), words("preset", gates.presets), baseline(gates.baseline),
               max_memory(settings.limits), precision("precision", reference.precision, true),
               precision("sums", reference.sums, false),
               word("weights_precision", reference.weights,
                    {{"f16", "f16"}, {"bf16", "bf16"}, {"e4m3", "e4m3"}, {"e5m2", "e5m2"}}),
               tolerance("rtol", is_given, [&used](double x) { used.rtol = x; }),
               tolerance("atol", is_given, [&used](double x) { used.atol = x; }),
               tolerance("ulp", is_given, [&used](double x) { used.ulps = x; })});
  if (is_given &&
      !(reference.precision.empty() && reference.sums.empty() && reference.weights.empty()))
    fail_usage(
        "precision, sums and weights_precision are those of the error bound, which rtol, "
        "atol and ulp replace");
  reference.gates = gates_of(gates, is_given);
  complete(settings.limits);
  return settings;
}

}  // namespace attn
