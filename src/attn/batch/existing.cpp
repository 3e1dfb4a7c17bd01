#include "attn/batch/existing.h"

#include <sys/stat.h>

#include <map>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/printable.h"

namespace attn {
namespace {

using FileId = std::pair<dev_t, ino_t>;

/// Whether `path` is a file, and which.
bool identify(const std::string& path, FileId& id) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return false;
  id = {info.st_dev, info.st_ino};
  return true;
}

void refuse_jobs(const std::map<FileId, std::string>& results, const std::vector<JobFile>& files) {
  FileId id;
  for (const JobFile& file : files) {
    const auto result = identify(file.path, id) ? results.find(id) : results.end();
    if (result != results.end())
      throw Error(ErrorKind::cannot_create,
                  printable(result->second) + ": is a job, too (" + printable(file.path) +
                      "); --out-dir, --name or --format gives results other names");
  }
}

}  // namespace

ExistingResults existing_results(const std::vector<JobFile>& files, const Naming& naming,
                                 const Shard& shard) {
  ExistingResults existing;
  struct stat folder {};
  if (naming.suffix == "/" || stat(naming.folder.c_str(), &folder) != 0) return existing;
  std::map<FileId, std::string> results;
  FileId id;
  for (std::size_t i = shard.index - 1; i < files.size(); i += shard.count) {
    const std::string path = naming.path_of({i + 1, files[i].path, files[i].below});
    if (!identify(path, id)) continue;
    if (existing.count++ == 0) existing.first = path;
    results.emplace(id, path);
  }
  if (!results.empty()) refuse_jobs(results, files);
  return existing;
}

}  // namespace attn
