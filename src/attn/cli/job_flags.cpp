#include "attn/cli/job_flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/io/file.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"
#include "attn/io/npy.h"
#include "attn/job/field_value.h"
#include "attn/run/output_target.h"

namespace attn {
namespace {

std::string_view group_of(const Field& field) {
  for (const char* key : {"model", "layer", "stack", "hidden", "hidden_is"})
    if (field.key == key) return "Model";
  if (field.type == FieldType::tensor) return "Tensors";
  for (const char* group :
       {"position.", "rotary.", "qk_norm", "input_norm", "norm_offset", "clip_qkv", "query_scale."})
    if (field.key.rfind(group, 0) == 0) return "Positions";
  return field.apply ? "Attention" : "Job";
}

bool is_of_labels(const Field& field) { return field.key == "tokens" || field.key == "key_tokens"; }

bool takes_ranges(const Field& field) { return field.key == "rows" || field.key == "layer"; }

std::string help_of(const Field& field) {
  std::string text(field.help);
  if (field.type == FieldType::word) text += ": " + join_or(field.words);
  if (takes_ranges(field)) text += "; 0:3 is 0,1,2";
  if (is_of_labels(field)) text += "; @FILE reads one from each line";
  const auto is_same = [](char flag, char key) { return flag == (key == '_' ? '-' : key); };
  const std::string_view flag = std::string_view(field.flag).substr(2);
  if (!std::equal(flag.begin(), flag.end(), field.key.begin(), field.key.end(), is_same))
    text += " (key " + field.key + ")";
  return text;
}

std::vector<std::string> suggestions_of(const Field& field) {
  if (field.key == "outputs") return request_names();
  return field.type == FieldType::word ? field.words : std::vector<std::string>{};
}

Option option_of(const Field& field, JobFlags& flags) {
  const auto store = [&flags, &field](const std::string& value) { flags.texts[field.key] = value; };
  const auto accepts = [&field](const std::string& word) {
    return !problem_with(field, value_from_flag(field, word, field.flag));
  };
  Option option;
  option.names = {field.flag};
  option.names.insert(option.names.end(), field.other_flags.begin(), field.other_flags.end());
  if (field.type == FieldType::boolean)
    option.value = OptionalValue{"true", store, accepts};
  else
    option.value = TextValue{store};
  option.placeholder = field.placeholder;
  option.describe = [&field] { return OptionTexts{help_of(field), suggestions_of(field)}; };
  option.group = group_of(field);
  option.is_common = field.is_common;
  return option;
}

/// "0:3,-1" as "[0,1,2,-1]". A range has both ends, as the number of rows or layers is not known
/// here; text without ranges, or that is not numbers, is returned unchanged. Errors name `flag`.
std::string expand_ranges(const std::string& text, const std::string& flag, ReadBudget& budget) {
  constexpr std::size_t kMaxRange = 1'000'000;
  constexpr std::size_t kNumber = 128;  // memory of a number as text and as JSON
  bool has_range = false;
  MemoryCharge charge(&budget, flag);
  std::string expanded;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string part = text.substr(start, end - start);
    start = end + 1;
    std::size_t first = 0, last = 0;
    const char* const stop = part.data() + part.size();
    const auto [colon, error] = std::from_chars(part.data(), stop, first);
    if (error == std::errc() && colon != stop && *colon == ':') {
      const auto [rest, other_error] = std::from_chars(colon + 1, stop, last);
      if (other_error != std::errc() || rest != stop || last <= first || last - first > kMaxRange)
        return text;
      charge.add(last - first, kNumber);
      has_range = true;
      for (; first < last; ++first) expanded += std::to_string(first) + ",";
    } else {
      expanded += part + ",";
    }
  }
  if (!has_range) return text;
  expanded.back() = ']';
  return "[" + expanded;
}

}  // namespace

std::vector<Option> job_options(JobFlags& flags) {
  std::vector<Option> options;
  options.reserve(job_fields().size());
  for (const Field& field : job_fields())
    if (!field.flag.empty() && !field.key.starts_with(kPrintOptions))
      options.push_back(option_of(field, flags));
  Option only =
      list("--only", flags.only, "KEY,...",
           "keys or arrays of the job file to use, such as Q,K,V; others are ignored", ',');
  only.group = "Job";
  options.push_back(std::move(only));
  return options;
}

Option nan_option(NanPolicy& policy) {
  return word(
      "--nan", policy,
      {{"warn", NanPolicy::warn}, {"allow", NanPolicy::allow}, {"refuse", NanPolicy::refuse}},
      "if a result contains NaN: warn, allow or refuse (exit 65)");
}

