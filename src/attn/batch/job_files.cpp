#include "attn/batch/job_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "attn/io/descriptor.h"
#include "attn/io/file.h"
#include "attn/tensor/error.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

Error not_found(const std::string& word, const std::string& reason) {
  return Error(ErrorKind::no_input, printable(word) + ": " + reason);
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with("."); }

std::vector<std::string> files_in(const std::string& folder, const std::string& except) {
  std::vector<std::string> paths;
  std::error_code error, ignored;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    if (entry->is_directory(ignored)) {
      const bool outputs = !except.empty() && fs::equivalent(path, except, ignored);
      if (outputs || is_hidden(path)) entry.disable_recursion_pending();
    } else if (path.extension() == ".json" && !is_hidden(path)) {
      paths.push_back(path.string());
    }
  }
  if (error) throw system_error(ErrorKind::no_input, folder, error.value());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (paths.empty()) throw not_found(pattern, "no file matches");
  std::sort(paths.begin(), paths.end());
  return paths;
}

class FileItems final : public ItemSource {
 public:
  explicit FileItems(std::vector<JobFile> files) : files_(std::move(files)) {}

  std::optional<Item> next() override {
    if (taken_ == files_.size()) return std::nullopt;
    const JobFile& file = files_[taken_++];
    return Item{taken_, file.path, file.below};
  }

  std::optional<std::size_t> count() const override { return files_.size(); }

 private:
  std::vector<JobFile> files_;
  std::size_t taken_ = 0;
};

}  // namespace

std::vector<JobFile> list_job_files(const std::vector<std::string>& words,
                                    const std::string& except) {
  std::vector<JobFile> files;
  std::unordered_set<std::string> seen;
  const auto add = [&](const std::string& path, const std::string& below) {
    if (seen.insert(path).second) files.push_back({path, below});
  };
  const auto add_folder = [&](const std::string& folder) {
    for (const std::string& path : files_in(folder, except))
      add(path, fs::path(path).lexically_relative(folder).string());
  };
  for (const std::string& word : words) {
    std::error_code ignored;
    const fs::file_status status = fs::status(word, ignored);
    if (fs::is_directory(status)) {
      add_folder(word);
    } else if (fs::exists(status)) {
      add(word, word);
    } else if (word.find_first_of("*?[") != std::string::npos) {
      for (const std::string& path : matches(word)) add(path, path);
    } else {
      throw not_found(word, "No such file or directory");
    }
  }
  return files;
}

std::vector<std::string> read_names(const std::string& path, bool nul, std::size_t most) {
  const FileBytes file = read_file(path, most);
  const std::string_view text = file.text();
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
