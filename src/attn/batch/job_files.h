// The job files of a batch: files, folders and patterns on the command line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attn/batch/item.h"

namespace attn {

struct JobFile {
  std::string path;
  std::string relative;  ///< below the folder given by the user; else equal to `path`
};

/// Expands each word, in order. A folder is replaced by its .json files and those below; if
/// there are none, for the .npz and .safetensors files. (Next to .json files, these usually hold
/// the jobs' tensors.) Hidden files and those in `except`, the output folder, are skipped. A word
/// with * ? or [ that is not a file is a pattern; folders that match are searched. Within a folder
/// or pattern, files are sorted by bytes. Several spellings of a path are one job; a link to a file
/// is another job. A missing or unreadable file is a job that will fail. Errors: no_input, if no
/// word leads to an existing file, with one line per word.
std::vector<JobFile> list_job_files(const std::vector<std::string>& words,
                                    const std::string& except);

/// Reads file names, one per line, from a file ("-": standard input) of at most `max_bytes`. With
/// `nul`, names end in NUL, as from `find -print0`. Errors: as read_file(); data, for a NUL without
/// `nul`.
std::vector<std::string> read_names(const std::string& path, bool nul, std::size_t max_bytes);

std::unique_ptr<ItemSource> items_of(std::vector<JobFile> files);

}  // namespace attn
