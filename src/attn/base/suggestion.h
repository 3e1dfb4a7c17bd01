// Suggestions for misspelt names of tensors, keys and outputs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "attn/base/other_names.h"

namespace attn {

/// The members of `known` that `word` may mean, at most three but for those that other libraries
/// call `word`: equal but for case, separators, plurals and words such as "attn"; a few typing
/// errors away; or longer names that begin or end with it. A name in which another number or a word
/// of another meaning stands is not similar, however few letters differ: query_weights is not
/// key_weights.
std::vector<std::string> similar_names(const std::string& word,
                                       const std::vector<std::string>& known, NameKind kind);

/// The only one of these, or "".
std::string nearest(const std::string& word, const std::vector<std::string>& known, NameKind kind);

/// What other libraries' `word` always means here: "embeddings" for x; "" if it means nothing, one
/// of several things, or something that has a note.
std::string our_name(const std::string& word, NameKind kind);

/// " (did you mean 'scores'?)" to append to a message, or "" if no name is similar. Several names
/// are separated by "or", and have a note that distinguishes them.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known,
                         NameKind kind);

/// The most names of a file that are searched for a suggestion: each of n wrong names of a batch
/// would search all n of a file.
inline constexpr std::size_t kMostSearched = 1000;

/// The names in the sorted range [first, last) that are next to `place`, at most kMostSearched.
template <class Iterator, class NameOf>
std::vector<std::string> names_around(Iterator first, Iterator place, Iterator last,
                                      const NameOf& name_of) {
  for (std::size_t i = 0; i < kMostSearched / 2 && place != first; ++i) --place;
  std::vector<std::string> names;
  for (; place != last && names.size() < kMostSearched; ++place) names.push_back(name_of(*place));
  return names;
}

}  // namespace attn
