// Names the mistake of a kernel: which other variant its result agrees with.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "attn/diagnose/evidence.h"
#include "attn/diagnose/variant.h"

namespace attn {

/// A variant that explains the result: one hypothesis, or two.
struct Finding {
  std::vector<std::string> ids;  ///< of the hypotheses; "heads.permuted" and others that are fitted
  std::string kernel, job, flags;                  ///< as in Claim; flags: `kernel` if it has some
  double explained = 0;                            ///< share of the sampled elements
  double residual_before = 0, residual_after = 0;  ///< RMS of the errors of the sample
};

struct Diagnosis {
  /// All variants that explain the result and cannot be told apart.
  std::vector<Finding> findings;
  std::string arithmetic;      ///< the precision that explains it instead; "" if none does
  bool is_recomputed = false;  ///< with this precision; otherwise the errors are within its bound
  std::size_t tested = 0, pairs = 0;  ///< hypotheses that apply, and pairs of them
  std::vector<std::string> untested;  ///< ids of those that were not tested
  std::string why_untested;           ///< "after 2 s"
  SampleSize sample;
  std::size_t wrong = 0;             ///< elements of the sample that exceed their bounds
  std::vector<std::string> pattern;  ///< where the result is wrong, one line each
};

/// Fewer wrong elements do not tell pairs of mistakes apart, and may not tell single ones apart.
inline constexpr std::size_t kFewestWrong = 4;

/// Without --diagnose.
inline constexpr double kSearchSeconds = 2;
inline constexpr std::size_t kMostSearchThreads = 4;

struct SearchLimits {
  std::optional<double> seconds = kSearchSeconds;  ///< nullopt: test all hypotheses
  const std::atomic<bool>* stop = nullptr;         ///< ends the search when true
};

/// `given` is the job. Never throws because of a hypothesis. Errors: data, if the job is not valid.
Diagnosis diagnose(const Variant& given, const Evidence& evidence, const SearchLimits& limits);

/// One line for each thing to say, the cause first.
std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis);

}  // namespace attn
