#include "attn-mpi/shared_execution.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "attn/base/packing.h"
#include "attn/io/elements.h"
#include "attn/io/json_write.h"
#include "attn/run/memory_estimate.h"
#include "attn/run/warnings.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

using Kind = Sharing::Kind;

/// The number of elements of a row: those of all axes behind that of the queries.
std::size_t row_elements(const PlannedOutput& output) {
  std::size_t elements = 1;
  for (std::size_t i = *output.query_axis() + 1; i < output.shape.size(); ++i)
    elements *= output.shape[i];
  return elements;
}

/// The number of rows of a member that has `queries` of all queries.
std::size_t row_count(const PlannedOutput& output, std::size_t queries) {
  std::size_t rows = queries;
  for (std::size_t i = 0; i < *output.query_axis(); ++i) rows *= output.shape[i];
  return rows;
}

/// The same rows of an output, in units of rows of the output's queries.
RowBlock in_rows(const RowBlock& block, std::size_t elements) {
  if (block.columns == elements) return block;
  RowBlock rows = block;  // of a whole tensor, without gaps
  rows.count = elements == 0 ? 0 : block.count * block.columns / elements;
  rows.columns = elements;
  rows.stride = elements * size_of(block.dtype);
  return rows;
}

std::string pack_regions(const std::vector<SharedRegion>& regions) {
  std::string text;
  pack(text, regions.size());
  for (const SharedRegion& region : regions) {
    pack_text(text, region.output);
    pack_text(text, region.path);
    pack_text(text, region.temporary);
    pack(text, region.place);
  }
  return text;
}

std::vector<SharedRegion> unpack_regions(const std::string& text) {
  Unpacker in(text);
  std::vector<SharedRegion> regions(in.number<std::size_t>());
  for (SharedRegion& region : regions) {
    region.output = in.text();
    region.path = in.text();
    region.temporary = in.text();
    region.place = in.number<RegionPlace>();
  }
  return regions;
}

/// Writes rows into the files of member 0.
class RegionWriter : public RowReceiver {
 public:
  explicit RegionWriter(std::vector<SharedRegion> regions) : regions_(std::move(regions)) {
    for (const SharedRegion& region : regions_) {
      auto& file = files_[region.temporary];
      if (!file) file = std::make_unique<OutputFile>(region);
      writers_.push_back(std::make_unique<RowWriter>(
          *file, region.place.start, region.place.row_bytes, region.place.with_checksum));
    }
  }

  void begin(const Plan&, const Result&) override {}

  void write_rows(Output output, const RowBlock& block) override {
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      if (regions_[i].output != name_of(output)) continue;
      Tensor kept;
      const RowBlock rows = converted(block, regions_[i].place.dtype, kept);
      writers_[i]->write(rows.first, rows.count, rows.data, rows.stride);
    }
  }

  /// Closes the files and returns what was written to each region.
  std::vector<std::string> finish() {
    std::vector<std::string> written;
    for (const auto& writer : writers_) written.push_back(writer->written_parts());
    for (const auto& [path, file] : files_) file->finish();
    return written;
  }

 private:
  const std::vector<SharedRegion> regions_;
  std::map<std::string, std::unique_ptr<OutputFile>> files_;
  std::vector<std::unique_ptr<RowWriter>> writers_;
};

/// Passes the rows of a member to the receiver, numbered as those of the whole, and counts NaN.
class MemberRows {
 public:
  MemberRows(const ExecutionRequest& request, const RowRanges& ranges, RowReceiver& receiver)
      : map_(ranges, request.prepared.inputs.rows.size()) {
    for (const PlannedOutput& output : request.prepared.plan.outputs) {
      if (!output.streamed) continue;
      const Output streamed = std::get<Output>(output.request);
      const bool counted =
          request.nan != NanPolicy::allow && is_checked_for_nan(streamed, request.outputs);
      NanCounter* const counter = counted ? &counters_[streamed] : nullptr;
      consumers_[streamed] = [this, &receiver, streamed, counter,
                              elements = row_elements(output)](const RowBlock& block) {
        const RowBlock rows = in_rows(block, elements);
        map_.for_each_run(rows.first, rows.count,
                          [&](std::size_t offset, std::size_t to, std::size_t count) {
                            RowBlock run = rows;
                            run.first = to;
                            run.count = count;
                            run.data = rows.row(offset);
                            if (counter != nullptr) counter->add(run);
                            receiver.write_rows(streamed, run);
                          });
      };
    }
  }
  MemberRows(const MemberRows&) = delete;
  MemberRows& operator=(const MemberRows&) = delete;

