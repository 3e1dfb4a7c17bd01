// attn compare: compares the tensors of a file with those of another file or of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/cli/command.h"
#include "attn/cli/job_flags.h"
#include "attn/cli/rendering.h"
#include "attn/cli/shared_options.h"
#include "attn/compare/gate.h"
#include "attn/draw/heat_map.h"

namespace attn {

/// The options of --reference as typed.
struct ReferenceArgs {
  bool enabled = false;                  ///< --reference
  std::string precision, sums, weights;  ///< those of ReferenceOptions
  std::vector<std::string> as;           ///< --as, also without --reference
  bool diagnose = false;                 ///< --diagnose
  JobFlags flags;
};

/// The options as typed.
struct CompareArgs {
  std::string a, b;
  std::optional<double> rtol, atol;
  std::optional<std::int64_t> ulps;
  bool equal_nan = false, json = false, details = false;
  GateWords gates;
  ReferenceArgs reference;
  std::string view, of;
  HeatChoice choice;
  RenderStyle style;  ///< of --view on the terminal
  bool force = false;
  LimitArgs limits;

  bool tolerant() const { return rtol || atol || ulps; }
};

/// Adds all options and their requirements. `args` must outlive the parsing.
void add_compare_options(Command& command, CompareArgs& args);

/// Checks what the table of options cannot express. Errors: usage.
void check(const CompareArgs& args);

Command compare_command();

}  // namespace attn
