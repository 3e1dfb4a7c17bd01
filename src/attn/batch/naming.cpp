#include "attn/batch/naming.h"

#include <filesystem>
#include <unordered_map>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/base/suggestion.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void usage(const std::string& text) { throw Error(ErrorKind::usage, text); }

/// "b" of "a/b.json": as fs::path::stem(), which takes ten times as long.
std::string stem_of(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  return dot == 0 || name == ".." ? name : name.substr(0, dot);
}

std::string without_suffix(const std::string& path) {
  return fs::path(path).replace_extension().lexically_normal().string();
}

/// What a word in braces stands for.
std::string meaning(const std::string& word, const Item& item) {
  if (word == "index") return std::to_string(item.number);
  if (word == "stem") return stem_of(item.below);
  if (word == "job") return without_suffix(item.below);
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
    name += meaning(pattern.substr(open + 1, close - open - 1), item);
    at = close + 1;
  }
  return name;
}

/// Why a name is none within a folder, or "".
std::string fault_of(const std::string& name) {
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
  const std::string fault = fault_of(name);
  if (!fault.empty())
    usage("--name " + printable(pattern) + ": expected a name within --out-dir for " +
          printable(item.name) + ", found '" + printable(name) + "', " + fault +
          (pattern.find("{job}") == std::string::npos ? "" : "; {stem} has no folders"));
  return name + suffix;
}

void check_pattern(const std::string& pattern, bool lines) {
  expand(pattern, {1, "job", "job"});
  if (lines && pattern.find("{index}") == std::string::npos)
    usage("--name " + printable(pattern) + ": expected {index}, as lines have no file names");
  if (lines &&
      (pattern.find("{stem}") != std::string::npos || pattern.find("{job}") != std::string::npos))
    usage("--name " + printable(pattern) + ": {stem} and {job} go with job files, not lines");
}

void refuse_clashes(const std::vector<JobFile>& files, const Naming& naming) {
  std::unordered_map<std::string, std::size_t> owners;
  owners.reserve(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = naming.name_of({i + 1, files[i].path, files[i].below});
    const auto [owner, is_new] = owners.emplace(name, i);
    if (!is_new)
      usage("--name " + printable(naming.pattern) + ": " + printable(files[owner->second].path) +
            " and " + printable(files[i].path) + " would both be " + printable(name) +
            "; {job} keeps folders, {index} is never the same");
  }
}

}  // namespace attn
