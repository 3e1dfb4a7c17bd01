// Which files are meant: those named, those in folders, those that patterns match.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attn/batch/item.h"

namespace attn {

struct JobFile {
  std::string path;
  std::string below;  ///< the path below the folder that was named; otherwise the path itself
};

/// In the order typed; within a folder or a pattern by name, byte by byte. A folder means every
/// .json file in it and below, save hidden ones and those in `except` (the output folder). A word
/// with * ? or [ that is no file is a pattern; folders that it matches are searched, too. A file
/// that is reached twice, however it is spelled, is one item; a link to it is another.
/// What is missing or cannot be read is an item, too, which then fails when it is read.
/// Errors: no_input, a line a word, where there is no file at all.
std::vector<JobFile> list_job_files(const std::vector<std::string>& words,
                                    const std::string& except);

/// The names in a file ("-": standard input), one a line; with `nul` each ends in a NUL, as from
/// `find -print0`; in at most `most` bytes. Errors: as read_file(); data, for a NUL in a line.
std::vector<std::string> read_names(const std::string& path, bool nul, std::size_t most);

std::unique_ptr<ItemSource> items_of(std::vector<JobFile> files);

}  // namespace attn
