// How an output may replace an existing file.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/printable.h"

namespace attn {

struct OutputPolicy {
  bool force = false;                 ///< replace an existing file
  std::set<std::string> inputs = {};  ///< files that were read; never replaced
  bool durable = false;               ///< fsync the file and its directory
  bool digest = false;                ///< compute digest()
  bool nameless = false;              ///< use O_TMPFILE if possible; faster for many outputs
  std::set<std::string> ours = {};    ///< paths that may be replaced without `force`
  bool same = false;  ///< accept an existing file with the same bytes; requires `digest`
};

/// An output exists and must not be replaced.
struct ExistsAlready : Error {
  explicit ExistsAlready(const std::string& existing)
      : Error(ErrorKind::cannot_create,
              Problem{
                  .where = {existing}, .message = "exists already", .hint = "--force replaces it"}),
        path(existing) {}
  std::string path;
};

}  // namespace attn
