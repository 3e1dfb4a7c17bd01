#include "attn/draw/page_survey.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attn {
namespace {

/// The part of a survey that a thread has collected.
struct PartialSurvey {
  PageSpans spans;
  double largest = 0;

  PartialSurvey(std::size_t rows, std::size_t columns) {
    spans.first.assign(rows, columns);
    spans.end.assign(rows, 0);
  }

  void add(const HeatRow& row, std::size_t i) {
    const auto is_stored = [&](std::size_t j) {
      return row.kinds[j] == CellKind::value || row.kinds[j] == CellKind::nan;
    };
    std::size_t first = 0, end = row.kinds.size();
    while (first < spans.first[i] && !is_stored(first)) ++first;
    while (end > spans.end[i] && !is_stored(end - 1)) --end;
    spans.first[i] = std::min(spans.first[i], first);
    spans.end[i] = std::max(spans.end[i], end);
    double row_largest = largest;  // in a register
    for (const double value : row.values)
      if (std::isfinite(value)) row_largest = std::max(row_largest, std::abs(value));
    largest = row_largest;
  }

  void add(const PartialSurvey& more) {
    largest = std::max(largest, more.largest);
    for (std::size_t i = 0; i < spans.first.size(); ++i) {
      spans.first[i] = std::min(spans.first[i], more.spans.first[i]);
      spans.end[i] = std::max(spans.end[i], more.spans.end[i]);
    }
  }
};

}  // namespace

std::size_t PageSpans::cells() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < first.size(); ++i) count += end[i] - first[i];
  return count;
}

bool PageSurvey::has_statistics() const {
  for (const std::vector<HeadSummary>& heads : summaries)
    for (const HeadSummary& head : heads)
      if (head.has_statistics) return true;
  return false;
}

std::size_t opening_matrix(const PageSurvey& survey) {
  constexpr std::size_t kEntropy = statistic_index(Output::entropy);
  constexpr std::size_t kFirstKey = statistic_index(Output::first_key_weight);
  std::size_t best = 0;
  if (const std::vector<double>& differences = survey.differences; !differences.empty()) {
    for (std::size_t p = 1; p < differences.size(); ++p)
      if (differences[p] > differences[best]) best = p;
    return best;
  }
  const std::vector<HeadSummary>& heads = survey.summaries[0];
  const auto rank = [&](std::size_t p) {  // the least is best
    const auto& of = heads[p].statistics;
    const bool reads_first_key = of[kFirstKey] >= 0.5;
    return std::pair(std::isnan(of[kEntropy]) ? 2
                     : reads_first_key        ? 1
                                              : 0,
                     std::isnan(of[kEntropy]) ? 0 : of[kEntropy]);
  };
  for (std::size_t p = 1; p < heads.size(); ++p)
    if (rank(p) < rank(best)) best = p;
  return best;
}

PageSpans reduced(const PageSpans& spans, std::size_t step) {
  PageSpans small;
  for (std::size_t i = 0; i < spans.first.size(); ++i) {
    const std::size_t first = spans.first[i] / step, end = (spans.end[i] + step - 1) / step;
    if (i % step == 0) {
      small.first.push_back(first);
      small.end.push_back(end);
    } else {
      small.first.back() = std::min(small.first.back(), first);
      small.end.back() = std::max(small.end.back(), end);
    }
  }
  return small;
}

PageSurvey survey_of(const std::vector<PageSet>& sets, kernel::ThreadPool& pool) {
  const HeatMap& map = sets[0].map;
  const std::size_t matrices = map.panels.size();
  PageSurvey survey;
  survey.summaries.assign(sets.size(), std::vector<HeadSummary>(matrices));
  if (sets.size() == 2) survey.differences.assign(matrices, 0);
  std::vector<PartialSurvey> parts(pool.threads(), {map.rows(), map.columns()});
  pool.run(matrices, pool.threads(), [&](std::size_t p, std::size_t worker) {
    std::vector<HeadSummarizer> summarizers;
    for (const PageSet& set : sets)
      summarizers.emplace_back(set.map.cells, set.positions, set.map.panels[p].matrix);
    double most_different = 0;
    for (std::size_t i = 0; i < map.rows(); ++i) {
      std::vector<HeatRow> of_sets;
      for (std::size_t s = 0; s < sets.size(); ++s) {
        of_sets.push_back(sets[s].map.row(sets[s].map.panels[p], i));
        summarizers[s].add(of_sets[s], i);
        parts[worker].add(of_sets[s], i);
      }
      if (sets.size() == 2)
        for (const double value : row_difference(of_sets[0], of_sets[1], are_weights(sets)).values)
          most_different = std::max(most_different, std::abs(value));
    }
    for (std::size_t s = 0; s < sets.size(); ++s)
      survey.summaries[s][p] = summarizers[s].summary(sets[s].is_weights);
    if (sets.size() == 2) survey.differences[p] = most_different;
  });
  for (const PartialSurvey& part : parts) parts[0].add(part);
  survey.largest = parts[0].largest;
  survey.spans = std::move(parts[0].spans);
  for (std::size_t i = 0; i < map.rows(); ++i)  // rows with only hidden cells
    survey.spans.first[i] = std::min(survey.spans.first[i], survey.spans.end[i]);
  return survey;
}

HeatRow row_difference(const HeatRow& a, const HeatRow& b, bool are_weights) {
  HeatRow row{std::vector<double>(a.values.size(), 0), a.kinds};
  const auto number = [](const HeatRow& of, std::size_t j) {
    return of.kinds[j] == CellKind::hidden ? 0 : of.values[j];
  };
  for (std::size_t j = 0; j < a.values.size(); ++j) {
    const auto either = [&](CellKind kind) { return a.kinds[j] == kind || b.kinds[j] == kind; };
    const bool is_hidden = either(CellKind::hidden) && (!are_weights || a.kinds[j] == b.kinds[j]);
    row.values[j] = number(a, j) - number(b, j);
    row.kinds[j] = is_hidden                                            ? CellKind::hidden
                   : either(CellKind::nan) || std::isnan(row.values[j]) ? CellKind::nan
                                                                        : CellKind::value;
    if (row.kinds[j] != CellKind::value) row.values[j] = 0;
  }
  return row;
}

bool are_weights(const std::vector<PageSet>& sets) {
  return std::all_of(sets.begin(), sets.end(), [](const PageSet& set) { return set.is_weights; });
}

}  // namespace attn
