#include "attn/problem/mask.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xoperation.hpp>

#include "attn/problem/bias_rule.h"
#include "attn/problem/key_lists.h"
#include "attn/problem/mask_rule.h"
#include "attn/problem/position_bias.h"
#include "attn/tensor/array.h"
#include "attn/tensor/rearrange.h"

namespace attn {
namespace {

struct Interval {
  std::int64_t begin, end;
  bool contains(std::int64_t x) const { return begin <= x && x < end; }
};

/// The positions of the keys that are visible to a query at `position` by causality and window.
/// Causality does not hide keys before `prefix`. With sink tokens, the window's left limit is part
/// of a rule (problem/named_masks.h).
Interval reach(std::int64_t position, std::int64_t prefix, const Options& options) {
  constexpr std::int64_t kUnlimited = 4 * kMaxOffset;  // more than the distance of any two tokens
  Interval reach{std::numeric_limits<std::int64_t>::min(),
                 std::numeric_limits<std::int64_t>::max()};
  if (options.causal) reach.end = std::max(position + 1, prefix);
  if (options.window.right >= 0)
    reach.end = std::min(reach.end, position + std::min(options.window.right, kUnlimited) + 1);
  if (options.window.left >= 0 && options.sink_tokens == 0)
    reach.begin = position - std::min(options.window.left, kUnlimited);
  return reach;
}

/// The keys of each document that are not padding, if they are contiguous and in order: a key's
/// position is its distance from the first one.
std::optional<std::map<std::int64_t, Interval>> documents_of(const TokenPositions::Side& keys) {
  std::map<std::int64_t, Interval> documents;
  if (keys.documents.empty()) {
    if (keys.begin < keys.length)
      documents[0] = {static_cast<std::int64_t>(keys.begin),
                      static_cast<std::int64_t>(keys.length)};
    return documents;
  }
  Interval* latest = nullptr;
  for (std::size_t key = 0; key < keys.length; ++key) {
    const std::int64_t id = keys.documents[key];
    if (id == TokenPositions::kPadding) continue;
    const auto j = static_cast<std::int64_t>(key);
    if (latest == nullptr || keys.documents[key - 1] != id)
      latest = &documents.try_emplace(id, Interval{j, j}).first->second;
    if (latest->end != j || keys.positions[key] != j - latest->begin) return std::nullopt;
    ++latest->end;
  }
  return documents;
}

/// The keys that query i sees by its document, causality and window, where documents_of() the keys
/// are known.
kernel::KeyRange range_by_position(const std::map<std::int64_t, Interval>& documents,
                                   const TokenPositions& tokens, std::size_t i,
                                   const Options& options) {
  const TokenPositions::Side& queries = tokens.queries;
  const std::int64_t id = queries.segment(i);
  kernel::KeyRange range{.padding = id == TokenPositions::kPadding};
  const auto document = documents.find(id);
  if (document == documents.end()) return range;
  const auto& [begin, end] = document->second;
  range.center = begin + queries.position(i);
  const Interval reached = reach(range.center, begin + tokens.keys.prefix(id), options);
  range.begin = std::clamp(reached.begin, begin, end);
  range.end = std::max(range.begin, std::min(reached.end, end));
  return range;
}

/// Whether the keys that a query sees by its position differ between heads.
bool differs_by_head(const Inputs& in) {
  return (in.mask_rule && in.mask_rule->uses_heads()) ||
         (in.key_lists && in.key_lists->uses_heads());
}

}  // namespace

std::optional<std::vector<kernel::KeyRange>> key_ranges(const Inputs& in) {
  std::vector<kernel::KeyRange> ranges;
  const auto keys = static_cast<std::int64_t>(in.P + in.N);
  if (differs_by_head(in)) return std::nullopt;
  ranges.reserve(in.token_positions.size() * in.rows.size());
  for (std::size_t entry = 0; entry < in.token_positions.size(); ++entry) {
    const TokenPositions& tokens = in.token_positions[entry];
    const auto documents = documents_of(tokens.keys);
    if (!documents) return std::nullopt;
    std::optional<RuleRows> rule;
    if (in.mask_rule) rule.emplace(in, entry, 0);
    for (const std::size_t i : in.rows) {
      kernel::KeyRange range = range_by_position(*documents, tokens, i, in.options);
      if (range.begin < range.end) {
        if (in.key_lists && !in.key_lists->narrow(in, entry, i, range)) return std::nullopt;
        if (rule && !rule->narrow(i, range)) return std::nullopt;
      }
      if (in.E > 0 && !range.padding) {  // the appended keys follow all others
        if (range.begin > 0 || range.end < keys) return std::nullopt;
        range.end = static_cast<std::int64_t>(in.S);
      }
      ranges.push_back(range);
    }
  }
  return ranges;
}

Shape shape_of_visible_by_position(const Inputs& in) {
  return {in.token_positions.size(), differs_by_head(in) ? in.H : 1, in.rows.size(), in.S};
}

namespace {

/// Hides the keys that the rule hides, among those that are visible.
void apply(RuleRows& rule, std::size_t query, std::span<bool> visible) {
  for (std::size_t begin = 0, end; begin < visible.size(); begin = end) {
    end = begin;
    while (end < visible.size() && visible[end] == visible[begin]) ++end;
    if (!visible[begin]) continue;
    rule.show(query, begin, end, visible.data());
  }
}

}  // namespace

Tensor visible_by_position(const Inputs& in) {
  Tensor visible(DType::boolean, shape_of_visible_by_position(in));
  bool* out = visible.mutable_data<bool>().data();
  if (in.key_ranges) {
    for (const kernel::KeyRange& range : *in.key_ranges) {
      std::fill(out + range.begin, out + range.end, true);
      out += in.S;
    }
    return visible;
  }
  for (std::size_t entry = 0; entry < in.token_positions.size(); ++entry) {
    const TokenPositions& tokens = in.token_positions[entry];
    const auto& [queries, keys] = tokens;
    const auto documents = documents_of(keys);
    for (std::size_t head = 0; head < visible.shape()[1]; ++head) {
      std::optional<RuleRows> rule;
      if (in.mask_rule) rule.emplace(in, entry, head);
      for (const std::size_t i : in.rows) {
        const std::span<bool> row{out, in.P + in.N};
        out += in.S;
        const std::int64_t id = queries.segment(i);
        if (id == TokenPositions::kPadding) continue;
        std::fill(row.data() + row.size(), out, true);
        if (documents && !in.key_lists) {
          const kernel::KeyRange range = range_by_position(*documents, tokens, i, in.options);
          const auto begin = static_cast<std::size_t>(range.begin),
                     end = static_cast<std::size_t>(range.end);
          if (rule)
            rule->show(i, begin, end, row.data());
          else
            std::fill(row.data() + begin, row.data() + end, true);
          continue;
        }
        const Interval reached = reach(queries.position(i), tokens.keys.prefix(id), in.options);
        const auto sees = [&, &side = keys](std::size_t j) {
          return id == side.segment(j) && reached.contains(side.position(j));
        };
        if (in.key_lists)
          in.key_lists->each(in, entry, head, i, [&](std::size_t j) { row[j] = sees(j); });
        else
          for (std::size_t j = 0; j < row.size(); ++j) row[j] = sees(j);
        if (rule) apply(*rule, i, row);
      }
    }
  }
  return visible;
}

bool is_padding(const Inputs& in, std::size_t batch_row, std::size_t query) {
  const std::size_t b = in.token_positions.size() == 1 ? 0 : batch_row;
  return in.token_positions[b].queries.segment(query) == TokenPositions::kPadding;
}

namespace {

/// Boolean (B, R)
Tensor padding(const Inputs& in) {
  Tensor padding(DType::boolean, {in.B, in.rows.size()});
  bool* out = padding.mutable_data<bool>().data();
  for (std::size_t b = 0; b < in.B; ++b)
    for (const std::size_t i : in.rows) *out++ = is_padding(in, b, i);
  return padding;
}

/// c tanh(x / c), in doubles.
template <class T>
void cap(std::span<T> scores, double c) {
  for (T& x : scores) x = static_cast<T>(c * std::tanh(static_cast<double>(x) / c));
}

/// Flags, broadcast to a shape.
Tensor spread(const Tensor& flags, const Shape& shape) {
  if (flags.shape() == shape) return flags;
  Tensor all(DType::boolean, shape);
  xt::noalias(mutable_array_of<bool>(all)) = xt::broadcast(array_of<bool>(flags), extents_of(all));
  return all;
}

template <class T>
std::pair<Tensor, VisibleKeys> mask_as(const Tensor& scaled, const Biases<Tensor>& biases,
                                       const Inputs& in) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  Tensor masked = scaled;
  VisibleKeys result{spread(visible_keys(in), scaled.shape()), padding(in)};
  const auto add = [&](const Tensor& added) {
    auto sums = mutable_array_of<T>(masked);
    xt::noalias(sums) = sums + array_of<T>(added);
  };
  if (in.bias_rule) add(in.bias_rule->values(in));
  for (const GivenBias<Tensor>& bias : biases) add(bias_of_scores(bias, in));
  const std::span<T> scores = masked.mutable_data<T>();
  if (in.options.softcap_order == SoftcapOrder::after_mask) cap(scores, in.options.softcap);
  const std::span<const bool> visible = result.keys.data<bool>();
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (!visible[i]) scores[i] = kHidden;
  return {std::move(masked), std::move(result)};
}

}  // namespace

