// What stands already where results will go.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attn/batch/job_files.h"
#include "attn/batch/naming.h"
#include "attn/batch/shard.h"

namespace attn {

struct ExistingResults {
  std::size_t count = 0;
  std::string first;  ///< its path
};

/// The results of this shard's items that are files already, under whatever links. What a folder
/// will hold only its job says; such are not looked for. Errors: cannot_create, where one is a job
/// file, of any shard.
ExistingResults existing_results(const std::vector<JobFile>& files, const Naming& naming,
                                 const Shard& shard);

}  // namespace attn
