#include "attn/job/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "attn/core/attention.h"
#include "attn/core/inputs.h"
#include "attn/io/csv.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/io/safetensors.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

constexpr std::size_t kLongestComment = 65535;  // what a zip archive can carry

std::vector<std::string> output_names() {
  std::vector<std::string> names;
  for (const OutputName& output : kOutputNames) names.push_back(output.name);
  for (const std::string& input : kInputNames) names.push_back(input);
  return names;
}

bool is_output(const std::string& name) {
  const std::vector<std::string> names = output_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return path.back() == '/' || (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode));
}

[[noreturn]] void usage(const std::string& text) { throw Error(ErrorKind::usage, text); }

/// A word before '=' is an output's name; anything with a '/' or '.' in it is part of a path.
std::size_t name_length(const std::string& typed) {
  const std::size_t equals = typed.find('=');
  const bool word = equals != std::string::npos && equals > 0 && typed.find_first_of("/.") > equals;
  return word ? equals : 0;
}

Json tokens_json(const Result& result) {
  JsonArray tokens;
  for (const std::string& token : result.tokens) tokens.push_back(Json{token});
  return Json{std::move(tokens)};
}

std::string metadata_text(const Result& result, bool with_tokens) {
  Json made_by = result.made_by;
  if (with_tokens && !result.tokens.empty())
    std::get<JsonObject>(made_by.value).emplace_back("tokens", tokens_json(result));
  return to_json(made_by);
}

/// What fits a zip comment: all of it, or without the tokens, or nothing.
std::string zip_comment(const Result& result) {
  for (const bool with_tokens : {true, false}) {
    std::string text = metadata_text(result, with_tokens);
    if (text.size() <= kLongestComment) return text;
  }
  return "";
}

/// The same, as strings under keys: what the format has room for.
SafetensorsMetadata safetensors_metadata(const Result& result) {
  SafetensorsMetadata metadata = {{"schema", "attn/1"}, {"made_by", metadata_text(result, false)}};
  if (!result.tokens.empty()) metadata.emplace_back("tokens", to_json(tokens_json(result)));
  return metadata;
}

}  // namespace

OutputTarget parse_target(const std::string& typed) {
  OutputTarget target;
  const std::size_t length = name_length(typed);
  target.name = typed.substr(0, length);
  target.path = length == 0 ? typed : typed.substr(length + 1);
  if (!target.name.empty() && !is_output(target.name))
    usage("-o " + printable(typed) + ": unknown output '" + printable(target.name) + "'" +
          did_you_mean(target.name, output_names()));
  if (target.path.empty()) usage("-o " + printable(typed) + ": expected a path");
  target.format = format_of_suffix(target.path);
  if (!target.format && (!target.name.empty() || !is_folder(target.path)))
    usage("-o " + printable(typed) + ": expected a name that ends in " + kSuffixes +
          ", or a folder (ending in /)");
  return target;
}

std::vector<std::string> outputs_named(const std::vector<OutputTarget>& targets) {
  std::vector<std::string> names;
  for (const OutputTarget& target : targets) {
    if (target.name.empty()) return {};
    if (std::find(names.begin(), names.end(), target.name) == names.end())
      names.push_back(target.name);
  }
  return names;
}

ResultWriter::ResultWriter(const std::vector<OutputTarget>& targets,
                           const std::vector<std::string>& outputs, const OutputPolicy& policy) {
  for (const OutputTarget& target : targets) {
    if (!target.format) {
      if (mkdir(target.path.c_str(), 0777) != 0 && errno != EEXIST)
        throw Error(ErrorKind::cannot_create, printable(target.path) + ": " + std::strerror(errno));
      const std::string folder = target.path.back() == '/' ? target.path : target.path + "/";
      for (const std::string& name : outputs)
        parts_.push_back({name, Format::npy, OutputFile(folder + name + ".npy", policy)});
      continue;
    }
    const bool one_only = *target.format == Format::npy || *target.format == Format::csv;
    const bool several = target.name.empty() && outputs.size() != 1;
    if (one_only && several)
      usage("-o " + printable(target.path) + ": holds one output, found " +
            std::to_string(outputs.size()) + "; name it (-o " + outputs.front() + "=" +
            printable(target.path) + ") or use .npz, .safetensors or .json");
    const std::string name = one_only && target.name.empty() ? outputs.front() : target.name;
    parts_.push_back({name, *target.format, OutputFile(target.path, policy)});
  }
}

void ResultWriter::write(const Result& result) {
  for (Part& part : parts_) {
    TensorMap chosen;
    if (!part.name.empty()) chosen.set(part.name, result.outputs.at(part.name));
    write_tensors(part.name.empty() ? result.outputs : chosen, result, part.format, part.file);
  }
}

void ResultWriter::commit() {
  for (Part& part : parts_) part.file.commit();
}

std::vector<std::pair<std::string, std::string>> ResultWriter::digests() const {
  std::vector<std::pair<std::string, std::string>> digests;
  for (const Part& part : parts_) digests.emplace_back(part.file.path(), part.file.digest());
  return digests;
}

std::string result_json(const Result& result, int indent) {
  const std::string separator = indent < 0 ? "," : ",\n  ";
  std::string text = indent < 0 ? "{" : "{\n  ";
  text += "\"schema\":" + std::string(indent < 0 ? "" : " ") + "\"attn/1\"";
  const auto member = [&](const std::string& name, const std::string& value) {
    text += separator + json_quoted(name) + (indent < 0 ? ":" : ": ") + value;
  };
  member("made_by", to_json(result.made_by, indent));
  if (!result.tokens.empty()) member("tokens", to_json(tokens_json(result), indent));
  for (const auto& [name, tensor] : result.outputs)
    member(name, to_json(tensor, indent < 0 ? indent : indent + 2));
  return text + (indent < 0 ? "}" : "\n}");
}

void write_tensors(const TensorMap& tensors, const Result& result, Format format, OutputFile& out) {
  switch (format) {
    case Format::npz:
      write_npz(tensors, zip_comment(result), out);
      break;
    case Format::safetensors:
      write_safetensors(tensors, safetensors_metadata(result), out);
      break;
    case Format::json: {
      const Result part{tensors, result.tokens, result.made_by};
      out.write(result_json(part, 2) + "\n");
      break;
    }
    case Format::npy:
      write_npy(tensors.begin()->second, out);
      break;
    case Format::csv: {
      const auto& [name, tensor] = *tensors.begin();
      out.write(to_csv(tensor, out.path() + ": " + name));
      break;
    }
  }
}

}  // namespace attn
