// Joins the results of several jobs with the same shapes, such as those of the layers of a model,
// along a new first axis.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attn/attention/plan.h"
#include "attn/run/execution.h"

namespace attn {

/// Gives queries, keys, values and embeddings without a batch axis one of length 1.
void add_batch_axis(Job& job);

/// Adds digests of inputs, by name, to those of `made_by`, each once and in the order of their
/// names.
void add_inputs(const std::map<std::string, std::string>& more, Json& made_by);

/// The plan of several jobs with the same shapes.
class JoinedPlan {
 public:
  /// Of `count` jobs. Outputs in `by_rows` are written to files while they are computed.
  explicit JoinedPlan(std::size_t count, const OutputSet& by_rows = {})
      : count_(count), by_rows_(by_rows) {}

  /// Adds a job. Errors: data, with `first_name` and `hint`, if outputs differ from those of the
  /// first job in shape or dtype.
  void add(const Plan& one, const std::string& first_name, const std::string& hint = "");

  /// Each output has a new first axis. The flops are those of all jobs, `bytes` those of the first.
  const Plan& all() const { return all_; }
  /// Bytes of the outputs that are not written while they are computed.
  std::size_t bytes_kept() const;

 private:
  std::size_t count_;
  OutputSet by_rows_;
  Plan first_, all_;
};

/// Receives the outputs of the jobs, one job after the other.
class JoinedResults final : public RowReceiver {
 public:
  /// `plan` is JoinedPlan::all(). Outputs in by_rows go to `files`, which has begun; it may be
  /// nullptr if there are none. Both outlive this.
  JoinedResults(const Plan& plan, RowReceiver* files);

  void begin(const Plan&, const Result&) override {}
  void write_rows(Output output, const RowBlock& rows) override;
  /// Adds those outputs of a job that have not been received by write_rows(). The next rows belong
  /// to the next job.
  void add(const Result& one);
  /// The outputs that are kept. All jobs have been added.
  TensorMap outputs() const;

 private:
  struct Place {
    std::size_t rows = 0;     ///< of one job
    std::size_t columns = 0;  ///< elements of a row
  };

  const Plan& plan_;
  RowReceiver* files_;
  std::map<std::string, Place> places_;  ///< of outputs in by_rows, by name
  std::map<std::string, Tensor> kept_;   ///< of the others
  std::size_t index_ = 0;                ///< of the job
};

}  // namespace attn
