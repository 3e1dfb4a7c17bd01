// Finding NaN in results: attention propagates a visible NaN, but reports it.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "attn/job/job.h"

namespace attn {

/// Counts the NaN of an output that arrives in rows. Several threads may add at the same time.
class NanCounter {
 public:
  void add(const RowBlock& block);
  NanCount found() const { return found_; }  ///< once all rows have been added

 private:
  std::mutex mutex_;
  NanCount found_;
};

/// Whether NaN in this output is reported, when the user requested `outputs`. Outputs computed
/// before the mask is applied may hold NaN of hidden keys: they count only if all of `outputs` are
/// of this kind.
bool is_checked_for_nan(const std::string& name, const std::vector<std::string>& outputs);

enum class NanPolicy { warn, allow, refuse };

/// A message that names the outputs and inputs that hold NaN ("context: 8 of 12 values are NaN, the
/// first at [0, 0]; Q.npy: Q holds 2, the first at [0, 1]"). Empty if no output holds NaN or
/// `policy` allows it. Errors: data, with the message, if `policy` refuses NaN.
std::string nan_warning(const Job& job, const Result& result,
                        const std::vector<std::string>& outputs, NanPolicy policy);

}  // namespace attn
