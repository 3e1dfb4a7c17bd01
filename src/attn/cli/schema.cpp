// attn schema: the JSON Schema of a job.
#include "attn/cli/all_commands.h"
#include "attn/cli/terminal.h"
#include "attn/job/job_schema.h"

namespace attn {

Command schema_command() {
  Command command;
  command.description = "Prints the JSON Schema of a job document.";
  command.example = "  attn schema > attn.schema.json";
  command.action = [] {
    print_data(job_schema() + "\n");
    return 0;
  };
  return command;
}

}  // namespace attn
