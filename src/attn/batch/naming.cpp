#include "attn/batch/naming.h"

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void usage(const std::string& text) { throw Error(ErrorKind::usage, text); }

/// "b" for "a/b.json". Ten times faster than fs::path::stem().
std::string stem_of(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  return dot == 0 || name == ".." ? name : name.substr(0, dot);
}

std::string without_suffix(const std::string& path) {
  return fs::path(path).replace_extension().lexically_normal().string();
}

std::string value_of(const std::string& word, const Item& item) {
  if (word == "index") return std::to_string(item.number);
  if (word == "stem") return stem_of(item.relative);
  if (word == "job") return without_suffix(item.relative);
  usage("--name: unknown {" + printable(word) + "}" + did_you_mean(word, {"stem", "index", "job"}) +
        "; known are {stem}, {index} and {job}");
}

std::string expand(const std::string& pattern, const Item& item) {
  std::string name;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t open = std::min(pattern.find('{', at), pattern.size());
    name.append(pattern, at, open - at);
    if (open == pattern.size()) break;
    const std::size_t close = pattern.find('}', open);
    if (close == std::string::npos) usage("--name " + printable(pattern) + ": expected a '}'");
    name += value_of(pattern.substr(open + 1, close - open - 1), item);
    at = close + 1;
  }
  return name;
}

/// Why a name is not a path below a folder, or "".
std::string problem_with(const std::string& name) {
  if (name.empty()) return "which is empty";
  if (name.front() == '/') return "which begins with '/'";
  for (const fs::path& part : fs::path(name)) {
    if (part.empty()) return "which ends with '/'";
    if (part == "." || part == "..") return "which has '" + part.string() + "' in it";
  }
  return "";
}

}  // namespace

std::string Naming::name_of(const Item& item) const {
  const std::string name = expand(pattern, item);
  const std::string problem = problem_with(name);
  if (!problem.empty())
    usage("--name " + printable(pattern) + ": expected a name within --out-dir for " +
          printable(item.name) + ", found '" + printable(name) + "', " + problem +
          (pattern.find("{job}") == std::string::npos ? "" : "; {stem} has no folders"));
  return name + suffix;
}

void check_pattern(const std::string& pattern, bool jobs_are_lines) {
  expand(pattern, {1, "job", "job"});
  if (jobs_are_lines && pattern.find("{index}") == std::string::npos)
    usage("--name " + printable(pattern) +
          ": must contain {index}, since lines have no file names");
  if (jobs_are_lines &&
      (pattern.find("{stem}") != std::string::npos || pattern.find("{job}") != std::string::npos))
    usage("--name " + printable(pattern) + ": {stem} and {job} require job files, not lines");
}

namespace {

/// The result that is a file where `name` needs a folder, or nothing. `owners` has all results.
std::optional<std::size_t> owner_of_parent(
    const std::string& name, const std::string& suffix,
    const std::unordered_map<std::string, std::size_t>& owners) {
  for (std::size_t slash = name.find('/'); slash < name.size() - 1;
       slash = name.find('/', slash + 1)) {
    // A result folder may contain other results, except below its own files ("weights.npy").
    const std::string parent = name.substr(0, slash);
    const bool in_folder = suffix == "/" && parent.ends_with(".npy");
    const auto owner = owners.find(in_folder ? parent.substr(0, parent.rfind('/') + 1) : parent);
    if (owner != owners.end()) return owner->second;
  }
  return std::nullopt;
}

}  // namespace

void refuse_clashes(const std::vector<JobFile>& files, const Naming& naming) {
  std::vector<std::string> names;
  std::unordered_map<std::string, std::size_t> owners;
  names.reserve(files.size()), owners.reserve(files.size());
  const auto refuse = [&](std::size_t first, std::size_t second, const std::string& reason) {
    usage("--name " + printable(naming.pattern) + ": the results of " +
          printable(files[first].path) + " and " + printable(files[second].path) + " " + reason +
          "; {job} keeps folders, {index} is unique");
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    names.push_back(naming.name_of({i + 1, files[i].path, files[i].relative}));
    const auto [owner, is_new] = owners.emplace(names.back(), i);
    if (!is_new) refuse(owner->second, i, "would both be " + printable(names.back()));
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const auto parent = owner_of_parent(names[i], naming.suffix, owners))
      refuse(*parent, i,
             "would be " + printable(names[*parent]) + " and " + printable(names[i]) +
                 ", one inside the other");
}

namespace {

using FileId = std::pair<dev_t, ino_t>;

/// Nothing if `path` is not a file.
std::optional<FileId> file_id(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return std::nullopt;
  return FileId{info.st_dev, info.st_ino};
}

void refuse_to_overwrite_jobs(const std::map<FileId, std::string>& results,
                              const std::vector<JobFile>& files) {
  for (const JobFile& file : files) {
    const std::optional<FileId> id = file_id(file.path);
    const auto result = id ? results.find(*id) : results.end();
    if (result != results.end())
      throw Error(ErrorKind::cannot_create,
                  printable(result->second) + ": is a job file (" + printable(file.path) +
                      "); use --out-dir, --name or --format to give results other names");
  }
}

}  // namespace

ExistingResults existing_results(const std::vector<JobFile>& files, const Naming& naming,
                                 const Shard& shard) {
  ExistingResults existing;
  struct stat folder {};
  if (naming.suffix == "/" || stat(naming.folder.c_str(), &folder) != 0) return existing;
  std::map<FileId, std::string> results;
  for (std::size_t i = shard.index - 1; i < files.size(); i += shard.count) {
    const std::string path = naming.path_of({i + 1, files[i].path, files[i].relative});
    const std::optional<FileId> id = file_id(path);
    if (!id) continue;
    if (existing.count++ == 0) existing.first = path;
    results.emplace(*id, path);
  }
  if (!results.empty()) refuse_to_overwrite_jobs(results, files);
  return existing;
}

}  // namespace attn
