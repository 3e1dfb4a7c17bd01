#include "attn/compare/gate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <regex>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/compare/gate_presets.h"

namespace attn {
namespace {

using Kind = Expression::Kind;
using Relation = Expression::Relation;

constexpr std::string_view kBaselinePrefix = "baseline_";
constexpr std::size_t kMaxPatternLength = 200;

const Language& gate_language() {
  static const Language kLanguage = [] {
    Language language{.noun = "metric", .names = {}, .has_reals = true};
    for (const Metric& metric : metrics()) language.names.emplace_back(metric.name);
    for (const Metric& metric : metrics())
      if (metric.of_errors)
        language.names.push_back(std::string(kBaselinePrefix).append(metric.name));
    for (const MetricFunction& function : metric_functions())
      language.functions.emplace_back(function.name);
    return language;
  }();
  return kLanguage;
}

bool is_of_baseline(const Expression& part) {
  return part.kind == Kind::name && part.name.starts_with(kBaselinePrefix);
}

double compute(Kind kind, double left, double right) {
  switch (kind) {
    case Kind::add:
      return left + right;
    case Kind::subtract:
      return left - right;
    case Kind::multiply:
      return left * right;
    default:
      return left / right;
  }
}

const MetricFunction& function_named(const std::string& name) {
  const auto all = metric_functions();
  return *std::find_if(all.begin(), all.end(),
                       [&](const MetricFunction& known) { return known.name == name; });
}

/// The value of an expression of numbers only. Errors: usage, for a metric in it.
double constant(const Expression& part) {
  if (part.kind == Kind::number) return part.real;
  if (part.kind == Kind::negate) return -constant(part.operands[0]);
  if (part.kind == Kind::name || part.kind == Kind::call)
    fail_at(part, "expected a number, found the metric '" + part.name + "'");
  return compute(part.kind, constant(part.operands[0]), constant(part.operands[1]));
}

/// The arguments of a call in the order of the parameters. Errors: usage.
std::array<double, 2> arguments_of(const Expression& call) {
  const MetricFunction& function = function_named(call.name);
  const auto& [first, second] = function.parameters;
  const std::string usage =
      "expected " + call.name + "(" + std::string(first) + "=X, " + std::string(second) + "=Y)";
  std::array<std::optional<double>, 2> given;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const std::string& word = call.keywords[i];
    if (word != first && word != second) fail_at(call, usage);
    std::optional<double>& target = given[word == first ? 0 : 1];
    if (target) fail_at(call, usage + ", found '" + word + "' twice");
    target = constant(call.operands[i]);
    if (!(*target >= 0)) fail_at(call.operands[i], "expected a number of at least 0");
  }
  if (!given[0] && !given[1]) fail_at(call, usage);
  return {given[0].value_or(0), given[1].value_or(0)};
}

/// A metric as reports write it: "max_abs", "abs_or_rel(abs=0.0008, rel=0.0157031)".
std::string text_of_metric(const Expression& part) {
  if (part.kind == Kind::name) return part.name;
  const MetricFunction& function = function_named(part.name);
  const auto [first, second] = arguments_of(part);
  return part.name + "(" + std::string(function.parameters[0]) + "=" + six_digits(first) + ", " +
         std::string(function.parameters[1]) + "=" + six_digits(second) + ")";
}

/// Kleene's three values.
enum class Truth { no, undefined, yes };

class GateEvaluation {
 public:
  GateEvaluation(const Measured& result, const Measured* baseline, GateOutcome& outcome)
      : result_(result), baseline_(baseline), outcome_(outcome) {}

  Truth truth(const Expression& part) {
    if (part.kind == Kind::comparison) return comparison(part);
    if (part.kind == Kind::logical_not) {
      const Truth inner = truth(part.operands[0]);
      return inner == Truth::yes ? Truth::no : inner == Truth::no ? Truth::yes : inner;
    }
    // All operands, because reports have the values of all metrics.
    const bool is_all = part.kind == Kind::logical_and;
    Truth all = is_all ? Truth::yes : Truth::no;
    for (const Expression& operand : part.operands) {
      const Truth one = truth(operand);
      all = is_all ? std::min(all, one) : std::max(all, one);
    }
    return all;
  }

