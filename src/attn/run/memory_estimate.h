// The memory that a job needs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/attention/plan.h"

namespace attn {

/// An upper bound of the memory of a job: a sum of named contributions. The sum saturates at the
/// largest size.
class MemoryEstimate {
 public:
  MemoryEstimate() = default;
  /// Starts with the contribution `name`: inputs, stages and outputs.
  explicit MemoryEstimate(const Plan& plan, std::string name = kTensors);

  /// `name` is a plural noun. Zero bytes are ignored.
  void add(std::string name, std::size_t bytes);
  /// Adds the digits of all outputs, for JSON and CSV.
  void add_output_text(const Plan& plan);

  std::size_t bytes() const { return bytes_; }

  /// Whether a message calls options by their flags or by their keys.
  enum class Spelling { flags, keys };

  /// Throws Error(data) if more than `limit` bytes are needed. The message names `job` (if not
  /// empty), the contributions, --max-memory, and `flags`, options that take memory and can be
  /// omitted.
  void require(const std::string& job, std::size_t limit, const std::string& flags = "",
               Spelling spelling = Spelling::flags) const;

 private:
  static constexpr const char* kTensors = "tensors";

  struct Contribution {
    std::string name;
    std::size_t bytes;
  };
  std::vector<Contribution> contributions_;
  std::size_t bytes_ = 0;
};

}  // namespace attn
