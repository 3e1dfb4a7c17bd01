// The effect of each option, and small cases calculated by hand.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "attn/attention/attention.h"
#include "support/close.h"

using namespace attn;

namespace {

TensorMap words() {
  TensorMap tensors;
  tensors.set("embeddings", Tensor::of<double>({4, 3}, {0.3, -1.2, 0.7, 1.1, 0.4, -0.6, -0.9, 0.8,
                                                        0.2, 0.5, -0.3, 1.4}));
  return tensors;
}

Tensor weights_of(const TensorMap& tensors, const Options& options) {
  return attend({tensors, options}, {Output::weights}).at("weights");
}

/// Q (L, 1) of ones and K (S, 1): the scores of each query are `scores`.
TensorMap scored(std::size_t L, const std::vector<double>& scores) {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<double>({L, 1}, std::vector<double>(L, 1)));
  tensors.set("K", Tensor::of<double>({scores.size(), 1}, scores));
  return tensors;
}

}  // namespace

TEST_CASE("every option changes the weights") {
  const std::vector<std::pair<std::string, std::function<void(Options&)>>> changes = {
      {"score", [](Options& o) { o.score = Score::cosine; }},
      {"scale none", [](Options& o) { o.scale.kind = Scale::Kind::none; }},
      {"scale number",
       [](Options& o) {
         o.scale = {Scale::Kind::number, -2};
       }},
      {"softcap", [](Options& o) { o.softcap = 0.5; }},
      {"causal", [](Options& o) { o.causal = true; }},
      {"window left", [](Options& o) { o.window.left = 0; }},
      {"window right", [](Options& o) { o.window.right = 0; }},
      {"softmax axis", [](Options& o) { o.softmax_axis = SoftmaxAxis::all; }},
      {"position", [](Options& o) { o.position.kind = Position::Kind::sinusoidal; }},
      {"embedding scale", [](Options& o) { o.position.embedding_scale = 2; }},
      {"embedding scale sqrt", [](Options& o) { o.position.embedding_scale_sqrt = true; }},
  };
  const Tensor plain = weights_of(words(), {});
  for (const auto& [name, change] : changes) {
    INFO(name);
    Options options;
    change(options);
    const Tensor changed = weights_of(words(), options);
    CHECK(changed.shape() == plain.shape());
    CHECK_FALSE(difference(changed, {plain.shape(), doubles_of(plain), 1e-3}).empty());
  }
}

TEST_CASE("every position option changes the inputs") {
  Options plain;
  plain.position.kind = Position::Kind::sinusoidal;
  const std::vector<std::pair<std::string, std::function<void(Position&)>>> changes = {
      {"base", [](Position& p) { p.base = 100; }},
      {"first", [](Position& p) { p.first = 1; }},
      {"exponent", [](Position& p) { p.exponent = Position::Exponent::doubled; }},
      {"last column", [](Position& p) { p.last_column_zero = true; }},
      {"scale", [](Position& p) { p.embedding_scale = 2; }},
      {"sqrt", [](Position& p) { p.embedding_scale_sqrt = true; }},
  };
  const Tensor before = attend({words(), plain}, {Output::inputs}).at("inputs");
  for (const auto& [name, change] : changes) {
    INFO(name);
    Options options = plain;
    change(options.position);
    const Tensor after = attend({words(), options}, {Output::inputs}).at("inputs");
    CHECK_FALSE(difference(after, {before.shape(), doubles_of(before), 1e-3}).empty());
  }
}

TEST_CASE("positions equal the formula in double precision") {
  const std::size_t L = 40, M = 17;
  TensorMap tensors;
  tensors.set("embeddings", Tensor(DType::f64, {L, M}));
  for (const double doubled : {1.0, 2.0}) {
    Options options;
    options.position.kind = Position::Kind::sinusoidal;
    if (doubled == 2) options.position.exponent = Position::Exponent::doubled;
    std::vector<double> expected;
    for (std::size_t p = 0; p < L; ++p)
      for (std::size_t c = 0; c < M; ++c) {
        const double exponent = (doubled * static_cast<double>(c / 2 * 2)) / static_cast<double>(M);
        const double term = static_cast<double>(p) / std::pow(10000.0, exponent);
        expected.push_back(c % 2 == 0 ? std::sin(term) : std::cos(term));
      }
    CHECK(doubles_of(attend({tensors, options}, {Output::positions}).at("positions")) == expected);
  }
}

TEST_CASE("the automatic scale divides by the square root of D as NumPy does") {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<std::int64_t>({1, 3}, {1, 1, 1}));
  tensors.set("K", Tensor::of<std::int64_t>({3, 3}, {3, 4, 0, 5, 5, 0, 1, 9, 9}));
  const Tensor scaled = attend({tensors}, {Output::scaled_scores}).at("scaled_scores");
  const double root = std::sqrt(3.0);
  CHECK(doubles_of(scaled) == std::vector<double>{7 / root, 10 / root, 19 / root});
}