 private:
  Truth comparison(const Expression& chain) {
    Truth all = Truth::yes;
    double left = number(chain.operands[0]);
    for (std::size_t i = 0; i < chain.relations.size(); ++i) {
      const double right = number(chain.operands[i + 1]);
      const Truth one = std::isnan(left) || std::isnan(right)    ? Truth::undefined
                        : holds(chain.relations[i], left, right) ? Truth::yes
                                                                 : Truth::no;
      all = std::min(all, one);
      left = right;
    }
    return all;
  }

  double number(const Expression& part) {
    if (part.kind == Kind::number) return part.real;
    if (part.kind == Kind::name || part.kind == Kind::call) return metric(part);
    if (part.kind == Kind::negate) return -number(part.operands[0]);
    const double left = number(part.operands[0]);
    return compute(part.kind, left, number(part.operands[1]));
  }

  double metric(const Expression& part) {
    const std::string text = text_of_metric(part);
    for (const auto& [known, value] : outcome_.values)
      if (known == text) return value;
    const double value = part.kind == Kind::call ? value_of_call(part) : value_of_name(part);
    outcome_.values.emplace_back(text, value);
    return value;
  }

  double value_of_call(const Expression& call) const {
    const auto [first, second] = arguments_of(call);
    return function_named(call.name).value(result_, first, second);
  }

  double value_of_name(const Expression& part) const {
    const bool of_baseline = is_of_baseline(part);
    const std::string_view name =
        std::string_view(part.name).substr(of_baseline ? kBaselinePrefix.size() : 0);
    const auto all = metrics();
    const Metric& metric = *std::find_if(all.begin(), all.end(),
                                         [&](const Metric& known) { return known.name == name; });
    if (!of_baseline) return metric.value(result_);
    return baseline_->found().finite_at_the_same_places()
               ? metric.value(*baseline_)
               : std::numeric_limits<double>::quiet_NaN();
  }

  const Measured& result_;
  const Measured* baseline_;
  GateOutcome& outcome_;
};

/// Matches whole names. Errors: usage.
std::function<bool(const GatedTensor&)> pattern_of(const std::string& regex) {
  if (regex.size() > kMaxPatternLength)
    fail_usage("expected a regular expression of at most " + std::to_string(kMaxPatternLength) +
               " characters");
  // Counts would multiply the size of the automaton, which is searched recursively.
  if (regex.find('{') != std::string::npos)
    fail_usage("expected a regular expression without '{' at character " +
               std::to_string(regex.find('{') + 1));
  try {
    // The polynomial automaton takes time proportional to the length of a name.
    const auto compiled = std::make_shared<const std::regex>(
        regex, std::regex::ECMAScript | std::regex_constants::__polynomial);
    return
        [compiled](const GatedTensor& tensor) { return std::regex_match(tensor.name, *compiled); };
  } catch (const std::regex_error&) {
    fail_usage("'" + printable(regex) + "' is not a regular expression");
  }
}

/// "--gate 'TEXT'".
std::string place_of(const std::string& text) { return "--gate '" + printable(text) + "'"; }

}  // namespace

std::string Gate::place() const { return preset.empty() ? place_of(text) : "--preset " + preset; }

bool Gate::names(std::string_view metric) const {
  bool found = false;
  for_each_part(condition, [&](const Expression& part) {
    found |= part.kind == Kind::name && part.name == metric;
  });
  return found;
}

bool Gate::names_baseline() const {
  bool found = false;
  for_each_part(condition, [&](const Expression& part) { found |= is_of_baseline(part); });
  return found;
}

