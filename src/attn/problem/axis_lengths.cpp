#include "attn/problem/axis_lengths.h"

#include <algorithm>
#include <vector>

namespace attn {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

}  // namespace

void AxisLengths::set_length(Axis axis, Length length) {
  if (!knows(axis)) lengths_[static_cast<std::size_t>(axis)] = std::move(length);
}

void AxisLengths::equate(Axis axis, Axis other) {
  if (const Length* length = find(other); length != nullptr && !knows(axis))
    set_length(axis, *length);
}

bool AxisLengths::agrees(const Shape& shape, const AxisList& axes) const {
  bool agree = shape.size() == axes.size();
  for (std::size_t i = 0; agree && i < axes.size(); ++i) {
    const Length* length = find(axes[i]);
    agree = length == nullptr || length->length == shape[i];
  }
  return agree;
}

void AxisLengths::take(Input input, const Tensor& tensor, const AxisList& axes,
                       std::string_view advice) {
  const Shape& shape = tensor.shape();
  if (!agrees(shape, axes)) return report_mismatch(input, tensor, axes, advice);
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (!knows(axes[i])) set_length(axes[i], {shape[i], name_of(input), shape});
}

const AxisLengths::Length& AxisLengths::operator[](Axis axis) const {
  if (const Length* length = find(axis)) return *length;
  throw Error(ErrorKind::internal, "the length of an axis was used before it was known");
}

void AxisLengths::problem(Input subject, Problem problem) {
  problem.subject = name_of(subject);
  problems_.add(std::move(problem));
}

const AxisLengths::Length* AxisLengths::find(Axis axis) const {
  const std::optional<Length>& length = lengths_[static_cast<std::size_t>(axis)];
  return length ? &*length : nullptr;
}

void AxisLengths::report_mismatch(Input input, const Tensor& tensor, const AxisList& axes,
                                  std::string_view advice) {
  const Shape& shape = tensor.shape();
  const bool same_rank = shape.size() == axes.size();
  std::string expected;
  std::vector<std::string> reasons;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Length* length = find(axes[i]);
    expected += (i == 0 ? "" : ", ") + (length ? std::to_string(length->length) : "*");
    if (length == nullptr || (same_rank && shape[i] == length->length)) continue;
    const std::string reason = std::string(length->name) + " " + length->found();
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
      reasons.push_back(reason);
  }
  problem(input, {.expected = "(" + expected + (axes.size() == 1 ? ",)" : ")") +
                              (reasons.empty() ? "" : " to match " + joined(reasons)),
                  .found = to_string(shape),
                  .hint = std::string(same_rank ? advice : "")});
}

}  // namespace attn
