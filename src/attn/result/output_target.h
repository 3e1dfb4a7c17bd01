// What -o says: which outputs go to which file, in which format.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "attn/io/tensor_file.h"

namespace attn {

/// One -o as typed: "out.npz", "folder/", or "weights=w.npy" for one output alone.
struct OutputTarget {
  std::string name;  ///< the one output, or "" for all of them
  std::string path;
  std::optional<Format> format;  ///< nothing: a folder, which gets one .npy an output
};

/// What a job's outputs may be called.
const std::vector<std::string>& job_output_names();

/// `names` are the outputs that there are; `stream` is the format of what has no suffix to say it:
/// "-", a device, a pipe. Errors: usage, for a suffix that is not known (naming those that are) or
/// an output that is not.
OutputTarget parse_target(const std::string& typed,
                          const std::vector<std::string>& names = job_output_names(),
                          std::optional<Format> stream = {});

/// The outputs that targets name one by one, in order; empty when one of them takes all.
std::vector<std::string> outputs_named(const std::vector<OutputTarget>& targets);

/// A file to be written, and the flag that says so.
struct OutputPlace {
  std::string flag, path;
};

/// The files that a ResultWriter of these opens. Errors: usage, as it has them.
std::vector<OutputPlace> places_of(const std::vector<OutputTarget>& targets,
                                   const std::vector<std::string>& outputs);

/// Errors: usage, where two of them are one file, under whatever names.
void refuse_two_for_one(const std::vector<OutputPlace>& places);

/// The outputs that a ResultWriter of these can write row by row (ResultWriter::begin): those that
/// go to regular .npy, .npz and .safetensors files and nowhere else. Errors: usage, as it has them.
std::set<std::string> outputs_for_rows(const std::vector<OutputTarget>& targets,
                                       const std::vector<std::string>& outputs);

/// A file to be written, and the one output in it, or "" for all.
struct PlannedFile {
  std::string name, path;
  Format format;
};

/// The files that these outputs go to, in order. Errors: usage (an .npy for several outputs, two
/// outputs for one file).
std::vector<PlannedFile> planned_files(const std::vector<OutputTarget>& targets,
                                       const std::vector<std::string>& outputs);

}  // namespace attn
