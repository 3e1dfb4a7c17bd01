// What is said about NaN: attention lets a visible NaN through, but never in silence.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "attn/job/job.h"

namespace attn {

/// Counts the NaN of an output that goes by in rows. Threads may add at once.
class NanCounter {
 public:
  void add(const RowBlock& block);
  NanCount found() const { return found_; }  ///< when all have been added

 private:
  std::mutex mutex_;
  NanCount found_;
};

/// Whether nan_report() looks at this output of the job.
bool is_looked_at_for_nan(const std::string& name, const std::vector<std::string>& outputs);

/// A line that says which output holds NaN and which inputs do ("context: expected no NaN, found 8
/// of 12, the first at [0, 0]; Q.npy: Q holds 2, the first at [0, 1]"), or "" when no output holds
/// any. Outputs from before the mask, where a hidden NaN still stands, count only when there are no
/// others.
std::string nan_report(const Job& job, const Result& result);

enum class NanPolicy { warn, allow, refuse };

/// What `policy` wants to be said: nan_report(), or "" where NaN is allowed. Errors: data, with the
/// report, where it is refused.
std::string nan_warning(const Job& job, const Result& result, NanPolicy policy);

}  // namespace attn
