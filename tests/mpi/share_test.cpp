// The parts of a shared job have the bytes of the whole.
#include "attn-mpi/share.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "attn/attention/attention.h"
#include "attn/problem/layout.h"
#include "support/oracle_case.h"
#include "support/thread_team.h"

using namespace attn;

namespace {

struct SharedCase {
  TensorMap tensors;
  Options options;
};

Tensor pseudo_random(std::uint64_t seed, Shape shape) {
  Tensor tensor(DType::f32, std::move(shape));
  for (float& x : tensor.mutable_data<float>()) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    x = static_cast<float>(seed >> 40) / 8388608.0F - 1;
  }
  return tensor;
}

/// Embeddings (B, L, 16) or queries, keys and values of two heads.
SharedCase shared_case(bool projected, std::size_t B, std::size_t L) {
  SharedCase p;
  p.options.heads = 2;
  if (projected) {
    p.tensors.set("embeddings", pseudo_random(1, {B, L, 16}));
    for (const char* name : {"W_Q", "W_K", "W_V", "W_O"})
      p.tensors.set(name, pseudo_random(static_cast<std::uint64_t>(name[2]), {16, 16}));
    return p;
  }
  for (const char* name : {"Q", "K", "V"})
    p.tensors.set(name, pseudo_random(static_cast<std::uint64_t>(name[0]), {B, L, 16}));
  return p;
}

std::vector<Request> outputs_with_rows(const SharedCase& p, const Inputs& in) {
  std::vector<Request> outputs;
  for (const Request& request : available_outputs({p.tensors, p.options}))
    if (const Output* output = std::get_if<Output>(&request))
      if (user_axes(*output, in).contains(Axis::L)) outputs.push_back(request);
  return outputs;
}

/// Copies the part's rows to the whole.
void put_rows(const Tensor& part, std::size_t axis, const RowRanges& rows, std::size_t queries,
              Tensor& whole) {
  std::size_t count = 1;
  for (std::size_t i = 0; i <= axis; ++i) count *= part.shape()[i];
  const std::size_t bytes = count == 0 ? 0 : part.bytes() / count;
  if (bytes == 0) return;
  RowMap(rows, queries)
      .for_each_run(0, count, [&](std::size_t offset, std::size_t to, std::size_t run) {
        std::memcpy(whole.mutable_raw() + to * bytes, part.raw() + offset * bytes, run * bytes);
      });
}

/// Compares the union of the parts with the whole.
void compare_parts(const SharedCase& p, const std::vector<RowRanges>& members,
                   const std::vector<Request>& outputs) {
  const Inputs in = make_inputs({p.tensors, p.options});
  const TensorMap whole = attend(in, outputs);
  TensorMap joined;
  for (const auto& [name, tensor] : whole) joined.set(name, Tensor(tensor.dtype(), tensor.shape()));
  for (const RowRanges& rows : members) {
    const TensorMap part = attend(part_of(in, rows), outputs);
    for (const auto& [name, tensor] : part) {
      Tensor to = joined.at(name);
      put_rows(tensor, *user_axes(*output_named(name), in).find(Axis::L), rows, in.rows.size(), to);
      joined.set(name, to);
    }
  }
  for (const auto& [name, tensor] : whole) {
    INFO(name);
    const Tensor& other = joined.at(name);
    CHECK((tensor.bytes() == 0 || std::memcmp(tensor.raw(), other.raw(), tensor.bytes()) == 0));
  }
}

void compare_shared(const SharedCase& p, std::size_t members, std::vector<Request> outputs = {}) {
  const Inputs in = make_inputs({p.tensors, p.options});
  if (outputs.empty()) outputs = outputs_with_rows(p, in);
  const Sharing sharing = share_work(in, plan(in, outputs), members);
  REQUIRE(sharing.kind == Sharing::Kind::rows);
  compare_parts(p, sharing.rows, outputs);
}

}  // namespace

TEST_CASE("parts of random problems by the kernels have the bytes of the whole") {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const OracleCase c = oracle_case(seed);
    const SharedCase p{c.tensors, c.options};
    const Inputs in = make_inputs({p.tensors, p.options});
    std::vector<Request> outputs;
    for (const Request& request : outputs_with_rows(p, in))
      if (request != Request{Output::output}) outputs.push_back(request);
    const bool by_kernels = plan(in, outputs).fallback_reason == nullptr;
    const std::size_t rows = in.rows.size();
    if (!by_kernels || in.projected || p.options.score == Score::general || rows < 2) continue;
    INFO("seed " << seed);
    RowRanges odd, even;
    for (std::size_t i = 0; i < rows; ++i) (i % 2 == 0 ? even : odd).push_back({i, 1});
    compare_parts(p, {odd, even}, outputs);
    ++compared;
  }
  CHECK(compared > 500);
}

TEST_CASE("parts of embeddings have the bytes of the whole, with all outputs") {
  for (const std::size_t L : {700, 1025}) {
    SharedCase p = shared_case(true, 2, L);
    compare_shared(p, 3);
    p.options.causal = true;
    p.options.rotary.kind = Rotary::Kind::half;
    p.options.batch_second = true;
    p.tensors.set("embeddings", pseudo_random(1, {L, 2, 16}));
    compare_shared(p, 2);
  }
}

