#include "attn/cli/batch_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>

#include "attn/base/name_text.h"
#include "attn/base/printable.h"
#include "attn/batch/manifest.h"
#include "attn/batch/pool.h"
#include "attn/batch/prune.h"
#include "attn/batch/work.h"
#include "attn/cli/batch_report.h"
#include "attn/cli/message.h"
#include "attn/core/fused.h"
#include "attn/core/machine.h"
#include "attn/io/json.h"
#include "attn/io/json_write.h"
#include "attn/io/output_file.h"
#include "attn/io/temp_files.h"

namespace attn {
namespace {

constexpr int kSomeFailed = 3;               // exit code
constexpr std::size_t kWaitingFraction = 8;  // of --max-memory, for results that wait to be written

ReportOptions report_options(const BatchArgs& args, const ItemSource& source,
                             const Manifest* manifest) {
  return {.style = args.progress,
          .json = args.json,
          .quiet = is_quiet(),
          .dry_run = args.dry_run,
          .total = source.count(),
          .where = manifest != nullptr ? printable(manifest->path()) : "the results",
          .resumable = manifest != nullptr};
}

PoolOptions pool_options(const BatchArgs& args, std::size_t processors, std::size_t most_memory,
                         bool in_order) {
  PoolOptions pool = args.pool;
  if (pool.threads == 0) pool.threads = processors;
  pool.in_order = in_order;
  pool.max_waiting = std::min(pool.max_waiting, most_memory / kWaitingFraction);
  return pool;
}

void write_results(OutputFile& file, std::span<const Outcome> outcomes) {
  for (const Outcome& outcome : outcomes) {
    if (outcome.status == Status::failed)
      file.write(failure_json(outcome) + "\n");
    else
      file.write(outcome.text);
  }
  file.flush();
}

/// {"job": NAME, "item": N, "resume": "remove", "outputs": [FILE]}
std::string dry_run_json(const Outcome& removed) {
  std::string text = "{" + identity_members(removed) +
                     ",\"item\":" + std::to_string(removed.number) +
                     ",\"resume\":\"remove\",\"outputs\":[";
  for (const auto& [file, digest] : removed.outputs)
    text += (text.back() == '[' ? "" : ",") + json_quoted(text_of_name(file));
  return text + "]}\n";
}

/// Without `manifest` it is a dry run: what would be removed is written to `results`.
void prune(const BatchContext& context, Manifest* manifest, std::optional<OutputFile>& results,
           BatchReport& report) {
  const PruneReport pruned =
      prune_results(*context.earlier, *context.prune_except, *context.naming, manifest == nullptr);
  if (manifest != nullptr) manifest->add(pruned.removed);
  for (const Outcome& outcome : pruned.removed) {
    report.item(outcome);
    if (manifest == nullptr) results->write(dry_run_json(outcome));
  }
  for (const std::string& message : pruned.kept) report.say(message);
}

std::exception_ptr exception_from(const std::function<void()>& step) {
  try {
    step();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

/// Whether the reader of standard output has closed it.
bool is_broken_pipe(const std::exception_ptr& fault) {
  try {
    if (fault) std::rethrow_exception(fault);
  } catch (const BrokenPipe&) {
    return true;
  } catch (...) {  // reported by report_exception()
  }
  return false;
}

/// Ends the process while threads still compute.
[[noreturn]] void exit_now(int code) {
  remove_temp_files();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

int run_items(const BatchArgs& args, const BatchContext& context, ItemSource& source,
              Manifest* manifest, std::atomic<bool>& stop) {
  const bool is_recorded = manifest != nullptr;
  BatchReport report(report_options(args, source, manifest));
  std::optional<OutputFile> results;
  if (!is_recorded) results.emplace("-", OutputPolicy{});
  const bool results_on_terminal = !is_recorded && isatty(STDOUT_FILENO) == 1;
  const std::size_t processors = processors_for_us();
  const PoolOptions pool =
      pool_options(args, processors, context.files->limits().memory, !is_recorded);
  PoolCalls calls;
  // Processors without a worker are used by the kernels.
  calls.begin = [threads = std::max<std::size_t>(1, processors / pool.threads)] {
    set_threads(threads);
  };
  calls.work = [&](const Item& item, const CompletionToken& token, std::string text_buffer) {
    return work_on(item, context, token, std::move(text_buffer));
  };
  calls.report = [&](std::span<const Outcome> outcomes) {
    for (const Outcome& outcome : outcomes) report.item(outcome);
    const bool had_bar = results_on_terminal && report.clear_bar();
    try {
      is_recorded ? manifest->add(outcomes) : write_results(*results, outcomes);
    } catch (...) {
      for (const Outcome& outcome : outcomes) report.take_back(outcome);
      throw;
    }
    if (had_bar) report.draw_bar();
  };
  calls.tick = [&] { report.tick(); };
  PoolEnd end = run_pool(source, pool, calls, stop);
  if (!end.fault && context.prune_except && !stop)
    end.fault = exception_from([&] { prune(context, manifest, results, report); });
  if (!end.fault)
    end.fault = exception_from([&] { is_recorded ? manifest->close() : results->commit(); });
  const int code = end.fault ? report.fault(end.fault) : report.failed() > 0 ? kSomeFailed : 0;
  if (!is_broken_pipe(end.fault)) report.end(code);
  if (end.overdue > 0) exit_now(code);
  return code;
}

}  // namespace attn
