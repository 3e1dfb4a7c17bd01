// What both readers of JSON ask of a document's objects and arrays.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "attn/io/json.h"

namespace attn {

/// Arrays and objects inside each other: an array of Shape::kMaxAxes axes and the objects around
/// it.
inline constexpr std::size_t kDeepestJson = Shape::kMaxAxes + 8;

/// The keys of an object that is being read.
class JsonKeys {
 public:
  /// False where one of the members that were read so far has the key already.
  bool add(const JsonObject& members, const std::string& key);

 private:
  std::set<std::string> keys_;  ///< of many; ordered, as hashes can be made to collide
};

}  // namespace attn
