#include "attn/kernel/isa.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "attn/base/error.h"
#include "attn/base/text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace attn::kernel {
namespace {

std::size_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return static_cast<std::size_t>(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());  // more processors than cpu_set_t holds
}

/// The smaller of `limit` and quota / period; `limit` if there is no quota.
std::size_t limited(std::size_t limit, double quota, double period) {
  if (!(quota > 0 && period > 0)) return limit;
  return std::min(limit, static_cast<std::size_t>(std::clamp(std::ceil(quota / period), 1., 1e6)));
}

std::size_t limit_v2(std::size_t limit, const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period) return limited(limit, quota, period);  // "max 100000" fails here
  return limit;
}

std::size_t limit_v1(std::size_t limit, const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (quota_file >> quota && period_file >> period) return limited(limit, quota, period);
  return limit;
}

/// The lowest limit from `path` up to the root: a group's limit applies to all groups below it.
template <class F>
std::size_t limit_upwards(std::size_t limit, const std::string& root, std::string path,
                          F limit_at) {
  while (true) {
    limit = limit_at(limit, root + path);
    if (path.find_first_not_of('/') == std::string::npos) return limit;
    path.resize(path.rfind('/'));
  }
}

/// Whether "cpu" is one of the names in ":cpu,cpuacct:".
bool names_cpu(const std::string& controllers) {
  for (auto next = controllers.find("cpu"); next != std::string::npos;
       next = controllers.find("cpu", next + 1)) {
    const char before = controllers[next - 1], after = controllers[next + 3];
    if ((before == ':' || before == ',') && (after == ':' || after == ',')) return true;
  }
  return false;
}

}  // namespace

std::size_t available_cpus() {
  std::size_t count = affinity();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "4:cpu,cpuacct:/path"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/')
      continue;
    const std::string controllers = line.substr(first, second - first + 1);  // ":cpu,cpuacct:"
    const std::string path = line.substr(second + 1);
    if (controllers == "::")
      count = limit_upwards(count, "/sys/fs/cgroup", path, limit_v2);
    else if (names_cpu(controllers))
      count = limit_upwards(count, "/sys/fs/cgroup/cpu", path, limit_v1);
  }
  return count;
}

}  // namespace attn::kernel

#if defined(__x86_64__)
#endif

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

/// Whether the processor has AMX with BF16 and the system permits it: Linux saves its large
/// registers only for processes that request this (since Linux 5.16; see "Using XSTATE features in
/// user space applications" in its documentation).
bool has_amx_bf16() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBf16) != 0 && (d & kTile) != 0 &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

bool has(Isa isa) {
#if defined(__x86_64__)
  // __builtin_cpu_supports() also checks that the operating system saves the registers.
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                        has_rest_of_v3();
  if (isa == Isa::avx2) return has_avx2;
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == Isa::avx512) return has_avx512;
  const bool has_bf16 = has_avx512 && __builtin_cpu_supports("avx512bf16");
  if (isa == Isa::avx512_bf16) return has_bf16;
  if (isa == Isa::amx_bf16) return has_bf16 && has_amx_bf16();
#endif
  return isa == Isa::baseline;
}

/// Those that this program has kernels for.
constexpr Isa kCompiled[] = {
#ifdef ATTN_HAS_BASELINE
    Isa::baseline,
#endif
#ifdef ATTN_HAS_AVX2
    Isa::avx2,
#endif
#ifdef ATTN_HAS_AVX512
    Isa::avx512,   Isa::avx512_bf16, Isa::amx_bf16,
#endif
};

std::vector<Isa> find_isas() {
  std::vector<Isa> isas;
  std::string names;
  for (const Isa isa : kCompiled) {
    if (has(isa)) isas.push_back(isa);
    names += (names.empty() ? "" : ", ") + std::string(name_of(isa));
  }
  if (isas.empty())
    fail_usage("this program was built for processors with " + names + ", unlike this one");
  return isas;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::amx_bf16:
      return "amx_bf16";
    case Isa::avx512_bf16:
      return "avx512_bf16";
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
  fail_usage("ATTN_ISA: expected one that this machine runs (" + names + "), found '" +
             printable(wanted) + "'");
}

std::string_view isa() { return name_of(active_isa()); }

}  // namespace attn::kernel
