#include "attn/job/recorded_positions.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace attn {
namespace {

using Runs = std::vector<QueryPositions::Run>;

constexpr std::size_t kNumbers = 3;  // of a run
constexpr std::int64_t kLargest = std::int64_t{1} << 48;

JsonIntegers numbers_of(const Runs& runs, std::size_t queries) {
  JsonIntegers numbers;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::size_t end = i + 1 < runs.size() ? runs[i + 1].begin : queries;
    numbers.push_back(static_cast<std::int64_t>(end - runs[i].begin));
    numbers.push_back(runs[i].position.key);
    numbers.push_back(runs[i].position.first_key);
  }
  return numbers;
}

/// Nullopt unless the runs have `queries` queries, and keys that exist or can be counted.
std::optional<Runs> runs_of_numbers(const JsonIntegers& numbers, std::size_t queries,
                                    std::size_t keys) {
  Runs runs;
  std::size_t begin = 0;
  if (numbers.size() % kNumbers != 0) return std::nullopt;
  runs.reserve(numbers.size() / kNumbers);
  for (std::size_t i = 0; i < numbers.size(); i += kNumbers) {
    const std::int64_t count = numbers[i], key = numbers[i + 1], first = numbers[i + 2];
    const bool is_position = key >= -kLargest && key <= kLargest && first >= -1 &&
                             first < static_cast<std::int64_t>(keys);
    if (count < 1 || count > static_cast<std::int64_t>(queries - begin) || !is_position)
      return std::nullopt;
    runs.push_back({begin, {key, first}});
    begin += static_cast<std::size_t>(count);
  }
  if (begin != queries) return std::nullopt;
  return runs;
}

}  // namespace

std::optional<Json> recorded_positions(const QueryPositions& positions, std::size_t S) {
  if (S == 0 || positions.queries() == 0 || positions.are_assumed(S)) return std::nullopt;
  JsonObject members;
  if (positions.keys() != S)
    members.emplace_back("keys", Json{static_cast<std::int64_t>(positions.keys())});
  JsonArray items;
  for (const Runs& runs : positions.items())
    items.push_back(Json{numbers_of(runs, positions.queries())});
  members.emplace_back("runs", Json{std::move(items)});
  return Json{std::move(members)};
}

std::optional<QueryPositions> positions_in(const Json& made_by, std::size_t items, std::size_t L,
                                           std::size_t S) {
  const Json* recorded = made_by.find(kPositionsMember);
  if (recorded == nullptr) return QueryPositions(L, S);
  const Json *given = recorded->find("keys"), *runs = recorded->find("runs");
  const auto count = given == nullptr ? nullptr : given->get<std::int64_t>();
  const auto list = runs == nullptr ? nullptr : runs->get<JsonArray>();
  const std::size_t keys = count == nullptr ? S : static_cast<std::size_t>(*count);
  if (list == nullptr || keys > S || (list->size() != 1 && list->size() != items))
    return std::nullopt;
  std::vector<Runs> of_items;
  of_items.reserve(list->size());
  for (const Json& each : *list) {
    const auto numbers = each.get<JsonIntegers>();
    std::optional<Runs> found;
    if (numbers != nullptr) found = runs_of_numbers(*numbers, L, keys);
    if (!found) return std::nullopt;
    of_items.push_back(std::move(*found));
  }
  return QueryPositions(L, keys, std::move(of_items));
}

void forget_positions(Json& made_by) {
  const auto given = made_by.get<JsonObject>();
  JsonObject members = given == nullptr ? JsonObject() : *given;
  std::erase_if(members, [](const auto& member) { return member.first == kPositionsMember; });
  members.emplace_back(kPositionsMember, Json{});
  made_by = Json{std::move(members)};
}

}  // namespace attn
