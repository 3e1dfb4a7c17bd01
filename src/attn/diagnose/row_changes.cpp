#include "attn/diagnose/row_changes.h"

#include <algorithm>
#include <iterator>

namespace attn {
namespace {

/// What a formula needs of the job, as bits.
constexpr unsigned kSoftmax = 1U << 0;  ///< weights are exp(score / temperature - logsumexp)
constexpr unsigned kTemperature1 = 1U << 1;
constexpr unsigned kSoftmaxOfRows = 1U << 2;  ///< not of the whole matrix
constexpr unsigned kNoAddedKeys = 1U << 3;    ///< none such as bias_K, but at least one key
constexpr unsigned kSinks = 1U << 4;
constexpr unsigned kNoDropout = 1U << 5;
constexpr unsigned kNoGate = 1U << 6;

constexpr unsigned kHidden = kSoftmax | kTemperature1 | kSoftmaxOfRows | kNoAddedKeys | kNoGate;
constexpr unsigned kOnline = kHidden | kNoDropout;

struct ChangeRow {
  RowChange change;
  RowChangeKind kind;
  unsigned needs;
};

constexpr ChangeRow kRowChanges[] = {
    {RowChange::none, RowChangeKind::none, kOnline},
    {RowChange::times_sum, RowChangeKind::factor, kSoftmax},
    {RowChange::times_shifted_sum, RowChangeKind::factor, kSoftmax},
    {RowChange::over_all_keys, RowChangeKind::factor, kSoftmax},
    {RowChange::sink_not_shifted, RowChangeKind::factor, kSoftmax | kTemperature1 | kSinks},
    {RowChange::sink_reads_key_0, RowChangeKind::value_of_sink,
     kSoftmax | kNoAddedKeys | kSinks | kNoDropout | kNoGate},
    {RowChange::sums_not_rescaled, RowChangeKind::online, kOnline},
    {RowChange::context_not_rescaled, RowChangeKind::online, kOnline},
    {RowChange::divisor_not_rescaled, RowChangeKind::online, kOnline},
    {RowChange::hidden_set, RowChangeKind::hidden_keys, kHidden},
    {RowChange::hidden_set_biased, RowChangeKind::hidden_keys, kHidden},
    {RowChange::hidden_added, RowChangeKind::hidden_keys, kHidden},
    {RowChange::hidden_only, RowChangeKind::hidden_keys, kHidden},
    {RowChange::twice, RowChangeKind::hidden_keys, kHidden},
    {RowChange::twice_masked, RowChangeKind::hidden_keys, kHidden},
    {RowChange::maximum, RowChangeKind::logsumexp, 0},
    {RowChange::minus_maximum, RowChangeKind::logsumexp, 0},
};

const ChangeRow& row_of(RowChange change) {
  return *std::find_if(std::begin(kRowChanges), std::end(kRowChanges),
                       [&](const ChangeRow& row) { return row.change == change; });
}

}  // namespace

RowChangeKind kind_of(RowChange change) { return row_of(change).kind; }

bool may_change_rows(RowChange change, const Variant& variant, const Inputs& in) {
  const Options& options = in.options;
  unsigned met = 0;
  const auto meet = [&](unsigned need, bool is_met) { met |= is_met ? need : 0U; };
  meet(kSoftmax, options.normaliser == Normaliser::softmax);
  meet(kTemperature1, options.temperature == 1);
  meet(kSoftmaxOfRows, options.softmax_axis == SoftmaxAxis::keys);
  meet(kNoAddedKeys, in.E == 0 && in.S > 0);
  meet(kSinks, variant.has(Input::sinks));
  meet(kNoDropout, !variant.has(Input::dropout_mask));
  meet(kNoGate, !variant.has(Input::gate) && !variant.has(Input::W_gate));
  return (row_of(change).needs & ~met) == 0;
}

}  // namespace attn
