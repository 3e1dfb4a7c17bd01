#include "attn/cli/limit_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "attn/job/limits.h"

namespace attn {

void add_limit_options(CLI::App& app, LimitArgs& args) {
  app.add_option("--max-memory", args.max_memory,
                 "refuse what needs more, before computing; default: nine tenths of what there is")
      ->type_name("SIZE")
      ->group("Limits");
  app.add_option("--max-expand", args.max_expand,
                 "bytes that a compressed file may become; default: 8G, and 2000 times its size")
      ->type_name("SIZE")
      ->group("Limits");
}

ReadLimits limits_of(const LimitArgs& args) {
  ReadLimits limits;
  limits.memory =
      args.max_memory.empty() ? default_memory() : parse_size(args.max_memory, "--max-memory");
  if (!args.max_expand.empty()) {
    limits.npz.expanded = parse_size(args.max_expand, "--max-expand");
    limits.npz.ratio = std::numeric_limits<std::size_t>::max();
  }
  limits.npz.expanded = std::min(limits.npz.expanded, limits.memory);
  return limits;
}

}  // namespace attn
