#include "attn/base/suggestion.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace attn;
using enum NameKind;
using Names = std::vector<std::string>;

TEST_CASE("the most similar name is suggested") {
  const Names known = {"scores", "scaled_scores", "weights", "context", "Q"};
  CHECK(nearest("score", known, output) == "scores");
  CHECK(nearest("socres", known, output) == "scores");  // adjacent letters swapped
  CHECK(nearest("SCORES", known, output) == "scores");
  CHECK(nearest("wieghts", known, output) == "weights");
  CHECK(nearest("scaledscores", known, output) == "scaled_scores");
  CHECK(nearest("scores_scaled", known, output) == "scaled_scores");
  CHECK(nearest("q", known, input) == "Q");
  CHECK(nearest("scores", known, output) == "scores");
  CHECK(nearest("temperature", known, output).empty());
  CHECK(nearest("weights", {}, output).empty());
  CHECK(nearest(std::string(1'000'000, 'a'), known, output).empty());
  CHECK(did_you_mean("contxt", known, output) == " (did you mean 'context'?)");
  CHECK(did_you_mean("temperature", known, output).empty());
}

TEST_CASE("names that are equally similar are all suggested, unless there are many") {
  CHECK(similar_names("rotary_base", {"rotary_basa", "rotary_basu", "other"}, other) ==
        Names{"rotary_basa", "rotary_basu"});
  CHECK(similar_names("lengths", {"key_lengths", "query_lengths"}, input) ==
        Names{"key_lengths", "query_lengths"});
  CHECK(similar_names("rotary", {"rotary_a", "rotary_b", "rotary_c", "rotary_d"}, input).empty());
  CHECK(nearest("lengths", {"key_lengths", "query_lengths"}, input).empty());
  CHECK(did_you_mean("lengths", {"key_lengths", "query_lengths"}, input) ==
        " (did you mean 'key_lengths' or 'query_lengths'?)");
}

TEST_CASE("other words, numbers and letters of short names are no typing errors") {
  CHECK(nearest("query_weights", {"key_weights"}, output).empty());
  CHECK(nearest("keys_90", {"keys_95"}, output).empty());
  CHECK(nearest("layers.2.wq", {"layers.1.wq", "layers.12.wq"}, tensor).empty());
  CHECK(nearest("top_p", {"top_k"}, input).empty());
  CHECK(nearest("d_model", {"model"}, input).empty());
  CHECK(nearest("bdhl", {"bhld", "blhd"}, value).empty());
  CHECK(nearest("head_dim", {"heads", "head_scale"}, input).empty());
}

TEST_CASE("words such as attn do not distinguish names") {
  CHECK(nearest("flash_attn", {"attn", "flash"}, other) == "flash");
  CHECK(nearest("is_causal", {"causal"}, other) == "causal");
  CHECK(nearest("layers.0.attn.wq", {"layers.0.attention.wq"}, tensor) == "layers.0.attention.wq");
  CHECK(nearest("attention", {"attn"}, other).empty());
}

TEST_CASE("the beginning of a name, or its last parts, suggest it") {
  CHECK(nearest("temp", {"temperature", "top_k"}, input) == "temperature");
  CHECK(nearest("layers.3.wq", {"model.layers.3.wq", "model.layers.13.wq"}, tensor) ==
        "model.layers.3.wq");
  CHECK(nearest("ROTARY_BASE", {"rotary.base"}, input) == "rotary.base");
}

TEST_CASE("names of other libraries suggest the names used here") {
  CHECK(nearest("query", {"Q", "K", "V"}, input) == "Q");
  CHECK(nearest("query", {"Q", "queries"}, output) == "queries");
  CHECK(nearest("--query", {"--query-lengths", "--q"}, input) == "--q");
  CHECK(nearest("num_key_value_heads", {"heads", "kv_heads"}, input) == "kv_heads");
  CHECK(nearest("query", {"scores"}, output).empty());
  CHECK(nearest("query", {"Q", "queries"}, other).empty());  // a name of something else
  CHECK(nearest("context", {"out", "lse"}, tensor) == "out");
}

TEST_CASE("a suggestion has the value and the note of the other name") {
  CHECK(did_you_mean("--return-lse", {"--outputs", "--lse-base"}, input) ==
        " (did you mean '--outputs logsumexp' if true?)");
  CHECK(did_you_mean("return_lse", {"outputs"}, input) ==
        " (did you mean \"outputs\": \"logsumexp\" if true?)");
  CHECK(did_you_mean("pytorch", {"torch", "torch-mha"}, convention) ==
        " (did you mean 'torch' for scaled_dot_product_attention or 'torch-mha' for "
        "nn.MultiheadAttention?)");
}

TEST_CASE("nothing is suggested for an empty word or a single letter") {
  for (const char* const word : {"", "--", "z"})
    CHECK(nearest(word, {"Q", "K", "V"}, input).empty());
}
