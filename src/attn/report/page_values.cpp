#include "attn/report/page_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace attn {
namespace {

constexpr double kPageHidden = -std::numeric_limits<double>::infinity();
constexpr double kPageNan = std::numeric_limits<double>::quiet_NaN();

/// Whether the page stores a value or NaN for the cell.
bool has_number(CellKind kind) { return kind == CellKind::value || kind == CellKind::nan; }

struct RowFacts {
  double sum = 0, entropy = 0;
  float min = std::numeric_limits<float>::infinity(), max = -min;
};

RowFacts facts_of(const HeatRow& row) {
  RowFacts facts;
  bool negative = false;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double value = row.values[j];
    if (!has_number(row.kinds[j])) continue;
    if (row.kinds[j] == CellKind::nan) {
      facts.sum = kPageNan;
      continue;
    }
    facts.sum += value;
    negative = negative || value < 0;
    facts.min = std::min(facts.min, static_cast<float>(value));
    facts.max = std::max(facts.max, static_cast<float>(value));
  }
  if (negative || !(facts.sum > 0)) {
    facts.entropy = kPageNan;
    return facts;
  }
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double share = row.values[j] / facts.sum;
    if (row.kinds[j] == CellKind::value && share > 0) facts.entropy -= share * std::log(share);
  }
  return facts;
}

template <class Unsigned>
void append_bytes(std::vector<std::byte>& bytes, Unsigned bits) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    bytes.push_back(static_cast<std::byte>(bits >> (8 * i) & 0xFFu));
}

void append_float(std::vector<std::byte>& bytes, double value, int bits) {
  if (bits == 64)
    append_bytes(bytes, std::bit_cast<std::uint64_t>(value));
  else
    append_bytes(bytes, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

/// The nearest step of the row's range.
std::uint32_t code_of(double value, CellKind kind, const RowFacts& facts, int bits) {
  const std::uint32_t top = (1u << bits) - 1;
  if (!has_number(kind)) return top;
  if (kind == CellKind::nan) return top - 1;
  const double low = facts.min, high = facts.max;
  if (!(low < high)) return 0;
  const double share = std::clamp((value - low) / (high - low), 0.0, 1.0);
  return static_cast<std::uint32_t>(std::lround(share * (top - 2)));
}

/// The columns [first, end) of a row.
void append_row(std::vector<std::byte>& bytes, const HeatRow& row, std::size_t first,
                std::size_t end, const RowFacts& facts, int bits) {
  for (std::size_t j = first; j < end; ++j) {
    const CellKind kind = row.kinds[j];
    const double value = !has_number(kind)       ? kPageHidden
                         : kind == CellKind::nan ? kPageNan
                                                 : row.values[j];
    if (bits >= 32)
      append_float(bytes, value, bits);
    else if (bits == 16)
      append_bytes(bytes, static_cast<std::uint16_t>(code_of(value, kind, facts, bits)));
    else
      append_bytes(bytes, static_cast<std::uint8_t>(code_of(value, kind, facts, bits)));
  }
}

}  // namespace

std::size_t PageSpans::cells() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < first.size(); ++i) count += end[i] - first[i];
  return count;
}

PageSurvey survey_of(const HeatMap& map) {
  const std::size_t columns = map.columns();
  PageSurvey survey;
  PageSpans& spans = survey.spans;
  spans.first.assign(map.rows(), columns);
  spans.end.assign(map.rows(), 0);
  for (const HeatPanel& panel : map.panels)
    for (std::size_t i = 0; i < map.rows(); ++i) {
      const HeatRow row = map.row(panel, i);
      std::size_t first = 0, end = columns;
      while (first < spans.first[i] && !has_number(row.kinds[first])) ++first;
      while (end > spans.end[i] && !has_number(row.kinds[end - 1])) --end;
      spans.first[i] = std::min(spans.first[i], first);
      spans.end[i] = std::max(spans.end[i], end);
      for (const double value : row.values)
        if (std::isfinite(value)) survey.largest = std::max(survey.largest, std::abs(value));
    }
  for (std::size_t i = 0; i < map.rows(); ++i)
    spans.first[i] = std::min(spans.first[i], spans.end[i]);  // a row with only hidden cells
  return survey;
}

PageSpans united(const PageSpans& a, const PageSpans& b) {
  PageSpans both = a;
  for (std::size_t i = 0; i < a.first.size(); ++i) {
    both.first[i] = std::min(a.first[i], b.first[i]);
    both.end[i] = std::max(a.end[i], b.end[i]);
  }
  return both;
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

std::vector<std::byte> page_values(const HeatMap& map, const HeatPanel& panel,
                                   const PageSpans& spans, int bits, std::size_t step) {
  std::vector<std::byte> cells, bytes;
  cells.reserve(spans.cells() * static_cast<std::size_t>(bits) / 8);
  for (std::size_t i = 0; i < map.rows(); ++i) {
    const HeatRow row = map.row(panel, i);
    const RowFacts facts = facts_of(row);
    append_row(cells, row, spans.first[i], spans.end[i], facts, bits);
    append_float(bytes, step == 1 ? facts.sum : kPageNan, 32);
    append_float(bytes, step == 1 ? facts.entropy : kPageNan, 32);
    append_float(bytes, facts.min, 32);
    append_float(bytes, facts.max, 32);
  }
  bytes.insert(bytes.end(), cells.begin(), cells.end());
  return bytes;
}

}  // namespace attn
