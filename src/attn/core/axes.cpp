#include "attn/core/axes.h"

#include <algorithm>

#include "attn/base/error.h"

namespace attn {
namespace {

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

}  // namespace

void Axes::settle(Letter letter, Axis axis) {
  if (!knows(letter)) axes_[static_cast<std::size_t>(letter)] = std::move(axis);
}

void Axes::equate(Letter letter, Letter other) {
  if (const Axis* axis = find(other)) settle(letter, *axis);
}

void Axes::take(std::string_view name, const Tensor& tensor, const Letters& letters,
                std::string_view advice) {
  const Shape& shape = tensor.shape();
  bool agree = shape.size() == letters.size();
  for (std::size_t i = 0; agree && i < letters.size(); ++i) {
    const Axis* axis = find(letters[i]);
    agree = axis == nullptr || axis->length == shape[i];
  }
  if (!agree) return mismatch(name, tensor, letters, advice);
  for (std::size_t i = 0; i < letters.size(); ++i) settle(letters[i], {shape[i], name, shape});
}

const Axes::Axis& Axes::operator[](Letter letter) const {
  if (const Axis* axis = find(letter)) return *axis;
  throw Error(ErrorKind::internal, "an axis was asked for before it was settled");
}

const Axes::Axis* Axes::find(Letter letter) const {
  const std::optional<Axis>& axis = axes_[static_cast<std::size_t>(letter)];
  return axis ? &*axis : nullptr;
}

void Axes::mismatch(std::string_view name, const Tensor& tensor, const Letters& letters,
                    std::string_view advice) {
  const Shape& shape = tensor.shape();
  const bool same_rank = shape.size() == letters.size();
  std::string expected;
  std::vector<std::string> reasons;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const Axis* axis = find(letters[i]);
    expected += (i == 0 ? "" : ", ") + (axis ? std::to_string(axis->length) : "*");
    if (axis == nullptr || (same_rank && shape[i] == axis->length)) continue;
    const std::string reason = std::string(axis->name) + " " + axis->found();
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
      reasons.push_back(reason);
  }
  problem({.subject = std::string(name),
           .expected = "(" + expected + (letters.size() == 1 ? ",)" : ")") +
                       (reasons.empty() ? "" : " to match " + listed(reasons)),
           .found = to_string(shape),
           .hint = std::string(same_rank ? advice : "")});
}

}  // namespace attn
