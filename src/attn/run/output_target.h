// Parses -o: which outputs are written to which file, in which format.
#pragma once

#include <string>
#include <vector>

#include "attn/io/format.h"
#include "attn/problem/output_table.h"

namespace attn {

/// The value of one -o: "out.npz", "folder/", or "weights=w.npy" for a single output.
struct OutputTarget {
  std::string name;  ///< of the output, or "" for all outputs
  std::string path;
  const FormatRow* format = nullptr;  ///< nullptr: a folder with one .npy per output
};

/// `names` are the valid output names; `stream` is the format for paths without a suffix: "-", a
/// device, a pipe. Errors: usage, for an unknown suffix or output.
OutputTarget parse_target(const std::string& text,
                          const std::vector<std::string>& names = request_names(),
                          const FormatRow* stream = nullptr);

/// The names in the targets, in order; empty if a target takes all outputs.
std::vector<std::string> names_in(const std::vector<OutputTarget>& targets);

/// A file to be written, and the flag that names it.
struct OutputPath {
  std::string flag, path;
};

/// The files that a ResultWriter for these targets opens. Errors: usage, as planned_files().
std::vector<OutputPath> output_paths(const std::vector<OutputTarget>& targets,
                                     const std::vector<std::string>& outputs);

/// Errors: usage, if two paths lead to the same file.
void refuse_duplicates(const std::vector<OutputPath>& paths);

/// The outputs that can be written row by row (ResultWriter::begin): those whose targets are all
/// regular .npy, .npz and .safetensors files. Errors: usage, as planned_files().
OutputSet outputs_for_rows(const std::vector<OutputTarget>& targets,
                           const std::vector<Request>& outputs);

/// The suffix of the files in an output folder.
inline constexpr std::string_view kFolderSuffix = ".npy";

/// A file to be written, with the name of its output, or "" for all outputs.
struct PlannedFile {
  std::string name, path;
  const FormatRow* format;
  bool holds(std::string_view output) const { return name.empty() || name == output; }
};

/// The files for these outputs, in order. Errors: usage (one .npy or .csv for several outputs, two
/// outputs in one file).
std::vector<PlannedFile> planned_files(const std::vector<OutputTarget>& targets,
                                       const std::vector<std::string>& outputs);

}  // namespace attn
