// Mistakes about which keys each query sees: causality, windows, masks, lengths and documents.
#include <algorithm>
#include <functional>
#include <span>

#include "attn/base/number_text.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/diagnose/row_changes.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

std::string window_text(const Window& window) {
  if (window.left < 0 && window.right < 0) return "none";
  return in_words(window.left) + "," + in_words(window.right);
}

Found with_window(Variant& variant, const Inputs& in, Window window, const std::string& more = "") {
  variant.options.window = window;
  return flag("--window " + window_text(window) + more, window_text(in.options.window));
}

/// Keys [from, to), and the first keys among those before `to`. They may be outside of those that
/// exist.
struct SeenKeys {
  std::int64_t from, to, first = 0;
};

/// A query at position p sees the keys seen(p), instead of causality and windows.
template <class Seen>
Found with_seen_keys(Variant& variant, const Inputs& in, const std::string& claim,
                     const std::string& job, const Seen& seen) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 26;
  const auto offset = common_offset(in);
  const auto keys = static_cast<std::int64_t>(in.P + in.N),
             queries = static_cast<std::int64_t>(in.L);
  if (!offset || keys < 1 || variant.has(Input::mask) || variant.has(Input::documents) ||
      variant.has(Input::cu_seqlens_q))
    return std::nullopt;
  if (queries > kMostElements / keys) return Claim{claim, job, false, true};
  const bool shown = in.options.mask_polarity == MaskPolarity::attend;
  Tensor mask(DType::boolean, {1, 1, in.L, in.P + in.N});
  const std::span<bool> all = mask.mutable_data<bool>();
  std::fill(all.begin(), all.end(), !shown);
  for (std::int64_t i = 0; i < queries; ++i) {
    const SeenKeys of_query = seen(i + *offset);
    const auto to = std::clamp<std::int64_t>(of_query.to, 0, keys),
               from = std::clamp<std::int64_t>(of_query.from, 0, to);
    const auto row = all.begin() + i * keys;
    std::fill(row + from, row + to, shown);
    std::fill(row, row + std::min(of_query.first, to), shown);
  }
  variant.set(Input::mask, mask);
  variant.options.causal = false;
  variant.options.window = {};
  return words(claim, job);
}

/// Whether another offset would also change what is added to the scores.
bool has_bias_of_positions(const Variant& variant) {
  return variant.has(Input::relative_bias) || variant.has(Input::alibi_slopes) ||
         !variant.options.bias_rule.empty();
}

/// Only the last key that each query sees is another one.
Found strict_causality(Variant& variant, const Inputs& in) {
  const std::string meaning = "no query sees the key at its own position";
  const Window given = in.options.window;
  if (is_causal(in) && has_bias_of_positions(variant))
    if (const Found seen = with_seen_keys(variant, in, meaning, "", [&](std::int64_t position) {
          return SeenKeys{given.left < 0 ? 0 : position - given.left, position};
        }))
      return seen;
  const std::optional<std::int64_t> now = common_offset(in);
  if (!in.options.causal || !now || given.left == 0) return std::nullopt;
  variant.options.causal_offset = *now - 1;
  const std::string offset = "--causal-offset " + in_words(*now - 1);
  if (given.left < 0) return flag(offset + ", " + meaning, in_words(*now));
  const Window moved{given.left - 1, given.right};
  variant.options.window = moved;
  return flag(offset + " --window " + window_text(moved) + ", " + meaning,
              in_words(*now) + " and " + window_text(given));
}

constexpr std::int64_t kLeastBlock = 16;  ///< of keys

/// The causal mask hides only keys of the last `size` that end at a multiple of it, or at the end.
VariantChange last_keys_only(std::int64_t size) {
  return [size](Variant& variant, const Inputs& in) -> Found {
    const auto keys = static_cast<std::int64_t>(in.P + in.N);
    if (!is_causal(in) || in.options.window.left >= 0 || keys <= size) return std::nullopt;
    const std::int64_t before = (keys - 1) / size * size;
    if (size > kLeastBlock && before == (keys - 1) / (size / 2) * (size / 2))
      return std::nullopt;  // the same as for half the size
    return with_seen_keys(
        variant, in,
        "the causal mask applied in the last block of " + in_words(size) + " keys only", "",
        [&](std::int64_t position) {
          return SeenKeys{0, std::max(before, position + 1)};
        });
  };
}

