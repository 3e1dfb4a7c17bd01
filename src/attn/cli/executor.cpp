#include "attn/cli/executor.h"

#include "attn/cli/run_args.h"

namespace attn {

Execution PlannedRun::execute(const ExecutionRequest& request, const TensorFiles&,
                              RowReceiver& receiver) {
  const auto progress = progress_of(args_, counted_rows(prepared_), prepared_.plan.flops);
  Execution execution = attn::execute(request, &receiver);
  if (progress) progress->finish();
  return execution;
}

std::unique_ptr<PlannedRun> Executor::plan(const RunArgs& args, const Job&, PreparedJob& prepared,
                                           const OutputSet&) {
  return std::make_unique<PlannedRun>(args, prepared);
}

Executor& local_executor() {
  static Executor executor;
  return executor;
}

}  // namespace attn
