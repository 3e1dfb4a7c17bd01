// Which inputs make_inputs() accepts, and the exact messages for those it refuses.
#include "attn/problem/inputs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "attn/base/error.h"

using namespace attn;

namespace {

struct Given {
  std::string name;
  Shape shape;
  DType dtype = DType::f64;
};

TensorMap zeros_of(const std::vector<Given>& given) {
  TensorMap tensors;
  for (const Given& one : given) tensors.set(one.name, Tensor(one.dtype, one.shape));
  return tensors;
}

using Lines = std::vector<std::string>;

Lines errors(const TensorMap& tensors, const Options& options = {}) {
  try {
    make_inputs({tensors, options});
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.lines();
  }
  return {};
}

Lines errors(const std::vector<Given>& given, const Options& options = {}) {
  return errors(zeros_of(given), options);
}

Options with_heads(std::int64_t heads, std::int64_t kv_heads = 0) {
  Options options;
  options.heads = heads;
  options.kv_heads = kv_heads;
  return options;
}

}  // namespace

TEST_CASE("axis sizes are derived from each form of inputs") {
  const Inputs packed = make_inputs(
      {zeros_of({{"Q", {2, 3, 8}}, {"K", {2, 5, 4}}, {"V", {2, 5, 6}}}), with_heads(4, 2)});
  CHECK(Shape{packed.B, packed.H, packed.G, packed.L, packed.S, packed.D, packed.Dv} ==
        Shape{2, 4, 2, 3, 5, 2, 3});
  CHECK((packed.packed && packed.batched && packed.with_heads));

  Options blhd;
  blhd.layout = Layout::blhd;
  const Inputs split = make_inputs({zeros_of({{"Q", {2, 3, 4, 7}}, {"K", {2, 5, 2, 7}}}), blhd});
  CHECK(Shape{split.B, split.H, split.G, split.L, split.S, split.D, split.Dv} ==
        Shape{2, 4, 2, 3, 5, 7, 7});
  CHECK(split[Input::K]->shape() == Shape{2, 2, 5, 7});
  CHECK((!split.packed && split.batched && split.with_heads));

  const Inputs cross = make_inputs(
      {zeros_of({{"embeddings", {3, 6}}, {"memory", {5, 4}}, {"W_K", {4, 6}}, {"W_V", {4, 8}}}),
       with_heads(2)});
  CHECK(Shape{cross.B, cross.H, cross.G, cross.L, cross.S, cross.D, cross.Dv} ==
        Shape{1, 2, 2, 3, 5, 3, 4});
  CHECK_FALSE(cross.batched);
}

TEST_CASE("a shape mismatch names the tensor it should match") {
  CHECK(
      errors({{"embeddings", {4, 3}}, {"W_Q", {2, 3}}}) ==
      Lines{"W_Q: expected (3, *) to match embeddings (4, 3), found (2, 3); (out, in) weights, as "
            "torch saves them? add weights_layout: out-in"});
  CHECK(errors({{"Q", {2, 3}}, {"K", {5, 4}}}) ==
        Lines{"K: expected (*, 3) to match Q (2, 3), found (5, 4)"});
  CHECK(errors({{"Q", {2, 3}}, {"K", {5, 3}}, {"V", {4, 3}}}) ==
        Lines{"V: expected (5, *) to match K (5, 3), found (4, 3)"});
  CHECK(errors({{"Q", {2, 2, 3}}, {"K", {3, 5, 3}}}) ==
        Lines{"K: expected (2, *, 3) to match Q (2, 2, 3), found (3, 5, 3)"});
  CHECK(errors({{"Q", {2, 3}}, {"K", {1, 5, 3}}}) ==
        Lines{"K: expected (*, 3) to match Q (2, 3), found (1, 5, 3)"});
  CHECK(errors({{"Q", {1, 4, 2, 3}}, {"K", {1, 2, 5, 6}}}) ==
        Lines{"K: expected (1, *, *, 3) to match Q (1, 4, 2, 3), found (1, 2, 5, 6)"});
  CHECK(errors({{"embeddings", {4, 3}}, {"b_V", {4}}}) ==
        Lines{"b_V: expected (3,) to match embeddings (4, 3), found (4,)"});
  CHECK(errors({{"Q", {2, 3}}, {"K", {5, 3}}, {"V", {5, 7}}, {"W_O", {3, 3}}, {"b_O", {3}}}) ==
        Lines{"W_O: expected (7, *) to match V (5, 7), found (3, 3)"});
  CHECK(errors({{"embeddings", {4, 3}}, {"W_Q", {3, 2}}}) ==
        Lines{"W_K: expected (3, 2) to match W_Q (3, 2), found none"});
}

