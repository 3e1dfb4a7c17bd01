// Warnings about jobs that are valid but probably not what the user meant, and about NaN in
// results.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "attn/run/result.h"

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
/// before the mask is applied may contain NaN of hidden keys. They are checked only if all of
/// `outputs` are of this kind.
bool is_checked_for_nan(const Request& request, const std::vector<Request>& outputs);

enum class NanPolicy { warn, allow, refuse };

/// A message that names the outputs and inputs that hold NaN ("context: 8 of 12 values are NaN, the
/// first at [0, 0]; Q.npy: Q holds 2, the first at [0, 1]"), or infinite numbers if none has NaN.
/// Empty if no output holds NaN or `policy` allows it. Errors: data, with the message, if `policy`
/// refuses NaN.
std::string nan_warning(const Job& job, const Result& result, const std::vector<Request>& outputs,
                        NanPolicy policy);

/// One line each, most serious first:
///   - NaN in one of `outputs`, unless `nan` allows it;
///   - numbers of `outputs` that overflowed the result's dtype and became infinite;
///   - a floating-point mask or key mask whose elements are all 0 or 1: it is added to the scores,
///     as in PyTorch and ONNX, and hides nothing, but was probably meant as boolean;
///   - a mask of integers that hides every key;
///   - uint8 elements with a scale but without a zero point or a type: they are probably codes;
///   - a square mask of booleans or integers by which a query sees no key, though others see the
///     key at its position, or a boolean key mask that hides all keys of a batch item: true
///     probably has the other meaning;
///   - four axes without a layout, and more heads than queries and keys;
///   - Q and K without V, if one of `outputs` depends on the values;
///   - a derivative of a loss, and `outputs` are those of a job that lists none;
///   - causal with different numbers of queries and keys, without an alignment;
///   - square weights of an array *.weight, without a weights_layout;
///   - tokens whose number matches neither the queries nor the keys; they are then ignored.
/// Errors: data, for NaN under NanPolicy::refuse.
std::vector<std::string> warnings_of(const Job& job, const Inputs& in, const Result& result,
                                     const std::vector<Request>& outputs, NanPolicy nan);

}  // namespace attn
