// Which mistakes of kernels a test of a job would notice.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attn/bounds/expected_error.h"
#include "attn/diagnose/diagnosis.h"
#include "attn/diagnose/evaluation.h"
#include "attn/diagnose/variant.h"
#include "attn/metrics/comparison.h"

namespace attn {

/// What a mistake changes in the result of a job.
struct Effect {
  enum class Verdict {
    /// At least half of the changed elements exceed what is accepted, or 1 % do and the largest
    /// change is at least 10 times that. With gates: a tenth of the change would fail, too.
    seen,
    barely,    ///< some elements exceed it, or a gate fails
    not_seen,  ///< none does
  };
  std::string id;      ///< of the hypothesis
  std::string kernel;  ///< as in Claim
  Verdict verdict = Verdict::not_seen;
  /// The largest change relative to the tolerance; nullopt with gates.
  std::optional<double> of_tolerance;
  std::optional<double> of_bound;  ///< and to the error bound; nullopt if none is known
  double outside = 0;              ///< share of elements that exceed the tolerance or bound
};

struct Sensitivity {
  std::vector<Effect> effects;               ///< of all hypotheses that apply, in their order
  std::vector<std::string> without_effect;   ///< those that change nothing, whatever the inputs
  std::vector<std::string> untested;         ///< those that are too large, or after a stop
  std::size_t queries = 0, all_queries = 0;  ///< sampled, and in the result
};

/// What a test accepts.
struct Test {
  std::optional<Tolerance> tolerance;  ///< nullopt: the error bound of `precision`
  std::optional<Precision> precision;  ///< nullopt, with a tolerance: no bounds are needed
  /// Whether gates accept a result (B, H, rows, C), for the right one. They decide if given.
  std::function<bool(const Tensor& result, const Evaluated& right)> gate = nullptr;
};

/// `stop` ends the search when true. Errors: data; usage, if the output has no bound and there is
/// neither a tolerance nor a gate.
Sensitivity sensitivity(const Variant& given, Output output, const Test& test,
                        const std::atomic<bool>* stop);

struct VisibleInputs {
  TensorMap tensors;
  std::size_t mistakes = 0;  ///< that have an effect
  std::size_t hidden = 0;    ///< of these, those that are not seen, or barely
};

/// The adversarial inputs (adversarial.h) of the first of the seeds `seed` to `seed` + 7 with which
/// a test of `output` at rtol = atol = 1e-2 sees all mistakes, or else of the one that hides
/// fewest. Errors: as for sensitivity().
VisibleInputs visible_inputs(const Variant& given, Output output, std::uint64_t seed);

std::string_view name_of(Effect::Verdict verdict);

/// How to change the inputs such that mistakes that are not seen are; one line each.
std::vector<std::string> suggestions(const Variant& given, const Sensitivity& found);

}  // namespace attn
