#include "attn/batch/jobs.h"

#include <glob.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/base/utf8.h"
#include "attn/io/digest.h"
#include "attn/io/elements.h"
#include "attn/io/file.h"
#include "attn/io/open_file.h"
#include "attn/io/read_budget.h"
#include "attn/io/tensor_file.h"

namespace attn {
namespace {

constexpr int kPollMilliseconds = 100;  // how often `stop` is checked while waiting for input

class LineItems final : public ItemSource {
 public:
  LineItems(std::size_t max_bytes, const std::atomic<bool>& stop)
      : max_bytes_(max_bytes), stop_(stop) {}

  std::optional<Item> next() override {
    collect(true);
    has_more_ = false;
    if (!is_complete_) return std::nullopt;
    Item item{++items_, "line " + std::to_string(lines_), ""};
    if (size_of_line_ > max_bytes_)
      item.invalid = "expected at most " + std::to_string(max_bytes_) + " bytes in a line, found " +
                     std::to_string(size_of_line_) + "; the limit is one eighth of --max-memory";
    item.line = std::move(line_);
    begin_line();
    has_more_ = std::memchr(buffer_.data() + at_, '\n', size_ - at_) != nullptr;
    return item;
  }

  std::optional<std::size_t> count() const override { return std::nullopt; }
  std::optional<std::size_t> count_of_batch() const override {
    if (!has_ended_ || stop_) return std::nullopt;
    return items_;
  }
  bool has_more() const override { return has_more_; }
  bool is_ready() override {
    collect(false);
    return is_complete_ || has_ended_;
  }
  int descriptor() const override { return STDIN_FILENO; }

 private:
  void begin_line() {
    line_.clear();
    size_of_line_ = 0;
    is_complete_ = false;
  }

  /// Reads until line_ is the next complete line that is not blank, or until the input has ended;
  /// with `wait` false, at most until no more input has arrived. The last line needs no newline. A
  /// line that is too long is counted but not stored.
  void collect(bool wait) {
    while (!is_complete_ && !has_ended_) {
      const char* const from = buffer_.data() + at_;
      const void* const end = std::memchr(from, '\n', size_ - at_);
      const std::size_t length = end ? static_cast<const char*>(end) - from : size_ - at_;
      size_of_line_ += length;
      if (size_of_line_ <= max_bytes_)
        line_.append(from, length);
      else
        line_ = std::string();
      at_ += length + (end ? 1 : 0);
      if (end)
        end_line();
      else if (!fill(wait) && !has_ended_)
        return;
      else if (has_ended_ && size_of_line_ > 0)
        end_line();
    }
  }

  void end_line() {
    ++lines_;
    is_complete_ =
        size_of_line_ > max_bytes_ || line_.find_first_not_of(" \t\r") != std::string::npos;
    if (!is_complete_) begin_line();
  }

  /// Returns false if nothing has arrived, or at the end.
  bool fill(bool wait) {
    for (at_ = size_ = 0; !stop_;) {
      pollfd ready{STDIN_FILENO, POLLIN, 0};
      if (poll(&ready, 1, wait ? kPollMilliseconds : 0) == 0) {
        if (wait) continue;
        return false;
      }
      const ssize_t count = read(STDIN_FILENO, buffer_.data(), buffer_.size());
      if (count >= 0) {
        size_ = static_cast<std::size_t>(count);
        has_ended_ = count == 0;
        return count > 0;
      }
      if (errno != EINTR && errno != EAGAIN)
        throw system_error(ErrorKind::io, "standard input", errno);
    }
    has_ended_ = true;
    return false;
  }

