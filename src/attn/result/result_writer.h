// Results into files, all of them or none.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/new_folders.h"
#include "attn/io/output_file.h"
#include "attn/io/pieces.h"
#include "attn/io/row_writer.h"
#include "attn/job/job.h"
#include "attn/result/execution.h"
#include "attn/result/output_target.h"

namespace attn {

/// Opens every file before anything is computed, so that what can't be written is known at once;
/// write() fills them, and commit() puts them all in place, so that a failure before leaves none,
/// nor a folder made for them.
class ResultWriter : public RowReceiver {
 public:
  /// `outputs` are the names that the job computes. Errors: usage (an .npy for several outputs,
  /// two outputs for one file), cannot_create, permission.
  ResultWriter(const std::vector<OutputTarget>& targets, const std::vector<std::string>& outputs,
               const OutputPolicy& policy);

  /// Makes room for the outputs that the plan calls streamed, which write_rows() then writes while
  /// others are computed. `described` has tokens and made_by, as the result will have them. Errors:
  /// io, where the disk is too full.
  void begin(const Plan& plan, const Result& described) override;
  void write_rows(const std::string& name, const RowBlock& block) override;

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
