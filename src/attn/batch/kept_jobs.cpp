#include "attn/batch/kept_jobs.h"

#include <cstddef>
#include <utility>

namespace attn {
namespace {

/// Whether what remains without tensors is small: the plan and, for each query, its number and the
/// range of its keys.
bool is_small(const PreparedJob& job) {
  constexpr std::size_t kBytes = std::size_t{64} << 10, kQueries = 1024;
  return job.plan.bytes <= kBytes && job.inputs.rows.size() <= kQueries;
}

}  // namespace

std::unique_ptr<PreparedJob> KeptJobs::taken() {
  const std::lock_guard lock(mutex_);
  if (jobs_.empty()) return nullptr;
  std::unique_ptr<PreparedJob> job = std::move(jobs_.back());
  jobs_.pop_back();
  return job;
}

std::unique_ptr<PreparedJob> KeptJobs::prepare(const Job& job) {
  std::unique_ptr<PreparedJob> prepared = taken();
  if (prepared && prepare_again(job, *prepared)) return prepared;
  prepared.reset();
  return std::make_unique<PreparedJob>(prepare_job(job));
}

void KeptJobs::keep(std::unique_ptr<PreparedJob> job) {
  if (!is_small(*job) || !release_numbers(job->inputs)) return;
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
}

void KeptJobs::clear() {
  const std::lock_guard lock(mutex_);
  jobs_.clear();
}

}  // namespace attn
