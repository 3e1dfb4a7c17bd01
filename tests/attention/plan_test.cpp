// The plan made from shapes matches the computation.
#include "attn/attention/plan.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <mutex>

#include "attn/attention/attention.h"
#include "attn/base/error.h"
#include "support/oracle_case.h"

using namespace attn;

TEST_CASE("all outputs of random problems have the planned shape, dtype and size") {
  const std::uint64_t cases = number_of_cases(1500);
  std::uint64_t compared = 0;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    const OracleCase c = oracle_case(seed);
    const std::vector<Request> outputs = available_outputs({c.tensors, c.options});
    INFO("seed " << seed);
    const Inputs in = make_inputs({c.tensors, c.options});
    const Plan planned = plan(in, outputs);
    const TensorMap results = attend({c.tensors, c.options}, outputs);
    REQUIRE(planned.outputs.size() == outputs.size());
    std::size_t bytes = 0;
    for (const PlannedOutput& output : planned.outputs) {
      INFO(name_of(output.request));
      const Tensor& result = results.at(name_of(output.request));
      CHECK(output.shape == result.shape());
      CHECK(name_of(output.dtype) == name_of(result.dtype()));
      CHECK(output.bytes == result.bytes());
      bytes = std::max(bytes, result.bytes());
      ++compared;
    }
    CHECK(planned.bytes >= bytes);  // several outputs may share memory
  }
  CHECK(compared > 6 * cases);
}

TEST_CASE("integers that are normalised or rotated are planned as floats") {
  TensorMap tensors;
  for (const char* name : {"Q", "K", "V"})
    tensors.set(name, Tensor::of<std::int64_t>({2, 2}, {1, 2, 3, 4}));
  const std::vector<Request> outputs = {Output::queries, Output::keys, Output::values,
                                        Output::scores, Output::weights};
  Options normalised, turned;
  normalised.qk_norm = QkNorm::rms;
  turned.rotary.kind = Rotary::Kind::half;
  for (const Options& options : {Options{}, normalised, turned}) {
    const Plan planned = plan(make_inputs({tensors, options}), outputs);
    const TensorMap results = attend({tensors, options}, outputs);
    for (const PlannedOutput& output : planned.outputs)
      CHECK(name_of(output.dtype) == name_of(results.at(name_of(output.request)).dtype()));
    CHECK((planned.fallback_reason == nullptr) == !(options == Options{}));
  }
}

namespace {

/// A tensor assembled from the rows that a consumer receives.
class Collected {
 public:
  explicit Collected(const PlannedOutput& planned) : tensor_(planned.dtype, planned.shape) {
    row_bytes_ =
        tensor_.rank() == 0 ? tensor_.bytes() : planned.shape.back() * size_of(planned.dtype);
    received_.resize(row_bytes_ == 0 ? 0 : tensor_.bytes() / row_bytes_);
  }

  void add(const RowBlock& block) {
    const std::lock_guard lock(mutex_);
    CHECK(name_of(block.dtype) == name_of(tensor_.dtype()));
    for (std::size_t i = 0; i < block.count && row_bytes_ > 0; ++i) {
      REQUIRE(block.first + i < received_.size());
      CHECK(!received_[block.first + i]);
      received_[block.first + i] = true;
      std::memcpy(tensor_.mutable_raw() + (block.first + i) * row_bytes_, block.row(i), row_bytes_);
    }
    ++blocks_;
  }

  void check_against(const Tensor& whole) const {
    CHECK(std::all_of(received_.begin(), received_.end(), [](bool received) { return received; }));
    REQUIRE(tensor_.bytes() == whole.bytes());
    CHECK((whole.bytes() == 0 || std::memcmp(tensor_.raw(), whole.raw(), whole.bytes()) == 0));
  }

  std::size_t blocks() const { return blocks_; }

 private:
  Tensor tensor_;
  std::size_t row_bytes_ = 0, blocks_ = 0;
  std::vector<bool> received_;
  std::mutex mutex_;
};

}  // namespace

TEST_CASE("consumers receive the same rows as whole outputs contain, and save their memory") {
  using enum Output;
  const std::vector<Request> lists[] = {{weights},
                                        {scores, context},
                                        {context, weights, scores},
                                        {scores, weights, mean_weights},
                                        {scores, masked_scores, weights, keys},
                                        {row_max, scaled_scores, masked_scores}};
  int streamed = 0, whole = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const OracleCase c = oracle_case(seed);
    const std::vector<Request>& outputs = lists[seed % std::size(lists)];
    INFO("seed " << seed);
    const Inputs in = make_inputs({c.tensors, c.options});
    const OutputSet offered = {scores, scaled_scores, masked_scores, weights, keys};
    const Plan kept = plan(in, outputs);
    const Plan planned = plan(in, outputs, offered);
    CHECK(planned.bytes <= kept.bytes);
    std::map<Output, std::unique_ptr<Collected>> collected;
    RowConsumers consumers;
    for (const PlannedOutput& output : planned.outputs) {
      const Output id = std::get<Output>(output.request);
      CHECK((!output.streamed || offered.contains(id)));
      (output.streamed ? streamed : whole) += offered.contains(id);
      if (!offered.contains(id)) continue;
      collected[id] = std::make_unique<Collected>(output);
      consumers[id] = [&to = *collected[id]](const RowBlock& block) { to.add(block); };
    }
    const TensorMap expected = attend({c.tensors, c.options}, outputs);
    const TensorMap rest = attend(in, outputs, consumers);
    for (const PlannedOutput& output : planned.outputs) {
      const Output id = std::get<Output>(output.request);
      INFO(name_of(id));
      CHECK(contains(rest, id) == !consumers.contains(id));
      if (!consumers.contains(id)) continue;
      collected[id]->check_against(at(expected, id));
      if (!output.streamed) CHECK(collected[id]->blocks() == 1);
    }
  }
  CHECK(streamed > 200);
  CHECK(whole > 200);
}

TEST_CASE("an exception from a consumer ends the computation") {
  TensorMap tensors;
  tensors.set("Q", Tensor(DType::f32, {300, 8}));
  tensors.set("K", Tensor(DType::f32, {300, 8}));
  const Options options;
  const Inputs in = make_inputs({tensors, options});
  const RowConsumers consumers = {
      {Output::weights, [](const RowBlock&) { throw Error(ErrorKind::io, "full"); }}};
  CHECK_THROWS_WITH(attend(in, {Output::weights}, consumers), "full");
}
