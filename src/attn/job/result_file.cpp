#include "attn/job/result_file.h"

#include "attn/io/npz.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

std::vector<std::string> strings(const Json* json) {
  std::vector<std::string> list;
  const JsonArray* items = json == nullptr ? nullptr : json->get<JsonArray>();
  if (items == nullptr) return list;
  for (const Json& item : *items) {
    const std::string* text = item.get<std::string>();
    if (text == nullptr) return {};
    list.push_back(*text);
  }
  return list;
}

/// The comment of an .npz is free text: what is not JSON says nothing.
Json parsed_comment(const std::string& comment, const std::string& name) {
  try {
    return comment.empty() ? Json{} : parse_json(comment, name);
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
    result.tensors = read_npz(file, &comment);
    result.made_by = parsed_comment(comment, printable(path));
    result.tokens = strings(result.made_by.find("tokens"));
    return result;
  }
  result.tensors = files.all(path);
  if (format != Format::json) return result;
  const Json document = parse_json(file.text(), printable(path));
  result.tokens = strings(document.find("tokens"));
  if (const Json* made_by = document.find("made_by")) result.made_by = *made_by;
  return result;
}

}  // namespace attn
