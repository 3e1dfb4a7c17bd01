#include "attn/report/page_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct RowFacts {
  double sum = 0, entropy = 0;
  float least = std::numeric_limits<float>::infinity(), most = -least;
};

RowFacts facts_of(const HeatRow& row) {
  RowFacts facts;
  bool negative = false;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double value = row.values[j];
    if (row.kinds[j] == CellKind::hidden) continue;
    if (row.kinds[j] == CellKind::nan) {
      facts.sum = kNan;
      continue;
    }
    facts.sum += value;
    negative = negative || value < 0;
    facts.least = std::min(facts.least, static_cast<float>(value));
    facts.most = std::max(facts.most, static_cast<float>(value));
  }
  if (negative || !(facts.sum > 0)) {
    facts.entropy = kNan;
    return facts;
  }
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double share = row.values[j] / facts.sum;
    if (row.kinds[j] == CellKind::value && share > 0) facts.entropy -= share * std::log2(share);
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
  if (kind == CellKind::hidden) return top;
  if (kind == CellKind::nan) return top - 1;
  const double low = facts.least, high = facts.most;
  if (!(low < high)) return 0;
  const double share = std::clamp((value - low) / (high - low), 0.0, 1.0);
  return static_cast<std::uint32_t>(std::lround(share * (top - 2)));
}

/// The columns [first, end) of a row.
void append_row(std::vector<std::byte>& bytes, const HeatRow& row, std::size_t first,
                std::size_t end, const RowFacts& facts, int bits) {
  for (std::size_t j = first; j < end; ++j) {
    const CellKind kind = row.kinds[j];
    const double value = kind == CellKind::hidden ? -kInfinity
                         : kind == CellKind::nan  ? kNan
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

PageSpans spans_of(const HeatMap& map) {
  const std::size_t columns = map.columns();
  PageSpans spans{std::vector(map.rows(), columns), std::vector<std::size_t>(map.rows(), 0)};
  for (const HeatPanel& panel : map.panels)
    for (std::size_t i = 0; i < map.rows(); ++i) {
      const std::vector<CellKind> kinds = map.row(panel, i).kinds;
      std::size_t first = 0, end = columns;
      while (first < spans.first[i] && kinds[first] == CellKind::hidden) ++first;
      while (end > spans.end[i] && kinds[end - 1] == CellKind::hidden) --end;
      spans.first[i] = std::min(spans.first[i], first);
      spans.end[i] = std::max(spans.end[i], end);
    }
  for (std::size_t i = 0; i < map.rows(); ++i)
    spans.first[i] = std::min(spans.first[i], spans.end[i]);  // a row with only hidden cells
  return spans;
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

PageValues page_values(const HeatMap& map, const HeatPanel& panel, const PageSpans& spans, int bits,
                       bool whole) {
  PageValues values;
  values.cells.reserve(spans.cells() * static_cast<std::size_t>(bits) / 8);
  for (std::size_t i = 0; i < map.rows(); ++i) {
    const HeatRow row = map.row(panel, i);
    const RowFacts facts = facts_of(row);
    append_row(values.cells, row, spans.first[i], spans.end[i], facts, bits);
    append_float(values.rows, whole ? facts.sum : kNan, 32);
    append_float(values.rows, whole ? facts.entropy : kNan, 32);
    append_float(values.rows, facts.least, 32);
    append_float(values.rows, facts.most, 32);
  }
  return values;
}

}  // namespace attn
