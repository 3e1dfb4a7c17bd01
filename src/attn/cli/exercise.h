// attn examples exercise: a worked example with other numbers, as a sheet and its solution.
#pragma once

#include <cstdint>
#include <string>

#include "attn/explain/explain.h"

namespace attn {

/// The options as typed; "" if not given.
struct ExerciseArgs {
  std::string sheet;     ///< FILE.html, .md, .tex or .txt; "-": text on standard output
  std::string solution;  ///< the same; default: the sheet's name with "-solution"
  std::uint64_t seed = 0;
  ExplainChoice choice;
  bool force = false;
};

/// Writes the exercise for a job. Errors: as 'attn run'; usage, for an unknown suffix, or if the
/// sheet goes to standard output and the solution has no name.
void write_exercise(const std::string& job, const ExerciseArgs& args);

}  // namespace attn
