#include "attn/diagnose/hypotheses.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>

#include "attn/attention/attention.h"
#include "attn/base/number_text.h"
#include "attn/diagnose/changes.h"
#include "attn/diagnose/row_changes.h"
#include "attn/diagnose/rule_hypotheses.h"
#include "attn/problem/mask.h"
#include "attn/problem/position_bias.h"
#include "attn/problem/score_scale.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

using Stage = Hypothesis::Stage;

std::string text(std::int64_t number) { return std::to_string(number); }
std::string text(std::size_t number) { return std::to_string(number); }
std::string text(double number) { return python_repr(number); }

/// f(x) for each element x of the input, if it is given.
Found with_mapped(Variant& variant, Input input, const std::function<double(double)>& f,
                  const std::string& kernel) {
  const Tensor* x = variant.find(input);
  if (x == nullptr) return std::nullopt;
  variant.set(input, mapped(*x, f));
  return words(kernel);
}

Found with_product(Variant& variant, Input input, double factor, const std::string& kernel) {
  return with_mapped(
      variant, input, [&](double x) { return x * factor; }, kernel);
}

// ---- scale ----

std::string scale_text(const Inputs& in) {
  if (in.scale.root_of > 0) return "1/sqrt(" + text(in.scale.root_of) + ")";
  return in.scale.multiplier == 1 ? "none" : text(in.scale.multiplier);
}

/// nullopt if the job has this scale.
Found with_scale(Variant& variant, const Inputs& in, double scale, const std::string& meaning) {
  if (in.options.score != Score::dot || !std::isfinite(scale) ||
      std::abs(scale / in.scale.factor() - 1) < 1e-9)
    return std::nullopt;
  variant.options.scale = {Scale::Kind::number, scale};
  return flag(
      "--scale " + (scale == 1 ? "none" : text(scale)) + (meaning.empty() ? "" : ", " + meaning),
      scale_text(in));
}

double root(std::size_t n) { return std::sqrt(static_cast<double>(n)); }

// ---- causality and windows ----

std::string window_text(const Window& window) {
  if (window.left < 0 && window.right < 0) return "none";
  return text(window.left) + "," + text(window.right);
}

Found with_window(Variant& variant, const Inputs& in, Window window, const std::string& more = "") {
  variant.options.window = window;
  return flag("--window " + window_text(window) + more, window_text(in.options.window));
}

bool has_window(const Inputs& in) {
  return in.options.window.left >= 0 || in.options.window.right >= 0;
}

/// Whether a query sees no key after its position.
bool is_causal(const Inputs& in) { return in.options.causal || in.options.window.right == 0; }

constexpr std::int64_t kSmallestPage = 8, kLargestPage = 128;

/// A query at position p sees key j if seen(p, j), instead of causality and windows.
Found with_seen_keys(Variant& variant, const Inputs& in, const std::string& claim,
                     const std::string& job,
                     const std::function<bool(std::int64_t, std::int64_t)>& seen) {
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
  bool* out = mask.mutable_data<bool>().data();
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < keys; ++j) *out++ = seen(i + *offset, j) == shown;
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
    if (const Found seen =
            with_seen_keys(variant, in, meaning, "", [&](std::int64_t i, std::int64_t j) {
              return j < i && (given.left < 0 || i - j <= given.left);
            }))
      return seen;
  const std::optional<std::int64_t> now = common_offset(in);
  if (!in.options.causal || !now || given.left == 0) return std::nullopt;
  variant.options.causal_offset = *now - 1;
  const std::string offset = "--causal-offset " + text(*now - 1);
  if (given.left < 0) return flag(offset + ", " + meaning, text(*now));
  const Window moved{given.left - 1, given.right};
  variant.options.window = moved;
  return flag(offset + " --window " + window_text(moved) + ", " + meaning,
              text(*now) + " and " + window_text(given));
}

/// The causal mask hides only keys of the last `size` that end at a multiple of it, or at the end.
template <std::int64_t size>
Found last_keys_only(Variant& variant, const Inputs& in) {
  const auto keys = static_cast<std::int64_t>(in.P + in.N);
  if (!is_causal(in) || in.options.window.left >= 0 || keys <= size) return std::nullopt;
  const std::int64_t before = (keys - 1) / size * size;
  if (size > 16 && before == (keys - 1) / (size / 2) * (size / 2))
    return std::nullopt;  // the same as for half the size
  return with_seen_keys(
      variant, in, "the causal mask applied in the last block of " + text(size) + " keys only", "",
      [&](std::int64_t position, std::int64_t j) { return j < before || j <= position; });
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
  return words("chunks of " + text(size) + " tokens instead of a window",
               "--window " + window_text(in.options.window));
}

// ---- heads ----

std::vector<std::size_t> heads_by(const Inputs& in,
                                  std::size_t (*head)(std::size_t, std::size_t, std::size_t)) {
  std::vector<std::size_t> of(in.H);
  for (std::size_t h = 0; h < in.H; ++h) of[h] = head(h, in.H, in.G);
  return of;
}
std::size_t repeated_head(std::size_t h, std::size_t H, std::size_t G) { return h / (H / G); }
std::size_t tiled_head(std::size_t h, std::size_t, std::size_t G) { return h % G; }
std::size_t first_head(std::size_t, std::size_t, std::size_t) { return 0; }
std::size_t reversed_head(std::size_t h, std::size_t H, std::size_t G) {
  return G - 1 - repeated_head(h, H, G);
}
std::size_t next_head(std::size_t h, std::size_t H, std::size_t G) {
  return (repeated_head(h, H, G) + 1) % G;
}

using HeadRule = std::size_t (*)(std::size_t, std::size_t, std::size_t);

Found with_kv_heads(Variant& variant, const Inputs& in, HeadRule of_keys, HeadRule of_values,
                    const std::string& kernel, const std::string& job) {
  const auto repeated = heads_by(in, repeated_head);
  const auto keys = heads_by(in, of_keys), values = heads_by(in, of_values);
  if (in.G < 2 || (keys == repeated && values == repeated)) return std::nullopt;
  set_kv_heads(variant, in, keys, values);
  return words(kernel, job);
}

// ---- masks ----

bool is_boolean(const Variant& variant, Input input) {
  const Tensor* mask = variant.find(input);
  return mask != nullptr && mask->dtype() == DType::boolean;
}

/// Whether some keys are hidden from some queries.
bool hides_keys(const Variant& variant, const Inputs& in) {
  return in.options.causal || has_window(in) || variant.has(Input::mask) ||
         variant.has(Input::key_mask) || variant.has(Input::key_lengths) ||
         variant.has(Input::key_starts) || in.key_lists;
}

/// Whether a result depends on the order of the keys, if each keeps its value.
bool is_ordered(const Variant& variant, const Inputs& in) {
  return hides_keys(variant, in) || has_bias(variant) || variant.has(Input::documents) ||
         variant.has(Input::cu_seqlens_q) || variant.has(Input::dropout_mask) ||
         in.mask_rule != nullptr;
}

