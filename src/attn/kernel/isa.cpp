#include "attn/kernel/isa.h"

#include <cstdlib>
#include <string>

#include "attn/tensor/error.h"

namespace attn::kernel {

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

std::vector<Isa> available_isas() {
  std::vector<Isa> isas{Isa::baseline};
#if defined(__x86_64__)
  // The compiler's own test covers the operating system's part (saved registers), too.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
    isas.push_back(Isa::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      isas.push_back(Isa::avx512);
  }
#endif
  return isas;
}

Isa active_isa() {
  const std::vector<Isa> isas = available_isas();
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
