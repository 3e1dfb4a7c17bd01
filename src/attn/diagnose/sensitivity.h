// Which mistakes of kernels a test of a job would notice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/core/expected_error.h"
#include "attn/diagnose/diagnosis.h"
#include "attn/diagnose/variant.h"
#include "attn/report/comparison.h"

namespace attn {

/// What a mistake changes in the result of a job.
struct Effect {
  enum class Verdict {
    seen,      ///< the largest change is at least 10 times what is accepted, and 1 % exceed that
    barely,    ///< some elements exceed it
    not_seen,  ///< none does
  };
  std::string id;      ///< of the hypothesis
  std::string kernel;  ///< as in Claim
  Verdict verdict = Verdict::not_seen;
  double of_tolerance = 0;         ///< largest change relative to the tolerance
  std::optional<double> of_bound;  ///< and to the error bound; nullopt if none is known
  double outside = 0;              ///< share of elements that exceed what is accepted
};

struct Sensitivity {
  std::vector<Effect> effects;               ///< of all hypotheses that apply, in their order
  std::vector<std::string> untested;         ///< those that are too large, or after a stop
  std::size_t queries = 0, all_queries = 0;  ///< sampled, and in the result
};

/// `tolerance`: what the test accepts; nullopt: the error bound of `precision`. `stop` ends the
/// search when true. Errors: data; usage, if the output has no bound and there is no tolerance.
Sensitivity sensitivity(const Variant& given, Output output,
                        const std::optional<Tolerance>& tolerance, const Precision& precision,
                        const std::atomic<bool>* stop);

std::string_view name_of(Effect::Verdict verdict);

/// How to change the inputs such that mistakes that are not seen are; one line each.
std::vector<std::string> suggestions(const Variant& given, const Sensitivity& found);

}  // namespace attn
