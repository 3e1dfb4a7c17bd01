#include "attn/problem/hiding_options.h"

#include <map>
#include <utility>

#include "attn/base/error.h"
#include "attn/problem/mask.h"

namespace attn {
namespace {

constexpr std::array kMasks = {Input::bias, Input::mask, Input::key_mask};

/// Without what hides keys, except documents and key_starts, which positions count from.
Inputs with_positions_only(const Inputs& in) {
  Inputs open = in;
  open.options.causal = false;
  open.options.window = {};
  open.options.sink_tokens = 0;
  open.mask_rule = nullptr;
  open.key_lists = nullptr;
  open.key_ranges.reset();
  for (const Input mask : kMasks) open[mask].reset();
  for (auto& [queries, keys] : open.token_positions.own())
    queries.length = queries.count, keys.length = keys.count;
  return open;
}

/// A query and a key.
struct QueryKey {
  std::size_t item, head, row, key;
};

/// Whether a pair is set in booleans (B or 1, H or 1, R, S).
bool is_set(const Tensor& visible, const QueryKey& at) {
  const Shape& shape = visible.shape();
  const std::size_t item = shape[0] == 1 ? 0 : at.item, head = shape[1] == 1 ? 0 : at.head;
  return visible.data<bool>()[((item * shape[1] + head) * shape[2] + at.row) * shape[3] + at.key];
}

class Finder {
 public:
  explicit Finder(const Inputs& in)
      : in_(in), shape_(shape_of_visible_keys(in)), hiding_(element_count(shape_)) {}

  void find_all() {
    const Inputs open = with_positions_only(in_);
    const Tensor together = visible_by_position(open);  // in one document
    const auto hides_in = [&](const Inputs& variant) {
      return [&, visible = visible_by_position(variant)](const QueryKey& at) {
        return is_set(together, at) && !is_set(visible, at);
      };
    };
    const auto with = [&](auto change) {
      Inputs variant = open;
      change(variant);
      return variant;
    };
    add_lengths();
    add_documents(together);
    if (in_.options.causal)
      add("causal", hides_in(with([](Inputs& one) { one.options.causal = true; })));
    const bool has_sinks = in_.options.sink_tokens > 0 && in_.options.window.left >= 0;
    if (in_.options.window != Window{}) {
      const auto reaches = hides_in(with([&](Inputs& one) {
        one.options.window = in_.options.window;
        one.options.sink_tokens = in_.options.sink_tokens;
      }));
      add("window", [&](const QueryKey& at) {
        return reaches(at) || (has_sinks && is_set(together, at) && is_beyond_window(at));
      });
    }
    if (in_.options.chunk > 0)
      add("chunk",
          [&](const QueryKey& at) { return is_set(together, at) && is_in_other_chunk(at); });
    if (in_.key_lists)
      add(Input::key_indices, hides_in(with([&](Inputs& one) { one.key_lists = in_.key_lists; })));
    add_rule(open, together);
    for (const Input mask : kMasks)
      if (in_[mask]) {
        Inputs only = open;
        only.token_positions = {all_tokens()};
        only[mask] = in_[mask];
        add(mask,
            [visible = visible_keys(only)](const QueryKey& at) { return !is_set(visible, at); });
      }
  }

  std::optional<HidingOptions> found() const {
    HidingOptions all{
        .sets = {{}}, .items = shape_[0], .heads = shape_[1], .row_size = shape_[3], .of = {}};
    std::map<std::uint32_t, std::uint8_t> numbers = {{0, 0}};
    all.of.reserve(hiding_.size());
    for (const std::uint32_t hiding : hiding_) {
      const auto [number, is_new] =
          numbers.try_emplace(hiding, static_cast<std::uint8_t>(numbers.size()));
      if (is_new) {
        if (all.sets.size() > UINT8_MAX) return std::nullopt;
        std::vector<std::string>& set = all.sets.emplace_back();
        for (std::size_t k = 0; k < names_.size(); ++k)
          if ((hiding >> k & 1U) != 0) set.push_back(names_[k]);
      }
      all.of.push_back(number->second);
    }
    return all;
  }

 private:
  bool is_given(Input input) const { return contains(in_.tensors, input); }
  const TokenPositions& tokens(const QueryKey& at) const {
    return in_.token_positions[in_.token_positions.size() == 1 ? 0 : at.item];
  }
  bool is_appended(const QueryKey& at) const { return at.key >= in_.P + in_.N; }