  const std::size_t max_bytes_;
  const std::atomic<bool>& stop_;
  std::array<char, 65536> buffer_{};
  std::size_t at_ = 0, size_ = 0, lines_ = 0, items_ = 0;
  std::string line_;  ///< the part of the next line that has been read
  std::size_t size_of_line_ = 0;
  bool is_complete_ = false, has_ended_ = false;
  std::atomic<bool> has_more_ = false;
};

}  // namespace

std::unique_ptr<ItemSource> items_of_standard_input(std::size_t max_bytes,
                                                    const std::atomic<bool>& stop) {
  return std::make_unique<LineItems>(max_bytes, stop);
}

namespace fs = std::filesystem;
namespace {

std::string_view name_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_pattern(const std::string& word) { return word.find_first_of("*?[") != std::string::npos; }

bool is_archive(std::string_view name) {
  const FormatRow* format = format_of_suffix(name);
  return format != nullptr && format->is_archive();
}

/// The job files in a folder and its subfolders, sorted, with subfolders that cannot be read.
std::vector<std::string> files_in(const std::string& folder, const std::string& except,
                                  std::vector<std::string>& notes) {
  std::vector<std::string> paths, archives, unreadable;
  std::vector<fs::path> pending = {folder};
  std::error_code ignored;
  while (!pending.empty()) {
    const fs::path current = std::move(pending.back());
    pending.pop_back();
    std::error_code error;
    fs::directory_iterator entry(current, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const fs::path& path = entry->path();
      const std::string_view name = name_in(path.native());
      if (name.starts_with('.')) continue;
      if (!entry->is_symlink(ignored) && entry->is_directory(ignored)) {
        if (except.empty() || !fs::equivalent(path, except, ignored)) pending.push_back(path);
      } else if (is_job_document(name) && !entry->is_directory(ignored)) {
        paths.push_back(path.string());
      } else if (is_archive(name) && !entry->is_directory(ignored)) {
        archives.push_back(path.string());
      }
    }
    if (error) unreadable.push_back(current.string());
  }
  if (paths.empty()) paths.swap(archives);
  if (archives.size() > paths.size())
    notes.push_back(printable(folder) + ": " + counted(paths.size(), "job") + " (.json), and " +
                    std::to_string(archives.size()) +
                    " .npz and .safetensors files that are not run, because there are .json files; "
                    "to run them, too, name them: '" +
                    printable(fs::path(archives.front()).parent_path() /
                              ("*" + fs::path(archives.front()).extension().string())) +
                    "'");
  paths.insert(paths.end(), unreadable.begin(), unreadable.end());
  std::sort(paths.begin(), paths.end());
  return paths;
}

thread_local std::vector<std::string>* unreadable_folders = nullptr;  // of the current glob()

extern "C" int note_unreadable(const char* folder, int error) {
  if (error != ENOENT) unreadable_folders->emplace_back(folder);
  return 0;
}

/// The paths that match a pattern, sorted, with folders that would have to be read but cannot be.
std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  unreadable_folders = &paths;
  const int result = glob(pattern.c_str(), GLOB_NOSORT, note_unreadable, &found);
  unreadable_folders = nullptr;
  if (result == 0) paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Collects job files word by word.
class Listing {
 public:
  Listing(const std::string& except, std::vector<std::string>& notes)
      : except_(except), notes_(notes) {}

  void add_word(const std::string& word) {
    std::error_code ignored;
    const fs::file_status status = fs::status(word, ignored);
    if (fs::is_directory(status))
      add_folder(word);
    else if (!fs::exists(status) && is_pattern(word))
      add_pattern(word);
    else if (!fs::exists(status))
      add_missing(word, "No such file or directory");
    else
      add(word, word);
  }

  /// Errors: no_input, if no word led to a file.
  std::vector<JobFile> files() && {
    if (!unmatched_.empty() && files_.size() == missing_)
      throw Error(ErrorKind::no_input, std::move(unmatched_));
    return std::move(files_);
  }

 private:
  /// The canonical folder and the name in it. A link to a file is not resolved, because paths in a
  /// job are relative to the link's folder.
  std::string identity(const std::string& path) {
    const std::size_t name = path.rfind('/') + 1;  // 0 if there is no slash
    const std::string folder = name == 0 ? "." : path.substr(0, name);
    const auto [entry, is_new] = real_folders_.try_emplace(folder);
    std::error_code error;
    if (is_new) entry->second = fs::canonical(folder, error).string();
    return (entry->second.empty() ? folder : entry->second) + "/" + path.substr(name);
  }

