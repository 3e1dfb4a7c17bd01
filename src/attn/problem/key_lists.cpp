#include "attn/problem/key_lists.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "attn/problem/mask.h"

namespace attn {

KeyLists::KeyLists(const Inputs& in)
    : queries_(in.L), block_(static_cast<std::size_t>(in.options.index_block)) {
  for (const TokenPositions& tokens : in.token_positions) {
    const TokenPositions::Side& side = tokens.keys;
    Documents& all = documents_.emplace_back();
    for (std::size_t key = 0; key < side.count; ++key)
      if (side.segment(key) != TokenPositions::kPadding) all.keys.push_back(key);
    std::stable_sort(all.keys.begin(), all.keys.end(), [&](std::size_t a, std::size_t b) {
      return side.document(a) < side.document(b);
    });
    for (std::size_t i = 0; i < all.keys.size(); ++i)
      ++all.parts.try_emplace(side.document(all.keys[i]), Documents::Part{i, 0})
            .first->second.count;
  }
}

std::span<const std::int64_t> KeyLists::list(std::size_t item, std::size_t head,
                                             std::size_t query) const {
  if (numbers_.size() == 0) return {};
  const std::size_t row = (items_ == 1 ? 0 : item) * heads_ + (heads_ == 1 ? 0 : head / sharing_);
  return numbers_.data<std::int64_t>().subspan((row * queries_ + query) * n_, n_);
}

std::span<const std::size_t> KeyLists::keys_of(std::size_t item, std::int64_t document) const {
  const Documents& all = documents_[documents_.size() == 1 ? 0 : item];
  const auto part = all.parts.find(document);
  if (part == all.parts.end()) return {};
  return std::span(all.keys).subspan(part->second.first, part->second.count);
}

std::shared_ptr<const KeyLists> KeyLists::checked(const Tensor& numbers, const Inputs& in,
                                                  AxisLengths& axes) {
  const Shape& found = numbers.shape();
  const std::size_t rank = found.size(), n = rank < 2 ? 0 : found.back();
  const auto fits = [&](const Shape& form) {
    bool all = rank == form.size();
    for (std::size_t i = 0; all && i < rank; ++i)
      all = found[i] == form[i] || (found[i] == 1 && i + 2 < rank);
    return all;
  };
  const Shape forms[] = {{in.L, n}, {in.B, in.L, n}, {in.B, in.G, in.L, n}, {in.B, in.H, in.L, n}};
  if (is_float(numbers.dtype()) || rank < 2 || std::none_of(forms, std::end(forms), fits)) {
    std::string expected = "whole numbers of shape (";
    for (const Shape& form : forms) {
      if (&form == &forms[3] && in.H == in.G) break;
      if (&form != forms) expected += &form == &forms[in.H == in.G ? 2 : 3] ? " or (" : ", (";
      for (std::size_t i = 0; i + 1 < form.size(); ++i) expected += std::to_string(form[i]) + ", ";
      expected += "n)";
    }
    axes.problem(Input::key_indices,
                 {.expected = expected,
                  .found = std::string(name_of(numbers.dtype())) + " " + to_string(found)});
    return nullptr;
  }
  std::shared_ptr<KeyLists> lists(new KeyLists(in));
  lists->items_ = rank == 2 ? 1 : found[0];
  lists->heads_ = rank == 4 ? found[1] : 1;
  lists->sharing_ = in.H / std::max<std::size_t>(1, lists->heads_);
  lists->n_ = n;
  lists->numbers_ = numbers.reshaped({lists->items_, lists->heads_, in.L, n});
  return lists->check(in, axes) ? lists : nullptr;
}

bool KeyLists::check(const Inputs& in, AxisLengths& axes) const {
  const bool once = in.options.duplicates == Duplicates::error;
  const std::string unit = block_ == 1 ? "key" : "block";
  std::vector<std::size_t> latest;  // the last list with each number
  std::size_t lists = 0;
  for (std::size_t item = 0; item < std::max(items_, documents_.size()); ++item) {
    const TokenPositions& tokens = in.token_positions[in.token_positions.size() == 1 ? 0 : item];
    for (std::size_t head = 0; head < heads_; ++head)
      for (std::size_t query = 0; query < queries_; ++query) {
        const std::int64_t document = tokens.queries.segment(query);
        if (document == TokenPositions::kPadding) continue;
        const std::size_t keys = keys_of(item, document).size();
        const std::size_t count = (keys + block_ - 1) / block_;
        latest.resize(std::max(latest.size(), count));
        ++lists;
        const auto problem = [&](std::string expected, std::string of) {
          const std::string its_head =
              heads_ == 1
                  ? ""
                  : (heads_ == in.H ? ", head " : ", key/value head ") + std::to_string(head);
          axes.problem(Input::key_indices, {.expected = std::move(expected) + " for batch item " +
                                                        std::to_string(item) + its_head +
                                                        ", query " + std::to_string(query),
                                            .found = std::move(of)});
          return false;
        };
        for (const std::int64_t number : list(item, head * sharing_, query)) {
          if (number < 0) continue;
          const auto index = static_cast<std::size_t>(number);
          if (index >= count)
            return problem("one of the " + std::to_string(count) + " " + unit + "s" +
                               (block_ == 1 ? "" : " of " + std::to_string(keys) + " keys") +
                               ", or -1 for none,",
                           std::to_string(number));
          if (once && latest[index] == lists)
            return problem("each " + unit + " once, unless duplicates is once or count,",
                           unit + " " + std::to_string(number) + " twice");
          latest[index] = lists;
        }
      }
  }
  return true;
}

bool KeyLists::narrow(const Inputs& in, std::size_t entry, std::size_t query,
                      kernel::KeyRange& range) const {
  std::vector<std::int64_t> keys;
  each(in, entry, 0, query, [&](std::size_t key) {
    const auto j = static_cast<std::int64_t>(key);
    if (range.begin <= j && j < range.end) keys.push_back(j);
  });
  if (keys.empty()) {
    range.end = range.begin;
    return true;
  }
  std::sort(keys.begin(), keys.end());
  const auto gap = [](std::int64_t a, std::int64_t b) { return b - a > 1; };
  if (std::adjacent_find(keys.begin(), keys.end(), gap) != keys.end()) return false;
  range.begin = keys.front(), range.end = keys.back() + 1;
  return true;
}

Shape KeyLists::shape_of_log_counts(const Inputs& in) const {
  return {in.token_positions.size(), uses_heads() ? in.H : 1, in.rows.size(), in.S};
}

Tensor KeyLists::log_counts(const Inputs& in) const {
  return visit(in.compute, [&]<class T>(Type<T>) {
    Tensor logs(in.compute, shape_of_log_counts(in));
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      const std::span<T> all = logs.template mutable_data<T>();
      T* row = all.data();
      for (std::size_t entry = 0; entry < logs.shape()[0]; ++entry)
        for (std::size_t head = 0; head < logs.shape()[1]; ++head)
          for (const std::size_t i : in.rows) {
            each(in, entry, head, i, [&](std::size_t key) { ++row[key]; });
            row += in.S;
          }
      for (T& count : all)
        count = count <= 1
                    ? 0
                    : static_cast<T>(in.options.temperature * std::log(static_cast<double>(count)));
    }
    return logs;
  });
}

}  // namespace attn
