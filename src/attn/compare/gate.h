// Gates: conditions on the metrics of a comparison, which decide instead of a tolerance or the
// error bounds.
//
//   gate  [REGEX ":"] expression
//
// base/expression.h defines expressions, metrics/metrics.h the metrics that they name. The prefix
// "baseline_" selects the same metric for the baseline (compare/baseline.h). The regular
// expression has to match the whole name of a tensor; without it, the gate is for all tensors. It
// is an ECMAScript expression without back-references and counts such as {2}, of at most 200
// characters.
//
// A metric that is undefined, such as the cosine of zeros, makes comparisons with it undefined;
// "and", "or" and "not" follow Kleene's logic. A gate passes only if it is true, and only if NaN
// and infinities are at the same places in both tensors.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/expression.h"
#include "attn/metrics/comparison.h"
#include "attn/metrics/metrics.h"
#include "attn/tensor/tensor.h"

namespace attn {

/// What a gate may depend on besides metrics.
struct GatedTensor {
  std::string name;
  DType stored = DType::f64;  ///< that of `a` in a kernel
  bool has_softcap = false;   ///< the job's scores have one
};

struct Gate {
  std::string text;         ///< as typed, for reports
  std::string preset = {};  ///< where the gate comes from; "" if it was typed
  std::function<bool(const GatedTensor&)> selects = {};
  bool is_selective = false;  ///< typed with a regular expression
  Expression condition = {};

  std::string place() const;                  ///< "--gate 'TEXT'", "--preset NAME"
  bool names(std::string_view metric) const;  ///< a metric without arguments
  bool names_baseline() const;                ///< a metric of the baseline
};

/// Errors: usage, "--gate 'max_ab < 1': unknown metric 'max_ab' at character 1 (did you mean
/// 'max_abs'?)".
Gate parse_gate(const std::string& text);

/// --baseline[=K[,C]]: the rule of FlashAttention, max_abs <= K * baseline_max_abs + C, by default
/// with 2 and 1e-5. Errors: usage.
Gate baseline_gate(const std::string& factors);

/// Gate options as typed.
struct GateWords {
  std::vector<std::string> gates, presets;
  std::optional<std::string> baseline;  ///< "2,1e-5"; "": the default
};

/// Errors: usage; also if there is a tolerance that no gate uses.
std::vector<Gate> gates_of(const GateWords& words, bool has_tolerance);

/// Those for this tensor.
std::vector<const Gate*> gates_for(const GatedTensor& tensor, const std::vector<Gate>& gates);

/// What a gate says about a tensor.
struct GateOutcome {
  std::string text, preset;
  bool passed = false;
  std::vector<std::pair<std::string, double>> values;  ///< of the metrics that it names, each once
};

/// `baseline` may be nullptr if the gate names no metric of it. Its metrics are undefined if it has
/// NaN or infinities where the reference has none.
GateOutcome evaluate(const Gate& gate, const Measured& result, const Measured* baseline);

/// Errors: usage, for a typed gate that selects none of these tensors.
void require_selected(const std::vector<Gate>& gates, const std::vector<GatedTensor>& tensors);

/// Errors: usage, for a gate with a metric that the comparison does not have.
void require_metrics(const std::vector<Gate>& gates, bool to_reference, bool has_tolerance);

/// A name and what it means, for help.
using Explained = std::pair<std::string, std::string>;

std::vector<Explained> explained_metrics();

}  // namespace attn