TEST_CASE("the width must be divisible by the number of heads") {
  CHECK(errors({{"Q", {2, 8}}, {"K", {5, 9}}}, with_heads(3)) ==
        Lines{"Q: width 8 of (2, 8) is not divisible by heads = 3"});
  CHECK(errors({{"Q", {2, 8}}, {"K", {5, 7}}}, with_heads(3)) ==
        Lines{"Q: width 8 of (2, 8) is not divisible by heads = 3",
              "K: width 7 of (5, 7) is not divisible by heads = 3"});
  CHECK(errors({{"Q", {2, 8}}, {"K", {5, 8}}, {"V", {5, 5}}}, with_heads(2)) ==
        Lines{"V: width 5 of (5, 5) is not divisible by heads = 2"});
  CHECK(errors({{"Q", {2, 8}}, {"K", {5, 6}}}, with_heads(4, 3)) ==
        Lines{"kv_heads: expected a divisor of 4, the number of query heads (from heads), found "
              "3"});
  CHECK(errors({{"Q", {2, 8}}, {"K", {5, 8}}}, with_heads(4, 2)) ==
        Lines{"K: expected (*, 4) to match Q (2, 8) with kv_heads = 2, found (5, 8)"});
  CHECK(errors({{"Q", {1, 4, 2, 3}}, {"K", {1, 3, 5, 3}}}) ==
        Lines{"K: expected a divisor of 4, the number of query heads (from Q), found 3"});
  CHECK(errors({{"Q", {1, 4, 2, 3}}, {"K", {1, 4, 5, 3}}}, with_heads(2)) ==
        Lines{"Q: expected (*, 2, *, *) to match heads = 2, found (1, 4, 2, 3); (B, L, H, D)? set "
              "layout: blhd",
              "K: expected a divisor of 2, the number of query heads (from heads), found 4"});
  CHECK(errors({{"Q", {1, 0, 2, 3}}, {"K", {1, 0, 5, 3}}}) ==
        Lines{"K: expected a divisor of 0, the number of query heads (from Q), found 0"});
  CHECK(errors({{"Q", {2, 0}}, {"K", {5, 0}}}, with_heads(1000000000000)).size() == 2);
}

TEST_CASE("narrower keys suggest grouped heads") {
  const auto hint = [](const std::vector<Given>& given, const Options& options = with_heads(8)) {
    const Lines lines = errors(given, options);
    const std::size_t semicolon = lines.at(0).find(';');
    return semicolon == std::string::npos ? "" : lines[0].substr(semicolon);
  };
  CHECK(
      errors({{"Q", {32, 128}}, {"K", {32, 32}}}, with_heads(8)) ==
      Lines{"K: expected (*, 128) to match Q (32, 128), found (32, 32); kv_heads = 2 if these are "
            "2 heads of 16"});
  CHECK(hint({{"Q", {3, 32, 128}}, {"K", {3, 32, 16}}}) ==
        "; kv_heads = 1 if these are 1 head of 16");
  CHECK(hint({{"embeddings", {4, 8}}, {"W_Q", {8, 16}}, {"W_K", {8, 8}}}) ==
        "; kv_heads = 4 if these are 4 heads of 2");
  CHECK(hint({{"Q", {32, 128}}, {"K", {32, 40}}}) == "");   // not a whole number of heads
  CHECK(hint({{"Q", {32, 128}}, {"K", {32, 48}}}) == "");   // 8 is not divisible by 3
  CHECK(hint({{"Q", {32, 128}}, {"K", {32, 256}}}) == "");  // more heads than there are
  CHECK(hint({{"Q", {32, 128}}, {"K", {3, 32, 32}}}) == "");
  CHECK(hint({{"Q", {32, 128}}, {"K", {32, 32}}}, with_heads(8, 4)) == "");
  CHECK(hint({{"Q", {32, 128}}, {"K", {32, 32}}}, {}) == "");
}

