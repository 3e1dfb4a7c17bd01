// attn conventions: what the libraries mean, as a table.
#include "attn/job/conventions.h"

#include <CLI/CLI.hpp>

#include "attn/cli/command.h"

namespace attn {

Action add_conventions(CLI::App& app) {
  app.description(
      "Prints what each library means where attention can mean several things. A job takes a\n"
      "library's meaning over with --convention NAME; each option can still be set by itself.\n\n"
      "Example:\n"
      "  attn run --convention jax --q q.npy --k k.npy --v v.npy --causal -o out.npz");
  return [] {
    print(conventions_table());
    return 0;
  };
}

}  // namespace attn
