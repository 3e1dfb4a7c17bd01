// Names, ranks and dtypes of outputs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "attn/attention/attention.h"
#include "attn/base/error.h"
#include "support/close.h"

using namespace attn;

namespace {

TensorMap zeros(const std::vector<std::pair<std::string, Shape>>& given) {
  TensorMap tensors;
  for (const auto& [name, shape] : given) tensors.set(name, Tensor(DType::f64, shape));
  return tensors;
}

std::vector<std::string> errors_of(const TensorMap& tensors,
                                   const std::vector<std::string>& outputs) {
  try {
    requests_named(outputs, {tensors});
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.lines();
  }
  return {};
}

}  // namespace

TEST_CASE("an unavailable output is a usage error") {
  const TensorMap tensors = zeros({{"Q", {2, 3}}, {"K", {2, 3}}});
  CHECK(errors_of(tensors, {"weight", "output", "inputs", "positions", "V", "W_Q_heads"}) ==
        std::vector<std::string>{
            "outputs: unknown output 'weight' (did you mean 'weights'?)",
            "outputs: 'output' requires W_O", "outputs: 'inputs' requires embeddings",
            "outputs: 'positions' requires position",
            "outputs: 'V' is not an input of this job (did you mean 'values'?)",
            "outputs: 'W_Q_heads' requires W_Q"});
}

TEST_CASE("every available output can be requested") {
  TensorMap tensors = zeros({{"embeddings", {3, 4}}, {"W_Q", {4, 4}}, {"W_O", {4, 2}}});
  Options options;
  options.position.kind = Position::Kind::sinusoidal;
  const std::vector<Request> outputs = available_outputs({tensors, options});
  const std::vector<std::string> names = names_of(outputs);
  CHECK(names == std::vector<std::string>{"positions",
                                          "inputs",
                                          "W_Q_heads",
                                          "queries",
                                          "keys",
                                          "values",
                                          "present_K",
                                          "present_V",
                                          "scores",
                                          "scaled_scores",
                                          "masked_scores",
                                          "weights",
                                          "mean_weights",
                                          "key_weights",
                                          "row_max",
                                          "logsumexp",
                                          "weight_sum",
                                          "entropy",
                                          "effective_keys",
                                          "keys_95",
                                          "distance",
                                          "first_key_weight",
                                          "previous_token_weight",
                                          "head_context",
                                          "context",
                                          "output",
                                          "embeddings",
                                          "W_Q",
                                          "W_O"});
  CHECK(attend({tensors, options}, outputs).names() == names);
  const OutputSet few =
      outputs_among(available_outputs({zeros({{"Q", {2, 3}}, {"K", {2, 3}}}), {}}));
  CHECK(!few.contains(Output::output));
  CHECK(!few.contains(Output::inputs));
}

TEST_CASE("results have the rank of the given tensors") {
  struct Case {
    TensorMap tensors;
    std::int64_t heads;
    Shape keys, weights, logsumexp, head_context, context;
  };
  const std::vector<Case> cases = {
      {zeros({{"Q", {3, 4}}, {"K", {5, 4}}}), 0, {5, 4}, {3, 5}, {3}, {3, 4}, {3, 4}},
      {zeros({{"Q", {3, 4}}, {"K", {5, 4}}}), 1, {1, 5, 4}, {1, 3, 5}, {1, 3}, {1, 3, 4}, {3, 4}},
      {zeros({{"Q", {3, 4}}, {"K", {5, 4}}}), 2, {2, 5, 2}, {2, 3, 5}, {2, 3}, {2, 3, 2}, {3, 4}},
      {zeros({{"Q", {2, 3, 4}}, {"K", {2, 5, 4}}}),
       0,
       {2, 5, 4},
       {2, 3, 5},
       {2, 3},
       {2, 3, 4},
       {2, 3, 4}},
      {zeros({{"Q", {1, 3, 4}}, {"K", {1, 5, 4}}}),
       2,
       {1, 2, 5, 2},
       {1, 2, 3, 5},
       {1, 2, 3},
       {1, 2, 3, 2},
       {1, 3, 4}},
      {zeros({{"Q", {2, 4, 3, 6}}, {"K", {2, 2, 5, 6}}}),
       0,
       {2, 2, 5, 6},
       {2, 4, 3, 5},
       {2, 4, 3},
       {2, 4, 3, 6},
       {2, 4, 3, 6}},
  };
  for (const Case& c : cases) {
    Options options;
    options.heads = c.heads;
    const TensorMap results = attend(
        {c.tensors, options},
        {Output::keys, Output::weights, Output::logsumexp, Output::head_context, Output::context});
    CHECK(results.at("keys").shape() == c.keys);
    CHECK(results.at("weights").shape() == c.weights);
    CHECK(results.at("logsumexp").shape() == c.logsumexp);
    CHECK(results.at("head_context").shape() == c.head_context);
    CHECK(results.at("context").shape() == c.context);
  }
}