  void add(const std::string& path, const std::string& below) {
    if (seen_.insert(identity(path)).second) files_.push_back({path, below});
  }

  void add_folder(const std::string& folder) {
    const std::vector<std::string> paths = files_in(folder, except_, notes_);
    if (paths.empty())
      unmatched_.push_back({.where = {folder},
                            .message = "no job file (.json, .npz or .safetensors) in this folder"});
    for (const std::string& path : paths) {
      const std::size_t below = path.find_first_not_of('/', folder.size());
      add(path, below == std::string::npos ? path : path.substr(below));
    }
  }

  void add_pattern(const std::string& pattern) {
    const std::vector<std::string> paths = matches(pattern);
    if (paths.empty()) return add_missing(pattern, "no file matches");
    for (const std::string& path : paths) {
      std::error_code ignored;
      if (!except_.empty() && fs::equivalent(path, except_, ignored)) continue;
      if (fs::is_directory(path, ignored))
        add_folder(path);
      else
        add(path, path);
    }
  }

  void add_missing(const std::string& word, const std::string& reason) {
    const std::size_t before = files_.size();
    add(word, word);
    missing_ += files_.size() - before;
    unmatched_.push_back({.where = {word}, .message = reason});
  }

  const std::string& except_;
  std::vector<std::string>& notes_;
  std::vector<JobFile> files_;
  std::size_t missing_ = 0;         ///< in files_: files that do not exist
  std::vector<Problem> unmatched_;  ///< for each word that led to no file
  std::unordered_set<std::string> seen_;
  std::unordered_map<std::string, std::string>
      real_folders_;  ///< canonical paths by path; "": unknown
};

class FileItems final : public ItemSource {
 public:
  explicit FileItems(std::vector<JobFile> files) : files_(std::move(files)) {}

  std::optional<Item> next() override {
    if (taken_ == files_.size()) return std::nullopt;
    const JobFile& file = files_[taken_++];
    return Item{
        .number = taken_, .name = file.path, .relative = file.relative, .inputs = file.inputs};
  }

  std::optional<std::size_t> count() const override { return files_.size(); }

  std::string digest_of_list() const override {
    Digest digest;
    for (const JobFile& file : files_)
      digest.add(bytes_of({file.path.c_str(), file.path.size() + 1}));  // with its NUL
    return digest.text();
  }

 private:
  std::vector<JobFile> files_;
  std::size_t taken_ = 0;
};

}  // namespace

std::vector<JobFile> list_job_files(const std::vector<std::string>& words,
                                    const std::string& except, std::vector<std::string>& notes) {
  Listing listing(except, notes);
  for (const std::string& word : words) listing.add_word(word);
  return std::move(listing).files();
}

std::vector<std::string> read_names(const std::string& path, bool nul, std::size_t max_bytes) {
  const FileBytes file = read_file(path, max_bytes);
  const std::string_view text = file.text();
  if (!nul && text.find('\0') != std::string_view::npos)
    fail_data(printable(path) +
              ": expected one name per line, found a NUL; use -0 for names "
              "that end in NUL (find -print0)");
  const char end = nul ? '\0' : '\n';
  std::vector<std::string> names;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t stop = std::min(text.find(end, start), text.size());
    std::string_view name = text.substr(start, stop - start);
    if (!nul && name.ends_with('\r')) name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    start = stop + 1;
  }
  return names;
}

std::unique_ptr<ItemSource> items_of(std::vector<JobFile> files) {
  return std::make_unique<FileItems>(std::move(files));
}

namespace fs = std::filesystem;
namespace {

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
  fail_usage("--name: unknown {" + printable(word) + "}" +
             did_you_mean(word, {"stem", "index", "job"}, NameKind::other) +
             "; expected {stem}, {index} or {job}");
}

