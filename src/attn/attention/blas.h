// The BLAS library of this machine.
//
// OpenBLAS is opened when the first matrix product or decomposition needs it. If linked in the
// usual way, it would be loaded by every run, start a thread for each processor, and reserve 128
// MiB of address space for each thread. It is opened on demand instead, with one thread (the
// kernels and batch have their own threads), so runs that need no BLAS do not pay for it.
#pragma once

#include <string>

namespace attn {

struct BlasLibrary {
  std::string file;     ///< path
  std::string version;  ///< "OpenBLAS 0.3.21 ..."
  std::string threads;  ///< "none", "pthread" or "OpenMP": its build option
};

/// Opens the library. Errors: io, if it cannot be opened.
BlasLibrary blas_library();

/// Sets the environment variables that OpenBLAS reads when it is opened. Call once, before any
/// thread is started.
void configure_blas();

}  // namespace attn
