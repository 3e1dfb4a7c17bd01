#include "attn/cache/listed_slots.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "attn/cache/stored_rows.h"
#include "attn/problem/input_table.h"
#include "attn/problem/layout.h"

namespace attn {
namespace {

/// The numbers of batch items and of queries.
std::pair<std::size_t, std::size_t> queries_of(const AttentionArguments& given) {
  const Input input = contains(given.tensors, Input::Q) ? Input::Q : Input::embeddings;
  const Tensor* rows = find(given.tensors, input);
  if (rows == nullptr) return {0, 0};
  const AxisList axes = user_axes(input, rows->shape(), given.options, true);
  const auto length = [&](Axis axis, std::size_t without) {
    const auto at = axes.find(axis);
    return at ? rows->shape()[*at] : without;
  };
  return {length(Axis::B, 1), length(Axis::L, 0)};
}

/// Whole numbers; nullopt if a problem was reported.
std::optional<Tensor> whole_numbers(Input input, const TensorMap& tensors, ProblemList& problems) {
  const Tensor& given = at(tensors, input);
  try {
    if (!is_float(given.dtype())) return cast(given, DType::i64);
    report(problems, input, "whole numbers", std::string(name_of(given.dtype())));
  } catch (const Error& error) {
    problems.add({.subject = std::string(name_of(input)), .message = error.what()});
  }
  return std::nullopt;
}

std::string expected_lists(std::size_t B, std::size_t L) {
  const std::string queries = std::to_string(L) + ", n)";
  return "whole numbers of shape (" + queries + ", (" + std::to_string(B) + ", " + queries +
         ", or with heads as the second of four axes";
}

}  // namespace

TensorMap with_cut_lists(const AttentionArguments& given) {
  ProblemList problems;
  const auto [B, L] = queries_of(given);
  const std::optional<Tensor> lists = whole_numbers(Input::key_indices, given.tensors, problems);
  const std::optional<Tensor> lengths = whole_numbers(Input::index_counts, given.tensors, problems);
  if (!problems.empty()) problems.raise(ErrorKind::data);
  const Shape& shape = lists->shape();
  const Shape& of_lengths = lengths->shape();
  const std::size_t rank = of_lengths.size(), n = shape.empty() ? 0 : shape.back();
  const bool fits = (rank == 1 || (rank == 2 && of_lengths[0] == B)) &&
                    (of_lengths.back() == L || of_lengths.back() == 1);
  const bool fits_lists = shape.size() >= 2 && shape.size() <= 4 && shape[shape.size() - 2] == L &&
                          (shape.size() == 2 || shape[0] == 1 || shape[0] == B);
  if (!fits_lists)
    report(problems, Input::key_indices, expected_lists(B, L), to_string(shape));
  else if (!fits)
    report(problems, Input::index_counts,
           "shape " + to_string({L}) + ", " + to_string({B, L}) + " or " + to_string({B, 1}),
           to_string(of_lengths));
  const auto counts = lengths->data<std::int64_t>();
  for (const std::int64_t length : counts)
    if (problems.empty() && (length < 0 || length > static_cast<std::int64_t>(n)))
      report(problems, Input::index_counts, "0 to " + std::to_string(n) + ", the length of lists",
             std::to_string(length));
  if (!problems.empty()) problems.raise(ErrorKind::data);
  // Lists of all items are repeated if their lengths differ.
  Shape cut_shape = shape;
  const std::size_t items = rank == 2 ? B : 1;
  if (items > 1 && shape.size() == 2) cut_shape.insert(cut_shape.begin(), B);
  if (items > 1 && shape.size() > 2) cut_shape[0] = B;
  Tensor cut(DType::i64, cut_shape);
  const auto from = lists->data<std::int64_t>();
  const auto to = cut.mutable_data<std::int64_t>();
  const std::size_t of_item =
      to.size() / std::max<std::size_t>(1, cut_shape.size() > 2 ? cut_shape[0] : 1);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t item = i / of_item, query = i / n % L;
    const std::size_t length =
        (items > 1 ? item : 0) * of_lengths.back() + (of_lengths.back() > 1 ? query : 0);
    to[i] = static_cast<std::int64_t>(i % n) < counts[length] ? from[i % from.size()] : -1;
  }
  TensorMap all;
  for (const auto& [name, tensor] : given.tensors)
    if (name != name_of(Input::index_counts)) all.set(name, tensor);
  all.set(std::string(name_of(Input::key_indices)), cut);
  return all;
}

std::optional<ListedSlots> ListedSlots::checked(const AttentionArguments& given, std::size_t slots,
                                                ProblemList& problems) {
  const std::optional<Tensor> numbers = whole_numbers(Input::key_indices, given.tensors, problems);
  if (!numbers) return std::nullopt;
  ListedSlots lists;
  const auto [B, L] = queries_of(given);
  const Shape& shape = numbers->shape();
  const std::size_t rank = shape.size();
  lists.items_ = B, lists.L_ = L;
  lists.has_items_ = rank > 2, lists.has_heads_ = rank == 4;
  if (rank > 2) lists.given_items_ = shape[0];
  if (rank == 4) lists.heads_ = shape[1];
  if (rank >= 1) lists.n_ = shape.back();
  if (rank < 2 || rank > 4 || shape[rank - 2] != L ||
      (lists.given_items_ != 1 && lists.given_items_ != B)) {
    report(problems, Input::key_indices, expected_lists(B, L), to_string(shape));
    return std::nullopt;
  }
  lists.numbers_ = *numbers;
  for (const std::int64_t slot : numbers->data<std::int64_t>())
    if (slot >= static_cast<std::int64_t>(slots)) {
      report(problems, Input::key_indices,
             "one of the " + std::to_string(slots) + " slots of the pool, or -1 for none",
             std::to_string(slot));
      return std::nullopt;
    }
  const bool once = given.options.duplicates == Duplicates::error;
  const std::size_t of_item = lists.heads_ * L, rows = once ? lists.given_items_ * of_item : 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto its = numbers->data<std::int64_t>().subspan(row * lists.n_, lists.n_);
    std::vector<std::int64_t> sorted(its.begin(), its.end());
    std::sort(sorted.begin(), sorted.end());
    const auto first = std::lower_bound(sorted.begin(), sorted.end(), 0);
    const auto twice = std::adjacent_find(first, sorted.end());
    if (twice == sorted.end()) continue;
    report(problems, Input::key_indices,
           "each slot once, unless duplicates is once or count, for batch item " +
               std::to_string(row / of_item) + ", query " + std::to_string(row % L),
           "slot " + std::to_string(*twice) + " twice");
    return std::nullopt;
  }
  return lists;
}

std::vector<std::int64_t> ListedSlots::used(std::size_t item) const {
  const std::size_t size = heads_ * L_ * n_;
  const auto its = numbers_.data<std::int64_t>().subspan(given_items_ == 1 ? 0 : item * size, size);
  std::vector<std::int64_t> slots;
  std::copy_if(its.begin(), its.end(), std::back_inserter(slots),
               [](std::int64_t slot) { return slot >= 0; });
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

}  // namespace attn
