// Which output of the job each tensor of A is, and its precision: attn compare --reference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/bounds/expected_error.h"
#include "attn/compare/compare_reference.h"
#include "attn/job/job.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// A tensor of A and the name of the output that it is compared with.
struct MatchedOutput {
  std::string name;
  Tensor tensor;
};

/// Ignores tensors that are inputs. Adds the names of tensors without a matching output to
/// `unmatched`. A name that --as gives is accepted as it is.
std::vector<MatchedOutput> match_outputs(const TensorMap& given, const ReferenceOptions& typed,
                                         const Job& job, std::vector<std::string>& unmatched);

/// Errors: usage, with a line for each tensor that is not an output, and the --as that it needs.
void refuse_unmatched(const std::vector<std::string>& unmatched, const TensorMap& given,
                      const PreparedJob& prepared, const Job& job);

/// Makes the matched outputs those of the job, in the same order. Messages about them refer to
/// `where`.
void request_outputs(const std::vector<MatchedOutput>& matches, const std::string& where, Job& job);

/// Suggests --as for a single tensor that does not have the shape of the default output; "" if
/// there is nothing to suggest.
std::string suggested_outputs(const Tensor& tensor, const PreparedJob& prepared, const Job& job);

/// The dtype of Q, K and V if they have 16 bits.
std::optional<DType> dtype_of_16_bit_inputs(const Job& job);

/// The precision of each output, as typed, or that of the dtype: f64 for integers. A float32 tensor
/// that a kernel of 16 bits keeps so has the precision of the 16-bit tensors beside it, or of the
/// inputs.
std::vector<Precision> precisions_of(const std::vector<MatchedOutput>& matches,
                                     const std::vector<Request>& outputs,
                                     std::optional<DType> of_inputs, const ReferenceOptions& typed);

}  // namespace attn
