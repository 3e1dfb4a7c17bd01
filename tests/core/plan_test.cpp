// What is planned from shapes is what is computed.
#include "attn/core/plan.h"

#include <catch2/catch.hpp>

#include "attn/core/attention.h"
#include "support/oracle_case.h"

using namespace attn;

TEST_CASE("every output of random problems has the planned shape, dtype and size") {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const OracleCase c = oracle_case(seed);
    const std::vector<std::string> names = available_outputs(c.tensors, c.options);
    INFO("seed " << seed);
    const Inputs in = make_inputs(c.tensors, c.options);
    const Plan planned = plan(in, c.tensors, c.options, names);
    const TensorMap results = attend(c.tensors, c.options, names);
    REQUIRE(planned.outputs.size() == names.size());
    std::size_t bytes = 0;
    for (const PlannedOutput& output : planned.outputs) {
      INFO(output.name);
      const Tensor& result = results.at(output.name);
      CHECK(output.shape == result.shape());
      CHECK(name_of(output.dtype) == name_of(result.dtype()));
      CHECK(output.bytes == result.bytes());
      bytes = std::max(bytes, result.bytes());
      ++compared;
    }
    CHECK(planned.bytes >= bytes);  // several outputs may share one block of memory
  }
  CHECK(compared > 10000);
}
