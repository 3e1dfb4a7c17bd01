// OpenBLAS, opened when the first matrix product or decomposition needs it.
//
// Linked in the usual way it would cost every run its loading, a thread for each processor, and
// 128 MiB of address space for each of those. Opened late, on one thread (ours are the kernels' and
// the batch's), a run that needs no BLAS pays nothing.
#pragma once

namespace attn {

/// Sets what OpenBLAS reads from the environment when it is opened. To be called once, before any
/// thread is started.
void configure_blas();

}  // namespace attn