bool takes_rows(const Tensor& mask, const Inputs& in) {
  std::vector<std::size_t> all(in.L);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return mask.shape()[2] == in.L && in.L != 1 && in.rows.vector() != all;
}

Tensor fitted_mask(const Tensor& given, const Inputs& in, MaskPolarity polarity) {
  const Tensor mask = takes_rows(given, in) ? take_rows(given, in.rows) : given;
  if (in.E == 0) return mask;
  const Shape& shape = mask.shape();
  const std::size_t keys = in.P + in.N, step = shape[3] == 1 ? 0 : 1;
  Tensor wide(mask.dtype(), {shape[0], shape[1], shape[2], in.S});
  visit(mask.dtype(), [&]<class T>(Type<T>) {
    const bool open = mask.dtype() == DType::boolean && polarity == MaskPolarity::attend;
    T* out = wide.mutable_data<T>().data();
    for (std::size_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row)
      for (std::size_t j = 0; j < in.S; ++j)
        *out++ = j < keys ? mask.data<T>()[row * shape[3] + j * step] : static_cast<T>(open);
  });
  return wide;
}

Tensor bias_of_scores(const GivenBias<Tensor>& bias, const Inputs& in) {
  if (bias.input == Input::alibi_slopes) return alibi_bias(bias.value, in);
  if (bias.input == Input::relative_bias) return relative_bias(bias.value, in);
  if (bias.input == Input::key_indices) return in.key_lists->log_counts(in);
  return fitted_mask(bias.value, in, in.options.mask_polarity);
}

