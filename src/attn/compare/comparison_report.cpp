#include "attn/compare/comparison_report.h"

#include <algorithm>
#include <cmath>

#include "attn/base/error.h"
#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/io/json_parse.h"
#include "attn/io/json_write.h"
#include "attn/metrics/comparison.h"

namespace attn {
namespace {

Json count(std::size_t number) { return Json{static_cast<std::int64_t>(number)}; }

Json element(const Tensor& number) { return parse_json(to_json(number, -1), "element"); }

Json index_json(std::size_t at, const TensorPair& pair) {
  const Shape index = unravel_index(at, pair.compared.a.shape());
  return Json{JsonIntegers(index.begin(), index.end())};
}

Json extreme(const std::optional<Extreme>& extreme, const TensorPair& pair) {
  if (!extreme) return Json{};
  return Json{JsonObject{{"value", Json{extreme->value}},
                         {"at", index_json(extreme->at, pair)},
                         {"a", element(*extreme->a)},
                         {"b", element(*extreme->b)}}};
}

Json number(const std::optional<double>& value) { return value ? Json{*value} : Json{}; }

Json side(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return Json{JsonObject{{"dtype", Json{std::string(name_of(tensor.dtype()))}},
                         {"shape", Json{JsonIntegers(shape.begin(), shape.end())}}}};
}

Json histogram(const Comparison& found) {
  JsonArray decades;
  for (const auto& [exponent, pairs] : found.decades)
    decades.push_back(
        Json{JsonObject{{"decade", Json{std::int64_t{exponent}}}, {"count", count(pairs)}}});
  return Json{JsonObject{{"equal", count(found.equal)},
                         {"decades", Json{std::move(decades)}},
                         {"infinite", count(found.infinitely_apart)}}};
}

/// The element with the largest error relative to its bound: the ratio, its index, both values and
/// the bound.
Json of_bound(const TensorPair& pair) {
  const std::optional<Extreme>& worst = pair.found.max_of_bound;
  Json object = extreme(worst, pair);
  if (worst) object.get<JsonObject>()->emplace_back("bound", Json{*worst->bound});
  return object;
}

double snr_of(double nmse) { return -10 * std::log10(nmse); }

Json part_json(const std::vector<PartAxis>& axes, const PartComparison& part) {
  const Comparison& found = part.found;
  const auto value = [](const std::optional<Extreme>& extreme) {
    return extreme ? Json{extreme->value} : Json{};
  };
  JsonObject object;
  for (std::size_t k = 0; k < axes.size(); ++k)
    object.emplace_back(axes[k].name, count(part.index[k]));
  const JsonObject more = {{"elements", count(found.elements)},
                           {"differing", count(found.differing)},
                           {"max_abs", value(found.max_abs)},
                           {"max_rel", value(found.max_rel)},
                           {"max_of_bound", value(found.max_of_bound)},
                           {"mean_abs", number(found.mean_abs)},
                           {"rms", number(found.rms)},
                           {"nmse", number(found.nmse)},
                           {"cosine", number(found.cosine)},
                           {"pcc", number(found.pearson)}};
  object.insert(object.end(), more.begin(), more.end());
  return Json{std::move(object)};
}

Json strings(const std::vector<std::string>& words) {
  JsonArray array;
  for (const std::string& word : words) array.push_back(Json{word});
  return Json{std::move(array)};
}

Json gates_json(const std::vector<GateOutcome>& gates) {
  JsonArray array;
  for (const GateOutcome& gate : gates) {
    JsonObject values;
    for (const auto& [name, value] : gate.values)
      values.emplace_back(name, std::isnan(value) ? Json{} : Json{value});
    array.push_back(Json{JsonObject{{"gate", Json{gate.text}},
                                    {"preset", gate.preset.empty() ? Json{} : Json{gate.preset}},
                                    {"passed", Json{gate.passed}},
                                    {"values", Json{std::move(values)}}}});
  }
  return Json{std::move(array)};
}

/// The problems that explain a result, and what was tested.
Json diagnosis_json(const Diagnosis& diagnosis) {
  JsonArray findings;
  for (const Finding& finding : diagnosis.findings)
    findings.push_back(Json{JsonObject{{"id", Json{join(finding.ids, " and ")}},
                                       {"flags", Json{finding.flags}},
                                       {"text", Json{finding.kernel}},
                                       {"job", Json{finding.job}},
                                       {"explained", Json{finding.explained}},
                                       {"residual_before", Json{finding.residual_before}},
                                       {"residual_after", Json{finding.residual_after}}}});
  return Json{std::move(findings)};
}

Json search_json(const Diagnosis& diagnosis) {
  return Json{JsonObject{{"hypotheses", count(diagnosis.tested)},
                         {"pairs", count(diagnosis.pairs)},
                         {"untested", strings(diagnosis.untested)},
                         {"queries", count(diagnosis.sample.queries)},
                         {"of_queries", count(diagnosis.sample.all_queries)},
                         {"heads", count(diagnosis.sample.heads)},
                         {"of_heads", count(diagnosis.sample.all_heads)}}};
}

Json pair_json(const TensorPair& pair) {
  const Comparison& found = pair.found;
  const std::string& name = pair.compared.name;
  JsonObject object = {{"name", name.empty() ? Json{} : Json{name}},
                       {"same", Json{pair.passed()}},
                       {"rtol", Json{pair.compared.tolerance.rtol}},
                       {"atol", Json{pair.compared.tolerance.atol}},
                       {"a", side(pair.compared.a)},
                       {"b", side(pair.compared.b)},
                       {"hints", strings(texts_of(pair.hints, &Hint::text))}};
  if (!pair.gates.empty()) object.emplace_back("gates", gates_json(pair.gates));
  if (!found.same_shape) return Json{std::move(object)};
  if (pair.diagnosis) {
    const std::string& arithmetic = pair.diagnosis->arithmetic;
    object.emplace_back("diagnosis", diagnosis_json(*pair.diagnosis));
    object.emplace_back("arithmetic", arithmetic.empty() ? Json{} : Json{arithmetic});
    object.emplace_back("pattern", strings(pair.diagnosis->pattern));
    object.emplace_back("search", search_json(*pair.diagnosis));
  }
  const JsonObject nan = {
      {"both", count(found.nan_in_both)},
      {"a_only", count(found.nan_in_a)},
      {"b_only", count(found.nan_in_b)},
      {"first", found.first_nan ? index_json(found.first_nan->at, pair) : Json{}}};
  const JsonObject more = {
      {"elements", count(found.elements)},
      {"differing", count(found.differing)},
      {"max_abs", extreme(found.max_abs, pair)},
      {"max_rel", extreme(found.max_rel, pair)},
      {"max_ulps", extreme(found.max_ulps, pair)},
      {"mean_abs", number(found.mean_abs)},
      {"rms", number(found.rms)},
      {"nmse", number(found.nmse)},
      {"snr_db", found.nmse && *found.nmse > 0 ? Json{snr_of(*found.nmse)} : Json{}},
      {"cosine", number(found.cosine)},
      {"pcc", number(found.pearson)},
      {"nan", Json{nan}},
      {"histogram", histogram(found)}};
  object.insert(object.end(), more.begin(), more.end());
  if (pair.compared.bounds)
    object.emplace_back(
        "bound", Json{JsonObject{{"of", Json{pair.compared.bound_of}}, {"worst", of_bound(pair)}}});
  JsonArray parts;
  for (const PartComparison& part : pair.parts) parts.push_back(part_json(pair.axes, part));
  object.emplace_back("parts", Json{std::move(parts)});
  return Json{std::move(object)};
}

/// A line for each of the first ten tensors that only one file has.
std::string missing_text(const std::vector<std::string>& names, const std::string& where) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), ProblemList::kMaxKept); ++i)
    text += printable(names[i]) + ": " + where + "\n";
  if (names.size() > ProblemList::kMaxKept)
    text += "and " + std::to_string(names.size() - ProblemList::kMaxKept) + " more " + where + "\n";
  return text;
}