  const RowConsumers& consumers() const { return consumers_; }
  NanCount nan_of(Output output) const {
    const auto counter = counters_.find(output);
    return counter == counters_.end() ? NanCount{} : counter->second.found();
  }

 private:
  const RowMap map_;
  std::map<Output, NanCounter> counters_;
  RowConsumers consumers_;
};

void add(NanCount& all, const NanCount& some) {
  if (some.count == 0) return;
  all.first = all.count == 0 ? some.first : std::min(all.first, some.first);
  all.count += some.count;
}

/// What a member reports when it has written all its rows.
std::string pack_report(const Plan& plan, const MemberRows& rows, const Overflows& overflows,
                        const std::vector<std::string>& written) {
  std::string text;
  for (const PlannedOutput& output : plan.outputs)
    if (output.streamed) pack(text, rows.nan_of(std::get<Output>(output.request)));
  for (const PlannedOutput& output : plan.outputs) {
    if (!output.query_axis()) continue;
    const auto overflow = overflows.find(std::get<Output>(output.request));
    pack(text, overflow == overflows.end() ? std::size_t{0} : overflow->second);
  }
  for (const std::string& parts : written) pack_text(text, parts);
  return text;
}

void merge_report(const std::string& text, const Plan& plan, std::size_t regions, Result& result,
                  RowReceiver* receiver) {
  Unpacker in(text);
  for (const PlannedOutput& output : plan.outputs)
    if (output.streamed)
      add(result.streamed.at(std::get<Output>(output.request)).nan, in.number<NanCount>());
  for (const PlannedOutput& output : plan.outputs) {
    if (!output.query_axis()) continue;
    const auto overflows = in.number<std::size_t>();
    if (overflows > 0) result.overflows[std::get<Output>(output.request)] += overflows;
  }
  for (std::size_t i = 0; i < regions; ++i) receiver->add_written(i, in.text());
}

/// Collects an output at member 0, which passes its part and gets the whole.
Tensor gathered(const PlannedOutput& output, const Tensor& part, const Sharing& sharing,
                std::size_t queries, Team& team) {
  const std::size_t bytes = row_elements(output) * size_of(part.dtype());
  if (team.rank() > 0) {
    team.send(0, {part.raw(), part.bytes()});
    return {};
  }
  Tensor whole(part.dtype(), output.shape);
  std::byte* const to = whole.mutable_raw();
  const auto put = [&](const std::byte* from, const RowRanges& ranges) {
    RowMap(ranges, queries)
        .for_each_run(0, row_count(output, count_of(ranges)),
                      [&](std::size_t offset, std::size_t row, std::size_t count) {
                        if (bytes > 0)
                          std::memcpy(to + row * bytes, from + offset * bytes, count * bytes);
                      });
  };
  put(part.raw(), sharing.rows[0]);
  for (std::size_t member = 1; member < team.size(); ++member) {
    const std::size_t size = row_count(output, count_of(sharing.rows[member])) * bytes;
    const std::shared_ptr<std::byte> received = allocate_bytes(size);
    team.receive(member, {received.get(), size});
    put(received.get(), sharing.rows[member]);
  }
  return whole;
}

