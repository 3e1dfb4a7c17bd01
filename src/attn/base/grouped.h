// Values under the texts that they share.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn {

/// Groups in the order in which their texts were first added.
template <class Value>
class Grouped {
 public:
  using Group = std::pair<std::string, std::vector<Value>>;

  void add(const std::string& text, Value value) {
    const auto [place, is_new] = places_.try_emplace(text, groups_.size());
    if (is_new) groups_.push_back({text, {}});
    groups_[place->second].second.push_back(std::move(value));
  }
  const std::vector<Group>& groups() const { return groups_; }

 private:
  std::vector<Group> groups_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

}  // namespace attn
