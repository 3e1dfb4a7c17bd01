#include "attn/base/error.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "attn/base/printable.h"
#include "attn/base/suggestion.h"

using namespace attn;
using namespace std::string_literals;

TEST_CASE("an error keeps its kind and its lines") {
  const Error one(ErrorKind::data, "F: T: what");
  CHECK(one.kind() == ErrorKind::data);
  CHECK(one.lines() == std::vector<std::string>{"F: T: what"});
  CHECK(one.what() == "F: T: what"s);
  const Error two(ErrorKind::usage, std::vector<std::string>{"first", "second"});
  CHECK(two.lines().size() == 2);
  CHECK(two.what() == "first\nsecond"s);
}

TEST_CASE("a long error message is truncated") {
  CHECK(Error(ErrorKind::data, std::vector<std::string>(100, "x")).lines().back() == "x");
  const Error many(ErrorKind::data, std::vector<std::string>(200'000, "x"));
  CHECK(many.lines().size() == 100);
  CHECK(many.lines()[98] == "x");
  CHECK(many.lines()[99] == "and 199901 more errors");
  CHECK(many.what() == std::string(many.what()).substr(0, 99 * 2) + "and 199901 more errors");
}

TEST_CASE("kinds are the exit codes of the command line") {
  const auto code = [](ErrorKind kind) { return static_cast<int>(kind); };
  CHECK(code(ErrorKind::usage) == 2);
  CHECK(code(ErrorKind::data) == 65);
  CHECK(code(ErrorKind::no_input) == 66);
  CHECK(code(ErrorKind::internal) == 70);
  CHECK(code(ErrorKind::cannot_create) == 73);
  CHECK(code(ErrorKind::io) == 74);
  CHECK(code(ErrorKind::busy) == 75);
  CHECK(code(ErrorKind::permission) == 77);
}

TEST_CASE("printable text cannot move the cursor, forge a line or flood the screen") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"W_Q", "W_Q"},
      {"é€😀", "é€😀"},
      {"a\nb\rc\td", "a\\x0ab\\x0dc\\x09d"},
      {"\x1B[31mred\x7F", "\\x1b[31mred\\x7f"},
      {"a\0b"s, "a\\x00b"},
      {"bad \xFF\xC3", "bad \\xff\\xc3"},
      {"\u202Egpj", "\\xe2\\x80\\xaegpj"},  // right-to-left override
      {"\u009B31m", "\\xc2\\x9b31m"},       // a control sequence in one character
      {"back\\slash", "back\\slash"},
  };
  for (const auto& [text, shown] : cases) CHECK(printable(text) == shown);
  CHECK(printable(std::string(200, 'x')) == std::string(200, 'x'));
  CHECK(printable(std::string(100'000, 'x')) == std::string(200, 'x') + "...");
}

TEST_CASE("the nearest known word is suggested") {
  const std::vector<std::string> known = {"scores", "scaled_scores", "weights", "context", "Q"};
  CHECK(nearest("score", known) == "scores");
  CHECK(nearest("socres", known) == "scores");  // adjacent letters swapped
  CHECK(nearest("SCORES", known) == "scores");
  CHECK(nearest("wieghts", known) == "weights");
  CHECK(nearest("q", known) == "Q");
  CHECK(nearest("scores", known) == "scores");
  CHECK(nearest("temperature", known) == "");
  CHECK(nearest("weights", {}) == "");
  CHECK(nearest(std::string(1'000'000, 'a'), known) == "");
  CHECK(did_you_mean("contxt", known) == " (did you mean 'context'?)");
  CHECK(did_you_mean("temperature", known) == "");
}

TEST_CASE("a word that contains a known name suggests that name") {
  const std::vector<std::string> known = {"heads",   "kv_heads",   "mean_weights",  "weights",
                                          "mask",    "key_mask",   "masked_scores", "scale",
                                          "softmax", "embeddings", "rotary.base"};
  CHECK(nearest("num_heads", known) == "heads");
  CHECK(nearest("n_head", known) == "heads");
  CHECK(nearest("num_kv_heads", known) == "kv_heads");
  CHECK(nearest("attn_weights", known) == "weights");
  CHECK(nearest("softmax_scale", known) == "scale");  // the last part determines the meaning
  CHECK(nearest("scale_factor", known) == "scale");
  CHECK(nearest("maskd_scores", known) ==
        "masked_scores");  // a typing error of one letter is nearer
  CHECK(nearest("head_dim", known) == "");
  CHECK(nearest("embed", known) == "embeddings");
  CHECK(nearest("ROTARY_BASE", known) == "rotary.base");
  CHECK(nearest("--attn-mask", {"--key-mask", "--mask"}) == "--mask");
}

TEST_CASE("a known name from another library suggests the name used here") {
  CHECK(nearest("query", {"Q", "K", "V"}) == "Q");
  CHECK(nearest("query", {"Q", "queries"}) == "queries");
  CHECK(nearest("--query", {"--query-lengths", "--q"}) == "--q");
  CHECK(nearest("values", {"Q", "K", "V"}) == "V");
  CHECK(nearest("q_proj", {"--wq", "--q"}) == "--wq");
  CHECK(nearest("key_padding_mask", {"mask", "key_mask"}) == "key_mask");
  CHECK(nearest("num_key_value_heads", {"heads", "kv_heads"}) == "kv_heads");
  CHECK(nearest("query", {"scores"}) == "");
}

TEST_CASE("nothing is suggested for an empty word or a single letter") {
  for (const char* const word : {"", "--", "z"}) CHECK(nearest(word, {"Q", "K", "V"}) == "");
}
