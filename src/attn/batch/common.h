// What all items of a batch have in common.
#pragma once

#include <optional>
#include <string>

#include "attn/batch/manifest.h"
#include "attn/batch/memory.h"
#include "attn/batch/naming.h"
#include "attn/io/file_cache.h"
#include "attn/io/new_folders.h"
#include "attn/io/output_policy.h"
#include "attn/job/document.h"
#include "attn/result/nan.h"

namespace attn {

/// No value and no pointer here changes while they run.
struct Common {
  Document base;          ///< what an item's own keys go on top of
  std::string base_file;  ///< where it was read, or ""
  FileCache* files = nullptr;
  Memory* memory = nullptr;
  std::optional<Naming> naming = {};  ///< none: results are text for standard output
  NewFolders* folders = nullptr;      ///< those made for outputs
  const Manifest* earlier = nullptr;  ///< to resume; may be none
  OutputPolicy policy = {};           ///< of outputs
  bool no_clobber = false;            ///< an output that exists counts as done
  NanPolicy nan = NanPolicy::warn;
  bool tells_inputs = true;  ///< with their digests, in a manifest or in events
  bool dry_run = false;      ///< nothing is computed or written; the text says what would be
};

}  // namespace attn
