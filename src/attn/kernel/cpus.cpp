#include "attn/kernel/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

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
