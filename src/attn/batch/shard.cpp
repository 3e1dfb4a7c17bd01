#include "attn/batch/shard.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"

namespace attn {
namespace {

/// The variables that a scheduler sets for each task of an array; nullptr: it has none.
struct ArrayScheduler {
  const char* index;
  std::size_t first;  ///< the index of the first of N tasks, for --shard auto/N
  const char* count = nullptr;
  /// The array's range of indices. They need not start at `first`.
  const char *lowest = nullptr, *highest = nullptr, *step = nullptr;
  const char* unset = nullptr;  ///< the value of `index` in a job that is no array
  bool numbers_ranks = false;   ///< of an MPI program
};

constexpr std::array kSchedulers = {
    ArrayScheduler{.index = "SLURM_ARRAY_TASK_ID",
                   .first = 1,
                   .count = "SLURM_ARRAY_TASK_COUNT",
                   .lowest = "SLURM_ARRAY_TASK_MIN",
                   .highest = "SLURM_ARRAY_TASK_MAX",
                   .step = "SLURM_ARRAY_TASK_STEP"},
    ArrayScheduler{.index = "PBS_ARRAY_INDEX", .first = 1},
    // LSB_JOBINDEX_END is the highest index, also of an array with gaps.
    ArrayScheduler{.index = "LSB_JOBINDEX", .first = 1, .unset = "0"},
    ArrayScheduler{.index = "SGE_TASK_ID",
                   .first = 1,
                   .lowest = "SGE_TASK_FIRST",
                   .highest = "SGE_TASK_LAST",
                   .step = "SGE_TASK_STEPSIZE",
                   .unset = "undefined"},
    ArrayScheduler{
        .index = "AWS_BATCH_JOB_ARRAY_INDEX", .first = 0, .count = "AWS_BATCH_JOB_ARRAY_SIZE"},
    ArrayScheduler{.index = "JOB_COMPLETION_INDEX", .first = 0},  // Kubernetes
    ArrayScheduler{.index = "OMPI_COMM_WORLD_RANK",
                   .first = 0,
                   .count = "OMPI_COMM_WORLD_SIZE",
                   .numbers_ranks = true},
    ArrayScheduler{.index = "PMI_RANK",  // MPICH, srun --mpi=pmi2
                   .first = 0,
                   .count = "PMI_SIZE",
                   .numbers_ranks = true},
};

/// Nothing if the text is not a whole number of at least 0.
std::optional<std::size_t> whole_number(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

[[noreturn]] void fail_auto(const std::string& reason) { fail_usage("--shard auto: " + reason); }

std::string assignment(const char* variable) {
  return std::string(variable) + "=" + printable(std::getenv(variable));
}

/// Errors: usage, if it is missing or not a number.
std::size_t number_of_variable(const char* variable, const ArrayScheduler& scheduler) {
  const char* const text = std::getenv(variable);
  if (text == nullptr)
    fail_auto(std::string(scheduler.index) + " is set, but " + variable +
              " is not; give the number of shards as --shard auto/N");
  const std::optional<std::size_t> number = whole_number(text);
  if (!number) fail_auto("expected a whole number >= 0, found " + assignment(variable));
  return *number;
}

bool is_set_to(const char* variable, std::string_view value) {
  const char* const text = std::getenv(variable);
  return text != nullptr && text == value;
}

bool is_task_of(const ArrayScheduler& scheduler) {
  return std::getenv(scheduler.index) != nullptr &&
         (scheduler.unset == nullptr || !is_set_to(scheduler.index, scheduler.unset));
}

/// The shard of a task whose indices are `lowest`, `lowest` + `step`, ...
Shard shard_at(const ArrayScheduler& scheduler, std::size_t lowest, std::size_t step,
               std::size_t count) {
  const std::size_t index = number_of_variable(scheduler.index, scheduler);
  if (index < lowest || (index - lowest) % step != 0 || (index - lowest) / step >= count)
    fail_auto(assignment(scheduler.index) + " is not one of " + counted(count, "task") +
              " numbered from " + std::to_string(lowest) +
              (step == 1 ? "" : " in steps of " + std::to_string(step)));
  return {(index - lowest) / step + 1, count};
}

/// Errors: usage, for an array with gaps, in which the position of a task is not known.
Shard shard_in_range(const ArrayScheduler& scheduler) {
  const auto number = [&](const char* variable) { return number_of_variable(variable, scheduler); };
  const std::size_t lowest = number(scheduler.lowest), highest = number(scheduler.highest),
                    step = number(scheduler.step);
  if (step == 0 || highest < lowest || (highest - lowest) / step == SIZE_MAX)
    fail_auto("expected a range of tasks, found " + assignment(scheduler.lowest) + ", " +
              assignment(scheduler.highest) + " and " + assignment(scheduler.step));
  const std::size_t count = (highest - lowest) / step + 1;
  if (scheduler.count != nullptr && number(scheduler.count) != count)
    fail_auto(assignment(scheduler.count) + ", but " + assignment(scheduler.lowest) + ", " +
              assignment(scheduler.highest) + " and " + assignment(scheduler.step) + " are " +
              counted(count, "task") +
              "; for an array with gaps, give the number of shards as --shard auto/N");
  return shard_at(scheduler, lowest, step, count);
}

Shard shard_from(const ArrayScheduler& scheduler, std::optional<std::size_t> count) {
  if (count) return shard_at(scheduler, scheduler.first, 1, *count);
  if (scheduler.lowest != nullptr) return shard_in_range(scheduler);
  if (scheduler.count == nullptr)
    fail_auto(std::string(scheduler.index) +
              " is set, but no variable states the number of tasks; give it as --shard auto/N");
  return shard_at(scheduler, scheduler.first, 1, number_of_variable(scheduler.count, scheduler));
}

/// Reads the variables of the scheduler that started this process. An MPI job of one process inside
/// a task is no contradiction. Errors: usage.
Shard shard_of_task(std::optional<std::size_t> count, bool of_ranks) {
  std::vector<const ArrayScheduler*> found;
  for (const ArrayScheduler& scheduler : kSchedulers)
    if (is_task_of(scheduler) && (of_ranks || !scheduler.numbers_ranks))
      found.push_back(&scheduler);
  const auto is_single_process = [](const ArrayScheduler* scheduler) {
    return scheduler->count != nullptr && is_set_to(scheduler->count, "1") &&
           scheduler->lowest == nullptr;
  };
  while (found.size() > 1) {
    const auto single = std::find_if(found.begin(), found.end(), is_single_process);
    if (single == found.end())
      fail_auto(assignment(found[0]->index) + " and " + assignment(found[1]->index) +
                " contradict each other; use --shard I/N");
    found.erase(single);
  }
  if (found.empty())
    fail_auto("this process is not a task of an array: none of " +
              join(kSchedulers, ", ", [](const auto& scheduler) { return scheduler.index; }) +
              " is set; use --shard I/N");
  return shard_from(*found[0], count);
}

class ShardItems final : public ItemSource {
 public:
  ShardItems(std::unique_ptr<ItemSource> source, const Shard& shard)
      : source_(std::move(source)), shard_(shard) {}

  std::optional<Item> next() override {
    for (;;) {
      std::optional<Item> item = held_ ? std::exchange(held_, std::nullopt) : source_->next();
      if (!item || shard_.has(item->number)) return item;
    }
  }

  std::optional<std::size_t> count() const override {
    const std::optional<std::size_t> all = source_->count();
    if (!all) return all;
    const std::size_t blocks = *all / shard_.block, rest = *all % shard_.block;
    const std::size_t ours =
        blocks / shard_.count + (blocks % shard_.count >= shard_.index ? 1 : 0);
    return ours * shard_.block + (blocks % shard_.count == shard_.index - 1 ? rest : 0);
  }

  std::optional<std::size_t> count_of_batch() const override { return source_->count_of_batch(); }

  std::string digest_of_list() const override { return source_->digest_of_list(); }

  bool has_more() const override { return source_->has_more(); }

  bool is_ready() override {
    while (!held_ && source_->is_ready()) {
      held_ = source_->next();
      if (!held_) return true;
      if (!shard_.has(held_->number)) held_.reset();
    }
    return held_.has_value();
  }
  int descriptor() const override { return source_->descriptor(); }

 private:
  std::unique_ptr<ItemSource> source_;
  const Shard shard_;
  std::optional<Item> held_;  ///< returned by the next next()
};

}  // namespace

std::optional<Shard> valid_shard(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::string_view view = text;
  const Shard shard{whole_number(view.substr(0, slash)).value_or(0),
                    whole_number(view.substr(slash + 1)).value_or(0)};
  if (shard.index == 0 || shard.index > shard.count) return std::nullopt;
  return shard;
}

std::string text_of(const Shard& shard, const std::string& separator) {
  return std::to_string(shard.index) + separator + std::to_string(shard.count);
}

Shard parse_shard(const std::string& text, bool of_ranks) {
  constexpr std::string_view kAuto = "auto", kAutoOf = "auto/";
  if (text.empty()) return {};
  if (text == kAuto) return shard_of_task(std::nullopt, of_ranks);
  if (text.starts_with(kAutoOf)) {
    const std::size_t count =
        whole_number(std::string_view(text).substr(kAutoOf.size())).value_or(0);
    if (count > 0) return shard_of_task(count, of_ranks);
  }
  const std::optional<Shard> shard = valid_shard(text);
  if (!shard)
    fail_usage("--shard: expected I/N with 1 <= I <= N, auto or auto/N, found '" + printable(text) +
               "'");
  return *shard;
}

std::unique_ptr<ItemSource> shard_of(std::unique_ptr<ItemSource> source, const Shard& shard) {
  if (shard.count == 1) return source;
  return std::make_unique<ShardItems>(std::move(source), shard);
}

}  // namespace attn
