#include "attn/run/memory_estimate.h"

#include <utility>

#include "attn/base/error.h"
#include "attn/job/job.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

constexpr std::size_t kTextBytes = 50;  // per element: its digits, twice while the buffer grows

/// Adds the number of bytes, since two sizes may round to the same text.
std::string exact_size(std::size_t bytes) {
  return size_text(bytes) + (bytes < 1024 ? "" : " (" + std::to_string(bytes) + " bytes)");
}

}  // namespace

MemoryEstimate::MemoryEstimate(const Plan& plan, std::string name) {
  add(std::move(name), plan.bytes);
}

void MemoryEstimate::add(std::string name, std::size_t bytes) {
  if (bytes == 0) return;
  bytes_ = saturating_sum(bytes_, bytes);
  if (contributions_.empty()) contributions_.reserve(4);  // growing is slow
  contributions_.push_back({std::move(name), bytes});
}

void MemoryEstimate::add_output_text(const Plan& plan) {
  std::size_t bytes = 0;
  for (const PlannedOutput& output : plan.outputs)
    bytes = saturating_sum(bytes,
                           saturating_product({output.bytes / size_of(output.dtype), kTextBytes}));
  add("output text", bytes);
}

void MemoryEstimate::require(const std::string& job, std::size_t limit, const std::string& flags,
                             Spelling spelling) const {
  if (bytes_ <= limit) return;
  std::string parts;
  if (contributions_.size() > 1 || contributions_[0].name != kTensors)
    for (const Contribution& part : contributions_)
      parts += (parts.empty() ? "" : ", ") + size_text(part.bytes) + " for " + part.name;
  fail_data(
      {.where = job.empty() ? std::vector<std::string>{} : std::vector{job},
       .message = "needs " + exact_size(bytes_) + " of memory, more than the limit of " +
                  exact_size(limit),
       .hint = parts + (parts.empty() ? "" : "; ") +
               (spelling == Spelling::keys
                    ? "max_memory raises the limit; outputs and rows reduce the memory"
                    : "--max-memory raises the limit; --outputs and --rows reduce the memory") +
               (flags.empty() ? "" : ", as does omitting " + flags)});
}

}  // namespace attn
