// The machine: instruction set, BLAS, processors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace attn {

struct Machine {
  std::string kernels;               ///< instruction set of the kernels in use
  std::vector<std::string> offered;  ///< allowed values of ATTN_ISA, least capable first
  std::size_t processors = 1;        ///< allowed by affinity and control groups
};

/// Errors: usage, for an ATTN_ISA that this machine cannot run.
Machine machine();

/// Machine::processors alone.
std::size_t processors_for_us();

struct BlasLibrary {
  std::string file;     ///< path
  std::string version;  ///< "OpenBLAS 0.3.21 ..."
  std::string threads;  ///< "none", "pthread" or "OpenMP": its build option
};

/// Opens the library. Errors: io, when there is none.
BlasLibrary blas_library();

}  // namespace attn
