// Where results go: files by suffix, folders, one file an output; whole or not there.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/pieces.h"
#include "attn/io/row_writer.h"
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

/// A file to be written, and the flag that says so.
struct OutputPlace {
  std::string flag, path;
};

/// The files that a ResultWriter of these opens. Errors: usage, as it has them.
std::vector<OutputPlace> places_of(const std::vector<OutputTarget>& targets,
                                   const std::vector<std::string>& outputs);

/// Errors: usage, where two of them are one file, under whatever names.
void refuse_two_for_one(const std::vector<OutputPlace>& places);

/// Folders that are removed again, by a signal, too, where nothing came into them, unless keep() is
/// called. Threads may share one.
class NewFolders {
 public:
  NewFolders() = default;
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;
  ~NewFolders();
  /// Does nothing where it exists. With `durable` its name is on disk. Errors: cannot_create,
  /// permission, io.
  void make(const std::string& path, bool durable);
  void make_with_parents(const std::string& path, bool durable);
  void keep();                         ///< all of them
  void keep(const std::string& path);  ///< one, and those above it

 private:
  void make_one(const std::string& path, bool durable);
  std::mutex mutex_;
  std::map<std::string, TemporaryName> made_;  ///< a signal removes them, too
};

/// The outputs that a ResultWriter of these can write row by row (ResultWriter::begin): those that
/// go to regular .npy, .npz and .safetensors files and nowhere else. Errors: usage, as it has them.
std::set<std::string> outputs_for_rows(const std::vector<OutputTarget>& targets,
                                       const std::vector<std::string>& outputs);

/// Opens every file before anything is computed, so that what can't be written is known at once;
/// write() fills them, and commit() puts them all in place, so that a failure before leaves none,
/// nor a folder made for them.
class ResultWriter {
 public:
  /// `outputs` are the names that the job computes. Errors: usage (an .npy for several outputs,
  /// two outputs for one file), cannot_create, permission.
  ResultWriter(const std::vector<OutputTarget>& targets, const std::vector<std::string>& outputs,
               const OutputPolicy& policy);

  /// Makes room for the outputs that the plan calls streamed, which write_rows() then writes while
  /// others are computed. `described` has tokens and made_by, as the result will have them. Errors:
  /// io, where the disk is too full.
  void begin(const Plan& plan, const Result& described);
  /// Threads may do so at once.
  void write_rows(const std::string& name, const RowBlock& block);

  void write(const Result& result);  ///< what was not streamed
  void commit();
  /// After commit(): path and digest of each file, where the policy asked for digests.
  std::vector<std::pair<std::string, std::string>> digests() const;

 private:
  struct Part {
    std::string name;  ///< "" for all
    Format format;
    OutputFile file;
    std::map<std::string, std::unique_ptr<RowWriter>> rows;  ///< of what is streamed
    bool holds(const std::string& output) const { return name.empty() || name == output; }
  };
  void lay_out(Part& part, const std::set<std::string>& streamed, const Result& described);
  void write_binary(Part& part, const Result& result);
  std::vector<std::string> names_in(const Part& part) const;

  const std::vector<std::string> outputs_;
  std::map<std::string, TensorSpec> specs_;  ///< as planned, where begin() was called
  NewFolders folders_;  // before the files, which have to be gone when a folder goes
  std::vector<Part> parts_;
};

}  // namespace attn
