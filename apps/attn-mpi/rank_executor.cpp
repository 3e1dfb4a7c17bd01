#include "attn-mpi/rank_executor.h"

#include <list>
#include <new>
#include <utility>

#include "attn-mpi/rank_progress.h"
#include "attn-mpi/run_note.h"
#include "attn-mpi/shared_execution.h"
#include "attn-mpi/team_pool.h"
#include "attn/cli/batch.h"
#include "attn/cli/run_args.h"
#include "attn/cli/terminal.h"
#include "attn/io/mapped_file.h"
#include "attn/model/model_job.h"

namespace attn {
namespace {

/// With Kind::rows, the outputs in `by_rows` are planned as streamed.
Sharing sharing_of(PreparedJob& prepared, const OutputSet& by_rows, const Team& team) {
  Sharing sharing = share_work(prepared.inputs, prepared.plan, team.size());
  if (sharing.kind == Sharing::Kind::rows) stream_rows(prepared.plan, by_rows);
  return sharing;
}

/// The number of rows that the kernels of all members count.
std::size_t counted_rows(const PreparedJob& prepared, const Sharing& sharing, const Team& team) {
  const std::size_t rows = counted_rows(prepared);
  return sharing.kind == Sharing::Kind::rows ? rows : rows * team.size();
}

}  // namespace

/// On member 0.
class RankRun : public PlannedRun {
 public:
  RankRun(RankExecutor& executor, const RunArgs& args, const Job& job, const PreparedJob& prepared,
          Sharing sharing)
      : PlannedRun(args, prepared), executor_(executor), job_(job), sharing_(std::move(sharing)) {}

  MemoryEstimate memory() const override {
    if (!is_shared()) return PlannedRun::memory();
    MemoryEstimate memory(job_of_member(job_, prepared_, sharing_, 0).prepared.plan);
    memory.add("outputs of other ranks", bytes_to_gather(prepared_.plan, sharing_));
    return memory;
  }

  std::string description(bool as_json) const override {
    const std::size_t members = executor_.team_.size();
    return as_json ? ",\"mpi\":" + sharing_json(job_, prepared_, sharing_, members)
                   : sharing_text(job_, prepared_, sharing_, members);
  }

  void claim(const std::vector<OutputPath>& outputs) override {
    if (!is_shared()) return;
    for (const OutputPath& output : outputs)
      if (!is_stream(output.path)) notes_.emplace_back(output.path);
  }

  Execution execute(const ExecutionRequest& request, const TensorFiles& files,
                    RowReceiver& receiver) override {
    if (!is_shared()) return PlannedRun::execute(request, files, receiver);
    Team& team = executor_.team_;
    const bool as_bar = shows_bar(args_);
    TeamRun start{names_of(job_.outputs), names_of(request.outputs), {}};
    for (const PlannedOutput& output : prepared_.plan.outputs)
      if (output.streamed) start.by_rows.emplace_back(name_of(output.request));
    start.shows_progress = as_bar || args_.progress == ProgressStyle::plain;
    start_team(team, executor_.state_, start, files, executor_.reading_);
    if (!start.shows_progress) return execute_shared(request, sharing_, team, &receiver);
    RowReports reports(team);
    RunProgress progress(as_bar, counted_rows(prepared_, sharing_, team),
                         [&] { return reports.rows(); });
    Execution execution = execute_shared(request, sharing_, team, &receiver);
    reports.finish();
    progress.finish();
    return execution;
  }

 private:
  bool is_shared() const { return sharing_.kind != Sharing::Kind::none; }

