// "did you mean ...": suggestions for misspelt words.
#pragma once

#include <string>
#include <vector>

namespace attn {

/// The member of `known` nearest to `word`: by spelling, by its parts, or by a name that other
/// libraries use. Empty if nothing is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

/// " (did you mean 'scores'?)" to append to a message, or empty if nothing is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace attn
