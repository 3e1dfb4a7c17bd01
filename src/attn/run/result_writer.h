// Writes a result to its files, all or none of them. run/result_file.h reads it back.
//
// Tokens and made_by are keys of a JSON result, in the archive comment of an .npz, and in the
// metadata of a .safetensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/file_layout.h"
#include "attn/io/json_write.h"
#include "attn/io/row_writer.h"
#include "attn/io/staged_file.h"
#include "attn/io/temp_files.h"
#include "attn/run/execution.h"
#include "attn/run/output_target.h"
#include "attn/run/result.h"

namespace attn {

/// An object with schema, made_by, tokens and the outputs, with one line per matrix row; everything
/// is on one line if `indent` < 0.
std::string result_json(const Result& result, int indent);
/// Appends result_json(). `members` is JSON text such as "job":"line 3", inserted after the
/// schema; only for `indent` < 0.
void append_result_json(std::string& text, const Result& result, int indent,
                        const std::string& members = "");

/// A file of tensors in a binary format, with the tokens and made_by of `result`; Errors
/// name `path`.
FileLayout layout_of(const FormatRow& format, const std::vector<TensorSpec>& specs,
                     const std::vector<std::uint32_t>& checksums, const Result& result,
                     const std::string& path);

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
  void write_rows(Output output, const RowBlock& block) override;
  std::vector<SharedRegion> regions() const override;
  void add_written(std::size_t region, const std::string& parts) override;

  void write(const Result& result);  ///< the outputs that are not streamed
  /// What commit() does, without publishing the files: a full disk is noticed before any of several
  /// writers publishes its files.
  void finish();
  void commit();
  /// The path and digest of each file. Call it after commit(), if the policy requests digests.
  std::vector<std::pair<std::string, std::string>> digests() const;

 private:
  struct Part {
    PlannedFile plan;
    OutputFile file;
    std::map<std::string, std::unique_ptr<RowWriter>, std::less<>> rows;  ///< for streamed outputs
  };
  void reserve_rows(Part& part, const std::set<std::string>& streamed, const Result& described);
  void write_binary(Part& part, const Result& result);
  std::vector<std::string> names_in(const Part& part) const;

  const std::vector<std::string> outputs_;
  std::map<std::string, TensorSpec> specs_;  ///< from begin(), as is the next
  std::map<std::string, std::size_t> row_elements_;
  ScopedDirectories folders_;  // declared before the files, which must be removed first
  std::vector<Part> parts_;
};

}  // namespace attn
