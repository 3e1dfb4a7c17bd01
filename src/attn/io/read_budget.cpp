#include "attn/io/read_budget.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "attn/base/error.h"
#include "attn/io/file.h"

namespace attn {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// The number at the start of a file; kNone where the file is missing or contains "max".
std::size_t number_in(const std::string& path) {
  try {
    const FileBytes file = read_file(path);
    std::size_t number = kNone;
    std::from_chars(file.text().data(), file.text().data() + file.text().size(), number);
    return number;
  } catch (const Error&) {
    return kNone;
  }
}

/// The least limit of the group at `path`, as /proc/self/cgroup names it, and of those above it. In
/// a container the path may be the host's; then only the root exists.
std::size_t least_limit(const std::string& root, std::string path, const std::string& file) {
  std::size_t least = number_in(root + "/" + file);
  while (path.size() > 1) {
    least = std::min(least, number_in(root + path + "/" + file));
    path.resize(path.rfind('/'));
  }
  return least;
}

std::size_t limit_of_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNone;
  return limit.rlim_cur;
}

}  // namespace

std::size_t limit_of_control_group(const std::string& root) {
  std::string groups;
  try {
    groups = read_file(root + "/proc/self/cgroup").text();
  } catch (const Error&) {
    return kNone;
  }
  std::size_t least = kNone;
  for (std::size_t start = 0; start < groups.size();) {
    const std::size_t end = std::min(groups.find('\n', start), groups.size());
    const std::string line = groups.substr(start, end - start);
    const std::size_t path = line.find(":/");
    if (path != std::string::npos && line.starts_with("0::"))
      least = std::min(least,
                       least_limit(root + "/sys/fs/cgroup", line.substr(path + 1), "memory.max"));
    else if (path != std::string::npos && line.find(":memory:") != std::string::npos)
      least = std::min(least, least_limit(root + "/sys/fs/cgroup/memory", line.substr(path + 1),
                                          "memory.limit_in_bytes"));
    start = end + 1;
  }
  return least;
}

std::size_t memory_of_this_process() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const std::size_t machine = pages > 0 && page > 0
                                  ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page)
                                  : kNone;
  return std::min({machine, limit_of_control_group(""), limit_of_address_space()});
}

void ReadBudget::make_room(std::size_t bytes, const std::string& name, const char* purpose) {
  if (bytes <= left()) {
    const std::size_t least = used_ + bytes;
    const std::size_t generous = least + std::min(reserved_, limit_ - least);
    for (const std::size_t wanted : {generous, least}) {
      if (!reserve_(wanted)) continue;
      reserved_ = wanted;
      return;
    }
    throw Busy{least};
  }
  has_refused_ = true;
  fail_data(
      {.where = {name},
       .message = "takes more than " + std::to_string(limit_) + " bytes of memory to " + purpose,
       .hint = "--max-memory raises the limit"});
}

}  // namespace attn
