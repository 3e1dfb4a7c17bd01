#include "attn/run/plan_text.h"

#include <catch2/catch.hpp>

using namespace attn;
using Catch::Matchers::Contains;

TEST_CASE("a plan is written as JSON without unknown values") {
  const Plan none;
  CHECK(plan_json(none, MemoryEstimate(none)) == "{\"outputs\":[],\"memory\":0,\"flops\":0}");
  CHECK(plan_text(none, MemoryEstimate(none)) == "total: at most 0 bytes of memory, 0 flops\n");
  Plan two{.outputs = {{Output::weights, {2, 3}, DType::f32, 24, 12},
                       {Output::context, {}, DType::f64, 8, 2e6, true}},
           .bytes = 32,
           .flops = 2000012,
           .path = "reference",
           .fallback_reason = "alibi"};
  CHECK(
      plan_json(two, MemoryEstimate(two)) ==
      R"({"outputs":[{"name":"weights","shape":[2,3],"dtype":"float32","bytes":24,"flops":12},)"
      R"({"name":"context","shape":[],"dtype":"float64","bytes":8,"flops":2e+06,"streamed":true}],)"
      R"("memory":32,"flops":2e+06,"path":"reference","fallback_reason":"alibi"})");
  CHECK_THAT(plan_text(two, MemoryEstimate(two)), Contains(", written during computation\n"));
  CHECK_THAT(plan_text(two, MemoryEstimate(two)), Contains("reference path (because of alibi)\n"));
}
