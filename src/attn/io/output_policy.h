// What may become of what stands where an output is to be.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/printable.h"

namespace attn {

/// How an output may come into being.
struct OutputPolicy {
  bool force = false;                 ///< replace what stands there already
  std::set<std::string> inputs = {};  ///< paths that were read: writing onto one is refused
  bool durable = false;               ///< outlast a power cut: fsync of the file and its folder
  bool digest = false;                ///< digest() will be asked for
  bool nameless = false;              ///< no temporary sibling where that can be: for many outputs
  std::set<std::string> ours = {};    ///< paths that may be replaced without `force`
  bool same = false;  ///< what stands there is taken where it has the very bytes; needs `digest`
};

/// An output exists and may not be replaced.
struct ExistsAlready : Error {
  explicit ExistsAlready(const std::string& existing)
      : Error(ErrorKind::cannot_create,
              Problem{
                  .where = {existing}, .message = "exists already", .hint = "--force replaces it"}),
        path(existing) {}
  std::string path;
};

}  // namespace attn