Execution execute_rows(const ExecutionRequest& request, const Sharing& sharing, Team& team,
                       RowReceiver* receiver) {
  const Plan& plan = request.prepared.plan;
  MemberJob own = job_of_member(request.job, request.prepared, sharing, team.rank());
  own.prepared.inputs.sum_over_queries = [&team](const Tensor& weights) {
    return sum_in_turns(weights, team);
  };
  Execution execution;
  Result& result = execution.result;
  std::vector<SharedRegion> regions;
  std::unique_ptr<RegionWriter> writer;
  if (team.rank() == 0) {
    if (request.described_by != nullptr)
      result = describe_job(request.job, request.prepared.inputs, plan, request.job.document,
                            *request.described_by);
    if (receiver != nullptr) {
      receiver->begin(plan, result);
      regions = receiver->regions();
    }
    broadcast_text(team, pack_regions(regions));
  } else {
    writer = std::make_unique<RegionWriter>(unpack_regions(broadcast_text(team, "")));
    receiver = writer.get();
  }
  RegionWriter nowhere{{}};  // nothing is streamed without a receiver
  const MemberRows rows(request, sharing.rows[team.rank()], receiver ? *receiver : nowhere);
  Result part;
  compute_job(own.job, own.prepared, part, rows.consumers());
  result.overflows = part.overflows;
  const auto reports =
      gather_texts(team, pack_report(plan, rows, part.overflows,
                                     writer ? writer->finish() : std::vector<std::string>{}));
  for (const PlannedOutput& output : plan.outputs)
    if (output.streamed) {
      const Output streamed = std::get<Output>(output.request);
      result.streamed[streamed] = {output.shape, rows.nan_of(streamed)};
    }
  for (std::size_t member = 1; member < reports.size(); ++member)
    merge_report(reports[member], plan, regions.size(), result, receiver);
  for (const PlannedOutput& output : plan.outputs) {
    if (output.streamed) continue;
    const std::string name(name_of(output.request));
    if (output.query_axis())
      result.outputs.set(name, gathered(output, part.outputs.at(name), sharing,
                                        request.prepared.inputs.rows.size(), team));
    else if (team.rank() == 0)
      result.outputs.set(name, part.outputs.at(name));
  }
  return execution;
}

/// All members compute the same, so the others' results are dropped.
Execution execute_keys(const ExecutionRequest& request, Team& team, RowReceiver* receiver) {
  PreparedJob prepared = request.prepared;
  const kernel::KeyPart part = key_part_of(team);
  prepared.inputs.key_part = &part;
  if (team.rank() == 0)
    return execute({request.job, prepared, request.described_by, request.outputs, request.nan},
                   receiver);
  Execution unused;
  compute_job(request.job, prepared, unused.result);
  return {};
}

}  // namespace

void stream_rows(Plan& plan, const OutputSet& offered) {
  for (PlannedOutput& output : plan.outputs) {
    const Output* computed = std::get_if<Output>(&output.request);
    output.streamed = computed != nullptr && output.query_axis() && offered.contains(*computed);
  }
}

MemberJob job_of_member(const Job& job, const PreparedJob& prepared, const Sharing& sharing,
                        std::size_t member) {
  MemberJob own{job, prepared};
  if (sharing.kind != Kind::rows) return own;
  own.prepared.inputs = part_of(prepared.inputs, sharing.rows[member]);
  OutputSet streamed;
  own.job.outputs.clear();
  for (const PlannedOutput& output : prepared.plan.outputs) {
    const bool shared = output.query_axis() || output.request == Request{Output::key_weights};
    if (shared || member == 0) own.job.outputs.push_back(output.request);
    if (output.streamed) streamed.insert(std::get<Output>(output.request));
  }
  own.prepared.plan = plan(own.prepared.inputs, own.job.outputs, streamed);
  return own;
}

std::size_t bytes_to_gather(const Plan& plan, const Sharing& sharing) {
  if (sharing.kind != Kind::rows) return 0;
  std::size_t bytes = 0, most_queries = 0, largest_part = 0;
  for (std::size_t member = 1; member < sharing.rows.size(); ++member)
    most_queries = std::max(most_queries, count_of(sharing.rows[member]));
  for (const PlannedOutput& output : plan.outputs) {
    if (!output.query_axis() || output.streamed) continue;
    bytes = saturating_sum(bytes, output.bytes);
    largest_part = std::max(largest_part, row_count(output, most_queries) * row_elements(output) *
                                              size_of(output.dtype));
  }
  return saturating_sum(bytes, largest_part);
}