TEST_CASE("cosine scores are not divided by the square root of D") {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<std::int64_t>({1, 2}, {3, 4}));
  tensors.set("K", Tensor::of<std::int64_t>({3, 2}, {3, 4, -6, -8, 4, -3}));
  Options options;
  options.score = Score::cosine;
  const TensorMap results = attend({tensors, options}, {Output::scores, Output::scaled_scores});
  CHECK(difference(results.at("scores"), {{1, 3}, {1, -1, 0}, 1e-15}).empty());
  CHECK(doubles_of(results.at("scaled_scores")) == doubles_of(results.at("scores")));

  options.scale = {Scale::Kind::number, 4};
  const TensorMap scaled = attend({tensors, options}, {Output::scaled_scores});
  CHECK(difference(scaled.at("scaled_scores"), {{1, 3}, {4, -4, 0}, 1e-15}).empty());
}

TEST_CASE("the cosine of a zero vector is NaN") {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<double>({1, 2}, {0, 0}));
  tensors.set("K", Tensor::of<double>({1, 2}, {1, 1}));
  Options options;
  options.score = Score::cosine;
  CHECK(std::isnan(doubles_of(attend({tensors, options}, {Output::scores}).at("scores"))[0]));
}

TEST_CASE("softcap is applied to scaled scores before the mask") {
  TensorMap tensors = scored(1, {100, -100, 0});
  tensors.set("mask", Tensor::of<double>({3}, {0, 0, 50}));
  Options options;
  options.softcap = 2;
  const TensorMap results =
      attend({tensors, options}, {Output::scaled_scores, Output::masked_scores});
  CHECK(difference(results.at("scaled_scores"), {{1, 3}, {2, -2, 0}, 1e-15}).empty());
  CHECK(difference(results.at("masked_scores"), {{1, 3}, {2, -2, 50}, 1e-15}).empty());
}

TEST_CASE("causality and windows leave the right keys visible") {
  struct Case {
    bool causal;
    Alignment alignment;
    std::int64_t left, right;
    std::string visible;  // a row for each query
  };
  const std::vector<Case> cases = {
      {false, Alignment::top_left, -1, -1, "1111 1111"},
      {true, Alignment::top_left, -1, -1, "1000 1100"},
      {true, Alignment::bottom_right, -1, -1, "1110 1111"},
      {false, Alignment::top_left, 0, 0, "1000 0100"},
      {false, Alignment::top_left, 0, 1, "1100 0110"},
      {false, Alignment::top_left, 1, -1, "1111 1111"},
      {false, Alignment::top_left, 0, -1, "1111 0111"},
      {true, Alignment::bottom_right, 1, -1, "0110 0011"},
      {true, Alignment::bottom_right, 0, 5, "0010 0001"},
      {true, Alignment::top_left, 0, 0, "1000 0100"},
      {false, Alignment::top_left, -1, std::numeric_limits<std::int64_t>::max(), "1111 1111"},
  };
  for (const Case& c : cases) {
    INFO(c.visible);
    Options options;
    options.causal = c.causal;
    options.alignment = c.alignment;
    options.window = {c.left, c.right};
    const Tensor masked =
        attend({scored(2, {1, 2, 3, 4}), options}, {Output::masked_scores}).at("masked_scores");
    std::string visible;
    for (const double score : masked.data<double>()) {
      if (visible.size() == 4) visible += ' ';
      visible += score == -kInf ? '0' : '1';
    }
    CHECK(visible == c.visible);
  }
}

TEST_CASE("selected rows keep their positions in causality, masks and encodings") {
  TensorMap tensors = words();
  tensors.set("mask", Tensor::of<double>({4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}));
  Options all;
  all.causal = true;
  all.position.kind = Position::Kind::sinusoidal;
  using enum Output;
  const std::vector<Request> outputs = {positions, inputs,  queries,  scores,
                                        weights,   context, logsumexp};
  const TensorMap whole = attend({tensors, all}, outputs);
  Options some = all;
  some.rows = {2, -4, 2};
  const TensorMap part = attend({tensors, some}, outputs);
  for (const std::string& name : names_of(outputs)) {
    INFO(name);
    const std::size_t width = whole.at(name).size() / 4;
    const std::vector<double> from = doubles_of(whole.at(name));
    std::vector<double> expected;
    for (const std::size_t row : {2, 0, 2})
      expected.insert(expected.end(), from.begin() + static_cast<std::ptrdiff_t>(row * width),
                      from.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
    Shape shape = whole.at(name).shape();
    shape[0] = 3;
    CHECK(difference(part.at(name), {shape, expected, 1e-15}) == "");
  }
  CHECK(attend({tensors, some}, {Output::keys}).at("keys").shape() == Shape{4, 3});
}

TEST_CASE("a softmax over all scores includes only the selected rows") {
  Options options;
  options.softmax_axis = SoftmaxAxis::all;
  options.rows = {0};
  const TensorMap results =
      attend({scored(3, {0, 0}), options}, {Output::weights, Output::logsumexp});
  CHECK(difference(results.at("weights"), {{1, 2}, {0.5, 0.5}, 1e-15}).empty());
  options.rows = {};
  const TensorMap whole =
      attend({scored(3, {0, 0}), options}, {Output::weights, Output::logsumexp});
  CHECK(difference(whole.at("weights"), {{3, 2}, std::vector<double>(6, 1 / 6.0), 1e-15}) == "");
  CHECK(difference(whole.at("logsumexp"), {{3}, std::vector<double>(3, std::log(6)), 1e-15}) == "");
}