/// Whether some query sees no key; true for a large job with a mask.
bool has_empty_rows(const Inputs& in) {
  if (in.key_ranges && !in[Input::mask] && !in[Input::key_mask])
    return std::any_of(in.key_ranges->begin(), in.key_ranges->end(), [](const auto& range) {
      return !range.padding && range.begin >= range.end;
    });
  if (in.B * in.H * in.rows.size() > (std::size_t{1} << 24) / std::max<std::size_t>(1, in.S))
    return true;
  const Tensor visible = visible_keys(in).reshaped(shape_of_visible_keys(in));
  const auto keys = visible.data<bool>();
  for (std::size_t from = 0; in.S > 0 && from < keys.size(); from += in.S)
    if (std::find(&keys[from], &keys[from] + in.S, true) == &keys[from] + in.S) return true;
  return in.S == 0;
}

std::string text(EmptyRows rows) {
  return rows == EmptyRows::nan ? "nan" : rows == EmptyRows::zero ? "zero" : "uniform";
}

template <EmptyRows rows>
Found with_empty_rows(Variant& variant, const Inputs& in) {
  if (in.options.empty_rows == rows || !has_empty_rows(in)) return std::nullopt;
  variant.options.empty_rows = rows;
  return flag("--empty-rows " + text(rows), text(in.options.empty_rows));
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
  if (!is_causal(in) || !offset || in.P + in.N < 2) return std::nullopt;
  const std::string claim =
      with_own ? "the causal mask inverted: each query sees its own key and later ones"
               : "the causal mask inverted: each query sees later keys only";
  if (!with_own && has_bias_of_positions(variant))
    if (const Found seen = with_seen_keys(variant, in, claim, "",
                                          [](std::int64_t i, std::int64_t j) { return j > i; }))
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

template <RowChange change>
Found hidden_set_to_0(Variant& variant, const Inputs& in) {
  return with_hidden_scores(variant, in, change, 0);
}

/// What evaluate() does with the rows, where its formula holds.
template <RowChange change>
Found with_row_change(Variant& variant, const Inputs& in, const std::string& kernel) {
  if (!may_change_rows(change, variant, in)) return std::nullopt;
  variant.row_change = change;
  return words(kernel);
}

// ---- output projection ----

Found with_join(Variant& variant, const Inputs& in, Join join, const std::string& kernel) {
  if (!variant.has(Input::W_O) || variant.has(Input::W_UV) || in.H < 2 || in.L < 2)
    return std::nullopt;
  if (join == Join::viewed_as_heads && in.H == in.L) return std::nullopt;  // the same as viewed
  variant.join = join;
  return words(kernel);
}

// ---- caches ----

/// Whether the last key of each batch item is the only one after a multiple of the smallest page,
/// so that a missing tail is the last key.
bool is_last_alone(const Inputs& in) {
  for (std::size_t b = 0; b < in.B; ++b)
    if (keys_of(in, b) < kSmallestPage || keys_of(in, b) % kSmallestPage != 1) return false;
  return true;
}

/// The last keys beyond a multiple of `page` are missing, or the last page if all pages are full.
/// This and the next apply only if the page of half the size does not give the same keys.
template <std::size_t page>
Found tail_missing(Variant& variant, const Inputs& in) {
  bool are_full = true, is_same = page < kLargestPage;  // as for twice the size
  for (std::size_t b = 0; b < in.B; ++b) {
    are_full = are_full && keys_of(in, b) % page == 0 && keys_of(in, b) > page;
    is_same = is_same && keys_of(in, b) % (2 * page) == page;
  }
  if (are_full) {
    if (is_same) return std::nullopt;
    hide_keys(variant, in,
              [&](std::size_t b, std::size_t j) { return j + page >= keys_of(in, b); });
    return words("the last page of " + text(page) + " keys missing");
  }
  bool has_tail = false, is_new = page == kSmallestPage;
  std::size_t tail = 0;
  for (std::size_t b = 0; b < in.B; ++b) {
    const std::size_t rest = keys_of(in, b) % page;
    has_tail |= rest > 0 && rest < keys_of(in, b);
    is_new |= rest != keys_of(in, b) % (page / 2);
    tail = std::max(tail, rest);
  }
  if (!has_tail || !is_new || (tail == 1 && is_last_alone(in))) return std::nullopt;
  hide_keys(variant, in, [&](std::size_t b, std::size_t j) {
    const std::size_t keys = keys_of(in, b);
    return keys >= page && j >= keys / page * page;
  });
  return words("the keys after the last multiple of " + text(page) + " missing (" + text(tail) +
               (tail == 1 ? " key)" : " keys)"));
}

/// Keys after the last are read up to the end of a page: zeros, which a sink can express.
template <std::size_t page>
Found zero_tail(Variant& variant, const Inputs& in) {
  if (in.token_positions.size() != 1 || in.options.normaliser != Normaliser::softmax)
    return std::nullopt;
  // If the last page is full, the kernel reads one more.
  const std::size_t keys = keys_of(in, 0), extra = page - keys % page;
  if (page > kSmallestPage && extra == page / 2 - keys % (page / 2)) return std::nullopt;
  if (extra == 1 && !variant.has(Input::sinks)) return std::nullopt;  // as sink.added
  add_zero_keys(variant, in, static_cast<double>(extra));
  if (extra == page) return words("one more page of " + text(page) + " keys read as zeros");
  return words("the last page of " + text(page) + " keys read to its end as zeros (" + text(extra) +
               (extra == 1 ? " key)" : " keys)"));
}

/// What a claim calls key_lengths, which a job with pages may give in another form.
std::string lengths_flag(const Variant& variant) {
  const bool has_lists = variant.cache != nullptr && contains(*variant.cache, Input::kv_indptr);
  return has_lists ? "--last-page-len" : "--key-lengths";
}

/// The same with what is stored there: zeros, if keys are gathered from pages.
template <std::size_t page>
Found stored_tail(Variant& variant, const Inputs& in) {
  const Tensor* lengths = variant.find(Input::key_lengths);
  if (lengths == nullptr) return std::nullopt;
  const auto offset = common_offset(in);
  Tensor longer = cast(*lengths, DType::i64);
  bool changes = false, is_new = page == kSmallestPage, is_shorter = false;
  const auto all = static_cast<std::int64_t>(in.P + in.N), size = static_cast<std::int64_t>(page);
  for (std::int64_t& length : longer.mutable_data<std::int64_t>()) {
    const std::int64_t rounded = std::min(all, (length + size - 1) / size * size);
    is_new |= rounded != std::min(all, (length + size / 2 - 1) / (size / 2) * (size / 2));
    is_shorter |= rounded < all;
    changes |= rounded != length, length = rounded;
  }
  // Without any padding, it is mask.key_lengths_dropped.
  if (!changes || !is_new || !is_shorter) return std::nullopt;
  variant.set(Input::key_lengths, longer);
  if (offset) variant.options.causal_offset = offset;
  return words("the last page of " + text(page) + " keys read to its end as " +
               (variant.cache != nullptr ? "zeros" : "stored"));
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

template <std::size_t page>
Found reversed_pages(Variant& variant, const Inputs& in) {
  if (in.N % page != 0 || in.N / page < 2 || in.P > 0) return std::nullopt;
  const auto source = [&](std::size_t n) { return (in.N / page - 1 - n / page) * page + n % page; };
  for (const Input input : {Input::K, Input::V})
    variant.set(input, with_rows_from(*variant.find(input), source));
  return words("pages of " + text(page) + " keys in reverse order");
}

// ---- softmax ----

/// Adds numbers that broadcast to (B, H, queries, keys) to the scores.
void add_bias(Variant& variant, const Tensor& bias) {
  const Tensor* given = variant.find(Input::bias);
  if (given == nullptr) return variant.set(Input::bias, bias);
  Shape shape = given->shape();
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (shape[axis] == 1) shape[axis] = bias.shape()[axis];
  Tensor sum(DType::f64, shape);
  const auto out = sum.mutable_data<double>();
  if (out.empty()) return variant.set(Input::bias, sum);
  for (const Tensor& part : {cast(*given, DType::f64), bias}) {
    const Shape& of = part.shape();
    const auto x = part.data<double>();
    const std::size_t step = of[3] > 1 ? 1 : 0;
    for (std::size_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
      const std::size_t b = row / (shape[1] * shape[2]), h = row / shape[2] % shape[1],
                        i = row % shape[2];
      const std::size_t head = (of[0] > 1 ? b : 0) * of[1] + (of[1] > 1 ? h : 0);
      const double* from = &x[(head * of[2] + (of[2] > 1 ? i : 0)) * of[3]];
      double* to = &out[row * shape[3]];
      for (std::size_t j = 0; j < shape[3]; ++j) to[j] += from[j * step];
    }
  }
  variant.set(Input::bias, sum);
}

double log_of_sum(double a, double b) {
  if (a < b) std::swap(a, b);
  return std::isinf(b) ? a : a + std::log1p(std::exp(b - a));
}

constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// All batch items read these inputs of batch item 0.
Found of_item_0(Variant& variant, const Inputs& in, std::initializer_list<Input> inputs,
                const std::string& what) {
  if (in.B < 2) return std::nullopt;
  for (const Input input : inputs)
    if (const Tensor* x = variant.find(input))
      variant.set(input, reordered(*x, x->size() / in.B, [](std::size_t) { return 0; }));
  return words(what + " of batch item 0 for all items");
}

/// Hidden keys have the score -softcap instead of -inf.
Found softcap_of_hidden(Variant& variant, const Inputs& in) {
  constexpr std::size_t kMostElements = std::size_t{1} << 23;
  if (in.options.softcap == 0 || !hides_keys(variant, in) || in.E > 0 ||
      variant.has(Input::documents) || variant.has(Input::cu_seqlens_q))
    return std::nullopt;
  const Claim claim = words("the softcap applied after the mask: hidden keys have the score -" +
                            text(in.options.softcap));
  const Shape shape = shape_of_visible_keys(in);
  if (shape[0] * shape[1] * shape[2] > kMostElements / std::max<std::size_t>(1, in.S))
    return Claim{claim.kernel, "", false, true};
  const Tensor visible = visible_keys(in).reshaped(shape);
  // At least 256 times the softcap, where tanh is -1; exact in any dtype.
  const double of_hidden = -std::ldexp(1, std::ilogb(in.options.softcap) + 9);
  Tensor hidden(DType::f64, shape);
  const auto out = hidden.mutable_data<double>();
  const auto keys = visible.data<bool>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = keys[i] ? 0 : of_hidden;
  variant = without_masks(variant, in);
  add_bias(variant, hidden);
  Tensor bias = *variant.find(Input::bias);
  for (double& x : bias.mutable_data<double>())
    if (x < of_hidden / 2) x = of_hidden;
  variant.set(Input::bias, std::move(bias));
  variant.options.softcap_order = SoftcapOrder::after_mask;
  return claim;
}

/// One sum for all queries and keys of a head.
Found softmax_over_matrix(Variant& variant, const Inputs& in) {
  if (!may_change_rows(RowChange::times_sum, variant, in) ||
      in.options.softmax_axis == SoftmaxAxis::all || in.L < 2 || variant.has(Input::sinks))
    return std::nullopt;
  Options options = in.options;
  report_natural_logsumexp(options);
  options.path = Path::automatic;
  options.rows.clear();
  const Tensor of_rows =
      attend({variant.tensors, options}, {Output::logsumexp}).at(name_of(Output::logsumexp));
  Tensor terms(DType::f64, {in.B, in.H});
  for (std::size_t i = 0; i < terms.size(); ++i) {
    double sum = kNothing;
    for (const double x : of_rows.data<double>().subspan(i * in.L, in.L)) sum = log_of_sum(sum, x);
    terms.mutable_data<double>()[i] = std::isfinite(sum) ? -sum : 0;
  }
  variant.row_change = RowChange::times_sum;
  variant.of_heads = terms;
  return flag("--softmax-axis all", "keys");
}

/// An online softmax that does not rescale what it summed before the maximum grew.
template <RowChange change, std::size_t block>
Found not_rescaled(Variant& variant, const Inputs& in) {
  if (in.S <= block) return std::nullopt;
  variant.block = block;
  return with_row_change<change>(
      variant, in,
      "an online softmax in blocks of " + text(block) + " keys that does not rescale " +
          (change == RowChange::sums_not_rescaled      ? "the sums"
           : change == RowChange::context_not_rescaled ? "the context"
                                                       : "the sum of the weights") +
          " of earlier blocks");
}

/// The weights of each key sum to 1.
Found softmax_over_queries(Variant& variant, const Inputs& in) {
  constexpr std::size_t kMostScores = std::size_t{1} << 25, kBlock = std::size_t{1} << 20;
  if (!may_change_rows(RowChange::times_sum, variant, in) || in.L < 2 || in.E > 0)
    return std::nullopt;
  const Claim claim = words("the softmax over the queries instead of the keys");
  const double temperature = in.options.temperature;
  const std::size_t of_query = std::max<std::size_t>(1, in.B * in.H * in.S);
  if (of_query > kMostScores / in.L) return Claim{claim.kernel, "", false, true};
  const std::size_t columns = in.B * in.H * in.S;
  std::vector<double> largest(columns, kNothing), total(columns);  // of exp(x - the largest)
  const std::size_t block = std::max<std::size_t>(1, kBlock / of_query);
  for (std::size_t first = 0; first < in.L; first += block) {
    Options options = in.options;
    options.rows.clear();
    const std::size_t count = std::min(block, in.L - first);
    for (std::size_t i = 0; i < count; ++i)
      options.rows.push_back(static_cast<std::int64_t>(first + i));
    const Tensor scores = attend({variant.tensors, options}, {Output::masked_scores})
                              .at(name_of(Output::masked_scores));
    const auto x = scores.data<double>();
    for (std::size_t row = 0; row < in.B * in.H * count; ++row)
      for (std::size_t j = 0; j < in.S; ++j) {
        const double score = x[row * in.S + j] / temperature;
        if (score == kNothing) continue;
        double& most = largest[row / count * in.S + j];
        double& sum = total[row / count * in.S + j];
        if (score > most) sum *= std::exp(most - score), most = score;
        sum += std::exp(score - most);
      }
  }
  Tensor sums(DType::f64, {in.B, in.H, 1, in.S});
  for (std::size_t i = 0; i < columns; ++i) {
    const double sum = largest[i] + std::log(total[i]);
    sums.mutable_data<double>()[i] = std::isfinite(sum) ? -sum * temperature : 0;
  }
  add_bias(variant, sums);
  variant.erase({Input::sinks});
  variant.row_change = RowChange::times_sum;
  return claim;
}

// ---- the table ----
constexpr auto kAttention = Stage::attention;
constexpr const char* kTwice = "the softmax applied twice";
constexpr auto kAllHeads = Hypothesis::Reads::all_heads;
constexpr auto kAllScores = Hypothesis::Reads::all_scores;

constexpr Hypothesis kAttentionTable[] = {
    {"scale.none", kAttention,
     [](Variant& p, const Inputs& in) { return with_scale(p, in, 1, ""); }},
    {"scale.1/D", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_scale(p, in, 1 / static_cast<double>(in.D), "1/" + text(in.D));
     }},
    {"scale.1/sqrt(D)", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_scale(p, in, 1 / root(in.D), "1/sqrt(" + text(in.D) + ")");
     }},
    {"scale.1/sqrt(H*D)", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_scale(p, in, 1 / root(in.H * in.D),
                         "1/sqrt(" + text(in.H * in.D) + "), by the width of all heads");
     }, kAllHeads},
    {"scale.1/sqrt(Dv)", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_scale(p, in, 1 / root(in.Dv), "1/sqrt(" + text(in.Dv) + "), by that of the values");
     }},
    {"scale.1/sqrt(S)", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_scale(p, in, 1 / root(in.S), "1/sqrt(" + text(in.S) + "), by the number of keys");
     }},
    {"scale.twice", kAttention,
     [](Variant& p, const Inputs& in) {
       const double scale = in.scale.factor();
       if (scale == 1 || in.scale.root_of == in.D) return Found();  // 1, or 1/D as above
       return with_scale(p, in, scale * scale, "the scale applied twice");
     }},
    {"scale.inverse", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_scale(p, in, 1 / in.scale.factor(), "divided by the scale");
     }},
    {"scale.exp2", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_scale(p, in, in.scale.factor() * std::numbers::ln2,
                         "2^x instead of e^x: log2(e) is missing");
     }},
    {"scale.log2e", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_scale(p, in, in.scale.factor() * std::numbers::log2e, "log2(e) too much");
     }},
    {"scale.head_scale_dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::head_scale}, "without --head-scale"); }},

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
       if ((!is_causal(in) && !has_window(in)) || (in.P == 0 && !in.options.causal_offset) || !now ||
           *now == 0)
         return std::nullopt;
       p.options.causal_offset = 0;
       return flag("--causal-offset 0, the first query at the first key", text(*now));
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
    {"causal.inverted", kAttention,
     [](Variant& p, const Inputs& in) { return inverted_causality(p, in, false); }},
    {"causal.inverted_with_own", kAttention,
     [](Variant& p, const Inputs& in) { return inverted_causality(p, in, true); }},
    {"causal.last_16_keys_only", kAttention, last_keys_only<16>},
    {"causal.last_32_keys_only", kAttention, last_keys_only<32>},
    {"causal.last_64_keys_only", kAttention, last_keys_only<64>},
    {"causal.last_128_keys_only", kAttention, last_keys_only<128>},
    {"causal.prefix", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       // Of half of the keys; compare --diagnose tests the prefix that the result suggests.
       return in.P + in.N < 4 ? Found() : with_prefix(p, in, static_cast<std::int64_t>((in.P + in.N) / 2));
     }},
    {"causal.after_softmax", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!hides_keys(p, in)) return std::nullopt;
       return with_row_change<RowChange::over_all_keys>(
           p, in, "the mask applied after the softmax: hidden keys count in the sum");
     }},

    {"window.added", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       // Of half of the keys; compare --diagnose tests the window that the result suggests.
       return in.P + in.N < 4 ? Found()
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
       return w.right < 1 || in.options.causal ? Found() : with_window(p, in, {w.left, w.right - 1});
     }},
    {"window.right+1", kAttention,
     [](Variant& p, const Inputs& in) {
       const Window& w = in.options.window;
       return w.right < 0 || in.options.causal ? Found() : with_window(p, in, {w.left, w.right + 1});
     }},
    {"window.symmetric", kAttention,
     [](Variant& p, const Inputs& in) {
       const Window& w = in.options.window;
       if (w.left < 1 || !is_causal(in)) return Found();
       p.options.causal = false;
       return with_window(p, in, {w.left, w.left}, in.options.causal ? " without --causal" : "");
     }},
    {"window.right_dropped", kAttention,
     [](Variant& p, const Inputs& in) {
       const Window& w = in.options.window;
       return w.right < 0 || w.left < 0 || in.options.causal ? Found() : with_window(p, in, {w.left, -1});
     }},
    {"window.right_0", kAttention,
     [](Variant& p, const Inputs& in) {
       const Window& w = in.options.window;
       return w.left < 0 || is_causal(in) ? Found() : with_window(p, in, {w.left, 0});
     }},
    {"window.half", kAttention,
     [](Variant& p, const Inputs& in) {
       const Window& w = in.options.window;
       return w.left < 2 ? Found() : with_window(p, in, {w.left / 2, w.right > 0 ? w.right / 2 : w.right});
     }},
    {"window.first_keys", kAttention,
     [](Variant& p, const Inputs& in) { return with_first_keys(p, in, 4); }},
    {"window.chunks", kAttention,
     [](Variant& p, const Inputs& in) { return with_chunks(p, in, in.options.window.left + 1); }},
    {"window.chunks_of_left", kAttention,
     [](Variant& p, const Inputs& in) { return with_chunks(p, in, in.options.window.left); }},

    {"heads.tiled", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_kv_heads(p, in, tiled_head, tiled_head,
                            "key/value heads tiled: query head h reads head h % " + text(in.G),
                            "h // " + text(in.H / in.G));
     }, kAllHeads},
    {"heads.values_tiled", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_kv_heads(p, in, repeated_head, tiled_head,
                            "heads of the values tiled, those of the keys repeated", "both repeated");
     }, kAllHeads},
    {"heads.keys_tiled", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_kv_heads(p, in, tiled_head, repeated_head,
                            "heads of the keys tiled, those of the values repeated", "both repeated");
     }, kAllHeads},
    {"heads.first_only", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_kv_heads(p, in, first_head, first_head, "key/value head 0 for all query heads",
                            text(in.G) + " heads");
     }, kAllHeads},
    {"heads.kv_reversed", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_kv_heads(p, in, reversed_head, reversed_head, "key/value heads in reverse order", "");
     }, kAllHeads},
    {"heads.kv_next", kAttention,
     [](Variant& p, const Inputs& in) {
       return in.G < 3 ? Found() : with_kv_heads(p, in, next_head, next_head,
                            "the next key/value head for each query head", "");
     }, kAllHeads},
    {"heads.viewed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.G < 2 || in.P > 0) return std::nullopt;
       for (const Input input : {Input::Q, Input::K, Input::V})
         p.set(input, viewed_as_heads(*p.find(input)));
       return words("Q, K and V of shape (B, L, H, D) read as (B, H, L, D)");
     }, kAllHeads},
    {"heads.queries_viewed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.H < 2 || in.L < 2) return std::nullopt;
       p.set(Input::Q, viewed_as_heads(*p.find(Input::Q)));
       return words("Q of shape (B, L, H, D) read as (B, H, L, D)");
     }, kAllHeads},
    {"heads.keys_values_viewed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.G < 2 || in.P > 0) return std::nullopt;
       for (const Input input : {Input::K, Input::V})
         p.set(input, viewed_as_heads(*p.find(input)));
       return words("K and V of shape (B, L, H, D) read as (B, H, L, D)");
     }, kAllHeads},
    {"heads.batch_item_0", kAttention,
     [](Variant& p, const Inputs& in) {
       return of_item_0(p, in, {Input::K, Input::past_K, Input::V, Input::past_V},
                        "keys and values");
     }, kAllHeads},
    {"heads.keys_of_batch_item_0", kAttention,
     [](Variant& p, const Inputs& in) {
       return of_item_0(p, in, {Input::K, Input::past_K}, "keys");
     }, kAllHeads},
    {"heads.values_of_batch_item_0", kAttention,
     [](Variant& p, const Inputs& in) {
       return of_item_0(p, in, {Input::V, Input::past_V}, "values");
     }, kAllHeads},
    {"heads.queries_of_batch_item_0", kAttention,
     [](Variant& p, const Inputs& in) { return of_item_0(p, in, {Input::Q}, "queries"); },
     kAllHeads},

    {"softcap.dropped", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.softcap == 0) return std::nullopt;
       p.options.softcap = 0, p.options.softcap_order = SoftcapOrder::before_mask;
       return flag("without --softcap", "--softcap " + text(in.options.softcap));
     }},
    {"softcap.order", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.softcap == 0 || !has_bias(p)) return std::nullopt;
       const bool before = in.options.softcap_order == SoftcapOrder::before_mask;
       p.options.softcap_order = before ? SoftcapOrder::after_mask : SoftcapOrder::before_mask;
       return flag(before ? "--softcap-order after-mask" : "--softcap-order before-mask",
                   before ? "before-mask" : "after-mask");
     }},
    {"softcap.of_hidden", kAttention, softcap_of_hidden},
    {"softcap.not_divided", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.softcap == 0) return std::nullopt;
       p.options.scale = {Scale::Kind::number, in.scale.factor() * in.options.softcap};
       return words("a softcap c tanh(s) instead of c tanh(s / c)");
     }},
    {"softcap.not_multiplied", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.softcap == 0 || has_bias(p)) return std::nullopt;
       p.options.temperature *= in.options.softcap;
       return words("a softcap tanh(s / c) instead of c tanh(s / c)");
     }},
    {"softcap.before_scale", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.softcap == 0 || in.scale.factor() == 1 || has_bias(p)) return std::nullopt;
       p.options.scale = {Scale::Kind::none, 1};
       p.options.temperature /= in.scale.factor();
       return words("the softcap applied before the scale");
     }},

    {"mask.inverted", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!is_boolean(p, Input::mask) && !is_boolean(p, Input::key_mask)) return std::nullopt;
       const bool attend = in.options.mask_polarity == MaskPolarity::attend;
       p.options.mask_polarity = attend ? MaskPolarity::ignore : MaskPolarity::attend;
       return flag(attend ? "--mask-polarity ignore" : "--mask-polarity attend",
                   attend ? "attend" : "ignore");
     }},
    {"mask.all_inverted", kAttention, inverted_masks},
    {"mask.dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::mask}, "without --mask"); }},
    {"mask.added_as_numbers", kAttention,
     [](Variant& p, const Inputs&) -> Found {
       if (!is_boolean(p, Input::mask)) return std::nullopt;
       p.set(Input::mask, cast(*p.find(Input::mask), DType::f64));
       return words("the mask added to the scores as 0 and 1");
     }},
    {"mask.set_0", kAttention, hidden_set_to_0<RowChange::hidden_set>},
    {"mask.set_0_before_bias", kAttention, hidden_set_to_0<RowChange::hidden_set_biased>},
    {"mask.transposed", kAttention,
     [](Variant& p, const Inputs&) -> Found {
       const Tensor* mask = p.find(Input::mask);
       if (mask == nullptr || mask->shape()[2] != mask->shape()[3] || mask->shape()[2] < 2)
         return std::nullopt;
       p.set(Input::mask, transposed_matrices(*mask));
       return words("the mask transposed");
     }},
    {"mask.key_mask_dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::key_mask}, "without --key-mask"); }},
    {"mask.key_indices_dropped", kAttention,
     [](Variant& p, const Inputs&) {
       return without(p, {Input::key_indices}, "without --key-indices");
     }},
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
       if (p.cache != nullptr) return words("zeros as keys up to the length of the longest sequence");
       return flag("without --key-lengths");
     }},
    {"mask.key_starts_dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::key_starts}, "without --key-starts"); }},
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
    {"mask.key_lengths_of_item_0", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_key_lengths(p, in, "the key length of batch item 0 for all",
                               [](auto old, std::size_t) { return old[0]; });
     }, kAllHeads},
    {"mask.key_lengths_of_next_item", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_key_lengths(
           p, in, "the key length of the next batch item",
           [](auto old, std::size_t b) { return old[(b + 1) % old.size()]; });
     }, kAllHeads},
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
       Found claim = without(p, {Input::documents, Input::key_documents, Input::cu_seqlens_q,
                                 Input::cu_seqlens_k}, has_documents ? "without --documents" : "without --cu-seqlens-q");
       // Pages of packed queries need no flag for their sequences.
       if (claim && p.cache != nullptr) return words("each query sees the keys of all sequences");
       return claim;
     }},
    {"mask.empty_rows_uniform", kAttention, with_empty_rows<EmptyRows::uniform>},
    {"mask.empty_rows_nan", kAttention, with_empty_rows<EmptyRows::nan>},
    {"mask.empty_rows_zero", kAttention, with_empty_rows<EmptyRows::zero>},

    {"bias.dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::bias}, "without --bias"); }},
    {"bias.rule_dropped", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!in.bias_rule) return std::nullopt;
       p.options.bias_rule.clear();
       return flag("without --bias-rule", "'" + in.options.bias_rule + "'");
     }},
    {"bias.rule_negated", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!in.bias_rule) return std::nullopt;
       p.options.bias_rule = "-(" + in.options.bias_rule + ")";
       return flag("--bias-rule '" + p.options.bias_rule + "'", "'" + in.options.bias_rule + "'");
     }},
    {"bias.negated", kAttention,
     [](Variant& p, const Inputs&) {
       return with_mapped(p, Input::bias, [](double x) { return -x; },
                          "the bias subtracted instead of added");
     }},
    {"bias.transposed", kAttention,
     [](Variant& p, const Inputs&) -> Found {
       const Tensor* bias = p.find(Input::bias);
       if (bias == nullptr || bias->shape()[2] != bias->shape()[3] || bias->shape()[2] < 2)
         return std::nullopt;
       p.set(Input::bias, transposed_matrices(*bias));
       return words("the bias transposed");
     }},
    {"bias.scaled", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_product(p, Input::bias, in.scale.factor(), "the bias multiplied by the scale");
     }},
    {"bias.head_0", kAttention,
     [](Variant& p, const Inputs&) -> Found {
       const Tensor* bias = p.find(Input::bias);
       if (bias == nullptr || bias->shape()[1] < 2) return std::nullopt;
       p.set(Input::bias, with_heads_from(*bias, {0}));
       return words("the bias of head 0 for all heads");
     }, kAllHeads},
    {"bias.alibi_dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::alibi_slopes}, "without ALiBi"); }},
    {"bias.alibi_negated", kAttention,
     [](Variant& p, const Inputs&) {
       return with_mapped(p, Input::alibi_slopes, [](double x) { return -x; },
                          "ALiBi added instead of subtracted");
     }},
    {"bias.alibi_of_more_heads", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!p.has(Input::alibi_slopes)) return std::nullopt;
       const Tensor slopes = standard_slopes(2 * in.H);
       Tensor first(DType::f64, {in.H});
       std::copy_n(slopes.data<double>().begin(), in.H, first.mutable_data<double>().begin());
       p.set(Input::alibi_slopes, first);
       return words("ALiBi slopes of " + text(2 * in.H) + " heads", text(in.H));
     }, kAllHeads},
    {"bias.alibi_from_1", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_product(p, Input::alibi_slopes, std::exp2(8 / static_cast<double>(in.H)),
                           "ALiBi slopes of the previous head: the first is 1");
     }, kAllHeads},
    {"bias.alibi_scaled", kAttention,
     [](Variant& p, const Inputs& in) {
       const double scale = in.scale.factor();
       return scale == 1 ? Found() : with_product(p, Input::alibi_slopes, scale,
                                                  "ALiBi multiplied by the scale");
     }},
    {"bias.alibi_signed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       const std::string table = "slopes_of_alibi", name = std::string(kMaskTables) + table;
       const Tensor* slopes = p.find(Input::alibi_slopes);
       if (slopes == nullptr || is_causal(in) || p.tensors.contains(name)) return std::nullopt;
       std::string& rule = p.options.bias_rule;
       if (!rule.empty()) rule = "(" + rule + ")";
       rule += " - " + table + (slopes->rank() > 1 ? "[b, h]" : "[h]") + " * (q - k)";
       p.tensors.set(name, *slopes);
       p.erase({Input::alibi_slopes});
       return words("ALiBi of i - j instead of |i - j|");
     }},
    {"bias.relative_dropped", kAttention,
     [](Variant& p, const Inputs&) {
       return without(p, {Input::relative_bias}, "without --relative-bias");
     }},

    {"sink.dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::sinks}, "without --sinks"); }},
    {"sink.twice", kAttention,
     [](Variant& p, const Inputs&) {
       return with_mapped(p, Input::sinks, [](double x) { return x + std::numbers::ln2; },
                          "sinks counted twice");
     }},
    {"sink.exp2", kAttention,
     [](Variant& p, const Inputs&) {
       return with_product(p, Input::sinks, std::numbers::ln2, "sinks as 2^x instead of e^x");
     }},
    {"sink.log2e", kAttention,
     [](Variant& p, const Inputs&) {
       return with_product(p, Input::sinks, std::numbers::log2e, "sinks multiplied by log2(e)");
     }},
    {"sink.scaled", kAttention,
     [](Variant& p, const Inputs& in) {
       const double scale = in.scale.factor();
       return scale == 1 ? Found() : with_product(p, Input::sinks, scale, "sinks multiplied by the scale");
     }},
    {"sink.next_head", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!p.has(Input::sinks) || in.H < 2) return std::nullopt;
       p.set(Input::sinks, reordered(*p.find(Input::sinks), 1,
                                     [&](std::size_t h) { return (h + 1) % in.H; }));
       return words("the sink of the next head");
     }, kAllHeads},
    {"sink.head_0", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!p.has(Input::sinks) || in.H < 2) return std::nullopt;
       p.set(Input::sinks, reordered(*p.find(Input::sinks), 1, [](std::size_t) { return 0; }));
       return words("the sink of head 0 for all heads");
     }, kAllHeads},
    {"sink.value_of_key_0", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!may_change_rows(RowChange::sink_reads_key_0, p, in)) return std::nullopt;
       p.row_change = RowChange::sink_reads_key_0;
       return words("the weight of the sink multiplied with the value of key 0",
                    "a sink without a value");
     }},
    {"sink.not_shifted", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_row_change<RowChange::sink_not_shifted>(
           p, in, "exp(sink) in the denominator without the largest score subtracted");
     }},
    {"sink.added", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (p.has(Input::sinks) || in.options.normaliser != Normaliser::softmax) return std::nullopt;
       p.set(Input::sinks, Tensor(DType::f64, {in.H}));
       const bool completes_page =
           in.token_positions.size() == 1 && keys_of(in, 0) % kSmallestPage == kSmallestPage - 1;
       return words(std::string("1 added to the denominator of the softmax (sinks of 0") +
                    (completes_page ? ", or a key of zeros after the last one)" : ")"));
     }},

    {"values.keys", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.D != in.Dv || p.has(Input::past_K)) return std::nullopt;
       p.set(Input::V, *p.find(Input::K));
       return words("keys used as values");
     }},
    {"values.as_keys", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.D != in.Dv || p.has(Input::past_K)) return std::nullopt;
       p.set(Input::K, *p.find(Input::V));
       return words("values used as keys");
     }},
    {"values.swapped", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.D != in.Dv || p.has(Input::past_K)) return std::nullopt;
       const Tensor keys = *p.find(Input::K);
       p.set(Input::K, *p.find(Input::V));
       p.set(Input::V, keys);
       return words("keys and values swapped");
     }},
    {"values.queries_as_keys", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.L != in.N || in.H != in.G || in.options.score != Score::dot) return std::nullopt;
       p.set(Input::K, *p.find(Input::Q));
       return words("queries used as keys");
     }},
    {"values.transposed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.N < 2 || in.Dv < 2) return std::nullopt;
       const Tensor& V = *p.find(Input::V);
       p.set(Input::V, transposed_matrices(V.reshaped({in.B, in.G, in.Dv, in.N})));
       return words("V (S, Dv) read as (Dv, S)");
     }},
    {"values.keys_transposed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.N < 2 || in.D < 2 || in.options.score != Score::dot) return std::nullopt;
       const Tensor& K = *p.find(Input::K);
       p.set(Input::K, transposed_matrices(K.reshaped({in.B, in.G, in.D, in.N})));
       return words("K (S, D) read as (D, S)");
     }},
    {"values.read_transposed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P + in.N < 2 || in.Dv < 2 || (in.P == 0 && in.N == in.Dv)) return std::nullopt;
       set_all_values(p, in, transposed_memory(all_values(p)));
       return words("V^T (Dv, S) read as (S, Dv)");
     }},
    {"values.keys_read_transposed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P + in.N < 2 || in.D < 2 || (in.P == 0 && in.N == in.D) ||
           in.options.score != Score::dot)
         return std::nullopt;
       set_all_keys(p, in, transposed_memory(all_keys(p)));
       return words("K^T (D, S) read as (S, D)");
     }},
    {"values.reversed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P + in.N < 2) return std::nullopt;
       set_all_values(p, in, reversed_rows(all_values(p)));
       return words("values in reverse order of keys");
     }},
    {"values.keys_reversed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P + in.N < 2 || !is_ordered(p, in)) return std::nullopt;  // as values.reversed
       set_all_keys(p, in, reversed_rows(all_keys(p)));
       return words("keys in reverse order");
     }},
    {"values.both_reversed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P + in.N < 2 || !is_ordered(p, in)) return std::nullopt;
       set_all_keys(p, in, reversed_rows(all_keys(p)));
       set_all_values(p, in, reversed_rows(all_values(p)));
       return words("keys and values in reverse order");
     }},
    {"values.queries_reversed", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.L < 2) return std::nullopt;
       p.set(Input::Q, reversed_rows(*p.find(Input::Q)));
       return words("queries in reverse order");
     }},
    {"values.of_next_key", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.N < 2) return std::nullopt;
       p.set(Input::V, with_rows_from(*p.find(Input::V),
                                      [&](std::size_t n) { return (n + 1) % in.N; }));
       return words("the value of the next key");
     }},
    {"values.of_previous_key", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.N < 2) return std::nullopt;
       p.set(Input::V, with_rows_from(*p.find(Input::V),
                                      [&](std::size_t n) { return (n + in.N - 1) % in.N; }));
       return words("the value of the previous key");
     }},

    {"cache.past_dropped", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P == 0) return std::nullopt;
       hide_keys(p, in, [&](std::size_t, std::size_t j) { return j < in.P; });
       return flag("without --past-k and --past-v");
     }},
    {"cache.new_dropped", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P == 0) return std::nullopt;
       hide_keys(p, in, [&](std::size_t, std::size_t j) { return j >= in.P; });
       return words("the cached keys only: the new ones are missing");
     }},
    {"cache.first_missing", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P + in.N < 2) return std::nullopt;
       hide_keys(p, in, [](std::size_t, std::size_t j) { return j == 0; });
       return words("the first key missing");
     }},
    {"cache.last_missing", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.P + in.N < 2) return std::nullopt;
       hide_keys(p, in, [&](std::size_t b, std::size_t j) { return j + 1 == keys_of(in, b); });
       return words(is_last_alone(in) ? "the last key missing, the only one after a multiple of " + text(kSmallestPage)
                                      : "the last key missing");
     }},
    {"cache.tail_missing_8", kAttention, tail_missing<8>},
    {"cache.tail_missing_16", kAttention, tail_missing<16>},
    {"cache.tail_missing_32", kAttention, tail_missing<32>},
    {"cache.tail_missing_64", kAttention, tail_missing<64>},
    {"cache.tail_missing_128", kAttention, tail_missing<128>},
    {"cache.zero_tail_8", kAttention, zero_tail<8>},
    {"cache.zero_tail_16", kAttention, zero_tail<16>},
    {"cache.zero_tail_32", kAttention, zero_tail<32>},
    {"cache.zero_tail_64", kAttention, zero_tail<64>},
    {"cache.zero_tail_128", kAttention, zero_tail<128>},
    {"cache.stored_tail_8", kAttention, stored_tail<8>},
    {"cache.stored_tail_16", kAttention, stored_tail<16>},
    {"cache.stored_tail_32", kAttention, stored_tail<32>},
    {"cache.stored_tail_64", kAttention, stored_tail<64>},
    {"cache.stored_tail_128", kAttention, stored_tail<128>},
    {"cache.reversed_pages_16", kAttention, reversed_pages<16>},
    {"cache.reversed_pages_32", kAttention, reversed_pages<32>},
    {"cache.reversed_pages_64", kAttention, reversed_pages<64>},
    {"cache.reversed_pages_128", kAttention, reversed_pages<128>},

    {"dropout.not_divided", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!p.has(Input::dropout_mask) || in.options.dropout_p.value_or(0) == 0) return std::nullopt;
       p.options.dropout_p = 0;
       return flag("--dropout-p 0: kept weights are not divided by 1 - p",
                   text(*in.options.dropout_p));
     }},
    {"dropout.inverted", kAttention,
     [](Variant& p, const Inputs&) {
       return with_mapped(p, Input::dropout_mask, [](double x) { return 1 - x; },
                          "the dropout mask inverted");
     }},
    {"dropout.dropped", kAttention,
     [](Variant& p, const Inputs&) -> Found {
       if (!p.has(Input::dropout_mask)) return std::nullopt;
       p.options.dropout_p.reset();
       return without(p, {Input::dropout_mask}, "without --dropout-mask");
     }},

    {"softmax.not_normalised", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_row_change<RowChange::times_shifted_sum>(
           p, in, "weights that are not divided by their sum");
     }},
    {"softmax.exp_not_normalised", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_row_change<RowChange::times_sum>(
           p, in, "exp(score) as weights, not divided by their sum");
     }},
    {"softmax.twice", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_row_change<RowChange::twice>(p, in, kTwice);
     }},
    {"softmax.twice_masked", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!hides_keys(p, in)) return std::nullopt;
       return with_row_change<RowChange::twice_masked>(p, in, kTwice);
     }},
    {"softmax.sums_not_rescaled_16", kAttention, not_rescaled<RowChange::sums_not_rescaled, 16>},
    {"softmax.sums_not_rescaled_32", kAttention, not_rescaled<RowChange::sums_not_rescaled, 32>},
    {"softmax.sums_not_rescaled_64", kAttention, not_rescaled<RowChange::sums_not_rescaled, 64>},
    {"softmax.sums_not_rescaled_128", kAttention, not_rescaled<RowChange::sums_not_rescaled, 128>},
    {"softmax.context_not_rescaled_16", kAttention, not_rescaled<RowChange::context_not_rescaled, 16>},
    {"softmax.context_not_rescaled_32", kAttention, not_rescaled<RowChange::context_not_rescaled, 32>},
    {"softmax.context_not_rescaled_64", kAttention, not_rescaled<RowChange::context_not_rescaled, 64>},
    {"softmax.context_not_rescaled_128", kAttention, not_rescaled<RowChange::context_not_rescaled, 128>},
    {"softmax.divisor_not_rescaled_16", kAttention, not_rescaled<RowChange::divisor_not_rescaled, 16>},
    {"softmax.divisor_not_rescaled_32", kAttention, not_rescaled<RowChange::divisor_not_rescaled, 32>},
    {"softmax.divisor_not_rescaled_64", kAttention, not_rescaled<RowChange::divisor_not_rescaled, 64>},
    {"softmax.divisor_not_rescaled_128", kAttention, not_rescaled<RowChange::divisor_not_rescaled, 128>},
    {"softmax.over_queries", kAttention, softmax_over_queries, kAllScores},
    {"softmax.whole_matrix", kAttention, softmax_over_matrix, kAllScores},
    {"softmax.none", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.normaliser == Normaliser::none) return std::nullopt;
       p.options.normaliser = Normaliser::none;
       return flag("--normaliser none");
     }},
    {"softmax.sigmoid", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.normaliser == Normaliser::sigmoid || p.has(Input::sinks)) return std::nullopt;
       p.options.normaliser = Normaliser::sigmoid;
       return flag("--normaliser sigmoid");
     }},
    {"softmax.temperature_dropped", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.temperature == 1) return std::nullopt;
       p.options.temperature = 1;
       return flag("without --temperature", text(in.options.temperature));
     }},

    {"logsumexp.base", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       const bool natural = in.options.lse_base == std::numbers::e;
       p.options.lse_base = natural ? 2 : std::numbers::e;
       return flag(natural ? "--lse-base 2" : "--lse-base e", natural ? "e" : "2");
     }},
    {"logsumexp.sinks", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!p.has(Input::sinks)) return std::nullopt;
       p.options.lse_sinks = !in.options.lse_sinks;
       return in.options.lse_sinks ? flag("--lse-sinks excluded", "included")
                                   : flag("--lse-sinks included", "excluded");
     }},
    {"logsumexp.empty", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (!has_empty_rows(in)) return std::nullopt;
       const bool is_negative = in.options.lse_empty == EmptyLogsumexp::minus_infinity;
       p.options.lse_empty =
           is_negative ? EmptyLogsumexp::infinity : EmptyLogsumexp::minus_infinity;
       return is_negative ? flag("--lse-empty inf", "-inf") : flag("--lse-empty=-inf", "inf");
     }},
    {"logsumexp.maximum", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_row_change<RowChange::maximum>(
           p, in, "the largest score of each row instead of its logsumexp");
     }},
    {"logsumexp.minus_maximum", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_row_change<RowChange::minus_maximum>(
           p, in, "the logsumexp without the largest score");
     }},

    {"output.o_scale_dropped", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.o_scale == 1) return std::nullopt;
       p.options.o_scale = 1;
       return flag("without --o-scale", text(in.options.o_scale));
     }},
    {"output.o_scale_inverted", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.options.o_scale == 1) return std::nullopt;
       p.options.o_scale = 1 / in.options.o_scale;
       return words("the context multiplied by --o-scale instead of divided");
     }},
    {"output.gate_dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::gate}, "without the gate"); }},
    {"output.W_O_dropped", kAttention,
     [](Variant& p, const Inputs&) -> Found {
       const Tensor* W = p.find(Input::W_O);
       if (W == nullptr || W->shape()[0] != W->shape()[1]) return std::nullopt;
       Tensor identity(DType::f64, W->shape());
       for (std::size_t i = 0; i < W->shape()[0]; ++i)
         identity.mutable_data<double>()[i * W->shape()[0] + i] = 1;
       p.erase({Input::b_O});
       p.set(Input::W_O, identity);
       return flag("without --w-o: A is the context");
     }},
    {"output.W_O_transposed", kAttention,
     [](Variant& p, const Inputs&) {
       return with_transposed(p, Input::W_O);
     }},
    {"output.viewed_before_W_O", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_join(p, in, Join::viewed, "the contexts (B, H, L, Dv) read as (B, L, H, Dv) before W_O");
     }},
    {"output.viewed_as_heads_before_W_O", kAttention,
     [](Variant& p, const Inputs& in) {
       return with_join(p, in, Join::viewed_as_heads,
                        "the contexts (B, L, H, Dv) read as (B, H, L, Dv) before W_O");
     }},
    {"output.viewed_as_inputs_before_W_O", kAttention,
     [](Variant& p, const Inputs& in) -> Found {
       if (in.G < 2 || in.P > 0) return std::nullopt;
       for (const Input input : {Input::Q, Input::K, Input::V})
         p.set(input, viewed_as_heads(*p.find(input)));
       return with_join(p, in, Join::viewed,
                        "Q, K and V of shape (B, L, H, D) read as (B, H, L, D), and contexts back");
     }},
    {"output.b_O_dropped", kAttention,
     [](Variant& p, const Inputs&) { return without(p, {Input::b_O}, "without --b-o"); }},
};

}  // namespace

