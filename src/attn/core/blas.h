// OpenBLAS, opened when the first matrix product or decomposition needs it.
//
// If it were linked in the usual way, every run would load it, start a thread for each processor,
// and reserve 128 MiB of address space for each thread. Opened on demand, with one thread (the
// kernels and batch have their own), it costs nothing in runs that need no BLAS.
#pragma once

namespace attn {

/// Sets the environment variables that OpenBLAS reads when it is opened. Call once, before any
/// thread is started.
void configure_blas();

}  // namespace attn
