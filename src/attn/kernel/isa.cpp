#include "attn/kernel/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <string>

#include "attn/base/error.h"
#include "attn/base/printable.h"

namespace attn::kernel {
namespace {

#if defined(__x86_64__)
/// The parts of x86-64-v3 that not every compiler's __builtin_cpu_supports() knows.
bool has_rest_of_v3() {
  constexpr unsigned kF16c = 1u << 29, kMovbe = 1u << 22, kLzcnt = 1u << 5;
  unsigned a = 0, b = 0, c = 0, d = 0, extended = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0 && (c & kMovbe) != 0 &&
         __get_cpuid(0x80000001, &a, &b, &extended, &d) != 0 && (extended & kLzcnt) != 0;
}
#endif

std::vector<Isa> find_isas() {
  std::vector<Isa> isas{Isa::baseline};
#if defined(__x86_64__)
  // __builtin_cpu_supports() also checks that the operating system saves the registers.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_rest_of_v3()) {
    isas.push_back(Isa::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      isas.push_back(Isa::avx512);
  }
#endif
  return isas;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    case Isa::baseline:
      break;
  }
  return "baseline";
}

const std::vector<Isa>& available_isas() {
  // Once: in a virtual machine cpuid takes microseconds.
  static const std::vector<Isa> isas = find_isas();
  return isas;
}

Isa active_isa() {
  const std::vector<Isa>& isas = available_isas();
  const char* wanted = std::getenv("ATTN_ISA");
  if (wanted == nullptr || *wanted == '\0') return isas.back();
  std::string names;
  for (Isa isa : isas) {
    if (name_of(isa) == wanted) return isa;
    names += (names.empty() ? "" : ", ") + std::string(name_of(isa));
  }
  throw Error(ErrorKind::usage, "ATTN_ISA: expected one that this machine runs (" + names +
                                    "), found '" + printable(wanted) + "'");
}

std::string_view isa() { return name_of(active_isa()); }

}  // namespace attn::kernel