Found with_added_window(Variant& variant, const Inputs& in, std::int64_t left) {
  if (has_window(in) || !is_causal(in) || left < 0) return std::nullopt;
  variant.options.window = {left, 0};
  return flag("--window " + text(left) + ",0", "no window");
}

Found with_other_window(Variant& variant, const Inputs& in, std::int64_t left) {
  const Window& window = in.options.window;
  if (window.left < 0 || left < 0 || left == window.left) return std::nullopt;
  return with_window(variant, in, {left, window.right});
}

Found with_first_keys(Variant& variant, const Inputs& in, std::int64_t count) {
  const Window& window = in.options.window;
  if (window.left < 0 || !is_causal(in) || count < 1) return std::nullopt;
  return with_seen_keys(variant, in,
                        "the first " + (count == 1 ? "key" : text(count) + " keys") +
                            " visible beside the window (attention sinks)",
                        "--window " + window_text(window),
                        [&](std::int64_t position, std::int64_t j) {
                          return j <= position && (j < count || j + window.left >= position);
                        });
}

Found with_prefix(Variant& variant, const Inputs& in, std::int64_t count) {
  if (in.options.window.left >= 0 || !is_causal(in) || count < 2) return std::nullopt;
  return with_seen_keys(
      variant, in, "the first " + text(count) + " keys visible to all queries (a prefix)", "",
      [&](std::int64_t position, std::int64_t j) { return j < count || j <= position; });
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

Found with_factors(Variant& variant, const Inputs& in, const std::vector<double>& of_heads) {
  if (in.options.score != Score::dot) return std::nullopt;
  const auto [least, most] = std::minmax_element(of_heads.begin(), of_heads.end());
  if (*least == *most) {
    const double scale = in.scale.factor() * of_heads[0];
    variant.options.scale = {Scale::Kind::number, scale};
    return flag("--scale " + six_digits(scale) + ", " + six_digits(of_heads[0]) +
                    " times that of the job: another scale, or one of Q or K",
                scale_text(in));
  }
  const Tensor* given = variant.find(Input::head_scale);
  Tensor factors(DType::f64, {in.H});
  for (std::size_t h = 0; h < in.H; ++h)
    factors.mutable_data<double>()[h] =
        of_heads[h] * (given != nullptr ? cast(*given, DType::f64).data<double>()[h] : 1);
  variant.set(Input::head_scale, factors);
  return words("scores of each head times a factor, from " + six_digits(*least) + " to " +
               six_digits(*most));
}

Found with_other_softcap(Variant& variant, const Inputs& in, double softcap) {
  if (in.options.softcap == 0 || softcap == in.options.softcap) return std::nullopt;
  variant.options.softcap = softcap;
  return flag("--softcap " + six_digits(softcap), six_digits(in.options.softcap));
}

std::vector<Hypothesis> hypotheses() {
  std::vector<Hypothesis> all;
  for (const std::span<const Hypothesis> some :
       {storage_hypotheses(), page_hypotheses(), projection_hypotheses(),
        std::span<const Hypothesis>(kAttentionTable)})
    all.insert(all.end(), some.begin(), some.end());
  const std::vector<Hypothesis> of_rules = rule_hypotheses();
  all.insert(all.end(), of_rules.begin(), of_rules.end());
  return all;
}

}  // namespace attn
