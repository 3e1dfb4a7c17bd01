// "did you mean ...": the known word that a misspelt one was probably meant to be.
#pragma once

#include <string>
#include <vector>

#include "attn/base/suggestion.h"

namespace attn {

/// The member of `known` nearest to `word`: by spelling, by its parts, or by the name that other
/// libraries use for it. Empty when nothing is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

/// " (did you mean 'scores'?)", or empty when nothing is near. Append it to a message.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace attn
