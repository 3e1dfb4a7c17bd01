// Writes a result to its files, all or none of them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/file_layout.h"
#include "attn/io/output_file.h"
#include "attn/io/row_writer.h"
#include "attn/io/scoped_directories.h"
#include "attn/job/job.h"
#include "attn/result/execution.h"
#include "attn/result/output_target.h"

namespace attn {

/// Opens all files before anything is computed, so that errors are found early. commit() publishes
/// them; without it, no files or new folders remain.
class ResultWriter : public RowReceiver {
 public:
  /// `outputs` are the names of the job's outputs. Errors: usage (an .npy for several outputs,
  /// two outputs in one file), cannot_create, permission.
  ResultWriter(const std::vector<OutputTarget>& targets, const std::vector<std::string>& outputs,
               const OutputPolicy& policy);

  /// Reserves space for streamed outputs, which write_rows() writes during the computation.
  /// `described` has the result's tokens and made_by. Errors: io, if the disk is full.
  void begin(const Plan& plan, const Result& described) override;
  void write_rows(const std::string& name, const RowBlock& block) override;

  void write(const Result& result);  ///< the outputs that are not streamed
  void commit();
  /// The path and digest of each file. Call it after commit(), if the policy requests digests.
  std::vector<std::pair<std::string, std::string>> digests() const;

 private:
  struct Part {
    std::string name;  ///< "" for all
    Format format;
    OutputFile file;
    std::map<std::string, std::unique_ptr<RowWriter>> rows;  ///< for streamed outputs
    bool holds(const std::string& output) const { return name.empty() || name == output; }
  };
  void reserve_rows(Part& part, const std::set<std::string>& streamed, const Result& described);
  void write_binary(Part& part, const Result& result);
  std::vector<std::string> names_in(const Part& part) const;

  const std::vector<std::string> outputs_;
  std::map<std::string, TensorSpec> specs_;  ///< from begin()
  ScopedDirectories folders_;  // declared before the files, which must be removed first
  std::vector<Part> parts_;
};

}  // namespace attn
