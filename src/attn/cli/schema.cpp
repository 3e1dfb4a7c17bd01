#include <CLI/CLI.hpp>

#include "attn/cli/command.h"
#include "attn/job/fields.h"

namespace attn {

Action add_schema(CLI::App& app) {
  app.description(
      "Prints the JSON Schema of a job document.\n\n"
      "Example:\n"
      "  attn schema > attn.schema.json");
  return [] {
    print(job_schema() + "\n");
    return 0;
  };
}

}  // namespace attn
