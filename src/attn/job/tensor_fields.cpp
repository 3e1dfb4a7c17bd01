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
      tensor("past_K", "--past-k", "keys of the past (B, G, P, D), before the new ones"),
      tensor("past_V", "--past-v", "values of the past (B, G, P, Dv)"),
      tensor("query_lengths", "--query-lengths", "queries of each batch row; the rest is padding"),
      tensor("key_lengths", "--key-lengths", "keys of each batch row; the rest is padding"),
      tensor("documents", "--documents", "document of each query (L) or (B, L); negative: padding"),
      tensor("key_documents", "--key-documents", "document of each key (S); default: documents"),
      tensor("cu_seqlens_q", "--cu-seqlens-q", "where documents begin and end: [0, 3, ..., L]"),
      tensor("cu_seqlens_k", "--cu-seqlens-k", "the same of keys; default: cu_seqlens_q"),
  };
}

}  // namespace attn
