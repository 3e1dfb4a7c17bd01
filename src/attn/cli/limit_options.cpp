#include "attn/cli/limit_options.h"

#include <algorithm>
#include <limits>

#include "attn/job/limits.h"

namespace attn {

void add_limit_options(Command& command, LimitArgs& args) {
  command.add(in_group(
      "Limits", {text("--max-memory", args.max_memory, "SIZE",
                      "refuse jobs that need more memory; default: 90% of the available memory")}));
  command.add(in_group("Limits", {text("--max-expand", args.max_expand, "SIZE",
                                       "limit on the size of a decompressed file; default: 8G, and "
                                       "2000 times the compressed size")}));
}

namespace {

void apply_expand(const LimitArgs& args, ReadLimits& limits) {
  if (args.max_expand.empty()) return;
  limits.npz.expanded = parse_size(args.max_expand, "--max-expand");
  limits.npz.ratio = std::numeric_limits<std::size_t>::max();
}

}  // namespace

ReadLimits limits_of(const LimitArgs& args) {
  ReadLimits limits;
  limits.memory =
      args.max_memory.empty() ? default_memory() : parse_size(args.max_memory, "--max-memory");
  apply_expand(args, limits);
  limits.npz.expanded = std::min(limits.npz.expanded, limits.memory);
  return limits;
}

ReadLimits reading_limits(const LimitArgs& args, FileAccess access) {
  const bool is_unlimited = access == FileAccess::map && args.max_memory.empty();
  ReadLimits limits = is_unlimited ? ReadLimits{} : limits_of(args);
  limits.access = access;
  if (is_unlimited) apply_expand(args, limits);
  return limits;
}

}  // namespace attn
