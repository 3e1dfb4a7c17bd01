// Worked examples with numbers printed by NumPy and SciPy.
#include <catch2/catch.hpp>

#include "attn/attention/attention.h"

using namespace attn;

namespace {

void check_printed(const Tensor& actual, const Shape& shape, const std::vector<double>& printed) {
  REQUIRE(actual.shape() == shape);
  const auto values = actual.data<double>();
  for (std::size_t i = 0; i < printed.size(); ++i) {
    INFO("element " << i);
    CHECK(std::abs(values[i] - printed[i]) <= 0.5e-8 * std::max(1.0, std::abs(printed[i])));
  }
}

}  // namespace

TEST_CASE("self-attention of four words with integer weights") {
  TensorMap tensors;
  tensors.set("embeddings", Tensor::of<std::int64_t>({4, 3}, {1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1}));
  tensors.set("W_Q", Tensor::of<std::int64_t>({3, 3}, {2, 0, 2, 2, 0, 0, 2, 1, 2}));
  tensors.set("W_K", Tensor::of<std::int64_t>({3, 3}, {2, 2, 2, 0, 2, 1, 0, 1, 1}));
  tensors.set("W_V", Tensor::of<std::int64_t>({3, 3}, {1, 1, 0, 0, 1, 1, 0, 0, 0}));
  const TensorMap results =
      attend({tensors}, {Output::context, Output::scores, Output::weights, Output::queries});

  CHECK(results.names() == std::vector<std::string>{"context", "scores", "weights", "queries"});
  const auto queries = results.at("queries").data<std::int64_t>();
  CHECK(std::vector<std::int64_t>(queries.begin(), queries.end()) ==
        std::vector<std::int64_t>{2, 0, 2, 2, 0, 0, 4, 0, 2, 2, 1, 2});
  const auto scores = results.at("scores").data<std::int64_t>();
  CHECK(std::vector<std::int64_t>(scores.begin(), scores.end()) ==
        std::vector<std::int64_t>{8, 2, 10, 2, 4, 0, 4, 0, 12, 2, 14, 2, 10, 4, 14, 3});
  check_printed(results.at("weights"), {4, 4},
                {2.36089863e-01, 7.38987555e-03, 7.49130386e-01, 7.38987555e-03, 4.54826323e-01,
                 4.51736775e-02, 4.54826323e-01, 4.51736775e-02, 2.39275049e-01, 7.43870015e-04,
                 7.59237211e-01, 7.43870015e-04, 8.99501754e-02, 2.81554063e-03, 9.05653685e-01,
                 1.58059922e-03});
  check_printed(results.at("context"), {4, 3},
                {0.98522025, 1.74174051, 0.75652026, 0.90965265, 1.40965265, 0.5, 0.99851226,
                 1.75849334, 0.75998108, 0.99560386, 1.90407309, 0.90846923});
}

TEST_CASE("sinusoidal positions with a doubled exponent and a softmax over the whole matrix") {
  TensorMap tensors;
  tensors.set("embeddings", Tensor::of<std::int64_t>({3, 4}, {1, 2, 3, 4, 4, 5, 2, 3, 6, 1, 2, 2}));
  tensors.set("W_Q",
              Tensor::of<std::int64_t>({4, 4}, {3, 3, 1, 2, 3, 3, 4, 0, 1, 4, 1, 2, 3, 2, 0, 0}));
  tensors.set("W_K",
              Tensor::of<std::int64_t>({4, 4}, {4, 2, 1, 3, 4, 3, 1, 0, 2, 2, 0, 4, 3, 1, 0, 0}));
  tensors.set("W_V",
              Tensor::of<std::int64_t>({4, 4}, {3, 3, 1, 3, 0, 1, 1, 0, 4, 0, 4, 1, 3, 4, 3, 3}));
  Options options;
  options.position.kind = Position::Kind::sinusoidal;
  options.position.exponent = Position::Exponent::doubled;
  options.position.first = 1;
  options.position.embedding_scale_sqrt = true;
  options.softmax_axis = SoftmaxAxis::all;
  const TensorMap results =
      attend({tensors, options}, {Output::inputs, Output::queries, Output::context});

  // Printed with all digits, so all digits must agree.
  const auto inputs = results.at("inputs").data<double>();
  CHECK(std::vector<double>(inputs.begin(), inputs.end()) ==
        std::vector<double>{2.8414709848078967, 4.54030230586814, 6.000099999999834, 8.999999995,
                            8.909297426825681, 9.583853163452858, 4.000199999998666, 6.99999998,
                            12.141120008059866, 1.0100075033995546, 4.0002999999955,
                            4.999999955000001});
  check_printed(results.at("queries"), {3, 4},
                {55.14541986, 64.14571986, 27.00278021, 17.68314197, 80.47965171, 85.48025173,
                 51.24491008, 25.81899485, 58.4536824, 65.45458244, 20.18145002, 32.28284002});
  check_printed(results.at("context"), {3, 4},
                {0, 0, 0, 0, 63.72869222, 64.31174536, 55.49395053, 51.72809222, 0, 0, 0, 0});
}

