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

/// Writes the exercise for a job of the example `name`. Its numbers come from default_rng(seed);
/// they are drawn again while two rows of scores are equal, up to 100 times. Errors: as 'attn run';
/// usage, for an unknown suffix, if the sheet goes to standard output and the solution has no name,
/// or if the job has no numbers that can change.
void write_exercise(const std::string& name, const std::string& job, const ExerciseArgs& args);

}  // namespace attn
