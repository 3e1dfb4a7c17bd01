#include "attn/draw/page_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "attn/attention/row_statistics.h"

namespace attn {
namespace {

constexpr double kPageHidden = -std::numeric_limits<double>::infinity();
constexpr double kPageNan = std::numeric_limits<double>::quiet_NaN();

/// Whether the page stores a value or NaN for the cell.
bool has_number(CellKind kind) { return kind == CellKind::value || kind == CellKind::nan; }

bool is_finite_float(double value) {
  return std::abs(value) <= double{std::numeric_limits<float>::max()};
}

struct RowFacts {
  double sum = kPageNan, entropy = kPageNan;
  float min = std::numeric_limits<float>::infinity(), max = -min;
};

/// Without `sums`, the sum and the entropy are NaN.
RowFacts facts_of(const HeatRow& row, bool sums) {
  RowFacts facts;
  bool negative = false;
  for (std::size_t j = 0; j < row.values.size(); ++j) {
    const double value = row.values[j];
    if (row.kinds[j] == CellKind::nan) sums = false;
    if (row.kinds[j] != CellKind::value) continue;
    negative = negative || value < 0;
    if (!is_finite_float(value)) continue;
    facts.min = std::min(facts.min, static_cast<float>(value));
    facts.max = std::max(facts.max, static_cast<float>(value));
  }
  const auto number = [&](Output statistic) {
    return statistic_of(statistic).formula(std::span<const double>(row.values), {});
  };
  facts.sum = sums ? number(Output::weight_sum) : kPageNan;
  const bool has_entropy = !negative && facts.sum > 0 && std::isfinite(facts.sum);
  facts.entropy = has_entropy ? number(Output::entropy) : kPageNan;
  return facts;
}

template <class Unsigned>
void append_bytes(std::vector<std::byte>& bytes, Unsigned bits) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    bytes.push_back(static_cast<std::byte>(bits >> (8 * i) & 0xFFu));
}

/// The nearest step of the row's range.
std::uint32_t code_of(double value, CellKind kind, const RowFacts& facts, int bits) {
  const std::uint32_t top = (1u << bits) - 1;
  if (!has_number(kind)) return top;
  if (kind == CellKind::nan || !is_finite_float(value)) return top - 1;
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
    const bool is_lost =
        bits == 32 && std::isfinite(row.values[j]) && !is_finite_float(row.values[j]);
    const double value = !has_number(kind)                  ? kPageHidden
                         : kind == CellKind::nan || is_lost ? kPageNan
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

void append_float(std::vector<std::byte>& bytes, double value, int bits) {
  if (bits == 64)
    append_bytes(bytes, std::bit_cast<std::uint64_t>(value));
  else
    append_bytes(bytes, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

void PageValues::add(const HeatRow& row) {
  const std::size_t step = precision_.step;
  if (step == 1) {
    blocks_ = row;
  } else {
    if (merged_ == 0) {
      const std::size_t count = (row.kinds.size() + step - 1) / step;
      blocks_ = {std::vector<double>(count, 0), std::vector<CellKind>(count, CellKind::hidden)};
    }
    merge_row(blocks_, row, step);
  }
  if (++merged_ == step) end_row();
}

std::vector<std::byte> PageValues::take() {
  if (merged_ > 0) end_row();
  facts_.insert(facts_.end(), cells_.begin(), cells_.end());
  return std::move(facts_);
}

void PageValues::end_row() {
  const RowFacts facts = facts_of(blocks_, sums_);
  append_row(cells_, blocks_, spans_.first[row_], spans_.end[row_], facts, precision_.bits);
  for (const double fact : {facts.sum, facts.entropy, double{facts.min}, double{facts.max}})
    append_float(facts_, fact, 32);
  ++row_;
  merged_ = 0;
}

}  // namespace attn
