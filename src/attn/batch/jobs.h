// The jobs of a batch: files, folders and patterns on the command line, or lines of JSON on
// standard input. Also the names of result files and their conflicts.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attn/batch/item.h"
#include "attn/batch/shard.h"
#include "attn/io/format.h"
#include "attn/io/used_files.h"

namespace attn {

/// Reads each line as soon as it is available. Blank lines are skipped, but count in names ("line
/// 3"). The source ends when `stop` is set. A line of more than `max_bytes` is not stored: its item
/// is invalid. Errors: io.
std::unique_ptr<ItemSource> items_of_standard_input(std::size_t max_bytes,
                                                    const std::atomic<bool>& stop);

struct JobFile {
  std::string path;
  std::string relative;  ///< the path below the folder given by the user, or else `path`
  std::vector<InputFile> inputs = {};  ///< the job itself, if `path` is only one of its files
};

/// Expands each word, in order. A folder is replaced by the .json files in it and its subfolders;
/// if there are none, by the .npz and .safetensors files. (Next to .json files, these usually hold
/// the jobs' tensors.) Hidden files and those in `except`, the output folder, are skipped. A word
/// that contains * ? or [ and is not a file is a pattern; folders that match it are searched.
/// Within a folder or pattern, files are sorted by bytes. Several spellings of a path are one job;
/// a link to a file is another job. A missing or unreadable file is a job that will fail. `notes`
/// gets a line for each folder with more .npz and .safetensors files than jobs. Errors: no_input,
/// if no word leads to an existing file, with one line per word.
std::vector<JobFile> list_job_files(const std::vector<std::string>& words,
                                    const std::string& except, std::vector<std::string>& notes);

/// Reads file names, one per line, from a file ("-": standard input). With `nul`, names end in NUL,
/// as from `find -print0`. The file and the batch's memory for its names are at most `max_bytes`.
/// Errors: as read_file(); data, if that is exceeded, or for a NUL without `nul`.
std::vector<std::string> read_names(const std::string& path, bool nul, std::size_t max_bytes);

std::unique_ptr<ItemSource> items_of(std::vector<JobFile> files);

/// The file of a result "bundle-3.npz#NAME"; "" if the result is not in a bundle.
std::string bundle_in(const std::string& result);

constexpr std::size_t kMaxBundle = 65536;  ///< jobs
constexpr const char* kBundlePrefix = "bundle-";

struct Naming {
  std::string folder;      ///< the output folder, without a trailing slash
  std::string pattern;     ///< may contain {stem}, {index} and {job}
  std::string suffix;      ///< ".npz"; "/" for a folder with one .npy per output
  std::size_t bundle = 0;  ///< jobs of a bundle (batch/bundle.h); 0: each job has its own files

  std::size_t bundle_of(std::size_t item_number) const { return (item_number - 1) / bundle + 1; }
  /// Of the results; nullptr: folders.
  const FormatRow* format() const { return format_of_suffix(suffix); }
  /// "bundle-3.npz"
  std::string bundle_file(std::size_t number) const {
    return kBundlePrefix + std::to_string(number) + suffix;
  }

  /// The result, relative to `folder`; in a bundle, "bundle-3.npz#NAME". {stem}: the job file's
  /// name without its last suffix; {index}: the item's number; {job}: the job file's relative path
  /// without suffix. Errors: usage, if the name would be outside `folder`.
  std::string name_of(const Item& item) const;
  std::string path_of(const Item& item) const { return folder + "/" + name_of(item); }
};

/// Errors: usage, for an unknown word in braces. If the jobs are lines of standard input, the
/// pattern must contain {index}, and neither {stem} nor {job}.
void check_pattern(const std::string& pattern, bool jobs_are_lines);

/// Errors: usage, if the results of two jobs cannot both exist, because they have the same name or
/// one is a file where the other needs a folder. The message names the jobs.
void refuse_clashes(const std::vector<JobFile>& files, const Naming& naming);

struct ExistingResults {
  std::size_t count = 0;
  std::string first;                         ///< path of the first one
  std::map<FileId, std::string> files = {};  ///< their paths
};

/// Returns the existing results of this shard's jobs. With suffix "/", the file names depend on the
/// jobs and are not checked. Errors: cannot_create, if a result is a job file of any shard (also
/// through links).
ExistingResults existing_results(const std::vector<JobFile>& files, const Naming& naming,
                                 const Shard& shard);

}  // namespace attn
