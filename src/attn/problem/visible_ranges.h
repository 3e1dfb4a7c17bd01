// The keys that each query of a result sees. Results record them (job/recorded_visibility.h), so
// that pictures distinguish hidden keys from weights of 0.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace attn {

struct Inputs;
struct Options;

class VisibleRanges {
 public:
  /// The keys from `begin` to `end` - 1.
  struct Range {
    std::size_t begin, end;
    bool operator==(const Range&) const = default;
  };
  /// The queries from `begin` to that of the next run. Each range is that of the query before, or
  /// its begin, its end or both are one key further.
  struct Run {
    std::size_t begin;
    std::vector<Range> keys;   ///< of the first query; in ascending order, not empty
    std::vector<Range> steps;  ///< what each further query adds to `keys`: 0 or 1
    bool operator==(const Run&) const = default;

    std::vector<Range> keys_of(std::size_t query) const;
  };
  using Matrix = std::vector<Run>;

  /// The matrices of all heads of all batch items, or one for each batch item, or one for all. The
  /// first run of each begins at 0, and the others in ascending order.
  explicit VisibleRanges(std::vector<Matrix> matrices) : matrices_(std::move(matrices)) {}

  /// Those of in.rows. Nullopt if they have more than `most` numbers, two for each run and four for
  /// each range, or if visible_keys() would have to be computed and has more than 2^22 elements.
  static std::optional<VisibleRanges> of(const Inputs& in, std::size_t most);
  /// An upper bound on the memory that of() takes, its result included.
  static std::size_t bytes(const Inputs& in, std::size_t most);

  const std::vector<Matrix>& matrices() const { return matrices_; }
  /// The keys that this query sees. `matrix` is an index in matrices().
  std::vector<Range> keys_of(std::size_t matrix, std::size_t query) const;

 private:
  std::vector<Matrix> matrices_;
};

}  // namespace attn
