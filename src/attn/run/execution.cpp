#include "attn/run/execution.h"

#include <map>
#include <utility>

#include "attn/run/joined_results.h"
#include "attn/run/warnings.h"

namespace attn {
namespace {

/// Passes the rows of streamed outputs to `receiver` and counts their NaN.
class CountedRows {
 public:
  CountedRows(const ExecutionRequest& request, RowReceiver& receiver) {
    const bool counts_nan = request.nan != NanPolicy::allow;
    for (const PlannedOutput& output : request.prepared.plan.outputs) {
      if (!output.streamed) continue;
      const Output streamed = std::get<Output>(output.request);
      const bool counted = counts_nan && is_checked_for_nan(streamed, request.outputs);
      NanCounter* const counter = counted ? &counters_[streamed] : nullptr;
      consumers_[streamed] = [&receiver, streamed, counter](const RowBlock& rows) {
        if (counter != nullptr) counter->add(rows);
        receiver.write_rows(streamed, rows);
      };
    }
  }

  const RowConsumers& consumers() const { return consumers_; }

  NanCount nan_of(Output output) const {
    const auto counter = counters_.find(output);
    return counter == counters_.end() ? NanCount{} : counter->second.found();
  }

 private:
  std::map<Output, NanCounter> counters_;
  RowConsumers consumers_;
};

void describe(Result& result, const ExecutionRequest& request, Document document) {
  Result description = describe_job(request.job, request.prepared.inputs, request.prepared.plan,
                                    std::move(document), *request.described_by);
  if (!request.shared_inputs.empty()) add_inputs(request.shared_inputs, description.made_by);
  result.tokens = std::move(description.tokens);
  result.made_by = std::move(description.made_by);
}

}  // namespace

Execution execute(const ExecutionRequest& request, RowReceiver* receiver) {
  const auto& [job, prepared, files, outputs, nan, ignored] = request;
  Execution execution;
  Result& result = execution.result;
  if (receiver == nullptr) {
    compute_job(job, prepared, result);
    if (files != nullptr) describe(result, request, std::move(job.document));
  } else {
    if (files != nullptr) describe(result, request, job.document);
    receiver->begin(prepared.plan, result);
    const CountedRows rows(request, *receiver);
    compute_job(job, prepared, result, rows.consumers());
    for (const PlannedOutput& output : prepared.plan.outputs)
      if (output.streamed) {
        const Output streamed = std::get<Output>(output.request);
        result.streamed[streamed] = {output.shape, rows.nan_of(streamed)};
      }
  }
  execution.warnings = warnings_of(job, prepared.inputs, result, outputs, nan);
  return execution;
}

}  // namespace attn
