#include "attn/batch/prune.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <unordered_set>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/file.h"
#include "attn/io/output_path.h"
#include "attn/io/used_files.h"

namespace attn {
namespace fs = std::filesystem;
namespace {

/// Whether the job is a line, such as "line 3", and not a file.
bool is_line(const std::string& job) {
  return job.starts_with("line ") && job.find_first_not_of("0123456789", 5) == std::string::npos;
}

/// Whether the path is inside the output folder. The manifest may have been edited, and nothing
/// outside the folder may be removed.
bool is_below_folder(const std::string& output) {
  const fs::path path(output);
  return path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end();
}

/// The result files and folders of the present jobs.
class PresentResults {
 public:
  PresentResults(const std::vector<JobFile>& files, const Naming& naming) {
    for (std::size_t i = 0; i < files.size(); ++i)
      names_.insert(naming.name_of({i + 1, files[i].path, files[i].relative}));
  }

  bool contain(const std::string& output) const {
    return names_.contains(output) ||
           names_.contains(output.substr(0, output.rfind('/') + 1));  // "" or a folder
  }

 private:
  std::unordered_set<std::string> names_;
};

void remove_file(const std::string& folder, const std::string& output) {
  const std::string path = folder + "/" + output;
  if (!remove_output(path.c_str(), PathKind::file) && errno != ENOENT)
    throw system_error(ErrorKind::io, path, errno);
  for (fs::path parent = fs::path(output).parent_path(); !parent.empty();
       parent = parent.parent_path())
    if (!remove_output((folder + "/" + parent.string()).c_str(), PathKind::folder))
      break;  // not empty
}

/// Why a result is not removed, or "". Errors: io, permission.
std::string reason_to_keep(const std::string& path, const std::string& digest) {
  try {
    const OpenInput result = open_result(path);
    require_unused(id_of(result.info), path);
    const bool is_same = digest_of_file(result) == digest;
    return is_same ? "" : printable(path) + ": changed since it was written";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::cannot_create) throw;  // neither a link nor an input
    return error.what();
  }
}

}  // namespace

bool is_deleted_file(const std::string& job) {
  std::error_code error;
  return !is_line(job) && !fs::exists(job, error) && !error;
}

PruneReport prune_results(const Manifest& manifest, const std::vector<JobFile>& files,
                          const Naming& naming, bool dry_run) {
  std::unordered_set<std::string> present_jobs;
  for (const JobFile& file : files) present_jobs.insert(file.path);
  const PresentResults present_results(files, naming);
  PruneReport report;
  manifest.for_each_job([&](Outcome job) {
    std::error_code ignored;
    if (job.status != Status::done || present_jobs.contains(job.name) || !is_deleted_file(job.name))
      return;
    std::vector<FileDigest> removed;
    for (FileDigest& output : job.outputs) {
      const auto& [name, digest] = output;
      const std::string path = naming.folder + "/" + name;
      if (!is_below_folder(name) || present_results.contain(name) || !fs::exists(path, ignored))
        continue;
      if (const std::string reason = reason_to_keep(path, digest); !reason.empty()) {
        report.kept.push_back(reason + "; not removed");
        continue;
      }
      if (!dry_run) remove_file(naming.folder, name);
      removed.push_back(std::move(output));
    }
    if (removed.empty()) return;
    job.status = Status::removed;
    job.outputs = std::move(removed);
    report.removed.push_back(std::move(job));
  });
  sort_outcomes(report.removed, [](const Outcome& a, const Outcome& b) { return a.name < b.name; });
  return report;
}

}  // namespace attn
