#include "attn/batch/job_files.h"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "attn/base/error.h"
#include "attn/base/printable.h"
#include "attn/io/file.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

std::string_view name_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_pattern(const std::string& word) { return word.find_first_of("*?[") != std::string::npos; }

bool is_archive(std::string_view name) {
  return name.ends_with(".npz") || name.ends_with(".safetensors");
}

/// The job files in a folder and its subfolders, sorted, with subfolders that cannot be read.
std::vector<std::string> files_in(const std::string& folder, const std::string& except) {
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
      } else if (name.ends_with(".json") && !entry->is_directory(ignored)) {
        paths.push_back(path.string());
      } else if (is_archive(name) && !entry->is_directory(ignored)) {
        archives.push_back(path.string());
      }
    }
    if (error) unreadable.push_back(current.string());
  }
  if (paths.empty()) paths.swap(archives);
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
  explicit Listing(const std::string& except) : except_(except) {}

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
  /// The canonical folder and the name in it. A link to a file is not resolved, since relative
  /// paths in a job start from the link's folder.
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
    const std::vector<std::string> paths = files_in(folder, except_);
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
    return Item{taken_, file.path, file.relative};
  }

  std::optional<std::size_t> count() const override { return files_.size(); }

 private:
  std::vector<JobFile> files_;
  std::size_t taken_ = 0;
};

}  // namespace

std::vector<JobFile> list_job_files(const std::vector<std::string>& words,
                                    const std::string& except) {
  Listing listing(except);
  for (const std::string& word : words) listing.add_word(word);
  return std::move(listing).files();
}

std::vector<std::string> read_names(const std::string& path, bool nul, std::size_t max_bytes) {
  const FileBytes file = read_file(path, max_bytes);
  const std::string_view text = file.text();
  if (!nul && text.find('\0') != std::string_view::npos)
    throw Error(ErrorKind::data, printable(path) +
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

}  // namespace attn
