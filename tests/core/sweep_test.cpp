// Every option against the oracle, in thousands of small random problems.
#include <catch2/catch.hpp>
#include <map>

#include "attn/core/attention.h"
#include "support/oracle_case.h"

using namespace attn;

TEST_CASE("random problems agree with the oracle at every stage") {
  std::map<std::string, int> compared;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const OracleCase c = oracle_case(seed);
    std::vector<std::string> names;
    for (const auto& [name, expected] : c.expected) names.push_back(name);
    INFO("seed " << seed);
    const TensorMap results = attend(c.tensors, c.options, names);
    for (const auto& [name, expected] : c.expected) {
      INFO(name);
      const Tensor& result = results.at(name);
      const std::string differs = difference(result, expected);
      if (!differs.empty()) FAIL_CHECK(differs);
      if (c.result == DType::f64 && !(expected.bound < 1e-6))
        FAIL_CHECK("a bound that says nothing");
      if (is_float(result.dtype()) && result.dtype() != c.result)
        FAIL_CHECK("dtype " << name_of(result.dtype()) << ", expected " << name_of(c.result));
      ++compared[name];
    }
  }
  CHECK(compared["context"] == 4000);
  CHECK(compared["output"] > 500);
  CHECK(compared["positions"] > 200);
}
