// Settings and resources that all jobs of a batch share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/batch/jobs.h"
#include "attn/batch/kept_jobs.h"
#include "attn/batch/manifest.h"
#include "attn/batch/memory_budget.h"
#include "attn/io/file_cache.h"
#include "attn/io/staged_file.h"
#include "attn/io/temp_files.h"
#include "attn/job/document.h"
#include "attn/run/warnings.h"

namespace attn {

class BundleCache;

/// Constant while jobs run, except for what the pointers refer to.
struct BatchContext {
  Document base;           ///< defaults; a job's own keys override them
  std::string base_file;   ///< the file that --base names, or ""
  KeySelection only = {};  ///< the keys of each job to use
  FileCache* files = nullptr;
  MemoryBudget* memory = nullptr;
  KeptJobs* kept_jobs = nullptr;
  std::optional<Naming> naming = {};     ///< empty: results go to standard output
  ScopedDirectories* folders = nullptr;  ///< folders created for results
  const Manifest* earlier = nullptr;     ///< the manifest to resume, or nullptr
  BundleCache* bundles = nullptr;        ///< results of earlier runs, with --bundle
  OutputPolicy policy = {};              ///< for result files
  /// With --prune: the batch's job files, whose results are kept.
  std::optional<std::vector<JobFile>> prune_except = {};
  bool no_clobber = false;  ///< skip jobs whose result files all exist
  NanPolicy nan = NanPolicy::warn;
  std::vector<std::string> statistics = {};  ///< those of each output to compute
  bool has_summary = false;                  ///< the shapes of outputs and `statistics` are needed
  bool records_inputs = true;  ///< input digests are needed, for a manifest or for events
  bool dry_run = false;        ///< describe each job in Outcome::text; compute and write nothing
  bool shapes_only = false;    ///< Outcome::text has the shapes of the outputs, not the values
};

}  // namespace attn