TEST_CASE("tensors have 2 or 3 axes, or 4 with an axis of heads") {
  CHECK(errors({{"embeddings", {3}}}) ==
        Lines{"embeddings: expected 2 or 3 axes, found (3,); write one vector as [[...]]"});
  CHECK(errors({{"Q", {3}}, {"K", {2, 3}}}) ==
        Lines{"Q: expected 2, 3 or 4 axes, found (3,); write one vector as [[...]]"});
  CHECK(errors({{"Q", {1, 1, 1, 1, 1}}, {"K", {2, 3}}}) ==
        Lines{"Q: expected 2, 3 or 4 axes, found (1, 1, 1, 1, 1)"});
  CHECK(errors({{"embeddings", {1, 1, 2, 3}}}) ==
        Lines{"embeddings: expected 2 or 3 axes, found (1, 1, 2, 3)"});
  CHECK(errors({{"embeddings", {2, 3}}, {"W_Q", {3}}}) ==
        Lines{"W_Q: expected (3, *) to match embeddings (2, 3), found (3,)"});
}

TEST_CASE("unknown tensors, and jobs without queries") {
  CHECK(errors(std::vector<Given>{}) ==
        Lines{"embeddings: expected embeddings, or Q and K, found neither"});
  CHECK(errors({{"memory", {2, 3}}}) ==
        Lines{"embeddings: expected embeddings, or Q and K, found neither"});
  CHECK(errors({{"Q", {2, 3}}}) ==
        Lines{"embeddings: expected embeddings, or Q and K, found neither"});
  CHECK(errors({{"embeddings", {2, 3}}, {"W_q", {3, 3}}, {"x\n", {1}}}) ==
        Lines{"unknown tensor 'W_q' (did you mean 'W_Q'?)", "unknown tensor 'x\\x0a'"});
}

TEST_CASE("masks broadcast from the right") {
  const std::vector<Given> batch = {{"Q", {2, 3, 4}}, {"K", {2, 5, 4}}};
  const auto mask_errors = [&](const Shape& mask, const Options& options) {
    std::vector<Given> given = batch;
    given.push_back({"mask", mask, DType::boolean});
    return errors(given, options);
  };
  for (const Shape& fits :
       {Shape{}, {5}, {1}, {3, 5}, {3, 1}, {2, 3, 5}, {1, 3, 5}, {2, 1, 3, 5}}) {
    INFO(to_string(fits));
    CHECK(mask_errors(fits, {}).empty());
  }
  for (const Shape& fits : {Shape{3, 5}, {4, 3, 5}, {2, 4, 3, 5}, {2, 1, 1, 5}}) {
    INFO(to_string(fits));
    CHECK(mask_errors(fits, with_heads(4)).empty());
  }
  const std::string expected = "mask: expected a shape that broadcasts to the scores ";
  CHECK(mask_errors({5, 3}, {}) == Lines{expected + "(2, 3, 5), found (5, 3)"});
  CHECK(mask_errors({2, 5}, {}) == Lines{expected + "(2, 3, 5), found (2, 5); a mask (B, S) of " +
                                         "keys is a key_mask (--key-mask)"});
  CHECK(mask_errors({2, 3, 5}, with_heads(4)) == Lines{expected + "(2, 4, 3, 5), found (2, 3, 5)"});
  CHECK(mask_errors({1, 2, 1, 3, 5}, {}) == Lines{expected + "(2, 3, 5), found (1, 2, 1, 3, 5)"});
}