std::string expand(const std::string& pattern, const Item& item) {
  std::string name;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t open = std::min(pattern.find('{', at), pattern.size());
    name.append(pattern, at, open - at);
    if (open == pattern.size()) break;
    const std::size_t close = pattern.find('}', open);
    if (close == std::string::npos) fail_usage("--name " + printable(pattern) + ": expected a '}'");
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
    if (part == "." || part == "..") return "which has the component '" + part.string() + "'";
  }
  return "";
}

}  // namespace

std::string Naming::name_of(const Item& item) const {
  const std::string name = expand(pattern, item);
  const std::string problem = problem_with(name);
  if (!problem.empty())
    fail_usage("--name " + printable(pattern) + ": expected a name within --out-dir for " +
               printable(item.name) + ", found '" + printable(name) + "', " + problem +
               (pattern.find("{job}") == std::string::npos ? "" : "; {stem} has no folders"));
  if (bundle == 0) return name + suffix;
  if (format()->names_are_utf8 && find_invalid_utf8(name) != std::string::npos)
    fail_usage("--name " + printable(pattern) + ": expected UTF-8, as .safetensors requires, for " +
               printable(item.name) + ", found '" + printable(name) + "'; use --format npz");
  return bundle_file(bundle_of(item.number)) + "#" + name;
}

std::string bundle_in(const std::string& result) {
  const std::size_t end = result.find('#');
  if (end == std::string::npos || !result.starts_with(kBundlePrefix)) return "";
  const std::string file = result.substr(0, end);
  const std::size_t digits = std::string_view(kBundlePrefix).size();
  const std::size_t suffix = file.find_first_not_of("0123456789", digits);
  if (suffix == digits || suffix == std::string::npos) return "";
  const FormatRow* format = format_of_suffix(file);
  return format != nullptr && format->is_archive() && file.substr(suffix) == format->suffix ? file
                                                                                            : "";
}

void check_pattern(const std::string& pattern, bool jobs_are_lines) {
  expand(pattern, {1, "job", "job"});
  if (jobs_are_lines && pattern.find("{index}") == std::string::npos)
    fail_usage("--name " + printable(pattern) +
               ": must contain {index}, because lines have no file names");
  if (jobs_are_lines &&
      (pattern.find("{stem}") != std::string::npos || pattern.find("{job}") != std::string::npos))
    fail_usage("--name " + printable(pattern) + ": {stem} and {job} require job files, not lines");
}

namespace {

/// The item whose result is a file where `name` needs a folder; nullopt if there is none. `owners`
/// contains all results.
std::optional<std::size_t> owner_of_parent(
    const std::string& name, const std::string& suffix,
    const std::unordered_map<std::string, std::size_t>& owners) {
  for (std::size_t slash = name.find('/'); slash < name.size() - 1;
       slash = name.find('/', slash + 1)) {
    // A result folder may contain other results, except below its own files ("weights.npy").
    const std::string parent = name.substr(0, slash);
    const bool in_folder = suffix == "/" && parent.ends_with(kFolderSuffix);
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
    fail_usage("--name " + printable(naming.pattern) + ": the results of " +
               printable(files[first].path) + " and " + printable(files[second].path) + " " +
               reason + "; {job} keeps folders, {index} is unique");
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

void refuse_to_overwrite_jobs(const std::map<FileId, std::string>& results,
                              const std::vector<JobFile>& files) {
  for (const JobFile& file : files) {
    const std::optional<FileId> id = id_of_file(file.path);
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
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!shard.has(i + 1) || (naming.bundle > 0 && i % naming.bundle > 0)) continue;
    const std::string path = naming.bundle > 0
                                 ? naming.folder + "/" + naming.bundle_file(naming.bundle_of(i + 1))
                                 : naming.path_of({i + 1, files[i].path, files[i].relative});
    const std::optional<FileId> id = id_of_file(path);
    if (!id) continue;
    if (existing.count++ == 0) existing.first = path;
    existing.files.emplace(*id, path);
  }
  if (existing.count > 0) refuse_to_overwrite_jobs(existing.files, files);
  return existing;
}

}  // namespace attn
