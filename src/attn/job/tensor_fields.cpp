#include "attn/job/field_tables.h"

namespace attn {
namespace {

Field tensor(std::string key, std::string flag, std::string what) {
  return {.key = std::move(key),
          .flag = std::move(flag),
          .form = FieldForm::tensor,
          .placeholder = "FILE",
          .what = std::move(what)};
}

}  // namespace

std::vector<Field> tensor_fields() {
  return {
      tensor("embeddings", "--embeddings", "token embeddings X (L, M): the queries' side"),
      tensor("memory", "--memory", "what keys and values come from (S, M); default: embeddings"),
      tensor("memory_V", "--memory-v", "what values come from (S, Mv); default: memory"),
      tensor("W_Q", "--wq", "query weights (M, H*D)"),
      tensor("W_K", "--wk", "key weights (M, G*D)"),
      tensor("W_V", "--wv", "value weights (M, G*Dv)"),
      tensor("W_O", "--wo", "output weights (H*Dv, M)"),
      tensor("b_Q", "--bq", "query bias (H*D)"),
      tensor("b_K", "--bk", "key bias (G*D)"),
      tensor("b_V", "--bv", "value bias (G*Dv)"),
      tensor("b_O", "--bo", "output bias (M)"),
      tensor("Q", "--q", "queries (L, D), instead of embeddings and weights"),
      tensor("K", "--k", "keys (S, D)"),
      tensor("V", "--v", "values (S, Dv); default: the keys"),
      tensor("mask", "--mask", "boolean (true: may attend) or additive, broadcast to (B, H, L, S)"),
      tensor("key_mask", "--key-mask", "a mask of the keys alone, (S) or (B, S)"),
      tensor("past_K", "--past-k", "keys of the past (B, G, P, D), before the new ones"),
      tensor("past_V", "--past-v", "values of the past (B, G, P, Dv)"),
      tensor("query_lengths", "--query-lengths", "queries of each batch row; the rest is padding"),
      tensor("key_lengths", "--key-lengths", "keys of each batch row; the rest is padding"),
      tensor("documents", "--documents", "document of each query (L) or (B, L); negative: padding"),
      tensor("key_documents", "--key-documents", "document of each key (S); default: documents"),
      tensor("cu_seqlens_q", "--cu-seqlens-q", "where documents begin and end: [0, 3, ..., L]"),
      tensor("cu_seqlens_k", "--cu-seqlens-k", "the same of keys; default: cu_seqlens_q"),
      tensor("bias_K", "--bias-k", "one more key (G*D) behind all others, which every query sees"),
      tensor("bias_V", "--bias-v", "its value (G*Dv)"),
      tensor("q_norm", "--q-norm", "weights (D) of qk_norm, of the queries"),
      tensor("k_norm", "--k-norm", "weights (D) of qk_norm, of the keys"),
      tensor("cos", "--cos", "rotary cosines (places, r/2), or (B, L, r/2)"),
      tensor("sin", "--sin", "rotary sines"),
      tensor("position_ids", "--position-ids", "rotary positions of the queries (L) or (B, L)"),
      tensor("key_position_ids", "--key-position-ids", "of the new keys; default: position_ids"),
      tensor("alibi_slopes", "--alibi-slopes", "slopes of ALiBi (H) or (B, H)"),
      tensor("relative_bias", "--relative-bias",
             "bias (buckets, H) by relative position, as in T5"),
      tensor("sinks", "--sinks", "score (H) that takes its share of the softmax and has no value"),
      tensor("W_score", "--w-score", "weights of score general (D, Dk) or concat (D+Dk, A)"),
      tensor("W_score_Q", "--w-score-q", "query weights of score additive (D, A)"),
      tensor("W_score_K", "--w-score-k", "key weights of score additive (Dk, A)"),
      tensor("b_score", "--b-score", "bias of score additive or concat (A)"),
      tensor("v_score", "--v-score", "output weights of score additive or concat (A)"),
      tensor("g_score", "--g-score", "length of v_score: weights g v / |v|"),
  };
}

}  // namespace attn
