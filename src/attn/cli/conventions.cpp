// attn conventions: prints a table of the conventions of libraries.
#include "attn/job/conventions.h"

#include "attn/cli/all_commands.h"
#include "attn/cli/terminal.h"

namespace attn {

Command conventions_command() {
  Command command;
  command.description =
      "Prints the conventions of each library where attention is defined differently. In a job, "
      "--convention NAME selects the conventions of a library; explicit options override them.";
  command.example = "  attn run --convention jax --q q.npy --k k.npy --v v.npy --causal -o out.npz";
  command.action = [] {
    print(conventions_table());
    return 0;
  };
  return command;
}

}  // namespace attn