  void add(Input input, const auto& hides) { add(std::string(row_of(input).name), hides); }
  void add(std::string name, const auto& hides) {
    const std::uint32_t bit = std::uint32_t{1} << names_.size();
    names_.push_back(std::move(name));
    auto hiding = hiding_.begin();
    QueryKey at{};
    for (at.item = 0; at.item < shape_[0]; ++at.item)
      for (at.head = 0; at.head < shape_[1]; ++at.head)
        for (at.row = 0; at.row < shape_[2]; ++at.row)
          for (at.key = 0; at.key < shape_[3]; ++at.key, ++hiding)
            if (hides(at)) *hiding |= bit;
  }

  /// Without documents and padding.
  TokenPositions all_tokens() const {
    TokenPositions tokens;
    tokens.queries.count = tokens.queries.length = in_.L;
    tokens.keys.count = tokens.keys.length = in_.P + in_.N;
    return tokens;
  }

  void add_lengths() {
    if (is_given(Input::query_lengths))
      add(Input::query_lengths,
          [&](const QueryKey& at) { return in_.rows[at.row] >= tokens(at).queries.length; });
    if (is_given(Input::key_lengths))
      add(Input::key_lengths,
          [&](const QueryKey& at) { return !is_appended(at) && at.key >= tokens(at).keys.length; });
    if (is_given(Input::key_starts))
      add(Input::key_starts, [&](const QueryKey& at) { return at.key < tokens(at).keys.begin; });
  }

  void add_documents(const Tensor& together) {
    for (const Input input : {Input::documents, Input::key_documents, Input::cu_seqlens_q})
      if (is_given(input))
        return add(input, [&](const QueryKey& at) { return !is_set(together, at); });
  }

  /// The window's left limit, which sink tokens do not have (problem/named_masks.h).
  bool is_beyond_window(const QueryKey& at) const {
    const auto& [queries, keys] = tokens(at);
    const std::int64_t q = queries.position(in_.rows[at.row]), k = keys.position(at.key);
    return !is_appended(at) && k >= in_.options.sink_tokens && q - k > in_.options.window.left;
  }

  bool is_in_other_chunk(const QueryKey& at) const {
    const auto chunk_of = [&](std::int64_t position) {
      const std::int64_t size = in_.options.chunk;
      return position / size - (position % size < 0 ? 1 : 0);
    };
    const auto& [queries, keys] = tokens(at);
    return !is_appended(at) &&
           chunk_of(queries.position(in_.rows[at.row])) != chunk_of(keys.position(at.key));
  }

  /// The rules without names of their own: they are false where no other rule is.
  void add_rule(const Inputs& open, const Tensor& together) {
    std::string names = in_.options.mask_rule.empty() ? "" : "mask_rule";
    for (const Input input : {Input::tree_parents, Input::blocks})
      if (is_given(input)) names += (names.empty() ? "" : " or ") + std::string(row_of(input).name);
    if (names.empty()) return;
    const std::vector<std::uint32_t> before = hiding_;
    std::uint32_t rules = 0;
    for (std::size_t k = 0; k < names_.size(); ++k)
      if (names_[k] == "chunk" || (names_[k] == "window" && in_.options.sink_tokens > 0))
        rules |= std::uint32_t{1} << k;
    Inputs with = open, without = in_;
    with.mask_rule = in_.mask_rule;
    std::optional<Tensor> base, visible;
    try {
      base = together, visible = visible_by_position(with);
    } catch (const Error&) {  // a rule may have no result for keys that something else hides
      without.mask_rule = nullptr;
      without.key_ranges.reset();
      base = visible_by_position(without), visible = visible_by_position(in_);
    }
    auto hiding = before.begin();
    add(names, [&](const QueryKey& at) {
      return (*hiding++ & rules) == 0 && is_set(*base, at) && !is_set(*visible, at);
    });
  }

  const Inputs& in_;
  Shape shape_;
  std::vector<std::string> names_;
  std::vector<std::uint32_t> hiding_;  ///< of each pair: a bit for each of names_
};

}  // namespace

std::optional<HidingOptions> hiding_options(const Inputs& in) {
  if (element_count(shape_of_visible_keys(in)) > kMostHidingOptions) return std::nullopt;
  Finder finder(in);
  finder.find_all();
  return finder.found();
}

}  // namespace attn