/// At most six digits, but more if the value would look like 1.
std::string metric_text(double value) {
  if (std::isnan(value)) return "undefined";
  std::string text = six_digits(value);
  if (text == "1" && value != 1) append_number(text = "", value);
  return text;
}

/// "passes  fa2: max_abs <= 1e-3 (max_abs 0.0002)".
std::string outcome_text(const GateOutcome& gate) {
  const std::string values = join(gate.values, ", ", [](const auto& metric) {
    return metric.first + " " + metric_text(metric.second);
  });
  return std::string(gate.passed ? "passes  " : "fails   ") +
         (gate.preset.empty() ? "" : gate.preset + ": ") + printable(gate.text) +
         (values.empty() ? "" : " (" + values + ")");
}

/// "fails 1 of 2 gates".
std::string gates_verdict(const std::vector<GateOutcome>& gates) {
  const auto failed = static_cast<std::size_t>(std::count_if(
      gates.begin(), gates.end(), [](const GateOutcome& gate) { return !gate.passed; }));
  if (failed == 0) return "passes " + counted(gates.size(), "gate");
  return "fails " + (failed == gates.size() ? "" : std::to_string(failed) + " of ") +
         counted(gates.size(), "gate");
}

/// Why no gate can pass; "" if they decide.
std::string misplaced(const Compared& compared, const Comparison& found) {
  if (!found.finite_at_the_same_places())
    return "fails, because NaN or infinities are not at the same places";
  if (found.nan_in_both > 0 && !compared.tolerance.equal_nan)
    return "fails, because both have NaN, which --equal-nan accepts";
  return "";
}