TEST_CASE("parts on the reference path have the bytes of the whole") {
  for (const Normaliser normaliser : {Normaliser::sparsemax, Normaliser::sigmoid}) {
    SharedCase p = shared_case(false, 1, 600);
    p.options.normaliser = normaliser;
    p.options.causal = true;
    compare_shared(p, 2);
  }
  SharedCase p = shared_case(true, 2, 600);
  p.options.path = Path::reference;
  p.options.window = {100, 0};
  compare_shared(p, 3);
}

TEST_CASE("parts of selected rows have the bytes of the whole") {
  SharedCase p = shared_case(false, 2, 600);
  for (std::int64_t row = 599; row >= 0; row -= 2) p.options.rows.push_back(row);
  compare_shared(p, 3);
}

TEST_CASE("parts of queries with overflowing scores have the bytes of the whole") {
  SharedCase p = shared_case(false, 1, 200);
  for (const char* name : {"Q", "K"}) {
    Tensor large = p.tensors.at(name);
    const auto numbers = large.mutable_data<float>();
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (i / 16 % 7 == 3) numbers[i] *= 1e19F;
    p.tensors.set(name, large);
  }
  compare_shared(p, 3);
  Tensor spoiled = p.tensors.at("Q");  // must not change how other rows are computed
  spoiled.mutable_data<float>()[100 * 16] = std::numeric_limits<float>::quiet_NaN();
  p.tensors.set("Q", spoiled);
  compare_shared(p, 3);
}

TEST_CASE("causal work is shared evenly, in equal numbers of queries") {
  SharedCase p = shared_case(false, 1, 4096);
  p.options.causal = true;
  const Inputs in = make_inputs({p.tensors, p.options});
  const std::vector<Request> outputs = {Output::context};
  const Plan planned = plan(in, outputs);
  for (const std::size_t members : {2, 3, 7}) {
    const Sharing sharing = share_work(in, planned, members);
    double all = 0, most = 0;
    std::vector<bool> seen(4096);
    for (std::size_t i = 0; i < members; ++i) {
      all += sharing.work[i];
      most = std::max(most, sharing.work[i]);
      CHECK(count_of(sharing.rows[i]) <= 4096 / members + 24);
      for (const RowRange& range : sharing.rows[i])
        for (std::size_t row = range.first; row < range.first + range.count; ++row) {
          CHECK_FALSE(seen[row]);
          seen[row] = true;
        }
    }
    CHECK(std::count(seen.begin(), seen.end(), true) == 4096);
    CHECK(most * static_cast<double>(members) < 1.02 * all);
  }
}

TEST_CASE("a team that shares the keys of few queries computes the bytes of one process") {
  SharedCase p = shared_case(false, 3, 5000);
  p.options.rows = {-1, 7};
  p.options.causal = true;
  const Inputs in = make_inputs({p.tensors, p.options});
  const std::vector<Request> outputs = {Output::context, Output::logsumexp};
  const Plan planned = plan(in, outputs);
  REQUIRE(share_work(in, planned, 3).kind == Sharing::Kind::keys);
  const TensorMap whole = attend(in, outputs);
  for (const std::size_t members : {2, 3, 40}) {
    std::vector<TensorMap> results(members);
    run_team(members, [&](Team& team) {
      Inputs shared = in;
      const kernel::KeyPart keys = key_part_of(team);
      shared.key_part = &keys;
      results[team.rank()] = attend(shared, outputs);
    });
    for (const TensorMap& result : results)
      for (const auto& [name, tensor] : whole)
        CHECK(std::memcmp(tensor.raw(), result.at(name).raw(), tensor.bytes()) == 0);
  }
}

TEST_CASE("keys are not shared if statistics need whole rows of weights") {
  SharedCase p = shared_case(false, 3, 5000);
  p.options.rows = {-1, 7};
  const Inputs in = make_inputs({p.tensors, p.options});
  for (const Output statistic : {Output::weight_sum, Output::keys_95, Output::distance}) {
    const std::vector<Request> outputs = {Output::context, statistic};
    const Plan planned = plan(in, outputs);
    CHECK(share_work(in, planned, 3).kind != Sharing::Kind::keys);
  }
}

TEST_CASE("a team that shares queries sums the weights of each key with the bytes of one process") {
  SharedCase p = shared_case(false, 2, 500);
  p.options.causal = true;
  const Inputs in = make_inputs({p.tensors, p.options});
  const std::vector<Request> outputs = {Output::key_weights};
  const Plan planned = plan(in, outputs);
  const Tensor whole = attend(in, outputs).at("key_weights");
  for (const std::size_t members : {2, 5}) {
    const Sharing sharing = share_work(in, planned, members);
    REQUIRE(sharing.kind == Sharing::Kind::rows);
    std::vector<TensorMap> results(members);
    run_team(members, [&](Team& team) {
      Inputs part = part_of(in, sharing.rows[team.rank()]);
      part.sum_over_queries = [&team](const Tensor& weights) {
        return sum_in_turns(weights, team);
      };
      results[team.rank()] = attend(part, outputs);
    });
    const Tensor& sums = results[0].at("key_weights");
    CHECK(std::memcmp(whole.raw(), sums.raw(), whole.bytes()) == 0);
  }
}