BiasMagnitudes bias_magnitudes(const Biases<Tensor>& biases, const Inputs& in) {
  BiasMagnitudes magnitudes{Tensor(DType::f64, {in.B, in.H, in.rows.size(), in.S}), 0};
  auto sums = mutable_array_of<double>(magnitudes.sums);
  const auto add = [&](const Tensor& bias) {
    const Tensor wide = cast(bias, DType::f64);
    const auto size = xt::abs(array_of<double>(wide));
    xt::noalias(sums) = sums + xt::where(xt::isfinite(size), size, 0.0);
    ++magnitudes.count;
  };
  if (in.bias_rule) add(in.bias_rule->values(in));
  for (const GivenBias<Tensor>& bias : biases) add(bias_of_scores(bias, in));
  return magnitudes;
}

Shape shape_of_visible_keys(const Inputs& in) {
  Shape shape = shape_of_visible_by_position(in);
  for (const std::optional<Tensor>* given :
       {&in[Input::bias], &in[Input::mask], &in[Input::key_mask]}) {
    if (!*given) continue;
    if ((*given)->shape()[0] != 1) shape[0] = in.B;
    if ((*given)->shape()[1] != 1) shape[1] = in.H;
  }
  return shape;
}

Tensor visible_keys(const Inputs& in) {
  Tensor keys = spread(visible_by_position(in), shape_of_visible_keys(in));
  const bool attend = in.options.mask_polarity == MaskPolarity::attend;
  for (const std::optional<Tensor>* given :
       {&in[Input::bias], &in[Input::mask], &in[Input::key_mask]}) {
    if (!*given) continue;
    const Tensor mask = fitted_mask(**given, in, in.options.mask_polarity);
    auto visible = mutable_array_of<bool>(keys);
    visit(mask.dtype(), [&]<class T>(Type<T>) {
      if constexpr (std::is_same_v<T, bool>)
        xt::noalias(visible) = visible && xt::equal(array_of<T>(mask), attend);
      else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
        xt::noalias(visible) =
            visible && xt::not_equal(array_of<T>(mask), -std::numeric_limits<T>::infinity());
    });
  }
  return keys;
}

std::pair<Tensor, VisibleKeys> mask_scores(const Tensor& scaled, const Biases<Tensor>& biases,
                                           const Inputs& in) {
  return scaled.dtype() == DType::f64 ? mask_as<double>(scaled, biases, in)
                                      : mask_as<float>(scaled, biases, in);
}

}  // namespace attn