/// Evaluates the gates and sets the verdict. Needs pair.found.
void apply_gates(const Gating& gating, const TensorAxes& axes, TensorPair& pair) {
  if (gating.gates.empty()) return;
  Compared& c = pair.compared;
  if (!pair.found.same_shape) {
    for (const Gate* gate : gating.gates)
      pair.gates.push_back({gate->text, gate->preset, false, {}});
    return;
  }
  const std::vector<std::size_t> tokens = token_axes(axes.letters, c.b.rank());
  const Measured result(c.a, c.b, pair.found, tokens, gating.stored);
  const Comparison found =
      gating.baseline ? compare(*gating.baseline, c.b, c.tolerance) : Comparison();
  std::optional<Measured> baseline;
  if (gating.baseline) baseline.emplace(*gating.baseline, c.b, found, tokens, gating.stored);
  for (const Gate* gate : gating.gates)
    pair.gates.push_back(evaluate(*gate, result, baseline ? &*baseline : nullptr));
  c.verdict = misplaced(c, pair.found);
  if (!c.verdict.empty())
    for (GateOutcome& gate : pair.gates) gate.passed = false;
  else
    c.verdict = gates_verdict(pair.gates);
  for (const GateOutcome& gate : pair.gates) c.reasons.push_back(outcome_text(gate));
}

}  // namespace

TensorPair compared_pair(Compared compared, const TensorAxes& axes, std::size_t width,
                         const Gating& gating) {
  TensorPair pair{std::move(compared), {}, axes.parts, {}, {}, {}};
  const Compared& c = pair.compared;
  const Tensor* bounds = c.bounds ? &*c.bounds : nullptr;
  pair.found = compare(c.a, c.b, c.tolerance, bounds);
  apply_gates(gating, axes, pair);
  if (pair.passed()) return pair;
  if (pair.found.same_shape && !axes.parts.empty())
    pair.parts = compare_parts(c.a, c.b, c.tolerance, bounds, axes.parts);
  pair.hints = compare_hints(c, pair.found, axes.letters, width);
  return pair;
}

namespace {

/// What may explain the differences, and where they are.
std::vector<std::string> cause_of(const TensorPair& pair) {
  std::vector<std::string> lines;
  for (const Hint& hint : pair.hints) lines.push_back("hint: " + hint.text);
  if (pair.diagnosis)
    for (const std::string& line : diagnosis_lines(*pair.diagnosis))
      lines.push_back(printable(line));
  return lines;
}

}  // namespace

std::string report_text(const CompareReport& report, bool details) {
  std::string text;
  std::size_t same = 0;
  bool some_close = false, is_expected = report.to_reference;
  for (const TensorPair& pair : report.pairs) {
    Compared compared = pair.compared;
    compared.name = printable(compared.name);
    const Detail detail = details ? Detail::all : pair.passed() ? Detail::line : Detail::summary;
    text += comparison_text(compared, pair.found, cause_of(pair), detail);
    if (!pair.parts.empty()) text += parts_text(pair.axes, pair.parts);
    same += pair.passed() ? 1 : 0;
    some_close |= pair.passed() && !pair.found.equal_throughout();
    is_expected |= !pair.gates.empty();
  }
  text += missing_text(report.only_in_a, "in A only") + missing_text(report.only_in_b, "in B only");
  const std::size_t all = report.pairs.size() + report.only_in_a.size() + report.only_in_b.size();
  const bool is_one = same == 1 || all == 1;
  return text + std::to_string(same) + " of " + counted(all, "tensor") +
         (is_expected ? (is_one ? " passes\n" : " pass\n")
                      : std::string(is_one ? " is" : " are") +
                            (some_close ? " the same or close\n" : " the same\n"));
}

std::string report_json(const CompareReport& report) {
  const Tolerance& tolerance = report.tolerance;
  JsonArray tensors;
  for (const TensorPair& pair : report.pairs) tensors.push_back(pair_json(pair));
  return to_json(Json{JsonObject{{"same", Json{report.same()}},
                                 {"ulp", number(tolerance.ulps)},
                                 {"equal_nan", Json{tolerance.equal_nan}},
                                 {"tensors", Json{std::move(tensors)}},
                                 {"only_in_a", strings(report.only_in_a)},
                                 {"only_in_b", strings(report.only_in_b)}}}) +
         "\n";
}

}  // namespace attn
