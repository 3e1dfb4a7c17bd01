#include "attn/kernel/isa.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "attn/base/error.h"
#include "attn/kernel/kernels.h"

using namespace attn;
using namespace attn::kernel;

namespace {

struct Forced {
  explicit Forced(const char* name) { setenv("ATTN_ISA", name, 1); }
  ~Forced() { unsetenv("ATTN_ISA"); }
};

}  // namespace

TEST_CASE("isa: ATTN_ISA selects any supported instruction set", "[kernel]") {
  for (Isa each : available_isas()) {
    const Forced forced(std::string(name_of(each)).c_str());
    CHECK(active_isa() == each);
    CHECK(isa() == name_of(each));
  }
  const Forced empty("");
  CHECK(active_isa() == available_isas().back());
}

TEST_CASE("isa: instructions for bfloat16 come with AVX-512", "[kernel]") {
  const auto& isas = available_isas();
  const auto has = [&](Isa isa) { return std::find(isas.begin(), isas.end(), isa) != isas.end(); };
  CHECK((!has(Isa::avx512_bf16) || has(Isa::avx512)));
  CHECK((!has(Isa::amx_bf16) || has(Isa::avx512_bf16)));
  const FactorForm expected = has(Isa::amx_bf16)      ? FactorForm::tiles
                              : has(Isa::avx512_bf16) ? FactorForm::pairs
                                                      : FactorForm::rounded;
  CHECK(kernels<float>(isas.back()).geometry.bf16_factors == expected);
  CHECK(kernels<double>(isas.back()).geometry.bf16_factors == FactorForm::rounded);
}

TEST_CASE("isa: an unknown name is refused with a list of the known ones", "[kernel]") {
  const Forced forced("mmx\n");
  try {
    active_isa();
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()).find(name_of(available_isas()[0])) != std::string::npos);
    CHECK(std::string(error.what()).find("'mmx\\x0a'") != std::string::npos);
  }
}
