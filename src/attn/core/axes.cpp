#include "attn/core/axes.h"

#include <algorithm>

namespace attn {
namespace {

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

}  // namespace

void Axes::equate(const std::string& letter, const std::string& other) {
  if (knows(other)) settle(letter, axes_.at(other));
}

void Axes::take(const std::string& name, const Tensor& tensor,
                const std::vector<std::string>& letters) {
  const Shape& shape = tensor.shape();
  const bool same_rank = shape.size() == letters.size();
  std::string expected;
  std::vector<std::string> reasons;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const bool known = knows(letters[i]);
    expected += (i == 0 ? "" : ", ") + (known ? std::to_string(axes_.at(letters[i]).length) : "*");
    if (!known || (same_rank && shape[i] == axes_.at(letters[i]).length)) continue;
    const std::string reason = axes_.at(letters[i]).name + " " + axes_.at(letters[i]).found;
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
      reasons.push_back(reason);
  }
  if (!same_rank || !reasons.empty()) {
    problem(name + ": expected (" + expected + (letters.size() == 1 ? ",)" : ")") +
            (reasons.empty() ? "" : " to match " + listed(reasons)) + ", found " +
            to_string(shape));
    return;
  }
  for (std::size_t i = 0; i < letters.size(); ++i)
    settle(letters[i], {shape[i], name, to_string(shape)});
}

}  // namespace attn
