#include "attn/diagnose/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "attn/base/number_text.h"
#include "attn/base/text.h"
#include "attn/diagnose/arithmetic.h"
#include "attn/diagnose/arrangements.h"
#include "attn/diagnose/backward_hypotheses.h"
#include "attn/diagnose/fitted_numbers.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/diagnose/pair_search.h"
#include "attn/diagnose/pattern.h"
#include "attn/diagnose/recovered_weights.h"
#include "attn/diagnose/search.h"

namespace attn {
namespace {

void add_arrangements(Search& search) {
  const Evidence& evidence = search.sample().evidence();
  std::vector<Arrangement> matching;
  if (const Excerpt* excerpt = evidence.excerpt)
    matching = matching_arrangements(*excerpt->some_rows);
  if (matching.empty()) matching = matching_arrangements(evidence);
  for (const Arrangement& arrangement : matching) {
    if (!search.is_smaller(arrangement.fit)) continue;
    Finding finding;
    finding.ids = {arrangement.id};
    finding.kernel = arrangement.kernel;
    search.set_fit(finding, arrangement.fit);
    search.found().findings.push_back(std::move(finding));
  }
}

/// Lines about a result that no hypothesis explains.
void add_observations(Search& search) {
  const ComparedSample& sample = search.sample();
  Diagnosis& found = search.found();
  const auto add = [&](const std::string& line) {
    if (!line.empty()) found.pattern.push_back(line);
  };
  if (!found.findings.empty()) return;
  if (sample.is_blank()) add(nan_behind_keys(sample.given()));
  if (!sample.depends_on_scores() || sample.evidence().excerpt != nullptr ||
      !found.arithmetic.empty())
    return;
  const ComparedPart& first = sample.parts().front();
  add(recovered_weights(sample.evidence(), sample.base_of_all_heads(), first.rows.front(),
                        first.queries.front()));
}

/// One mistake or a lower precision.
void search_for_one(Search& search, const Hypotheses& all) {
  ComparedSample& sample = search.sample();
  const Diagnosis& found = search.found();
  search.test_all(all);
  if (!sample.is_blank_everywhere()) search.name_the_best();
  if (!sample.is_blank()) search.find_smaller_errors([&] { add_arrangements(search); });
  if (sample.depends_on_scores() && !sample.is_blank())
    search.find_smaller_errors([&] { FittedNumbers(search).test(); });
  if (found.findings.empty() && !sample.is_blank())
    search.attempt("weights in e4m3", [&] { test_rounded_weights(search); });
  if (!search.is_explained() && !sample.is_blank())
    search.attempt("scores in 16 bits", [&] { test_rounded_scores(search); });
  if (!search.is_explained())
    search.attempt("products in bf16", [&] { test_rounded_factors(search); });
  if (!found.findings.empty() || !found.arithmetic.empty()) return;
  test_arithmetic(search, lower_precisions(sample.evidence().result), false);
  // Sums in float16 are common there, and within the bound of bfloat16.
  if (!found.arithmetic.empty() && sample.evidence().precision->stored == DType::f16)
    test_arithmetic(search, {"f16"}, true);
}

Hypotheses hypotheses_about(const Request& output) {
  return is_of_gradients(output) ? gradient_hypotheses(output) : hypotheses();
}

/// Without pairs, and without lines about the pattern.
Diagnosis diagnose_alone(const Variant& given, const Evidence& evidence,
                         const SearchLimits& limits) {
  Search search(given, evidence, limits);
  search_for_one(search, hypotheses_about(evidence.output));
  return search.found();
}

std::string percent(double share) {
  return share == 1 ? "all" : six_digits(std::floor(share * 1e4) / 100) + " %";
}

}  // namespace

Diagnosis diagnose(const Variant& given, const Evidence& evidence, const SearchLimits& limits) {
  Search search(given, evidence, limits);
  const ComparedSample& sample = search.sample();
  Diagnosis& found = search.found();
  const Hypotheses all = hypotheses_about(evidence.output);
  search_for_one(search, all);
  if (found.arithmetic.empty() && !sample.is_blank())
    search.find_smaller_errors([&] { PairSearch(search, all, diagnose_alone).run(); });
  // Their bounds are wide: they also contain mistakes that were not tested, unless errors are
  // small.
  if (!search.is_explained() && (found.untested.empty() || are_near_bounds(sample)) &&
      evidence.precision != nullptr)
    for (const auto& [dtype, name] : {std::pair{DType::f16, "f16"}, {DType::bf16, "bf16"}})
      if (evidence.precision->stored == dtype) test_arithmetic(search, {name}, true);
  if (evidence.excerpt != nullptr && evidence.excerpt->some_rows->view.H > 1 &&
      !search.is_explained())
    for (const char* id : {"output.viewed", "output.viewed_as_heads"})
      search.add_untested(id, kTooLarge);
  found.wrong = sample.before().outside;
  found.pattern = sample.pattern_lines();
  add_observations(search);
  return found;
}

std::vector<std::string> diagnosis_lines(const Diagnosis& diagnosis) {
  std::vector<std::string> lines;
  std::string sample;
  if (diagnosis.sample.queries < diagnosis.sample.all_queries)
    sample = ", on " + std::to_string(diagnosis.sample.queries) + " sampled queries";
  if (diagnosis.sample.heads < diagnosis.sample.all_heads)
    sample += (sample.empty() ? ", on " : " of ") + std::to_string(diagnosis.sample.heads) +
              " sampled key/value heads";
  const auto line_of = [&](const Finding& finding) {
    constexpr std::string_view kMultiple = "the result multiplied by ";
    if (finding.ids.size() == 1 && finding.kernel.starts_with(kMultiple))
      return "is " + finding.kernel.substr(kMultiple.size()) + " times the reference";
    return (finding.kernel.starts_with("without ") ? "agrees with the job " : "agrees with ") +
           finding.kernel + (finding.job.empty() ? "" : " (the job has " + finding.job + ")");
  };
  const auto is_of_all = [](const std::string& line) { return line.starts_with(kAllWrong); };
  const bool is_blank =
      std::any_of(diagnosis.pattern.begin(), diagnosis.pattern.end(), is_of_all) &&
      diagnosis.findings.empty() && diagnosis.arithmetic.empty();
  const bool is_of_few = !diagnosis.findings.empty() && diagnosis.wrong < kFewestWrong;
  if (!diagnosis.findings.empty()) {
    const Finding& first = diagnosis.findings[0];
    const std::string share = first.explained < 1 ? " for " + percent(first.explained) : "";
    lines.push_back(line_of(first) + share + sample);
    for (std::size_t i = 1; i < diagnosis.findings.size(); ++i)
      lines.push_back("or " + line_of(diagnosis.findings[i]));
    if (diagnosis.findings.size() > 1)
      lines.emplace_back(
          "these inputs cannot tell them apart; others may: attn random --kind adversarial --for "
          "JOB -o inputs.npz");
    else if (is_of_few)
      lines.push_back("with only " + counted(diagnosis.wrong, "wrong element") +
                      ", other mistakes may also agree");
  } else if (!diagnosis.arithmetic.empty()) {
    lines.push_back((diagnosis.is_recomputed
                         ? "arithmetic, not meaning: the errors are those of "
                         : "arithmetic or a small mistake: the errors are within the bound of ") +
                    diagnosis.arithmetic + sample);
  } else if (!is_blank && diagnosis.tested == 0 && !diagnosis.untested.empty()) {
    lines.push_back("the mistake was not searched for " + diagnosis.why_untested);
  } else if (!is_blank) {
    lines.push_back("no known mistake explains it: " + std::to_string(diagnosis.tested) +
                    " hypotheses and " + std::to_string(diagnosis.pairs) + " pairs tested" +
                    sample);
  }
  const bool is_said = is_of_few && diagnosis.findings.size() == 1 &&
                       diagnosis.untested == std::vector<std::string>{"pairs"};
  if (!diagnosis.untested.empty() && diagnosis.tested > 0 && !is_blank && !is_said)
    lines.push_back("not tested " + diagnosis.why_untested + ": " + join(diagnosis.untested, ", "));
  for (const std::string& line : diagnosis.pattern)
    lines.push_back((is_of_all(line) ? "" : "wrong: ") + line);
  return lines;
}

}  // namespace attn