/// Each query sees the keys before its block of `size`, and all of this block or none.
VariantChange causal_by_blocks(std::int64_t size, bool sees_own) {
  return [=](Variant& variant, const Inputs& in) -> Found {
    const auto keys = static_cast<std::int64_t>(in.P + in.N),
               queries = static_cast<std::int64_t>(in.L);
    const std::int64_t left = in.options.window.left;
    const auto offset = common_offset(in);
    if (!is_causal(in) || !offset) return std::nullopt;
    const auto end = [&](std::int64_t position, std::int64_t of_size) {
      const std::int64_t in_block = (position % of_size + of_size) % of_size;
      return std::clamp<std::int64_t>(position - in_block + (sees_own ? of_size : 0), 0, keys);
    };
    // If all queries have one end, the causal mask or the last keys are missing as a whole.
    bool has_one_end = true, is_that_of_half = size > kLeastBlock;
    for (std::int64_t p = *offset; p < *offset + queries; ++p) {
      has_one_end &= end(p, size) == end(*offset, size);
      is_that_of_half &= end(p, size) == end(p, size / 2);
    }
    if (has_one_end || is_that_of_half) return std::nullopt;
    return with_seen_keys(
        variant, in,
        sees_own ? "the causal mask not applied in blocks of " + in_words(size) + " on the diagonal"
                 : "blocks of " + in_words(size) + " keys on the diagonal missing",
        "", [&](std::int64_t position) {
          return SeenKeys{left < 0 ? 0 : position - left, end(position, size)};
        });
  };
}

/// Each query sees the keys of its own chunk.
Found with_chunks(Variant& variant, const Inputs& in, std::int64_t size) {
  const std::optional<std::int64_t> offset = common_offset(in);
  const auto past = static_cast<std::int64_t>(in.P), queries = static_cast<std::int64_t>(in.L);
  if (in.options.window.left < 1 || size < 2 || !offset ||
      (*offset != past && *offset != past + static_cast<std::int64_t>(in.N) - queries) ||
      variant.has(Input::documents) || variant.has(Input::cu_seqlens_q) ||
      variant.has(Input::query_lengths) || variant.has(Input::key_lengths) ||
      variant.has(Input::key_starts))
    return std::nullopt;
  const auto chunks = [&](std::size_t count, std::int64_t first) {
    Tensor ids(DType::i64, {count});
    for (std::size_t i = 0; i < count; ++i)
      ids.mutable_data<std::int64_t>()[i] = (first + static_cast<std::int64_t>(i)) / size;
    return ids;
  };
  variant.set(Input::documents, chunks(in.L, *offset));
  variant.set(Input::key_documents, chunks(in.P + in.N, 0));
  variant.options.window = {};
  variant.options.causal_offset.reset();
  variant.options.alignment = *offset == past ? Alignment::top_left : Alignment::bottom_right;
  variant.options.causal = is_causal(in);
  return words("chunks of " + in_words(size) + " tokens instead of a window",
               "--window " + window_text(in.options.window));
}

bool is_boolean(const Variant& variant, Input input) {
  const Tensor* mask = variant.find(input);
  return mask != nullptr && mask->dtype() == DType::boolean;
}

std::string value_of_flag(EmptyRows rows) {
  return rows == EmptyRows::nan ? "nan" : rows == EmptyRows::zero ? "zero" : "uniform";
}

VariantChange with_empty_rows(EmptyRows rows) {
  return [rows](Variant& variant, const Inputs& in) -> Found {
    if (in.options.empty_rows == rows || !has_empty_rows(in)) return std::nullopt;
    variant.options.empty_rows = rows;
    return flag("--empty-rows " + value_of_flag(rows), value_of_flag(in.options.empty_rows));
  };
}

/// Whether only a boolean mask hides keys.
bool hides_by_mask_alone(const Variant& variant, const Inputs& in) {
  return is_boolean(variant, Input::mask) && !in.options.causal && !has_window(in) &&
         !variant.has(Input::key_mask) && !variant.has(Input::key_lengths) &&
         !variant.has(Input::key_starts) && !in.key_lists;
}