Execution execute_shared(const ExecutionRequest& request, const Sharing& sharing, Team& team,
                         RowReceiver* receiver) {
  if (sharing.kind == Kind::keys) return execute_keys(request, team, receiver);
  Execution execution = execute_rows(request, sharing, team, receiver);
  if (team.rank() == 0)
    execution.warnings = warnings_of(request.job, request.prepared.inputs, execution.result,
                                     request.outputs, request.nan);
  return execution;
}

namespace {

struct MemberCost {
  std::size_t queries = 0, bytes = 0;
  double work = 0;
};

std::vector<MemberCost> costs_of(const Job& job, const PreparedJob& prepared,
                                 const Sharing& sharing, std::size_t members) {
  std::vector<MemberCost> costs(members);
  const std::size_t all = prepared.inputs.rows.size();
  if (sharing.kind == Kind::none) costs[0] = {all, prepared.plan.bytes, prepared.plan.flops};
  for (std::size_t i = 0; i < members && sharing.kind != Kind::none; ++i) {
    const bool by_rows = sharing.kind == Kind::rows;
    costs[i] = {by_rows ? count_of(sharing.rows[i]) : all,
                job_of_member(job, prepared, sharing, i).prepared.plan.bytes, sharing.work[i]};
  }
  return costs;
}

/// The mean of all members' work, relative to the largest: the speed-up relative to their number.
double balance_of(const std::vector<MemberCost>& costs) {
  double all = 0, largest = 0;
  for (const MemberCost& cost : costs) all += cost.work, largest = std::max(largest, cost.work);
  return largest == 0 ? 1 : all / largest / static_cast<double>(costs.size());
}

std::string formatted(const char* format, double number) {
  char text[32];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

std::string how(const Sharing& sharing) {
  return sharing.kind == Kind::rows ? "queries" : sharing.kind == Kind::keys ? "keys" : "nothing";
}

}  // namespace

std::string sharing_text(const Job& job, const PreparedJob& prepared, const Sharing& sharing,
                         std::size_t members) {
  const std::vector<MemberCost> costs = costs_of(job, prepared, sharing, members);
  std::string text = counted(members, "rank");
  text += sharing.kind == Kind::none ? ", of which rank 0 computes everything (because of " +
                                           std::string(sharing.reason) + ")"
                                     : ", which share the " + how(sharing);
  text += "; balance " + formatted("%.1f", 100 * balance_of(costs)) + " %\n";
  for (std::size_t i = 0; i < members; ++i)
    text += "rank " + std::to_string(i) + ": " + std::to_string(costs[i].queries) +
            (costs[i].queries == 1 ? " query, at most " : " queries, at most ") +
            size_text(costs[i].bytes) + " of memory, " + formatted("%.3g", costs[i].work) +
            " flops\n";
  return text;
}

std::string sharing_json(const Job& job, const PreparedJob& prepared, const Sharing& sharing,
                         std::size_t members) {
  const std::vector<MemberCost> costs = costs_of(job, prepared, sharing, members);
  std::string text = "{\"shared\":" + json_quoted(how(sharing));
  if (sharing.reason != nullptr) text += ",\"reason\":" + json_quoted(sharing.reason);
  text += ",\"balance\":" + formatted("%.4f", balance_of(costs)) + ",\"ranks\":[";
  for (const MemberCost& cost : costs)
    text += std::string(&cost == costs.data() ? "" : ",") +
            "{\"queries\":" + std::to_string(cost.queries) +
            ",\"memory\":" + std::to_string(cost.bytes) +
            ",\"flops\":" + formatted("%.4g", cost.work) + "}";
  return text + "]}";
}

}  // namespace attn
