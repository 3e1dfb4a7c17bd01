#include "attn-mpi/share.h"

#include <numeric>

#include "attn/attention/gemm.h"
#include "attn/attention/reductions.h"
#include "attn/kernel/attend.h"

namespace attn {

std::size_t count_of(const RowRanges& ranges) {
  std::size_t count = 0;
  for (const RowRange& range : ranges) count += range.count;
  return count;
}

RowMap::RowMap(const RowRanges& ranges, std::size_t queries) : ranges_(ranges), queries_(queries) {
  for (const RowRange& range : ranges) {
    starts_.push_back(part_);
    part_ += range.count;
  }
}

namespace {

/// A few tiles of the kernels.
constexpr std::size_t kFewRows = 24;

/// Chunks of a member, to balance the work.
constexpr std::size_t kChunks = 32;

bool multiplies_rows(const Inputs& in, const Plan& plan, const OutputSet& outputs) {
  return plan.fallback_reason != nullptr || plan.path == nullptr || in.projected ||
         in[Input::W_score] || in[Input::W_score_Q] || outputs.contains(Output::output);
}

/// Whether whole rows of scores or weights are needed.
bool needs_whole_rows(const OutputSet& outputs) {
  for (const OutputRow& row : kOutputs)
    if (outputs.contains(row.output) &&
        (is_score_matrix(row.output) || row.output == Output::mean_weights ||
         row.output == Output::key_weights || row.reduces.has_value()))
      return true;
  return false;
}

/// The approximate number of operations on each of in.rows.
class RowWork {
 public:
  RowWork(const Inputs& in, const Plan& plan, const OutputSet& outputs) : in_(in) {
    const auto real = [](std::size_t n) { return static_cast<double>(n); };
    const double S = real(in.S);
    double fixed = plan.flops;  // of everything but the scores that the kernels skip
    if (plan.path != nullptr && plan.fallback_reason == nullptr && in.key_ranges) {
      constexpr double kSoftmax = 20;  // of an element, including its exponential
      const double skipped = real(in.H) * (2 * real(in.D) + 2 * real(in.Dv) + kSoftmax);
      const double rows = real(in.B) * real(in.rows.size());
      of_key_ = skipped * real(in.B) / real(std::max<std::size_t>(in.token_positions.size(), 1));
      fixed = needs_whole_rows(outputs) ? rows * real(in.H) * S * kSoftmax : 0;
    }
    of_row_ = fixed / std::max(1.0, real(in.rows.size())) + 1;
  }

  double of(const RowRange& range) const {
    double keys = 0;
    if (of_key_ > 0)
      for (std::size_t at = 0; at < in_.key_ranges->size(); at += in_.rows.size())
        for (std::size_t i = range.first; i < range.first + range.count; ++i) {
          const kernel::KeyRange& seen = (*in_.key_ranges)[at + i];
          keys += static_cast<double>(seen.end - seen.begin);
        }
    return keys * of_key_ + static_cast<double>(range.count) * of_row_;
  }

 private:
  const Inputs& in_;
  double of_key_ = 0, of_row_ = 0;
};

struct Chunk {
  RowRange rows;
  double work = 0;
};

/// Deals the chunks in rounds, from the most work to the least: in each round every member gets
/// one, and those with the least work so far choose first. For causal attention this is the usual
/// zigzag.
void assign_round_robin(std::vector<Chunk> chunks, Sharing& sharing) {
  const std::size_t members = sharing.work.size();
  std::stable_sort(chunks.begin(), chunks.end(),
                   [](const Chunk& a, const Chunk& b) { return a.work > b.work; });
  std::vector<std::size_t> order(members);
  for (std::size_t at = 0; at < chunks.size(); at += members) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return sharing.work[a] < sharing.work[b];
    });
    for (std::size_t i = 0; i < std::min(members, chunks.size() - at); ++i) {
      sharing.rows[order[i]].push_back(chunks[at + i].rows);
      sharing.work[order[i]] += chunks[at + i].work;
    }
  }
  for (RowRanges& rows : sharing.rows)
    std::sort(rows.begin(), rows.end(),
              [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
}

/// Gives each member consecutive chunks, in the order of the members.
void assign_contiguous(const std::vector<Chunk>& chunks, Sharing& sharing) {
  const auto members = static_cast<double>(sharing.work.size());
  double all = 0, before = 0;
  for (const Chunk& chunk : chunks) all += chunk.work;
  for (const Chunk& chunk : chunks) {
    const double middle = (before + chunk.work / 2) / all;
    const auto member =
        std::min(static_cast<std::size_t>(middle * members), sharing.work.size() - 1);
    sharing.rows[member].push_back(chunk.rows);
    sharing.work[member] += chunk.work;
    before += chunk.work;
  }
}

}  // namespace