TEST_CASE("given tensors are returned unchanged") {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<std::int8_t>({1, 2}, {1, 2}));
  tensors.set("K", Tensor::of<float>({1, 2}, {1, 2}));
  tensors.set("mask", Tensor::of<std::int64_t>({1}, {1}));
  const TensorMap results = attend({tensors}, {Input::mask, Input::Q});
  CHECK(results.names() == std::vector<std::string>{"mask", "Q"});
  CHECK(results.at("Q").dtype() == DType::i8);
  CHECK(results.at("mask").dtype() == DType::i64);
}

TEST_CASE("half-precision results are rounded once from single precision") {
  TensorMap tensors;
  const std::vector<double> third = {1, 1, 0};
  tensors.set("Q", cast(Tensor::of<double>({1, 1}, {0}), DType::f16));
  tensors.set("K", cast(Tensor::of<double>({3, 1}, {0, 0, 0}), DType::f16));
  tensors.set("V", cast(Tensor::of<double>({3, 1}, third), DType::f16));
  const TensorMap results = attend({tensors}, {Output::weights, Output::context});
  CHECK(results.at("weights").dtype() == DType::f16);
  CHECK(doubles_of(results.at("weights"))[0] == static_cast<double>(Half(1 / 3.0)));
  // With weights rounded to float16, 2/3 would become 0.66650390625 - 2^-11.
  CHECK(doubles_of(results.at("context"))[0] == static_cast<double>(Half(2 / 3.0)));
  tensors.set("V", cast(tensors.at("V"), DType::bf16));
  CHECK(attend({tensors}, {Output::context}).at("context").dtype() == DType::f32);
  Options options;
  options.compute = Compute::f64;
  const Tensor wide = attend({tensors, options}, {Output::context}).at("context");
  CHECK(wide.dtype() == DType::f64);
  CHECK(doubles_of(wide)[0] == Approx(2 / 3.0).epsilon(1e-15));
}

TEST_CASE("empty axes give empty results and empty sums") {
  const auto contexts = [](const Shape& Q, const Shape& K, const Shape& V) {
    Options options;
    options.scale.kind = Scale::Kind::none;
    return attend({zeros({{"Q", Q}, {"K", K}, {"V", V}}), options},
                  {Output::scores, Output::weights, Output::logsumexp, Output::context});
  };
  CHECK(contexts({0, 2}, {3, 2}, {3, 2}).at("context").shape() == Shape{0, 2});
  CHECK(contexts({0, 3, 2}, {0, 3, 2}, {0, 3, 2}).at("weights").shape() == Shape{0, 3, 3});
  CHECK(contexts({2, 2}, {3, 2}, {3, 0}).at("context").shape() == Shape{2, 0});
  const TensorMap keyless = contexts({2, 2}, {0, 2}, {0, 1});
  CHECK(doubles_of(keyless.at("context")) == std::vector<double>{0, 0});
  CHECK(doubles_of(keyless.at("logsumexp")) == std::vector<double>{-HUGE_VAL, -HUGE_VAL});
  const TensorMap widthless = contexts({1, 0}, {2, 0}, {2, 1});
  CHECK(doubles_of(widthless.at("scores")) == std::vector<double>{0, 0});
  CHECK(doubles_of(widthless.at("weights")) == std::vector<double>{0.5, 0.5});
}

TEST_CASE("shapes that a file claims without data are refused") {
  const std::size_t huge = std::size_t{1} << 40;
  const TensorMap tensors = zeros({{"Q", {1, huge, 0, 4}}, {"K", {1, 1, 0, 4}}});
  CHECK_THROWS_WITH(attend({tensors}, {Output::weights}),
                    Catch::Contains("Q: expected axis lengths of at most 1048576"));
  const TensorMap long_and_empty = zeros({{"Q", {1, 1000, 0, 4}}, {"K", {1, 1, 0, 4}}});
  CHECK(attend({long_and_empty}, {Output::context}).at("context").shape() == Shape{1, 1000, 0, 4});
}