TEST_CASE("an integer mask contains only 0 and 1") {
  TensorMap tensors = zeros_of({{"Q", {2, 3}}, {"K", {2, 3}}});
  tensors.set("mask", Tensor::of<std::int64_t>({2}, {1, 0}));
  CHECK(make_inputs({tensors})[Input::mask]->dtype() == DType::boolean);
  tensors.set("mask", Tensor::of<std::int64_t>({2}, {0, -1000}));
  CHECK(errors(tensors) == Lines{"mask: expected booleans, the integers 0 and 1, or floats to "
                                 "add, found the integer -1000"});
}

TEST_CASE("rows that do not exist") {
  Options options;
  options.rows = {2, 3, -4};
  CHECK(errors({{"embeddings", {3, 4}}}, options) ==
        Lines{"rows: expected indices of the 3 queries, found 3",
              "rows: expected indices of the 3 queries, found -4"});
}

TEST_CASE("a width of zero requires an explicit scale") {
  const std::vector<Given> empty = {{"Q", {2, 0}}, {"K", {3, 0}}, {"V", {3, 1}}};
  CHECK(errors(empty) == Lines{"Q: expected a width D of at least 1 to divide by sqrt(D), found "
                               "(2, 0); set scale"});
  Options options;
  options.scale.kind = Scale::Kind::none;
  CHECK(errors(empty, options).empty());
}

TEST_CASE("all errors are reported at once") {
  TensorMap tensors = zeros_of({{"embeddings", {4, 3}},
                                {"W_Q", {2, 4}},
                                {"W_K", {3, 4}},
                                {"W_V", {5, 4}},
                                {"mask", {7}, DType::boolean}});
  tensors.set("b_V", Tensor::of<std::uint64_t>({4}, {~std::uint64_t{0}, 0, 0, 0}));
  Options options;
  options.rows = {9};
  const Lines lines = errors(tensors, options);
  CHECK(lines.size() == 5);
  for (const char* start : {"b_V:", "W_Q:", "W_V:", "rows:", "mask:"}) {
    INFO(start);
    CHECK(std::count_if(lines.begin(), lines.end(),
                        [&](const std::string& line) { return line.rfind(start, 0) == 0; }) == 1);
  }
}

namespace {

/// Tensors of these forms whose elements are small, and differ between seeds.
TensorMap numbers_of(const std::vector<Given>& given, int seed) {
  TensorMap tensors;
  for (const Given& one : given) {
    Tensor tensor(DType::i64, one.shape);
    for (std::int64_t& element : tensor.mutable_data<std::int64_t>()) element = seed++ % 2;
    tensors.set(one.name, cast(tensor, one.dtype));
  }
  return tensors;
}

/// Whether all tensors of both problems have the same elements.
bool hold_the_same(const Inputs& one, const Inputs& other) {
  return std::all_of(kInputs.begin(), kInputs.end(), [&](const InputRow& row) {
    const std::optional<Tensor>&a = one[row.input], &b = other[row.input];
    if (!a || !b) return !a && !b;
    return a->dtype() == b->dtype() && a->shape() == b->shape() &&
           std::equal(a->raw(), a->raw() + a->bytes(), b->raw());
  });
}

}  // namespace

