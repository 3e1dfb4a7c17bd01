#include "attn/job/recorded_visibility.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace attn {
namespace {

constexpr std::size_t kMostNumbers = std::size_t{1} << 16;

JsonIntegers numbers_of_matrix(const VisibleRanges::Matrix& runs, std::size_t queries) {
  JsonIntegers numbers;
  const auto add = [&](std::size_t number) {
    numbers.push_back(static_cast<std::int64_t>(number));
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    add((i + 1 < runs.size() ? runs[i + 1].begin : queries) - runs[i].begin);
    add(runs[i].keys.size());
    for (std::size_t k = 0; k < runs[i].keys.size(); ++k)
      for (const auto& [begin, end] : {runs[i].keys[k], runs[i].steps[k]}) add(begin), add(end);
  }
  return numbers;
}

/// Reads the numbers of an array one by one.
class IndexReader {
 public:
  explicit IndexReader(const JsonIntegers& numbers) : numbers_(numbers) {}

  bool at_end() const { return at_ == numbers_.size(); }
  /// The next number; nullopt unless there is one from `least` to `most`.
  std::optional<std::size_t> next(std::size_t least, std::size_t most) {
    if (at_end()) return std::nullopt;
    const std::int64_t number = numbers_[at_++];
    if (number < static_cast<std::int64_t>(least) || number > static_cast<std::int64_t>(most))
      return std::nullopt;
    return static_cast<std::size_t>(number);
  }

 private:
  const JsonIntegers& numbers_;
  std::size_t at_ = 0;
};

/// Whether these are ranges of S keys, in ascending order and not empty.
bool are_ranges(const std::vector<VisibleRanges::Range>& ranges, std::size_t S) {
  std::size_t from = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin < from || begin >= end || end > S) return false;
    from = end;
  }
  return true;
}

/// Nullopt unless the runs have L queries, and ranges of S keys.
std::optional<VisibleRanges::Matrix> matrix_of_numbers(const JsonIntegers& numbers, std::size_t L,
                                                       std::size_t S) {
  VisibleRanges::Matrix runs;
  IndexReader reader(numbers);
  std::size_t query = 0;
  while (!reader.at_end()) {
    const auto count = reader.next(1, L - query), ranges = reader.next(0, S);
    if (!count || !ranges) return std::nullopt;
    VisibleRanges::Run run{query, {}, {}};
    for (std::size_t i = 0; i < *ranges; ++i) {
      const auto begin = reader.next(0, S), end = reader.next(0, S);
      const auto begin_step = reader.next(0, 1), end_step = reader.next(0, 1);
      if (!begin || !end || !begin_step || !end_step) return std::nullopt;
      run.keys.push_back({*begin, *end});
      run.steps.push_back({*begin_step, *end_step});
    }
    query += *count;
    if (!are_ranges(run.keys, S) || !are_ranges(run.keys_of(query - 1), S)) return std::nullopt;
    runs.push_back(std::move(run));
  }
  if (query != L || L == 0) return std::nullopt;
  return runs;
}

/// Whether every query sees every key, as in most jobs.
bool sees_all(const Inputs& in) {
  const auto is_whole = [&](const kernel::KeyRange& range) {
    return range.begin == 0 && range.end == static_cast<std::int64_t>(in.S);
  };
  return !in[Input::mask] && !in[Input::key_mask] && !in[Input::bias] && in.key_ranges &&
         std::all_of(in.key_ranges->begin(), in.key_ranges->end(), is_whole);
}

bool sees_all(const VisibleRanges& visible, std::size_t S) {
  const std::vector<VisibleRanges::Matrix>& matrices = visible.matrices();
  return matrices.size() == 1 && matrices[0].size() == 1 &&
         matrices[0][0].keys == std::vector<VisibleRanges::Range>{{0, S}} &&
         matrices[0][0].steps == std::vector<VisibleRanges::Range>{{0, 0}};
}

}  // namespace

std::optional<Json> recorded_visibility(const Inputs& in) {
  if (in.rows.empty() || in.S == 0 || in.B == 0 || sees_all(in)) return std::nullopt;
  const std::optional<VisibleRanges> visible = VisibleRanges::of(in, kMostNumbers);
  if (!visible || sees_all(*visible, in.S)) return std::nullopt;
  JsonArray matrices;
  for (const VisibleRanges::Matrix& runs : visible->matrices())
    matrices.push_back(Json{numbers_of_matrix(runs, in.rows.size())});
  return Json{std::move(matrices)};
}

std::size_t bytes_of_visibility(const Inputs& in) { return VisibleRanges::bytes(in, kMostNumbers); }

void keep_common_visibility(const Inputs& in, Json& made_by) {
  const Json* recorded = made_by.find(kVisibleMember);
  if (recorded == nullptr) return;
  const std::optional<Json> own = recorded_visibility(in);
  if (!own || to_json(*own) != to_json(*recorded)) forget_visibility(made_by);
}

void forget_visibility(Json& made_by) {
  if (const auto members = made_by.get<JsonObject>())
    std::erase_if(*members, [](const auto& member) { return member.first == kVisibleMember; });
}

bool is_same_for_all(const Json& made_by) {
  const Json* recorded = made_by.find(kVisibleMember);
  const auto list = recorded == nullptr ? nullptr : recorded->get<JsonArray>();
  return list == nullptr || list->size() < 2;
}

std::optional<VisibleRanges> visibility_in(const Json& made_by, std::size_t items,
                                           std::size_t heads, std::size_t L, std::size_t S) {
  const Json* recorded = made_by.find(kVisibleMember);
  const auto list = recorded == nullptr ? nullptr : recorded->get<JsonArray>();
  if (list == nullptr ||
      (list->size() != 1 && list->size() != items && list->size() != items * heads))
    return std::nullopt;
  std::vector<VisibleRanges::Matrix> matrices;
  matrices.reserve(list->size());
  for (const Json& each : *list) {
    const auto numbers = each.get<JsonIntegers>();
    std::optional<VisibleRanges::Matrix> runs;
    if (numbers != nullptr) runs = matrix_of_numbers(*numbers, L, S);
    if (!runs) return std::nullopt;
    matrices.push_back(std::move(*runs));
  }
  return VisibleRanges(std::move(matrices));
}

}  // namespace attn