  RankExecutor& executor_;
  const Job& job_;
  const Sharing sharing_;
  std::list<RunNote> notes_;
};

RankExecutor::RankExecutor(Team& team, const ProcessShare& process_share,
                           void (*leave_rank)(int code))
    : Executor(process_share), team_(team), leave_rank_(leave_rank) {}

bool RankExecutor::await_start() {
  start_ = attn::await_start(team_);
  return !start_.empty();
}

/// Errors of the other members name them.
int RankExecutor::act(const std::function<int()>& action) {
  if (team_.rank() == 0) return action();
  try {
    return action();
  } catch (const Error& error) {
    throw error.within(member_name(team_));
  } catch (const std::bad_alloc& fault) {
    fail_data(member_name(team_) + ": " + message_of(fault));
  }
}

std::vector<Option> RankExecutor::run_options() {
  return {word(
      "--mpi-read", reading_,
      {{"auto", TeamReading::automatic}, {"each", TeamReading::each}, {"root", TeamReading::root}},
      "which ranks read the inputs: each, root (rank 0, which sends them to the others), "
      "or auto: each, or root if a file is missing on some rank")};
}

std::optional<int> RankExecutor::follow(const RunArgs& args) {
  if (team_.rank() == 0) return std::nullopt;
  const ReadLimits limits = limits_of(args);
  TensorFiles files(limits);
  const TeamRun start = join_team(team_, start_, files);
  Job job = read_job(document_of(args, files), files);
  job.outputs = outputs_named(start.computed, job);
  const std::vector<Request> requested = outputs_named(start.requested, job);
  PreparedJob prepared = prepare_job(job);
  const Sharing sharing =
      sharing_of(prepared, outputs_among(outputs_named(start.by_rows, job)), team_);
  const MemberJob own = job_of_member(job, prepared, sharing, team_.rank());
  MemoryEstimate(own.prepared.plan).require(job.document.name, limits.memory);
  set_threads_of(args);
  std::optional<RowReporter> reporter;
  if (start.shows_progress) reporter.emplace(team_);
  execute_shared({job, prepared, nullptr, requested, args.nan}, sharing, team_, nullptr);
  if (reporter) reporter->finish();
  require_mapped_files_unchanged();
  return 0;
}

std::unique_ptr<PlannedRun> RankExecutor::plan(const RunArgs& args, const Job& job,
                                               PreparedJob& prepared, const OutputSet& by_rows) {
  Sharing sharing = sharing_of(prepared, by_rows, team_);
  return std::make_unique<RankRun>(*this, args, job, prepared, std::move(sharing));
}

void RankExecutor::require_layers() const {
  fail_usage("attn-mpi run computes one layer at a time; give --layer N");
}

void RankExecutor::check(const BatchArgs& args) const {
  if (args.isolate)
    fail_usage("--isolate: attn-mpi cannot start processes, because MPI libraries do not allow it");
}

std::optional<int> RankExecutor::follow(const BatchArgs& args, BatchContext& context,
                                        const ReadLimits& limits) {
  if (team_.rank() == 0) return std::nullopt;
  const std::string options = options_digest(args, context);
  const std::string path = join_batch_team(team_, start_, options);
  std::vector<OutputClaim> claims;
  for (const std::string& output : {path, args.summary})
    if (!output.empty()) claims.push_back(claim_of(output));
  if (context.naming && !args.dry_run) confine_outputs(context.naming->folder);
  std::unique_ptr<Manifest> manifest;
  if (args.resume) {
    manifest = std::make_unique<Manifest>(path, ManifestUse::read_only,
                                          RunDescription{.options = options}, false, limits.memory);
    if (args.manifest.empty()) manifest->read_shards(context.naming->folder, limits.memory);
    context.earlier = manifest.get();
  }
  const Workers workers = workers_of(args, context, nullptr);
  const PoolEnd end = run_items_of_team(workers.options, workers.calls, team_);
  if (end.overdue > 0)  // threads use what is above
    exit_now(*this, end.fault ? report_exception(end.fault) : 0);
  if (end.fault) std::rethrow_exception(end.fault);
  return 0;
}

void RankExecutor::begin(const BatchArgs& args, const BatchContext& context,
                         const std::string& manifest) {
  if (team_.size() == 1) return;
  start_batch_team(team_, state_, options_digest(args, context), manifest);
}

PoolEnd RankExecutor::run_items(ItemSource& source, const PoolOptions& options,
                                const PoolCalls& calls, std::atomic<bool>& stop) {
  if (team_.size() == 1) return Executor::run_items(source, options, calls, stop);
  PoolEnd end = run_team_pool(source, options, calls, team_, stop);
  if (!end.fault) state_ = TeamState::ended;
  return end;
}

}  // namespace attn
