#include "attn/run/output_target.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/io/open_file.h"
#include "attn/problem/inputs.h"
#include "attn/problem/output_table.h"
#include "attn/run/result_writer.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

bool is_folder(const std::string& path) {
  struct stat status {};
  return path.back() == '/' || (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode));
}

/// The length of the output name before '='; 0 if there is none. Other text with '/' or '.' is a
/// path.
std::size_t name_length(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return 0;
  const bool is_word = text.find_first_of("/.") > equals;
  return is_word || request_named(text.substr(0, equals)) ? equals : 0;
}

/// The member of `names` that is this name, or another name of the same output: grad_Q for dq.
std::string known_name(const std::string& name, const std::vector<std::string>& names) {
  const auto is_known = [&](std::string_view one) {
    return std::find(names.begin(), names.end(), one) != names.end();
  };
  if (is_known(name)) return name;
  const std::optional<Request> request = request_named(name);
  return request && is_known(name_of(*request)) ? std::string(name_of(*request)) : "";
}

/// The most similar name, or a list of all names, or where to find one.
std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  if (const std::string near = did_you_mean(word, names, NameKind::output); !near.empty())
    return near;
  if (names.size() > 9) return "; see 'attn help outputs'";
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "; expected " : ", ") + name;
  return all;
}

PlannedFile plan_of(const OutputTarget& target, const std::vector<std::string>& outputs) {
  if (!target.format->holds_one() || !target.name.empty())
    return {target.name, target.path, target.format};
  if (outputs.size() == 1) return {outputs.front(), target.path, target.format};
  const std::string path = printable(target.path), found = std::to_string(outputs.size());
  if (is_stream(target.path))
    fail_usage("--format " + std::string(target.format->name()) +
               ": a file holds one output, found " + found + "; select one (-o " + outputs.front() +
               "=" + path + ") or use " + listed_names(&FormatRow::holds_several));
  fail_usage("-o " + path + ": a file of this format holds one output, found " + found +
             "; select one (-o " + outputs.front() + "=" + path + ") or use " +
             listed_suffixes(&FormatRow::holds_several));
}

std::vector<OutputPath> output_paths(const std::vector<PlannedFile>& plans) {
  std::vector<OutputPath> paths;
  for (const PlannedFile& plan : plans) paths.push_back({"-o", plan.path});
  return paths;
}

}  // namespace

OutputTarget parse_target(const std::string& text, const std::vector<std::string>& names,
                          const FormatRow* stream) {
  OutputTarget target;
  const std::size_t length = name_length(text);
  target.name = text.substr(0, length);
  target.path = length == 0 ? text : text.substr(length + 1);
  if (!target.name.empty()) {
    const std::string known = known_name(target.name, names);
    if (known.empty())
      fail_usage("-o " + printable(text) + ": unknown output '" + printable(target.name) + "'" +
                 suggestion(target.name, names));
    target.name = known;
  }
  if (target.path.empty()) fail_usage("-o " + printable(text) + ": expected a path");
  const bool is_output = std::find(names.begin(), names.end(), target.path) != names.end();
  target.format = format_of_suffix(target.path);
  if (target.format == nullptr && is_stream(target.path)) {
    target.format = stream;
    if (stream == nullptr)
      fail_usage("-o " + printable(text) + ": requires --format " + listed_names());
  } else if (target.format == nullptr && (!target.name.empty() || !is_folder(target.path))) {
    fail_usage("-o " + printable(text) + ": expected a name that ends in " + listed_suffixes() +
               ", or a folder (ending in /)" +
               (is_output ? "; --outputs " + target.path + " selects an output" : ""));
  }
  return target;
}

std::vector<std::string> names_in(const std::vector<OutputTarget>& targets) {
  std::vector<std::string> names;
  for (const OutputTarget& target : targets) {
    if (target.name.empty()) return {};
    if (std::find(names.begin(), names.end(), target.name) == names.end())
      names.push_back(target.name);
  }
  return names;
}

std::vector<OutputPath> output_paths(const std::vector<OutputTarget>& targets,
                                     const std::vector<std::string>& outputs) {
  return output_paths(planned_files(targets, outputs));
}

void refuse_duplicates(const std::vector<OutputPath>& paths) {
  if (paths.size() < 2) return;
  std::set<fs::path> taken;
  for (const auto& [flag, path] : paths) {
    std::error_code error, ignored;
    fs::path resolved = fs::weakly_canonical(fs::absolute(follow_links(path), ignored), error);
    if (error) resolved = path;  // for example an unreadable folder: opening the file will fail
    if (!is_stream(path) && !taken.insert(resolved).second)
      fail_usage(flag + " " + printable(path) + ": two outputs write to the same file");
  }
}

OutputSet outputs_for_rows(const std::vector<OutputTarget>& targets,
                           const std::vector<Request>& outputs) {
  const std::vector<PlannedFile> files = planned_files(targets, names_of(outputs));
  const auto takes_rows = [](const PlannedFile& file) {
    return std::endian::native == std::endian::little && file.format->is_binary() &&
           !is_stream(file.path);
  };
  OutputSet result;
  for (const Request& request : outputs) {
    const Output* output = std::get_if<Output>(&request);
    if (output == nullptr) continue;
    std::size_t holding = 0, taking = 0;
    for (const PlannedFile& file : files) {
      if (!file.holds(name_of(*output))) continue;
      ++holding;
      if (takes_rows(file)) ++taking;
    }
    if (holding > 0 && taking == holding) result.insert(*output);
  }
  return result;
}

std::vector<PlannedFile> planned_files(const std::vector<OutputTarget>& targets,
                                       const std::vector<std::string>& outputs) {
  std::vector<PlannedFile> plans;
  for (const OutputTarget& target : targets) {
    if (target.format != nullptr) {
      plans.push_back(plan_of(target, outputs));
      continue;
    }
    const std::string folder = target.path.back() == '/' ? target.path : target.path + "/";
    for (const std::string& name : outputs)
      plans.push_back(
          {name, folder + name + std::string(kFolderSuffix), format_of_suffix(kFolderSuffix)});
  }
  refuse_duplicates(output_paths(plans));
  return plans;
}

}  // namespace attn
