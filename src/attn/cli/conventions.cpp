#include "attn/cli/conventions.h"

#include "attn/cli/message.h"
#include "attn/job/conventions.h"

namespace attn {

Command conventions_command() {
  Command command;
  command.description =
      "Prints what each library means where attention can mean several things. A job takes a "
      "library's meaning over with --convention NAME; each option can still be set by itself.";
  command.example = "  attn run --convention jax --q q.npy --k k.npy --v v.npy --causal -o out.npz";
  command.action = [] {
    print(conventions_table());
    return 0;
  };
  return command;
}

}  // namespace attn
