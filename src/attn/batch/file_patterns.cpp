#include "attn/batch/file_patterns.h"

#include <glob.h>

#include <algorithm>
#include <new>
#include <set>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/job/fields.h"

namespace attn {
namespace {

constexpr std::string_view kBlank = "{}";
constexpr const char* kImplied[] = {"Q", "K", "V"};  // the keys of patterns without one

bool is_varied(const FilePattern& pattern) {
  return pattern.file.find(kBlank) != std::string::npos;
}

std::string filled(std::string text, std::string_view match) {
  for (std::size_t at = 0; (at = text.find(kBlank, at)) != text.npos; at += match.size())
    text.replace(at, kBlank.size(), match);
  return text;
}

bool is_input_key(const Field& field) { return field.input.has_value() || field.key == "hidden"; }

/// The key of an input in either spelling. Errors: usage.
std::string input_key(const std::string& name) {
  const Field* field = find_field(name);
  if (field == nullptr) field = find_field_by_other_key(name);
  if (field != nullptr && is_input_key(*field)) return field->key;
  std::vector<std::string> known;
  for (const Field& each : job_fields())
    if (is_input_key(each)) known.push_back(each.key);
  fail_usage("--pattern: unknown input '" + printable(name) + "'" +
             did_you_mean(name, known, NameKind::input));
}

/// "KEY=FILE": a '=' in a path is after a character that no key has.
std::size_t end_of_key(const std::string& word) {
  const std::size_t equals = word.find('=');
  return word.find_first_of("/{#") < equals ? word.npos : equals;
}

FilePattern parse_pattern(const std::string& word, std::size_t& implied) {
  FilePattern pattern;
  const std::size_t equals = end_of_key(word);
  if (equals != word.npos)
    pattern.key = input_key(word.substr(0, equals));
  else if (implied < std::size(kImplied))
    pattern.key = kImplied[implied++];
  else
    fail_usage("--pattern " + printable(word) +
               ": the first three patterns are those of Q, K and V; name the input, such as mask=" +
               printable(word));
  const std::string path = equals == word.npos ? word : word.substr(equals + 1);
  const std::size_t hash = std::min(path.find('#'), path.size());
  pattern.file = path.substr(0, hash);
  pattern.part = path.substr(hash);
  if (pattern.file.empty())
    fail_usage("--pattern " + printable(word) + ": expected a file, found nothing");
  return pattern;
}

/// The text that {} stands for in a path, or "".
std::string match_in(const std::string& path, const std::string& pattern) {
  std::size_t blanks = 0;
  for (std::size_t at = pattern.find(kBlank); at != pattern.npos; at = pattern.find(kBlank, at + 2))
    ++blanks;
  const std::size_t fixed = pattern.size() - blanks * kBlank.size();
  if (path.size() <= fixed || (path.size() - fixed) % blanks != 0) return "";
  const std::string match = path.substr(pattern.find(kBlank), (path.size() - fixed) / blanks);
  return match.find('/') == match.npos && filled(pattern, match) == path ? match : "";
}

/// The pattern of glob() for all files that may match.
std::string glob_of(const std::string& pattern) {
  std::string escaped;
  for (const char c : pattern) {
    if (std::string_view("*?[]\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return filled(escaped, "*");
}

struct InNaturalOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    return precedes_naturally(a, b);
  }
};
using Matches = std::set<std::string, InNaturalOrder>;

void add_matches(const std::string& pattern, Matches& matches) {
  glob_t found{};
  const int result = glob(glob_of(pattern).c_str(), GLOB_NOSORT, nullptr, &found);
  for (std::size_t i = 0; result == 0 && i < found.gl_pathc; ++i)
    matches.insert(match_in(found.gl_pathv[i], pattern));
  globfree(&found);
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
}

}  // namespace

std::vector<FilePattern> parse_file_patterns(const std::vector<std::string>& words) {
  std::vector<FilePattern> patterns;
  std::size_t implied = 0;
  for (const std::string& word : words) {
    FilePattern pattern = parse_pattern(word, implied);
    for (const FilePattern& other : patterns)
      if (other.key == pattern.key) fail_usage("--pattern: " + pattern.key + " is given twice");
    patterns.push_back(std::move(pattern));
  }
  if (std::none_of(patterns.begin(), patterns.end(), is_varied))
    fail_usage("--pattern: expected {} in the name of a file, such as q_{}.npy");
  return patterns;
}

std::vector<JobFile> jobs_of_patterns(const std::vector<FilePattern>& patterns) {
  Matches matches;
  for (const FilePattern& pattern : patterns)
    if (is_varied(pattern)) add_matches(pattern.file, matches);
  matches.erase("");
  if (matches.empty())
    throw Error(ErrorKind::no_input, "--pattern: no file matches " +
                                         join(patterns, ", ", [](const FilePattern& pattern) {
                                           return printable(pattern.file);
                                         }));
  const FilePattern& first = *std::find_if(patterns.begin(), patterns.end(), is_varied);
  std::vector<JobFile> jobs;
  for (const std::string& match : matches) {
    JobFile job{filled(first.file, match), match + ".job"};
    for (const FilePattern& pattern : patterns)
      job.inputs.emplace_back(pattern.key, filled(pattern.file + pattern.part, match));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace attn