Gate parse_gate(const std::string& text) {
  return within(place_of(text), [&] {
    Gate gate;
    gate.text = text;
    const std::size_t colon = text.rfind(':');  // expressions have none
    gate.is_selective = colon != std::string::npos;
    gate.selects = gate.is_selective ? pattern_of(text.substr(0, colon))
                                     : [](const GatedTensor&) { return true; };
    gate.condition = parse_expression(text, gate.is_selective ? colon + 1 : 0, gate_language());
    if (!gate.condition.is_truth_value())
      fail_at(gate.condition, "expected a comparison such as 'max_abs < 1e-3', found a number");
    for_each_part(gate.condition, [](const Expression& part) {
      if (part.kind == Kind::call) arguments_of(part);
    });
    return gate;
  });
}

Gate baseline_gate(const std::string& factors) {
  std::string factor = "2", rest = "1e-5";
  if (!factors.empty()) {
    const std::size_t comma = factors.find(',');
    factor = factors.substr(0, comma);
    if (comma != std::string::npos) rest = factors.substr(comma + 1);
  }
  for (const std::string& number : {factor, rest}) {
    const std::optional<double> value = parse_decimal(number);
    if (!value || !(*value >= 0))
      fail_usage({.where = {"--baseline"},
                  .expected = "K or K,C with numbers of at least 0, such as 2,1e-5",
                  .found = "'" + printable(factors) + "'"});
  }
  return parse_gate("max_abs <= " + factor + " * baseline_max_abs + " + rest);
}

std::vector<Gate> gates_of(const GateWords& words, bool has_tolerance) {
  std::vector<Gate> gates;
  for (const std::string& text : words.gates) gates.push_back(parse_gate(text));
  for (const std::string& name : words.presets)
    for (Gate& gate : preset_gates(name)) gates.push_back(std::move(gate));
  if (words.baseline) gates.push_back(baseline_gate(*words.baseline));
  const auto uses_tolerance = [](const Gate& gate) {
    return gate.is_selective || gate.names("mismatched") || gate.names("baseline_mismatched");
  };
  if (has_tolerance && !gates.empty() && std::none_of(gates.begin(), gates.end(), uses_tolerance))
    fail_usage(
        "--rtol, --atol and --ulp are the tolerance of the metric 'mismatched', which no "
        "gate names");
  return gates;
}

std::vector<const Gate*> gates_for(const GatedTensor& tensor, const std::vector<Gate>& gates) {
  std::vector<const Gate*> selected;
  for (const Gate& gate : gates)
    if (gate.selects(tensor)) selected.push_back(&gate);
  return selected;
}

GateOutcome evaluate(const Gate& gate, const Measured& result, const Measured* baseline) {
  GateOutcome outcome{gate.text, gate.preset, false, {}};
  outcome.passed = GateEvaluation(result, baseline, outcome).truth(gate.condition) == Truth::yes;
  return outcome;
}

void require_selected(const std::vector<Gate>& gates, const std::vector<GatedTensor>& tensors) {
  for (const Gate& gate : gates) {
    if (!gate.is_selective || std::any_of(tensors.begin(), tensors.end(), gate.selects)) continue;
    fail_usage(place_of(gate.text) + ": the regular expression matches none of " +
               "the compared tensors: " + list_names(texts_of(tensors, &GatedTensor::name)));
  }
}

void require_metrics(const std::vector<Gate>& gates, bool to_reference, bool has_tolerance) {
  for (const Gate& gate : gates) {
    if (gate.names_baseline() && !to_reference)
      fail_usage(gate.place() +
                 ": metrics of the baseline require --reference, because "
                 "the baseline is computed from the job");
    if (gate.names("bound") && (!to_reference || has_tolerance))
      fail_usage(gate.place() +
                 ": the metric 'bound' requires --reference without --rtol, "
                 "--atol and --ulp");
  }
}

std::vector<Explained> explained_metrics() {
  std::vector<Explained> all;
  for (const Metric& metric : metrics()) all.emplace_back(metric.name, metric.definition);
  for (const MetricFunction& function : metric_functions())
    all.emplace_back(std::string(function.name) + "(" + std::string(function.parameters[0]) +
                         "=X, " + std::string(function.parameters[1]) + "=Y)",
                     function.definition);
  return all;
}

}  // namespace attn
