// Mistakes about which queries, keys and values are read: heads, batch items, rows and layouts.
#include "attn/diagnose/changes.h"
#include "attn/diagnose/hypotheses.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

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

/// Whether a result depends on the order of the keys, if each keeps its value.
bool is_ordered(const Variant& variant, const Inputs& in) {
  return hides_keys(variant, in) || has_bias(variant) || variant.has(Input::documents) ||
         variant.has(Input::cu_seqlens_q) || variant.has(Input::dropout_mask) ||
         in.mask_rule != nullptr;
}

/// All batch items read these inputs of batch item 0.
VariantChange of_item_0(const std::vector<Input>& inputs, const std::string& what) {
  return [=](Variant& variant, const Inputs& in) -> Found {
    if (in.B < 2) return std::nullopt;
    for (const Input input : inputs)
      if (const Tensor* x = variant.find(input))
        variant.set(input, reordered(*x, x->size() / in.B, [](std::size_t) { return 0; }));
    return words(what + " of batch item 0 for all items");
  };
}

/// These inputs read in the other order of rows and heads.
VariantChange in_other_layout(const std::vector<Input>& inputs, const std::string& what,
                              Tensor (*viewed)(const Tensor&) = viewed_as_heads) {
  return [=](Variant& variant, const Inputs& in) -> Found {
    for (const Input input : inputs) {
      const Shape& shape = variant.find(input)->shape();
      if (shape[1] < 2 || shape[2] < 2 || (input != Input::Q && in.P > 0)) return std::nullopt;
      if (viewed == viewed_as_rows && shape[1] == shape[2]) return std::nullopt;  // the same
      variant.set(input, viewed(*variant.find(input)));
    }
    return words(what + (viewed == viewed_as_heads
                             ? " of shape (B, L, H, D) read as (B, H, L, D)"
                             : " of shape (B, H, L, D) read as (B, L, H, D)"));
  };
}

}  // namespace

Hypotheses head_hypotheses() {
  return {
      {"heads.tiled", kAllHeads,
       [](Variant& p, const Inputs& in) {
         return with_kv_heads(
             p, in, tiled_head, tiled_head,
             "key/value heads tiled: query head h reads head h % " + in_words(in.G),
             "h // " + in_words(in.H / in.G));
       }},
      {"heads.values_tiled", kAllHeads,
       change_by(with_kv_heads, repeated_head, tiled_head,
                 "heads of the values tiled, those of the keys repeated", "both repeated")},
      {"heads.keys_tiled", kAllHeads,
       change_by(with_kv_heads, tiled_head, repeated_head,
                 "heads of the keys tiled, those of the values repeated", "both repeated")},
      {"heads.first_only", kAllHeads,
       [](Variant& p, const Inputs& in) {
         return with_kv_heads(p, in, first_head, first_head, "key/value head 0 for all query heads",
                              in_words(in.G) + " heads");
       }},
      {"heads.kv_reversed", kAllHeads,
       change_by(with_kv_heads, reversed_head, reversed_head, "key/value heads in reverse order",
                 "")},
      {"heads.kv_next", kAllHeads,
       [](Variant& p, const Inputs& in) {
         return in.G < 3 ? Found()
                         : with_kv_heads(p, in, next_head, next_head,
                                         "the next key/value head for each query head", "");
       }},
      {"heads.viewed", kAllHeads, in_other_layout({Input::Q, Input::K, Input::V}, "Q, K and V")},
      {"heads.queries_viewed", kAllHeads, in_other_layout({Input::Q}, "Q")},
      {"heads.keys_values_viewed", kAllHeads, in_other_layout({Input::K, Input::V}, "K and V")},
      {"heads.keys_viewed", kAllHeads, in_other_layout({Input::K}, "K")},
      {"heads.values_viewed", kAllHeads, in_other_layout({Input::V}, "V")},
      {"heads.as_rows", kAllHeads,
       in_other_layout({Input::Q, Input::K, Input::V}, "Q, K and V", viewed_as_rows)},
      {"heads.queries_as_rows", kAllHeads, in_other_layout({Input::Q}, "Q", viewed_as_rows)},
      {"heads.keys_values_as_rows", kAllHeads,
       in_other_layout({Input::K, Input::V}, "K and V", viewed_as_rows)},
      {"heads.keys_as_rows", kAllHeads, in_other_layout({Input::K}, "K", viewed_as_rows)},
      {"heads.values_as_rows", kAllHeads, in_other_layout({Input::V}, "V", viewed_as_rows)},
      {"heads.batch_item_0", kAllHeads,
       of_item_0({Input::K, Input::past_K, Input::V, Input::past_V}, "keys and values")},
      {"heads.keys_of_batch_item_0", kAllHeads, of_item_0({Input::K, Input::past_K}, "keys")},
      {"heads.values_of_batch_item_0", kAllHeads, of_item_0({Input::V, Input::past_V}, "values")},
      {"heads.queries_of_batch_item_0", kAllHeads, of_item_0({Input::Q}, "queries")},
  };
}

Hypotheses operand_hypotheses() {
  return {
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
         p.set(Input::V,
               with_rows_from(*p.find(Input::V), [&](std::size_t n) { return (n + 1) % in.N; }));
         return words("the value of the next key");
       }},
      {"values.of_previous_key", kAttention,
       [](Variant& p, const Inputs& in) -> Found {
         if (in.N < 2) return std::nullopt;
         p.set(Input::V, with_rows_from(*p.find(Input::V),
                                        [&](std::size_t n) { return (n + in.N - 1) % in.N; }));
         return words("the value of the previous key");
       }},
  };
}

}  // namespace attn
