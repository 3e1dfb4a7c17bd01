// The threads of the calling thread's computations.
#pragma once

#include <cstddef>
#include <functional>

namespace attn {

namespace kernel {
class ThreadPool;
}

/// Sets the number of threads for the computations of the calling thread; 0: one for each processor
/// available to it. The results do not depend on it.
void set_threads(std::size_t threads);
/// The number of threads that set_threads() has set, or that of the processors.
std::size_t thread_count();
/// The threads for the kernels that the calling thread starts.
kernel::ThreadPool& thread_pool();

/// Calls compute(i) for each i below `count`, on at most `most` threads of the calling thread, and
/// throws what one of the calls throws. If there are several, thread_count() is 1 during a call.
void run_in_parallel(std::size_t count, std::size_t most,
                     const std::function<void(std::size_t)>& compute);

}  // namespace attn