TEST_CASE("decoder queries and encoder keys with a softmax over all scores of one query") {
  TensorMap tensors;
  tensors.set("Q", Tensor::of<double>({2, 4}, {0.58, -0.13, 0.94, 0.22, 0.45, 0.11, -0.88, 0.67}));
  tensors.set("K", Tensor::of<double>({4, 4}, {0.64, -0.27, 0.89, -0.12, -0.45, 0.33, 0.71, 0.08,
                                               0.19, -0.94, 0.56, 0.37, 0.03, 0.85, -0.41, 0.76}));
  Options options;
  options.rows = {-1};
  options.softmax_axis = SoftmaxAxis::all;
  const TensorMap results =
      attend({tensors, options}, {Output::scores, Output::scaled_scores, Output::weights});
  check_printed(results.at("scores"), {1, 4}, {-0.6053, -0.7374, -0.2628, 0.977});
  check_printed(results.at("scaled_scores"), {1, 4}, {-0.30265, -0.3687, -0.1314, 0.4885});
  check_printed(results.at("weights"), {1, 4}, {0.1876594, 0.17566497, 0.22271181, 0.41396383});
}

TEST_CASE("one query of projected tokens and the columns of each head") {
  TensorMap tensors;
  tensors.set("embeddings", Tensor::of<double>({3, 4}, {0.12, -0.87, 0.33, 0.45, 0.76, 0.21, -0.34,
                                                        0.67, 0.03, -0.99, 0.42, 0.11}));
  tensors.set("W_Q",
              Tensor::of<double>({4, 4}, {0.12, -0.87, 0.33, 0.45, 0.76, 0.21, -0.34, 0.67, -0.55,
                                          0.18, 0.29, -0.73, 0.03, -0.99, 0.42, 0.11}));
  tensors.set("W_K",
              Tensor::of<double>({4, 4}, {0.64, -0.27, 0.89, -0.12, -0.45, 0.33, 0.71, 0.08, 0.19,
                                          -0.94, 0.56, 0.37, 0.03, 0.85, -0.41, 0.76}));
  tensors.set("W_V",
              Tensor::of<double>({4, 4}, {0.58, -0.13, 0.94, 0.22, -0.31, 0.66, -0.74, 0.09, 0.45,
                                          0.11, -0.88, 0.67, -0.92, 0.37, 0.28, -0.50}));
  Options options;
  options.rows = {1};
  const TensorMap results =
      attend({tensors, options},
             {Output::queries, Output::keys, Output::values, Output::weights, Output::context});
  check_printed(results.at("queries"), {1, 4}, {0.4579, -1.3416, 0.3622, 0.8046});
  check_printed(results.at("keys"), {3, 4},
                {0.5445, -0.2472, -0.5106, 0.3801, 0.3474, 0.7532, 0.3604, 0.309, 0.5478, -0.6361,
                 -0.4861, 0.1562});
  check_printed(results.at("weights"), {1, 3}, {0.3638497, 0.2022857, 0.4338646});
  check_printed(results.at("context"), {1, 4}, {0.12600783, -0.33765409, 0.61011304, -0.03407072});

  options.heads = 2;
  check_printed(attend({tensors, options}, {Output::W_Q_heads}).at("W_Q_heads"), {2, 4, 2},
                {0.12, -0.87, 0.76, 0.21, -0.55, 0.18, 0.03, -0.99, 0.33, 0.45, -0.34, 0.67, 0.29,
                 -0.73, 0.42, 0.11});
}