/// As many queries as keys see each key and those after it, or only the latter.
Found inverted_causality(Variant& variant, const Inputs& in, bool with_own) {
  const auto offset = common_offset(in);
  const auto keys = static_cast<std::int64_t>(in.P + in.N);
  if (!is_causal(in) || !offset || keys < 2) return std::nullopt;
  const std::string claim =
      with_own ? "the causal mask inverted: each query sees its own key and later ones"
               : "the causal mask inverted: each query sees later keys only";
  if (!with_own && has_bias_of_positions(variant))
    if (const Found seen = with_seen_keys(variant, in, claim, "", [&](std::int64_t position) {
          return SeenKeys{position + 1, keys};
        }))
      return seen;
  variant.options.causal = false;
  variant.options.window = {0, -1};
  if (!with_own) variant.options.causal_offset = *offset + 1;
  return words(claim);
}

/// All masks together, as one.
Found inverted_masks(Variant& variant, const Inputs& in) {
  const bool is_only_causal = is_causal(in) && in.options.window.left < 0 &&
                              !variant.has(Input::mask) && !variant.has(Input::key_mask) &&
                              !variant.has(Input::key_lengths) && !variant.has(Input::key_starts) &&
                              !in.key_lists;
  if (!hides_keys(variant, in) || is_only_causal || hides_by_mask_alone(variant, in) ||
      !may_change_rows(RowChange::hidden_only, variant, in))
    return std::nullopt;
  variant.row_change = RowChange::hidden_only;
  return words("all masks inverted: each query sees the hidden keys only");
}

VariantChange hidden_set_to_0(RowChange change) {
  return [change](Variant& variant, const Inputs& in) {
    return with_hidden_scores(variant, in, change, 0);
  };
}

/// What a claim calls key_lengths, which a job with pages may give in another form.
std::string lengths_flag(const Variant& variant) {
  const bool has_lists = variant.cache != nullptr && contains(*variant.cache, Input::kv_indptr);
  return has_lists ? "--last-page-len" : "--key-lengths";
}

/// Other key_lengths, from those of the batch items. The causal offset stays.
Found with_key_lengths(
    Variant& variant, const Inputs& in, const std::string& meaning,
    const std::function<std::int64_t(std::span<const std::int64_t>, std::size_t)>& length_of) {
  const Tensor* given = variant.find(Input::key_lengths);
  if (given == nullptr) return std::nullopt;
  const Tensor lengths = cast(*given, DType::i64);
  const auto old = lengths.data<std::int64_t>();
  Tensor changed = lengths;
  const auto out = changed.mutable_data<std::int64_t>();
  const auto keys = static_cast<std::int64_t>(in.P + in.N);
  for (std::size_t b = 0; b < out.size(); ++b) out[b] = std::min(keys, length_of(old, b));
  if (std::equal(out.begin(), out.end(), old.begin())) return std::nullopt;
  const auto offset = common_offset(in);
  variant.set(Input::key_lengths, changed);
  if (offset) variant.options.causal_offset = offset;
  return words(meaning);
}

/// The padding is in front of the keys, and not behind them.
Found padding_on_the_left(Variant& variant, const Inputs& in) {
  const Tensor* given = variant.find(Input::key_lengths);
  if (given == nullptr || given->size() != in.B) return std::nullopt;
  const Tensor lengths = cast(*given, DType::i64);
  const std::size_t keys = in.P + in.N;
  bool changes = false;
  for (const std::int64_t length : lengths.data<std::int64_t>())
    changes |= static_cast<std::size_t>(length) < keys;
  if (!changes) return std::nullopt;
  const auto offset = common_offset(in);
  variant.erase({Input::key_lengths});
  if (offset) variant.options.causal_offset = offset;
  hide_keys(variant, in, [&](std::size_t b, std::size_t j) {
    return j + static_cast<std::size_t>(lengths.data<std::int64_t>()[b]) < keys;
  });
  return words("the first keys hidden instead of the last (padding on the left)");
}

}  // namespace

Found with_added_window(Variant& variant, const Inputs& in, std::int64_t left) {
  if (has_window(in) || !is_causal(in) || left < 0) return std::nullopt;
  variant.options.window = {left, 0};
  return flag("--window " + in_words(left) + ",0", "no window");
}

Found with_other_window(Variant& variant, const Inputs& in, std::int64_t left) {
  const Window& window = in.options.window;
  if (window.left < 0 || left < 0 || left == window.left) return std::nullopt;
  return with_window(variant, in, {left, window.right});
}

