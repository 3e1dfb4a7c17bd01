// Prepared jobs that are kept for later ones of the same batch.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "attn/job/job.h"

namespace attn {

/// Small jobs without their tensors, at most one for each worker. Thread-safe.
class KeptJobs {
 public:
  /// As prepare_job(). Reuses the shapes and the plan of a kept job if only numbers differ
  /// (prepare_again()). Takes one from those that are kept in any case.
  std::unique_ptr<PreparedJob> prepare(const Job& job);

  /// Keeps a job that is no longer used, if it is small and prepare_again() can use it.
  void keep(std::unique_ptr<PreparedJob> job);

  void clear();

 private:
  std::unique_ptr<PreparedJob> taken();

  std::mutex mutex_;
  std::vector<std::unique_ptr<PreparedJob>> jobs_;
};

}  // namespace attn
