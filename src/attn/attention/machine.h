// The instruction set of the kernels and the processors of this machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace attn {

struct Machine {
  std::string kernels;                      ///< instruction set of the kernels in use
  std::vector<std::string> available_isas;  ///< allowed values of ATTN_ISA, least capable first
  std::size_t processors = 1;               ///< allowed by affinity and control groups
};

/// Errors: usage, for an ATTN_ISA that this machine cannot run.
Machine machine();

/// Errors: usage, if ATTN_ISA names an instruction set that this machine does not run.
void check_isa_variable();

/// Machine::processors alone.
std::size_t available_processors();

}  // namespace attn
