// Computes prepared jobs. attn run, batch, compare --reference and the worked examples all use
// execute().
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attn/io/staged_file.h"
#include "attn/run/result.h"
#include "attn/run/warnings.h"

namespace attn {

/// Receives the rows of streamed outputs (PlannedOutput::streamed) while they are computed.
class RowReceiver {
 public:
  virtual ~RowReceiver() = default;

  /// Called once, before anything is computed. `described` has the result's tokens and made_by.
  virtual void begin(const Plan& plan, const Result& described) = 0;

  /// `rows` belong to `output`. Several threads may call this at the same time.
  virtual void write_rows(Output output, const RowBlock& rows) = 0;

  /// After begin(): what write_rows() writes in a file, for other processes that write there, too.
  virtual std::vector<SharedRegion> regions() const { return {}; }
  /// What another process has written to one of regions() (RowWriter::written_parts()).
  virtual void add_written(std::size_t, const std::string&) {}
};

struct ExecutionRequest {
  Job& job;  ///< the values of its document move into the result's made_by
  const PreparedJob& prepared;
  /// The files whose digests are recorded in made_by; with nullptr, tokens and made_by stay empty.
  const TensorFiles* described_by = nullptr;
  /// The outputs that the user requested. Warnings are about these; the job may compute others as
  /// well.
  std::vector<Request> outputs = {};
  NanPolicy nan = NanPolicy::allow;
  /// Digests of inputs that were read for several jobs, by name; recorded with described_by.
  std::map<std::string, std::string> shared_inputs = {};
};

struct Execution {
  Result result;                      ///< all outputs of the job, streamed ones as their shapes
  std::vector<std::string> warnings;  ///< a line each, most serious first
};

/// Computes the job's outputs and checks them. Errors: data and usage, naming the file or flag of
/// each tensor or option; data for NaN under NanPolicy::refuse; what `receiver` throws.
Execution execute(const ExecutionRequest& request, RowReceiver* receiver = nullptr);

}  // namespace attn
