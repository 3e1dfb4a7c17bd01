#include "attn/result/result_file.h"

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/json_parse.h"
#include "attn/io/npz.h"
#include "attn/io/safetensors.h"

namespace attn {
namespace {

std::vector<std::string> strings(const Json& json) {
  std::vector<std::string> list;
  const JsonArray* items = json.get<JsonArray>();
  if (items == nullptr) return list;
  for (const Json& item : *items) {
    const std::string* text = item.get<std::string>();
    if (text == nullptr) return {};
    list.push_back(*text);
  }
  return list;
}

/// Null if the text is not JSON: comments and metadata of other programs are free text.
Json parsed(const std::string& text, const std::string& name) {
  try {
    return text.empty() ? Json{} : parse_json(text, name);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

const Json* ResultFile::job(const std::string& key) const {
  const Json* job = made_by.find("job");
  return job == nullptr ? nullptr : job->find(key);
}

ResultFile read_result(const std::string& path, TensorFiles& files) {
  ResultFile result;
  const FileBytes& file = files.file(path);
  const Format format = format_of(file);
  if (format == Format::npz) {
    std::string comment;
    result.tensors = read_npz(file, &comment, files.limits().npz);
    result.made_by = parsed(comment, printable(path));
    if (const Json* tokens = result.made_by.find("tokens")) result.tokens = strings(*tokens);
    return result;
  }
  if (format == Format::safetensors) {
    SafetensorsMetadata metadata;
    result.tensors = read_safetensors(file, &metadata);
    for (const auto& [key, value] : metadata) {
      if (key == "made_by") result.made_by = parsed(value, printable(path));
      if (key == "tokens") result.tokens = strings(parsed(value, printable(path)));
    }
    return result;
  }
  result.tensors = files.all(path);
  if (format != Format::json) return result;
  const Json document = parse_json(file.text(), path);
  if (const Json* tokens = document.find("tokens")) result.tokens = strings(*tokens);
  if (const Json* made_by = document.find("made_by")) result.made_by = *made_by;
  return result;
}

}  // namespace attn
