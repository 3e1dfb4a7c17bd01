// What computes here: instruction set, BLAS, processors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace attn {

struct Machine {
  std::string kernels;               ///< the instruction set of the kernels' code that runs here
  std::vector<std::string> offered;  ///< those that ATTN_ISA may name here, least capable first
  std::size_t processors = 1;  ///< what affinity and control groups leave: the default threads
};

/// Errors: usage, for an ATTN_ISA that this machine cannot run.
Machine machine();

/// Machine::processors alone.
std::size_t processors_for_us();

struct BlasLibrary {
  std::string file;     ///< where it was found
  std::string version;  ///< what it says of itself: "OpenBLAS 0.3.21 ..."
  std::string threads;  ///< "none", "pthread" or "OpenMP": what it was built with
};

/// Opens the library. Errors: io, when there is none.
BlasLibrary blas_library();

}  // namespace attn