Found with_other_right(Variant& variant, const Inputs& in, std::int64_t right) {
  const Window& window = in.options.window;
  if (window.right < 0 || in.options.causal || right < 0 || right == window.right)
    return std::nullopt;
  return with_window(variant, in, {window.left, right});
}

Found with_first_keys(Variant& variant, const Inputs& in, std::int64_t count) {
  const Window& window = in.options.window;
  if (window.left < 0 || !is_causal(in) || count < 1) return std::nullopt;
  return with_seen_keys(variant, in,
                        "the first " + (count == 1 ? "key" : in_words(count) + " keys") +
                            " visible beside the window (attention sinks)",
                        "--window " + window_text(window), [&](std::int64_t position) {
                          return SeenKeys{position - window.left, position + 1, count};
                        });
}

Found with_prefix(Variant& variant, const Inputs& in, std::int64_t count) {
  if (in.options.window.left >= 0 || !is_causal(in) || count < 2) return std::nullopt;
  return with_seen_keys(variant, in,
                        "the first " + in_words(count) + " keys visible to all queries (a prefix)",
                        "", [&](std::int64_t position) {
                          return SeenKeys{0, std::max(count, position + 1)};
                        });
}

Found with_hidden_scores(Variant& variant, const Inputs& in, RowChange change, double number) {
  const bool is_added = change == RowChange::hidden_added;
  const bool is_capped_last = in.options.softcap != 0 && has_bias(variant) &&
                              in.options.softcap_order == SoftcapOrder::after_mask;
  if (!hides_keys(variant, in) || !may_change_rows(change, variant, in) ||
      variant.has(Input::documents) || variant.has(Input::cu_seqlens_q))
    return std::nullopt;
  if (change == RowChange::hidden_set_biased && (!has_bias(variant) || is_capped_last))
    return std::nullopt;
  variant.row_change = change, variant.of_hidden = number;
  if (is_added) return words(six_digits(number) + " added to masked scores instead of -inf");
  return words("masked scores set to " + six_digits(number) + " instead of -inf" +
               (change == RowChange::hidden_set_biased ? ", before biases are added" : ""));
}

