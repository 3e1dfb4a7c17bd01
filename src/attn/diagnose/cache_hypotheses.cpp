// Mistakes about the keys and values that are cached: missing ones, and pages read to their end.
#include <algorithm>

#include "attn/diagnose/changes.h"
#include "attn/diagnose/hypotheses.h"

namespace attn {
namespace {

constexpr std::size_t kLargestPage = 128;

/// Whether the last key of each batch item is the only one after a multiple of the smallest page,
/// so that a missing tail is the last key.
bool is_last_alone(const Inputs& in) {
  for (std::size_t b = 0; b < in.B; ++b)
    if (keys_of(in, b) < kSmallestPage || keys_of(in, b) % kSmallestPage != 1) return false;
  return true;
}

/// The last keys beyond a multiple of `page` are missing, or the last page if all pages are full.
/// This and the next apply only if the page of half the size does not give the same keys.
Found tail_missing(Variant& variant, const Inputs& in, std::size_t page) {
  bool are_full = true, is_same = page < kLargestPage;  // as for twice the size
  for (std::size_t b = 0; b < in.B; ++b) {
    are_full = are_full && keys_of(in, b) % page == 0 && keys_of(in, b) > page;
    is_same = is_same && keys_of(in, b) % (2 * page) == page;
  }
  if (are_full) {
    if (is_same) return std::nullopt;
    hide_keys(variant, in,
              [&](std::size_t b, std::size_t j) { return j + page >= keys_of(in, b); });
    return words("the last page of " + in_words(page) + " keys missing");
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
  return words("the keys after the last multiple of " + in_words(page) + " missing (" +
               in_words(tail) + (tail == 1 ? " key)" : " keys)"));
}

/// Keys after the last are read up to the end of a page: zeros, which a sink can express.
Found zero_tail(Variant& variant, const Inputs& in, std::size_t page) {
  if (in.token_positions.size() != 1 || in.options.normaliser != Normaliser::softmax)
    return std::nullopt;
  // If the last page is full, the kernel reads one more.
  const std::size_t keys = keys_of(in, 0), extra = page - keys % page;
  if (page > kSmallestPage && extra == page / 2 - keys % (page / 2)) return std::nullopt;
  if (extra == 1 && !variant.has(Input::sinks)) return std::nullopt;  // as sink.added
  add_zero_keys(variant, in, static_cast<double>(extra));
  if (extra == page) return words("one more page of " + in_words(page) + " keys read as zeros");
  return words("the last page of " + in_words(page) + " keys read to its end as zeros (" +
               in_words(extra) + (extra == 1 ? " key)" : " keys)"));
}

/// The same with what is stored there: zeros, if keys are gathered from pages.
Found stored_tail(Variant& variant, const Inputs& in, std::size_t page) {
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
  return words("the last page of " + in_words(page) + " keys read to its end as " +
               (variant.cache != nullptr ? "zeros" : "stored"));
}

Found reversed_pages(Variant& variant, const Inputs& in, std::size_t page) {
  if (in.N % page != 0 || in.N / page < 2 || in.P > 0) return std::nullopt;
  const auto source = [&](std::size_t n) { return (in.N / page - 1 - n / page) * page + n % page; };
  for (const Input input : {Input::K, Input::V})
    variant.set(input, with_rows_from(*variant.find(input), source));
  return words("pages of " + in_words(page) + " keys in reverse order");
}

}  // namespace

Hypotheses cache_hypotheses() {
  Hypotheses all = {
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
         return words(is_last_alone(in)
                          ? "the last key missing, the only one after a multiple of " +
                                in_words(kSmallestPage)
                          : "the last key missing");
       }},
  };
  add_for_each("cache.tail_missing", {8, 16, 32, 64, 128}, tail_missing, all);
  add_for_each("cache.zero_tail", {8, 16, 32, 64, 128}, zero_tail, all);
  add_for_each("cache.stored_tail", {8, 16, 32, 64, 128}, stored_tail, all);
  add_for_each("cache.reversed_pages", {16, 32, 64, 128}, reversed_pages, all);
  return all;
}

}  // namespace attn
