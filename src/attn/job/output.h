// Where results go: files by suffix, folders, one file an output; whole or not there.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/temporaries.h"
#include "attn/io/tensor_file.h"
#include "attn/job/job.h"

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

/// Folders that are removed again, by a signal, too, where nothing came into them, unless keep() is
/// called.
class NewFolders {
 public:
  NewFolders() = default;
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;
  ~NewFolders();
  void make(
      const std::string& path);  ///< nothing where it exists. Errors: cannot_create, permission
  void keep() { made_.clear(); }

 private:
  std::list<TemporaryName> made_;  ///< a signal removes them, too
};

/// Opens every file before anything is computed, so that what can't be written is known at once;
/// write() fills them, and commit() puts them all in place, so that a failure before leaves none,
/// nor a folder made for them.
class ResultWriter {
 public:
  /// `outputs` are the names that the job computes. Errors: usage (an .npy for several outputs,
  /// two outputs for one file), cannot_create, permission.
  ResultWriter(const std::vector<OutputTarget>& targets, const std::vector<std::string>& outputs,
               const OutputPolicy& policy);
  void write(const Result& result);
  void commit();
  /// After commit(): path and digest of each file, where the policy asked for digests.
  std::vector<std::pair<std::string, std::string>> digests() const;

 private:
  struct Part {
    std::string name;  ///< "" for all
    Format format;
    OutputFile file;
  };
  NewFolders folders_;  // before the files, which have to be gone when a folder goes
  std::vector<Part> parts_;
};

/// The result in a format, as it stands in a file. JSON: an object with schema, made_by, tokens and
/// the outputs, matrices one row a line; `indent` < 0 puts all on one line.
std::string result_json(const Result& result, int indent);
void write_tensors(const TensorMap& tensors, const Result& result, Format format, OutputFile& out);

}  // namespace attn