namespace {

/// The tokens of a text file, or the strings of an .npy file, as a JSON array. Errors: data, if a
/// text is not UTF-8.
std::string read_tokens(const std::string& path, ReadBudget& budget) {
  const FileBytes file = read_file(path, budget.left());
  MemoryCharge charge(&budget, file.name());
  charge.add(file.size);
  if (is_npy(file.bytes())) {
    charge.add(file.size, kBytesOfStringByte);
    return to_json(json_strings(read_npy_strings(file, file.name())));
  }
  std::string_view text = file.text();
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (find_invalid_utf8(text) != text.npos) fail_at({file.name()}, "expected tokens in UTF-8");
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start != text.npos && text[start] == '[') {
    try {
      MemoryCharge parsed(&budget, file.name());
      const Json list = parse_json(text, file.name(), parsed);
      if (!problem_with(*find_field("tokens"), list)) return std::string(text);
    } catch (const Error&) {  // lines that begin with a token such as [CLS]
      if (budget.has_refused()) throw;
    }
  }
  // Each line is a string here, in a list of JSON values and in the job; control characters take
  // six bytes there.
  constexpr std::size_t kLine = 256, kByte = 12;
  charge.add(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1, kLine);
  charge.add(text.size(), kByte);
  std::string array;
  for (const std::string& line : split_lines(text))
    array += (array.empty() ? "" : ",") + json_quoted(line);
  return "[" + array + "]";
}

/// Errors: usage, for the name of a file alone, which would be one label.
void refuse_file_as_label(const std::string& text, const std::string& flag) {
  std::error_code ignored;
  if (text.find_first_of("./") != text.npos && std::filesystem::is_regular_file(text, ignored))
    fail_usage(flag + ": " + printable(text) +
               " is a file; to read a label from each line, write @" + printable(text));
}

/// "image=a.npy,tree=b.npy" or a JSON object, as the tensors of a group. Errors: usage.
void set_named_tensors(const Field& group, const std::string& text, Document& document) {
  const auto set = [&](const std::string& name, Json value) {
    document.set({group.key + "." + name, std::move(value), group.flag, "", true});
  };
  if (text.starts_with('{')) {
    Json object = parse_json(text, group.flag);
    for (auto& [name, value] : *object.get<JsonObject>()) set(name, std::move(value));
    return;
  }
  for (const std::string& part : split_at_commas(text)) {
    const std::size_t equals = part.find('=');
    if (equals == 0 || equals == part.npos || equals + 1 == part.size())
      fail_usage({.where = {group.flag},
                  .expected = "NAME=FILE",
                  .found = "'" + printable(part) + "'",
                  .hint = text.find('[') == text.npos ? ""
                                                      : "for numbers, write a JSON object: "
                                                        "{\"NAME\": [0, 1]}"});
    set(part.substr(0, equals), Json{part.substr(equals + 1)});
  }
}

}  // namespace

void require_bf16_compute(const JobFlags& flags) {
  const auto found = flags.texts.find("compute");
  if (found == flags.texts.end()) return;
  for (const char* word : {"auto", "f32", "f64"})
    if (found->second == word)
      fail_usage("--compute: expected bf16, which widens the error bound, found '" + found->second +
                 "'; the reference is computed in f64, and --precision is that of the result");
}

std::vector<std::string> tokens_of_flag(const std::string& text, const std::string& flag,
                                        ReadBudget& budget) {
  if (text.find_first_not_of(',') == text.npos)
    fail_usage(flag + ": expected values, found '" + text + "'");
  refuse_file_as_label(text, flag);
  const Field& field = *find_field("tokens");
  const Json list = value_from_flag(
      field, text.starts_with('@') ? read_tokens(text.substr(1), budget) : text, flag);
  if (const auto problem = problem_with(field, list, true))
    throw Error(ErrorKind::usage, *problem).within(flag);
  return strings_of(list);
}

void apply_job_flags(const JobFlags& flags, Document& document, ReadBudget& budget) {
  for (const Field& field : job_fields()) {
    const auto given = flags.texts.find(field.key);
    if (given == flags.texts.end()) continue;
    const std::string& text = given->second;
    if (field.names_tensors) {
      set_named_tensors(field, text, document);
      continue;
    }
    if (is_of_labels(field)) refuse_file_as_label(text, field.flag);
    const std::string value = takes_ranges(field) ? expand_ranges(text, field.flag, budget)
                              : is_of_labels(field) && text.starts_with('@')
                                  ? read_tokens(text.substr(1), budget)
                                  : text;
    document.set({field.key, value_from_flag(field, value, field.flag), field.flag, "", true});
  }
}

Document job_document(const std::string& path, const JobFlags& flags, TensorFiles& files) {
  Document document;
  if (!path.empty()) document = read_document(path, files, selected_keys(flags.only));
  apply_job_flags(flags, document, files.budget());
  return document;
}

}  // namespace attn