Sharing share_work(const Inputs& in, const Plan& plan, std::size_t members) {
  OutputSet outputs;
  bool has_rows = false, needs_all = false;
  for (const PlannedOutput& output : plan.outputs) {
    needs_all = needs_all || is_of_gradients(output.request);
    if (const Output* computed = std::get_if<Output>(&output.request)) {
      outputs.insert(*computed);
      if (*computed == Output::key_weights || row_of(*computed).axes.contains(Axis::L))
        has_rows = true;
      else if (needs_scores(*computed))  // of all queries
        needs_all = true;
    }
  }
  Sharing sharing;
  if (!has_rows || needs_all) {
    sharing.reason = "outputs";
    return sharing;
  }
  if (in.options.softmax_axis != SoftmaxAxis::keys) {
    sharing.reason = "softmax.axis";
    return sharing;
  }
  sharing.work.resize(members);
  const std::size_t rows = in.rows.size();
  const bool by_kernels = plan.path != nullptr && plan.fallback_reason == nullptr;
  if (by_kernels && !needs_whole_rows(outputs) && in.options.normaliser == Normaliser::softmax &&
      kernel::can_split_keys(in.B, in.H, in.G, rows, in.S)) {
    sharing.kind = Sharing::Kind::keys;
    std::fill(sharing.work.begin(), sharing.work.end(), plan.flops / static_cast<double>(members));
    return sharing;
  }
  const std::size_t unit = multiplies_rows(in, plan, outputs) ? kProductRows : kFewRows;
  const std::size_t step = unit * std::max<std::size_t>(rows / (unit * members * kChunks), 1);
  if (rows <= step) {
    sharing.work.clear();
    sharing.reason = "few queries";
    return sharing;
  }
  sharing.kind = Sharing::Kind::rows;
  sharing.rows.resize(members);
  const RowWork work(in, plan, outputs);
  std::vector<Chunk> chunks;
  for (std::size_t first = 0; first < rows; first += step) {
    const RowRange range{first, std::min(step, rows - first)};
    chunks.push_back({range, work.of(range)});
  }
  if (outputs.contains(Output::key_weights))
    assign_contiguous(chunks, sharing);
  else
    assign_round_robin(std::move(chunks), sharing);
  return sharing;
}

kernel::KeyPart key_part_of(Team& team) {
  return {team.rank(), team.size(),
          [&team](std::span<std::byte> bytes, const std::vector<std::size_t>& ends) {
            team.exchange(bytes, ends);
          }};
}

/// Each member adds its rows to the sums of the one before it. While a member adds the rows of one
/// head, the next adds those of the head before.
Tensor sum_in_turns(const Tensor& weights, Team& team) {
  if (team.size() == 1) return sum_over_queries(weights);
  const Shape& s = weights.shape();
  const std::size_t L = s[2], S = s[3], last = team.size() - 1;
  Tensor sums(DType::f64, {s[0], s[1], S});
  const auto all = sums.mutable_data<double>();
  for (std::size_t head = 0; head < s[0] * s[1]; ++head) {
    const auto part = all.subspan(head * S, S);
    if (team.rank() > 0) team.receive(team.rank() - 1, std::as_writable_bytes(part));
    visit(weights.dtype(), [&]<class T>(Type<T>) {
      const auto rows = weights.data<T>().subspan(head * L * S, L * S);
      for (std::size_t l = 0; l < L; ++l)
        for (std::size_t j = 0; j < S; ++j) part[j] += static_cast<double>(rows[l * S + j]);
    });
    if (team.rank() < last) team.send(team.rank() + 1, std::as_bytes(part));
  }
  if (team.rank() == last) team.send(0, std::as_bytes(all));
  if (team.rank() == 0) team.receive(last, std::as_writable_bytes(all));
  return cast(sums, weights.dtype());
}

}  // namespace attn
