#include "attn/run/memory_estimate.h"

#include <catch2/catch.hpp>
#include <limits>

#include "attn/base/error.h"

using namespace attn;
using Catch::Matchers::Contains;

TEST_CASE("a memory estimate is the sum of its contributions") {
  Plan plan{.outputs = {{Output::weights, {2, 3}, DType::f32, 24, 12}}, .bytes = 1000};
  MemoryEstimate memory(plan);
  CHECK(memory.bytes() == 1000);
  memory.add_output_text(plan);
  CHECK(memory.bytes() == 1000 + 6 * 50);
  memory.add("--view", 100);
  CHECK(memory.bytes() == 1400);
}

TEST_CASE("a memory estimate that exceeds the limit is an error") {
  const MemoryEstimate memory(Plan{.outputs = {}, .bytes = 32});
  CHECK_NOTHROW(memory.require("job", 32));
  CHECK_THROWS_WITH(memory.require("job", 31), Contains("job: needs 32 bytes of memory"));
  CHECK_THROWS_WITH(memory.require("", 31), Catch::StartsWith("needs 32 bytes of memory"));
}

TEST_CASE("the error names the contributions, if there are several") {
  MemoryEstimate memory(Plan{.outputs = {}, .bytes = 32});
  CHECK_THROWS_WITH(memory.require("job", 31), !Contains("for tensors"));
  memory.add("nothing", 0);
  CHECK_THROWS_WITH(memory.require("job", 31), !Contains("for tensors"));
  memory.add("--view", 2048);
  CHECK_THROWS_WITH(memory.require("job", 31, "--view"),
                    Contains("; 32 bytes for tensors, 2.0 KiB for --view; --max-memory") &&
                        Contains(", as does omitting --view"));
}

TEST_CASE("memory estimates saturate") {
  const Plan plan{.outputs = {{Output::weights, {}, DType::f32, std::size_t{1} << 62, 0}}};
  MemoryEstimate memory(plan);
  memory.add_output_text(plan);
  CHECK(memory.bytes() == std::numeric_limits<std::size_t>::max());
}
