// attn batch --status: prints which jobs of a batch are done, failed and missing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/batch/jobs.h"

namespace attn {

struct StatusRequest {
  std::string folder;                             ///< with the manifests
  std::optional<std::vector<JobFile>> jobs = {};  ///< the jobs of the batch, if they were given
  bool json = false;                              ///< print one JSON object
  bool quiet = false;                             ///< print nothing if all jobs are done
  std::size_t max_memory = 0;                     ///< bytes of the manifests
};

/// Prints the status on standard output. Returns 0 if all jobs are done, otherwise 3. Errors:
/// no_input, if there is no manifest; data, for more than `max_memory` bytes.
int print_status(const StatusRequest& request);

}  // namespace attn