Hypotheses causal_hypotheses() {
  Hypotheses all = {
      {"causal.dropped", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!in.options.causal) return std::nullopt;
         p.options.causal = false;
         Window& window = p.options.window;
         if (window.right != 0) return flag("without --causal");
         window.right = -1;
         return flag("--window " + window_text(window) + " without --causal",
                     "--window " + window_text(in.options.window) + " --causal");
       }},
      {"causal.added", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (is_causal(in)) return std::nullopt;
         p.options.causal = true;
         return flag("--causal", "no causal mask");
       }},
      {"causal.added_bottom_right", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (is_causal(in) || in.L == in.N || in.options.causal_offset ||
             in.options.alignment == Alignment::bottom_right)
           return std::nullopt;
         p.options.causal = true, p.options.alignment = Alignment::bottom_right;
         return flag("--causal=bottom-right", "no causal mask");
       }},
      {"causal.alignment", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         const bool is_same = in.L == in.N && !p.has(Input::query_lengths) &&
                              !p.has(Input::key_lengths) && !p.has(Input::key_documents) &&
                              !p.has(Input::cu_seqlens_k);
         if ((!is_causal(in) && !has_window(in)) || in.options.causal_offset || is_same)
           return std::nullopt;
         const bool top = in.options.alignment == Alignment::top_left;
         p.options.alignment = top ? Alignment::bottom_right : Alignment::top_left;
         const std::string name = in.options.causal ? "--causal=" : "--alignment ";
         return flag(name + (top ? "bottom-right" : "top-left"), top ? "top-left" : "bottom-right");
       }},
      {"causal.cache_ignored", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         const std::optional<std::int64_t> now = common_offset(in);
         // Without a cache, this is the other alignment.
         if ((!is_causal(in) && !has_window(in)) || (in.P == 0 && !in.options.causal_offset) ||
             !now || *now == 0)
           return std::nullopt;
         p.options.causal_offset = 0;
         return flag("--causal-offset 0, the first query at the first key", in_words(*now));
       }},
      {"causal.strict", kAttention, strict_causality},
      {"causal.one_late", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!is_causal(in)) return std::nullopt;
         p.options.causal = false;
         p.options.window = {in.options.window.left, 1};
         const std::string causal = in.options.causal ? " --causal" : "";
         const std::string window =
             has_window(in) ? " --window " + window_text(in.options.window) : "";
         return flag("--window " + window_text(p.options.window) + " instead of" + causal + window +
                         ": each query also sees the next key",
                     "");
       }},
      {"causal.inverted", kAttention, change_by(inverted_causality, false)},
      {"causal.inverted_with_own", kAttention, change_by(inverted_causality, true)},
      {"causal.prefix", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         // Of half of the keys; compare --diagnose tests the prefix that the result suggests.
         return in.P + in.N < 4 ? Found()
                                : with_prefix(p, in, static_cast<std::int64_t>((in.P + in.N) / 2));
       }},
      {"causal.after_softmax", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!hides_keys(p, in)) return std::nullopt;
         return with_row_change(p, in, RowChange::over_all_keys,
                                "the mask applied after the softmax: hidden keys count in the sum");
       }},

      {"window.added", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         // Of half of the keys; compare --diagnose tests the window that the result suggests.
         return in.P + in.N < 4
                    ? Found()
                    : with_added_window(p, in, static_cast<std::int64_t>((in.P + in.N) / 2 - 1));
       }},
      {"window.own_key_only", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         return in.S < 2 || (w.left == 0 && w.right == 0)
                    ? Found()
                    : with_window(p, in, {0, 0}, ", each query sees its own key only");
       }},
      {"window.dropped", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!has_window(in)) return std::nullopt;
         p.options.window = {};
         return flag("without --window", "--window " + window_text(in.options.window));
       }},
      {"window.left-1", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         return w.left < 1 ? Found() : with_window(p, in, {w.left - 1, w.right});
       }},
      {"window.left+1", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         return w.left < 0 ? Found() : with_window(p, in, {w.left + 1, w.right});
       }},
      {"window.right-1", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         return w.right < 1 || in.options.causal ? Found()
                                                 : with_window(p, in, {w.left, w.right - 1});
       }},
      {"window.right+1", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         return w.right < 0 || in.options.causal ? Found()
                                                 : with_window(p, in, {w.left, w.right + 1});
       }},
      {"window.symmetric", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         if (w.left < 1 || (!is_causal(in) && (w.right < 0 || w.left == w.right))) return Found();
         p.options.causal = false;
         return with_window(p, in, {w.left, w.left}, in.options.causal ? " without --causal" : "");
       }},
      {"window.swapped", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         if (is_causal(in) || w.left < 0 || w.right < 0 || w.left == w.right) return Found();
         return with_window(p, in, {w.right, w.left});
       }},
      {"window.right_dropped", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         return w.right < 0 || w.left < 0 || in.options.causal ? Found()
                                                               : with_window(p, in, {w.left, -1});
       }},
      {"window.right_0", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         return w.left < 0 || is_causal(in) ? Found() : with_window(p, in, {w.left, 0});
       }},
      {"window.half", kAttention,
       [](Variant& p, const Inputs& in) {
         const Window& w = in.options.window;
         return w.left < 2 ? Found()
                           : with_window(p, in, {w.left / 2, w.right > 0 ? w.right / 2 : w.right});
       }},
      {"window.first_keys", kAttention, change_by(with_first_keys, 4)},
      {"window.chunks", kAttention,
       [](Variant& p, const Inputs& in) { return with_chunks(p, in, in.options.window.left + 1); }},
      {"window.chunks_of_left", kAttention,
       [](Variant& p, const Inputs& in) { return with_chunks(p, in, in.options.window.left); }},
  };
  for (const std::int64_t size : {kLeastBlock, 2 * kLeastBlock, 4 * kLeastBlock, 8 * kLeastBlock}) {
    const std::string number = in_words(size);
    all.push_back({"causal.to_end_of_block_" + number, kAttention, causal_by_blocks(size, true)});
    all.push_back(
        {"causal.without_own_block_" + number, kAttention, causal_by_blocks(size, false)});
    all.push_back({"causal.last_" + number + "_keys_only", kAttention, last_keys_only(size)});
  }
  return all;
}