TEST_CASE("a problem that differs only in numbers is that of make_inputs()") {
  struct Case {
    std::vector<Given> given;
    Options options = {};
  };
  Options blhd, offset = with_heads(2);
  blhd.layout = Layout::blhd;
  offset.qk_norm = QkNorm::rms;
  offset.norm_offset = 1;
  const std::vector<Case> cases = {
      {{{"embeddings", {4, 3}}, {"W_Q", {3, 2}}, {"W_K", {3, 2}, DType::i64}, {"b_Q", {2}}}},
      {{{"Q", {2, 3, 4, 7}}, {"K", {2, 5, 2, 7}}, {"V", {2, 5, 2, 6}}}, blhd},
      {{{"Q", {2, 3, 8}, DType::f32}, {"K", {5, 8}, DType::f16}}, with_heads(2)},
      {{{"Q", {3, 8}}, {"K", {5, 8}}, {"past_K", {2, 6, 4}}, {"past_V", {2, 6, 4}}}, with_heads(2)},
      {{{"Q", {3, 8}}, {"K", {5, 8}}, {"q_norm", {4}}, {"k_norm", {4}}}, offset},
      {{{"Q", {3, 8}}, {"K", {5, 8}}, {"bias_K", {8}}, {"bias_V", {8}}}, with_heads(2)}};
  for (const auto& [given, options] : cases) {
    Inputs in = make_inputs({numbers_of(given, 0), options});
    const Inputs other = make_inputs({numbers_of(given, 1), options});
    CHECK_FALSE(hold_the_same(in, other));
    REQUIRE(release_numbers(in));
    REQUIRE(replace_numbers(in, other));
    CHECK(hold_the_same(in, other));
  }
}

TEST_CASE("a problem that differs in more than numbers is not replaced") {
  const std::vector<Given> plain = {{"Q", {3, 4}}, {"K", {5, 4}}};
  const auto differs = [&](std::vector<Given> given, const Options& options = {}) {
    Inputs in = make_inputs({numbers_of(plain, 0), {}});
    const bool is_replaced =
        release_numbers(in) && replace_numbers(in, {numbers_of(given, 1), options});
    CHECK((is_replaced || replace_numbers(in, {numbers_of(plain, 1), {}})));
    return !is_replaced;
  };
  CHECK_FALSE(differs(plain));
  CHECK(differs({{"Q", {3, 4}}, {"K", {6, 4}}}));
  CHECK(differs({{"Q", {3, 4}}, {"K", {5, 4}, DType::f32}}));
  CHECK(differs({{"Q", {3, 4}}, {"K", {5, 4}}, {"V", {5, 4}}}));
  CHECK(differs({{"Q", {3, 4}}}));
  CHECK(differs({{"K", {5, 4}}, {"Q", {3, 4}}}));
  Options causal;
  causal.causal = true;
  CHECK(differs(plain, causal));
}

TEST_CASE("released numbers are freed") {
  const std::shared_ptr<const std::byte> owner(new std::byte[32](),
                                               std::default_delete<std::byte[]>());
  const Tensor Q(DType::f64, {2, 2}, owner);
  TensorMap tensors;
  tensors.set("Q", Q);
  tensors.set("K", Q);
  Inputs in = make_inputs({tensors, {}});
  const long others = owner.use_count();
  REQUIRE(release_numbers(in));
  CHECK(owner.use_count() < others);
  CHECK(owner.use_count() == 4);  // owner, Q and two in `tensors`
}

TEST_CASE("numbers that are checked one by one are not released") {
  for (const Given& checked : std::vector<Given>{{"mask", {3, 5}, DType::i64},
                                                 {"bias", {3, 5}},
                                                 {"key_mask", {5}, DType::i64},
                                                 {"key_lengths", {}, DType::i64},
                                                 {"documents", {3}, DType::i64},
                                                 {"dropout_mask", {3, 5}},
                                                 {"sinks", {1}},
                                                 {"grad_context", {3, 4}},
                                                 {"V", {5, 4}, DType::u64}}) {
    INFO(checked.name);
    std::vector<Given> given = {{"Q", {3, 4}}, {"K", {5, 4}}, checked};
    if (checked.name == "documents") given.push_back({"key_documents", {5}, DType::i64});
    Inputs in = make_inputs({numbers_of(given, 0), {}});
    CHECK_FALSE(release_numbers(in));
    CHECK(hold_the_same(in, make_inputs({numbers_of(given, 0), {}})));
  }
}
