// Defines the BLAS and LAPACK functions that xtensor-blas calls; each calls the function of the
// same name in the library.
#include "attn/attention/blas.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>

#include "attn/base/lazy_library.h"

namespace attn {
namespace {

template <class... Parameters>
using Function = void (*)(Parameters...);

/// Reserves one of OpenBLAS's work buffers (128 MiB each) for one call. OpenBLAS allocates a work
/// space when it needs one, keeps it for later calls, and retries forever if the allocation fails.
/// This class tries the allocation first; if it fails, the call waits until another one ends.
class WorkSpace {
 public:
  /// Throws std::bad_alloc if there is no work space and none can be allocated.
  WorkSpace() : lock_(mutex_) {
    if (free_ == 0 && !can_allocate()) {
      if (all_ == 0) throw std::bad_alloc();
      freed_.wait(lock_, [] { return free_ > 0; });
    }
    if (free_ == 0) {  // keeps the lock: OpenBLAS allocates during this call
      ++all_;
    } else {
      --free_;
      lock_.unlock();
    }
  }
  WorkSpace(const WorkSpace&) = delete;
  WorkSpace& operator=(const WorkSpace&) = delete;
  ~WorkSpace() {
    if (!lock_) lock_.lock();
    ++free_;
    freed_.notify_one();
  }

 private:
  static bool can_allocate() {
    constexpr std::size_t kNeeded = std::size_t{160} << 20;  // a work space and the library
    void* space =
        mmap(nullptr, kNeeded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) return false;
    munmap(space, kNeeded);
    return true;
  }

  static inline std::mutex mutex_;
  static inline std::condition_variable freed_;
  static inline int all_ = 0, free_ = 0;
  std::unique_lock<std::mutex> lock_;
};

/// While objects of this class exist, OpenBLAS uses one thread, on which the results depend. In a
/// process that attn does not own, others may use the same library with more.
class OneThread {
 public:
  OneThread(int (*get)(), void (*set)(int)) : set_(set) {
    const std::lock_guard lock(mutex_);
    if (active_++ > 0) return;
    threads_of_others_ = get();
    if (threads_of_others_ != 1) set_(1);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    const std::lock_guard lock(mutex_);
    if (--active_ == 0 && threads_of_others_ != 1) set_(threads_of_others_);
  }

 private:
  static inline std::mutex mutex_;
  static inline int active_ = 0, threads_of_others_ = 1;
  void (*set_)(int);
};

class Library {
 public:
  Library() {
    // A build without threads (libopenblas0-serial) must not be called by two threads at once: its
    // results would be wrong.
    int (*const parallel)() = nullptr;
    serial_ = openblas_.find(parallel, "openblas_get_parallel")() == 0;
    set_threads_ = openblas_.find(set_threads_, "openblas_set_num_threads");
    get_threads_ = openblas_.find(get_threads_, "openblas_get_num_threads");
  }

  template <class Declared>
  Declared function(Declared declared, const char* name) const {
    return openblas_.find(declared, name);
  }

  template <class... Parameters>
  void call(const char* name, Parameters... parameters) {
    const auto function = openblas_.find(Function<Parameters...>(), name);
    std::unique_lock<std::mutex> lock(one_at_a_time_, std::defer_lock);
    if (serial_) lock.lock();
    const OneThread one_thread(get_threads_, set_threads_);
    function(parameters...);
  }

 private:
  LazyLibrary openblas_{"OpenBLAS", "libopenblas.so.0"};
  bool serial_ = false;
  void (*set_threads_)(int) = nullptr;
  int (*get_threads_)() = nullptr;
  std::mutex one_at_a_time_;
};

Library& library() {
  static Library opened;
  return opened;
}

template <class... Parameters>
void forward(const char* name, Parameters... parameters) {
  const WorkSpace space;
  library().call(name, parameters...);
}

}  // namespace

BlasLibrary blas_library() {
  char* (*const config)() = nullptr;
  int (*const parallel)() = nullptr;
  const auto function = library().function(config, "openblas_get_config");
  BlasLibrary facts;
  facts.version = function();
  facts.version.resize(facts.version.find_last_not_of(' ') + 1);
  Dl_info where{};
  if (dladdr(reinterpret_cast<const void*>(function), &where) != 0) facts.file = where.dli_fname;
  constexpr std::array kThreads = {"none", "pthread", "OpenMP"};
  const int threads = library().function(parallel, "openblas_get_parallel")();
  facts.threads = threads >= 0 && threads < 3 ? kThreads[static_cast<std::size_t>(threads)] : "?";
  return facts;
}

void configure_blas() {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  unsetenv("OPENBLAS_CORETYPE");  // would change results, or select instructions the CPU lacks
  unsetenv("OPENBLAS_VERBOSE");   // would write to standard error
}

}  // namespace attn

// The parameters as in cblas.h and LAPACK; enums are ints.
extern "C" {

void cblas_dgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                 const double* a, int lda, const double* b, int ldb, double beta, double* c,
                 int ldc) {
  attn::forward("cblas_dgemm", order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb,
                beta, c, ldc);
}

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  attn::forward("cblas_sgemm", order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb,
                beta, c, ldc);
}

void dgesdd_(const char* jobz, const int* m, const int* n, double* a, const int* lda, double* s,
             double* u, const int* ldu, double* vt, const int* ldvt, double* work, const int* lwork,
             int* iwork, int* info) {
  attn::forward("dgesdd_", jobz, m, n, a, lda, s, u, ldu, vt, ldvt, work, lwork, iwork, info);
}

void sgesdd_(const char* jobz, const int* m, const int* n, float* a, const int* lda, float* s,
             float* u, const int* ldu, float* vt, const int* ldvt, float* work, const int* lwork,
             int* iwork, int* info) {
  attn::forward("sgesdd_", jobz, m, n, a, lda, s, u, ldu, vt, ldvt, work, lwork, iwork, info);
}

}  // extern "C"
