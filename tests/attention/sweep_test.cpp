// All options compared with the oracle in thousands of small random problems.
#include <catch2/catch.hpp>
#include <map>

#include "attn/attention/attention.h"
#include "attn/attention/fused.h"
#include "support/oracle_case.h"

using namespace attn;

namespace {

/// If this is requested, the kernels compute weights from it instead of the raw scores.
bool is_between(const std::string& name) {
  return name == "scaled_scores" || name == "masked_scores";
}

void compare(const OracleCase& c, bool between, std::map<std::string, std::uint64_t>& compared) {
  std::vector<std::string> names;
  for (const auto& [name, expected] : c.expected)
    if (between || !is_between(name)) names.push_back(name);
  const TensorMap results =
      attend({c.tensors, c.options}, requests_named(names, {c.tensors, c.options}));
  for (const auto& [name, expected] : c.expected) {
    if (!results.contains(name)) continue;
    INFO(name);
    const Tensor& result = results.at(name);
    const std::string differs = difference(result, expected);
    if (!differs.empty()) FAIL_CHECK(differs);
    if (c.result == DType::f64 && !(expected.bound < 1e-6))
      FAIL_CHECK("the error bound is too large for a test");
    const bool has_16_bits = c.result == DType::f16 || c.result == DType::bf16;
    const DType dtype = name == "logsumexp" && has_16_bits ? DType::f32 : c.result;
    if (is_float(result.dtype()) && result.dtype() != dtype)
      FAIL_CHECK("dtype " << name_of(result.dtype()) << ", expected " << name_of(dtype));
    ++compared[name];
  }
}

}  // namespace

TEST_CASE("random problems agree with the oracle at all stages") {
  const std::uint64_t cases = number_of_cases(4000);
  std::map<std::string, std::uint64_t> compared;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    const OracleCase c = oracle_case(seed);
    INFO("seed " << seed);
    compare(c, true, compared);
  }
  CHECK(compared["context"] == cases);
  CHECK(compared["output"] > cases / 8);
  CHECK(compared["positions"] > cases / 20);
}

TEST_CASE("random problems agree with the oracle on the fused and the reference path") {
  const std::uint64_t cases = number_of_cases(4000);
  std::map<std::string, std::uint64_t> compared;
  std::uint64_t by_kernels = 0;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    OracleCase c = oracle_case(seed);
    INFO("seed " << seed);
    by_kernels += fallback_reason(make_inputs({c.tensors, c.options})) == nullptr;
    compare(c, false, compared);
    c.options.path = Path::reference;
    compare(c, true, compared);
  }
  CHECK(by_kernels > cases * 5 / 8);
  CHECK(compared["weights"] == 2 * cases);
}
