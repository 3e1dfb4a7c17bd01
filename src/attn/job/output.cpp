#include "attn/job/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "attn/core/attention.h"
#include "attn/core/inputs.h"
#include "attn/io/csv.h"
#include "attn/io/descriptor.h"
#include "attn/io/npy.h"
#include "attn/io/npz.h"
#include "attn/io/safetensors.h"
#include "attn/tensor/error.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kLongestComment = 65535;  // what a zip archive can carry

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

/// A file to be written, and the one output in it, or "" for all.
struct PlannedFile {
  std::string name, path;
  Format format;
};

PlannedFile plan_of(const OutputTarget& target, const std::vector<std::string>& outputs) {
  const bool one_only = *target.format == Format::npy || *target.format == Format::csv;
  if (!one_only || !target.name.empty()) return {target.name, target.path, *target.format};
  if (outputs.size() == 1) return {outputs.front(), target.path, *target.format};
  const std::string path = printable(target.path), found = std::to_string(outputs.size());
  if (is_stream(target.path))
    usage("--format " + std::string(name_of(*target.format)) + ": holds one output, found " +
          found + "; name it (-o " + outputs.front() + "=" + path +
          ") or use npz, safetensors or json");
  usage("-o " + path + ": holds one output, found " + found + "; name it (-o " + outputs.front() +
        "=" + path + ") or use .npz, .safetensors or .json");
}

void refuse_two_for_one(const std::vector<PlannedFile>& plans) {
  if (plans.size() < 2) return;
  std::set<fs::path> taken;
  for (const PlannedFile& plan : plans) {
    std::error_code error, ignored;
    fs::path place = fs::weakly_canonical(fs::absolute(plan.path, ignored), error);
    if (error) place = plan.path;  // a folder that is closed to us, say: opening it tells
    if (!is_stream(plan.path) && !taken.insert(place).second)
      usage("-o " + printable(plan.path) + ": expected another file for each -o, found it twice");
  }
}

std::vector<PlannedFile> planned(const std::vector<OutputTarget>& targets,
                                 const std::vector<std::string>& outputs) {
  std::vector<PlannedFile> plans;
  for (const OutputTarget& target : targets) {
    if (target.format) {
      plans.push_back(plan_of(target, outputs));
      continue;
    }
    const std::string folder = target.path.back() == '/' ? target.path : target.path + "/";
    for (const std::string& name : outputs)
      plans.push_back({name, folder + name + ".npy", Format::npy});
  }
  refuse_two_for_one(plans);
  return plans;
}

}  // namespace

NewFolders::~NewFolders() {
  for (const TemporaryName& folder : made_) rmdir(folder.path().c_str());
}

void NewFolders::make(const std::string& path) {
  const SignalShelter shelter;
  made_.emplace_back(path);
  if (mkdir(path.c_str(), 0777) == 0) return;
  const int code = errno;
  made_.pop_back();
  if (code != EEXIST) throw system_error(ErrorKind::cannot_create, path, code);
}

const std::vector<std::string>& job_output_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const OutputName& output : kOutputNames) all.push_back(output.name);
    all.insert(all.end(), kInputNames.begin(), kInputNames.end());
    return all;
  }();
  return names;
}

OutputTarget parse_target(const std::string& typed, const std::vector<std::string>& names,
                          std::optional<Format> stream) {
  OutputTarget target;
  const std::size_t length = name_length(typed);
  target.name = typed.substr(0, length);
  target.path = length == 0 ? typed : typed.substr(length + 1);
  const bool known = std::find(names.begin(), names.end(), target.name) != names.end();
  if (!target.name.empty() && !known)
    usage("-o " + printable(typed) + ": unknown output '" + printable(target.name) + "'" +
          did_you_mean(target.name, names));
  if (target.path.empty()) usage("-o " + printable(typed) + ": expected a path");
  target.format = format_of_suffix(target.path);
  if (!target.format && is_stream(target.path)) {
    target.format = stream;
    if (!stream)
      usage("-o " + printable(typed) +
            ": expected --format npz, npy, json, csv or safetensors beside it");
  } else if (!target.format && (!target.name.empty() || !is_folder(target.path))) {
    usage("-o " + printable(typed) + ": expected a name that ends in " + kSuffixes +
          ", or a folder (ending in /)");
  }
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
  const std::vector<PlannedFile> plans = planned(targets, outputs);
  for (const OutputTarget& target : targets)
    if (!target.format) folders_.make(target.path);
  for (const PlannedFile& plan : plans)
    parts_.push_back({plan.name, plan.format, OutputFile(plan.path, policy)});
}

void ResultWriter::write(const Result& result) {
  for (Part& part : parts_) {
    TensorMap chosen;
    if (!part.name.empty()) chosen.set(part.name, result.outputs.at(part.name));
    write_tensors(part.name.empty() ? result.outputs : chosen, result, part.format, part.file);
  }
}

void ResultWriter::commit() {
  for (Part& part : parts_) part.file.finish();  // no name is given where a disk is full
  for (Part& part : parts_) part.file.commit();
  folders_.keep();
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
    text.append(separator).append(json_quoted(name)).append(indent < 0 ? ":" : ": ").append(value);
  };
  member("made_by", to_json(result.made_by, indent));
  if (!result.tokens.empty()) member("tokens", to_json(tokens_json(result), indent));
  for (const auto& [name, tensor] : result.outputs)
    member(name, to_json(tensor, indent < 0 ? indent : indent + 2));
  text += indent < 0 ? "}" : "\n}";
  return text;
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
      out.write(to_csv(tensor, printable(out.path()) + ": " + printable(name)));
      break;
    }
  }
}

}  // namespace attn
