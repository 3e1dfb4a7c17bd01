#include "attn/batch/batch_status.h"

#include <algorithm>
#include <unordered_map>

namespace attn {

void NumberSet::add(std::size_t first, std::size_t last) {
  if (last < first) return;
  const bool follows = ranges_.empty() || first > ranges_.back().second + 1;
  if (!follows && first >= ranges_.back().first) {
    ranges_.back().second = std::max(ranges_.back().second, last);
    return;
  }
  if (!follows) is_sorted_ = false;
  ranges_.emplace_back(first, last);
}

const std::vector<std::pair<std::size_t, std::size_t>>& NumberSet::ranges() const {
  if (is_sorted_) return ranges_;
  std::sort(ranges_.begin(), ranges_.end());
  std::size_t count = 0;
  for (const auto& [first, last] : ranges_) {
    if (count > 0 && first <= ranges_[count - 1].second + 1)
      ranges_[count - 1].second = std::max(ranges_[count - 1].second, last);
    else
      ranges_[count++] = {first, last};
  }
  ranges_.resize(count);
  is_sorted_ = true;
  return ranges_;
}

NumberSet NumberSet::missing_up_to(std::size_t last) const {
  NumberSet missing;
  std::size_t next = 1;
  for (const auto& [first, end] : ranges()) {
    if (first > last) break;
    missing.add(next, first - 1);
    next = end + 1;
  }
  missing.add(next, last);
  return missing;
}

std::size_t NumberSet::size() const {
  std::size_t size = 0;
  for (const auto& [first, last] : ranges()) size += last - first + 1;
  return size;
}

std::size_t NumberSet::highest() const { return ranges().empty() ? 0 : ranges().back().second; }

std::string NumberSet::text(std::size_t max_ranges) const {
  std::string text;
  std::size_t count = 0;
  for (const auto& [first, last] : ranges()) {
    if (count++ == max_ranges) return text + ",...";
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
  }
  return text;
}

namespace {

constexpr std::size_t kMaxNumber = std::size_t{1} << 62;  // no sum of numbers overflows

/// The shards that run these jobs.
NumberSet shards_of(const NumberSet& jobs, std::size_t count, std::size_t block) {
  NumberSet shards;
  for (const auto& [first_job, last_job] : jobs.ranges()) {
    const std::size_t first = (first_job - 1) / block + 1, last = (last_job - 1) / block + 1;
    if (last - first + 1 >= count) {
      shards.add(1, count);
      return shards;
    }
    const std::size_t from = (first - 1) % count + 1, to = (last - 1) % count + 1;
    shards.add(from, from <= to ? to : count);
    if (from > to) shards.add(1, to);
  }
  return shards;
}

/// Numbers of the last runs: of shards, the largest; of jobs, the largest that is known.
void read_runs(const Manifest& manifest, BatchStatus& status) {
  std::string list;
  for (const RunDescription& run : manifest.runs()) {
    if (!list.empty() && !run.list.empty() && run.list != list) status.list_changed = true;
    if (!run.list.empty()) list = run.list;
    status.shards = std::max(status.shards, std::min(run.shard.count, kMaxNumber));
    if (run.shard.block > 1) status.bundle = run.shard.block;
    if (run.jobs) status.jobs = std::min(std::max(status.jobs.value_or(0), *run.jobs), kMaxNumber);
  }
}

}  // namespace

BatchStatus status_of(const Manifest& manifest,
                      const std::optional<std::vector<JobFile>>& expected) {
  BatchStatus status;
  read_runs(manifest, status);
  std::unordered_map<std::string_view, std::size_t> numbers;  // of expected jobs that are missing
  if (expected) {
    status.jobs = expected->size();
    for (std::size_t i = 0; i < expected->size(); ++i) numbers.emplace((*expected)[i].path, i + 1);
  }
  manifest.for_each_job([&](Outcome job) {
    if (expected) {
      const auto number = numbers.find(job.name);
      if (number == numbers.end()) return;
      job.number = number->second;
      if (job.status != Status::removed) numbers.erase(number);
    }
    if (job.status == Status::removed || job.number == 0 || job.number > kMaxNumber) return;
    if (job.status == Status::done) return status.done.add(job.number);
    status.failed.add(job.number);
    status.failures.push_back(std::move(job));
  });
  sort_outcomes(status.failures,
                [](const Outcome& a, const Outcome& b) { return a.number < b.number; });
  NumberSet recorded = status.done;
  for (const auto& [first, last] : status.failed.ranges()) recorded.add(first, last);
  status.missing = recorded.missing_up_to(status.jobs.value_or(recorded.highest()));
  if (expected)
    for (const auto& [first, last] : status.missing.ranges())
      for (std::size_t number = first; number <= last; ++number)
        status.missing_names.push_back((*expected)[number - 1].path);
  NumberSet unfinished = status.missing;
  for (const auto& [first, last] : status.failed.ranges()) unfinished.add(first, last);
  if (status.jobs)
    status.resubmit = shards_of(unfinished, status.shards, status.bundle);
  else
    status.resubmit.add(1, status.shards);  // no run has read all lines
  return status;
}

}  // namespace attn