Hypotheses mask_hypotheses() {
  return {
      {"mask.inverted", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!is_boolean(p, Input::mask) && !is_boolean(p, Input::key_mask)) return std::nullopt;
         const bool attend = in.options.mask_polarity == MaskPolarity::attend;
         p.options.mask_polarity = attend ? MaskPolarity::ignore : MaskPolarity::attend;
         return flag(attend ? "--mask-polarity ignore" : "--mask-polarity attend",
                     attend ? "attend" : "ignore");
       }},
      {"mask.all_inverted", kAttention, inverted_masks},
      {"mask.dropped", kAttention, dropped(Input::mask)},
      {"mask.added_as_numbers", kAttention,
       [](Variant& p, const Inputs&) -> Found {
         if (!is_boolean(p, Input::mask)) return std::nullopt;
         p.set(Input::mask, cast(*p.find(Input::mask), DType::f64));
         return words("the mask added to the scores as 0 and 1");
       }},
      {"mask.set_0", kAttention, hidden_set_to_0(RowChange::hidden_set)},
      {"mask.set_0_before_bias", kAttention, hidden_set_to_0(RowChange::hidden_set_biased)},
      {"mask.transposed", kAttention, change_by(with_queries_as_keys, Input::mask)},
      {"mask.key_mask_dropped", kAttention, dropped(Input::key_mask)},
      {"mask.key_indices_dropped", kAttention, dropped(Input::key_indices)},
      {"mask.other_duplicates", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.options.duplicates == Duplicates::error) return std::nullopt;
         const bool are_counted = in.options.duplicates == Duplicates::count;
         p.options.duplicates = are_counted ? Duplicates::once : Duplicates::count;
         return flag(are_counted ? "--duplicates once" : "--duplicates count",
                     are_counted ? "count" : "once");
       }},
      {"mask.key_lengths_dropped", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!p.has(Input::key_lengths)) return std::nullopt;
         const auto offset = common_offset(in);
         p.erase({Input::key_lengths});
         if (offset) p.options.causal_offset = offset;
         if (p.cache != nullptr)
           return words("zeros as keys up to the length of the longest sequence");
         return flag("without --key-lengths");
       }},
      {"mask.key_starts_dropped", kAttention, dropped(Input::key_starts)},
      {"mask.key_lengths+1", kAttention,
       [](Variant& p, const Inputs& in) {
         const std::string zeros = p.cache != nullptr ? ", read as zeros" : "";
         return with_key_lengths(p, in, "one key more than " + lengths_flag(p) + zeros,
                                 [](auto old, std::size_t b) { return old[b] + 1; });
       }},
      {"mask.key_lengths-1", kAttention,
       [](Variant& p, const Inputs& in) {
         return with_key_lengths(
             p, in, "one key less than " + lengths_flag(p),
             [](auto old, std::size_t b) { return std::max<std::int64_t>(0, old[b] - 1); });
       }},
      {"mask.key_lengths_of_item_0", kAllHeads,
       [](Variant& p, const Inputs& in) {
         return with_key_lengths(p, in, "the key length of batch item 0 for all",
                                 [](auto old, std::size_t) { return old[0]; });
       }},
      {"mask.key_lengths_of_next_item", kAllHeads,
       [](Variant& p, const Inputs& in) {
         return with_key_lengths(p, in, "the key length of the next batch item",
                                 [](auto old, std::size_t b) { return old[(b + 1) % old.size()]; });
       }},
      {"mask.padding_on_the_left", kAttention, padding_on_the_left},
      {"mask.query_lengths_dropped", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (!p.has(Input::query_lengths)) return std::nullopt;
         const auto offset = common_offset(in);
         p.erase({Input::query_lengths});
         if (offset) p.options.causal_offset = offset;
         return flag("without --query-lengths");
       }},
      {"mask.documents_dropped", kAttention,
       [](Variant& p, const Inputs&) -> Found {
         const bool has_documents = p.has(Input::documents);
         Found claim = without(
             p, {Input::documents, Input::key_documents, Input::cu_seqlens_q, Input::cu_seqlens_k},
             has_documents ? "without --documents" : "without --cu-seqlens-q");
         // Pages of packed queries need no flag for their sequences.
         if (claim && p.cache != nullptr) return words("each query sees the keys of all sequences");
         return claim;
       }},
      {"mask.empty_rows_uniform", kAttention, with_empty_rows(EmptyRows::uniform)},
      {"mask.empty_rows_nan", kAttention, with_empty_rows(EmptyRows::nan)},
      {"mask.empty_rows_zero", kAttention, with_empty_rows(EmptyRows::zero)},
  };
}

}  // namespace attn
