#include "attn/io/json_object.h"

#include <algorithm>

namespace attn {

bool JsonKeys::add(const JsonObject& members, const std::string& key) {
  constexpr std::size_t kFew = 16;  // are looked at one by one
  if (members.size() < kFew)
    return std::none_of(members.begin(), members.end(),
                        [&](const auto& member) { return member.first == key; });
  if (keys_.empty())
    for (const auto& [earlier, value] : members) keys_.insert(earlier);
  return keys_.insert(key).second;
}

}  // namespace attn
