#include "attn/diagnose/adversarial.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "attn/core/attention.h"
#include "attn/core/inputs.h"
#include "attn/core/score_scale.h"

namespace attn {
namespace {

/// Standard normal numbers, the same on all machines (Box and Muller 1958).
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : bits_(seed) {}
  double operator()() {
    const double u = (static_cast<double>(bits_() >> 11) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(bits_() >> 11) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }

 private:
  std::mt19937_64 bits_;
};

constexpr std::size_t kEdge = 16;
/// Kinds of queries, from the last on: the last ones decide in decoding, and for the last key.
constexpr std::array<std::size_t, 6> kOrder = {5, 4, 2, 3, 1, 0};

/// Element i of a tensor of tokens: the last axis has the columns, and the one before, or with
/// Layout::blhd or packed heads another, the tokens.
struct Element {
  std::size_t token, column, head;
};

std::size_t token_axis(const Tensor& tensor, const Options& options) {
  const std::size_t rank = tensor.rank();
  if (rank == 4) return options.layout == Layout::bhld ? 2 : 1;
  if (rank == 3 && options.batch_second) return 0;
  return rank - 2;
}

Element element_of(const Tensor& tensor, std::size_t axis, std::size_t i, std::size_t D) {
  const Shape& shape = tensor.shape();
  std::size_t stride = 1;
  for (std::size_t k = axis + 1; k < shape.size(); ++k) stride *= shape[k];
  const std::size_t column = i % shape.back();
  if (shape.size() < 4)
    return {i / stride % shape[axis], column, column / std::max<std::size_t>(1, D)};
  const std::size_t heads = axis == 2 ? i / stride / shape[2] : i / shape[3];
  return {i / stride % shape[axis], column, heads % shape[axis == 2 ? 1 : 2]};
}

/// A direction that all keys share: +1 and -1, the same in all heads.
double direction(std::size_t column, std::size_t D) { return column % D % 2 == 0 ? 1 : -1; }

}  // namespace

TensorMap adversarial_inputs(const Variant& given, std::uint64_t seed) {
  const Inputs in = make_inputs(given.tensors, given.options);
  Normal normal(seed);
  const double D = static_cast<double>(std::max<std::size_t>(1, in.D));
  // The standard deviation of the scores of unit queries and keys.
  const double deviation = std::max(1e-6, std::abs(in.scale.factor()) * std::sqrt(D));
  const double cap = in.options.softcap;
  const double sharp = 2 / deviation,
               capped = cap > 0 ? std::max(2.0, 0.6 * cap) / deviation : sharp;
  // Keys at both ends get about a quarter of the weights of the queries that see all others alike.
  const double at_end = 1 + std::log(std::max(4.0, static_cast<double>(in.S) / 4)) / 3;
  const auto is_at_edge = [](std::size_t token, std::size_t count) {
    return token == 0 || token + kEdge >= count;
  };

  /// The standard deviation of the elements of a query, and what they have in common: a factor of
  /// direction().
  struct Kind {
    double size, common;
  };
  const auto kind_of = [&](std::size_t from_end) {
    switch (kOrder[from_end % kOrder.size()]) {
      case 0:
        return Kind{0.1 / deviation, 0};
      case 1:
        return Kind{1 / deviation, 0};
      case 2:
        return Kind{sharp, 0};
      case 3:
        return Kind{capped, 0};
      case 4: {  // all scores are about -6, or near the lower end of the softcap
        const double score = from_end / kOrder.size() % 2 == 0 ? -6 : std::min(-6.0, -3 * cap);
        return Kind{0.2 / deviation, score / (deviation * std::sqrt(D))};
      }
      default:  // or about 3
        return Kind{0.5 / deviation, 3 / (deviation * std::sqrt(D))};
    }
  };
  const bool has_norm = in.options.qk_norm != QkNorm::none;

  const auto queries = [&](const Tensor& like, std::size_t axis) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto [token, column, head] = element_of(like, axis, i, in.D);
      const auto [size, common] = kind_of(like.shape()[axis] - 1 - token + head);
      out[i] = size * normal() + common * direction(column, in.D);
      if (has_norm && token % 5 == 1) out[i] *= 1e-3;
    }
    return result;
  };
  const auto keys = [&](const Tensor& like, std::size_t axis, bool common) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto [token, column, head] = element_of(like, axis, i, in.D);
      const std::size_t tokens = like.shape()[axis];
      const bool is_end = token == 0 || token + 1 == tokens;
      out[i] = normal() * (is_at_edge(token, tokens) ? 1.5 : 1) +
               (common ? direction(column, in.D) * (is_end ? at_end : 1) : 0);
      if (!common && is_end) out[i] *= 4;
      if (in.options.qk_norm != QkNorm::none && token % 7 == 3) out[i] *= 1e-3;
    }
    return result;
  };
  const auto values = [&](const Tensor& like, std::size_t axis) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      // Not around 0, where the mean of many values would be.
      const auto [token, column, head] = element_of(like, axis, i, in.Dv);
      out[i] = normal() * (is_at_edge(token, like.shape()[axis]) ? 24 : 8) +
               static_cast<double>(3 + head % 4);
    }
    return result;
  };

  // Columns of embeddings: kOfQuery and kOfKeys carry what the elements of a query or key have in
  // common, kOfValues the mean of the values, and half of the others their differences.
  enum Column : std::size_t { kOfQuery, kOfKeys, kOfValues, kFirstOther, kFewest = 16 };
  const auto columns_of = [&](Input input) {
    const Tensor* tensor = given.find(input);
    return tensor == nullptr ? 0 : tensor->shape().back();
  };
  const std::size_t M = columns_of(Input::embeddings);
  const bool is_projected = M >= kFewest && given.has(Input::W_Q) && given.has(Input::W_K) &&
                            (!given.has(Input::memory) || columns_of(Input::memory) >= kFewest);
  const auto is_of_queries = [](std::size_t column, std::size_t columns) {
    return column >= kFirstOther && column < columns / 2;
  };
  const auto embeddings = [&](const Tensor& like, std::size_t axis, bool has_queries,
                              bool has_keys) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    const std::size_t columns = like.shape().back(), tokens = like.shape()[axis];
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto [token, column, head] = element_of(like, axis, i, columns);
      const auto [size, common] = kind_of(tokens - 1 - token);
      const bool is_end = token == 0 || token + 1 == tokens;
      const double query = has_norm && token % 5 == 1 ? 1e-3 : 1;
      const double key = has_norm && token % 7 == 3 ? 1e-3 : 1;
      if (column == kOfQuery)
        out[i] = has_queries ? query * common : 0;
      else if (column == kOfKeys)
        out[i] = has_keys ? key * (is_end ? at_end : 1) : 0;
      else if (column == kOfValues)
        out[i] = has_keys ? 1 : 0;
      else if (is_of_queries(column, columns))
        out[i] = has_queries ? query * size * normal() : 0;
      else
        out[i] = has_keys ? key * (is_at_edge(token, tokens) ? 1.5 : 1) * normal() : 0;
    }
    return result;
  };
  const auto weights = [&](const Tensor& like, Input input) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    const std::size_t rows = like.shape()[0], columns = like.shape()[1];
    const std::size_t of_queries = rows / 2 - kFirstOther;
    const std::size_t used = input == Input::W_Q ? of_queries : rows - of_queries - kFirstOther;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / columns, column = i % columns;
      const double x = normal() / std::sqrt(static_cast<double>(used));
      if (row < kFirstOther) {
        const bool is_common = row == kOfQuery  ? input == Input::W_Q
                               : row == kOfKeys ? input == Input::W_K
                                                : false;
        if (is_common) out[i] = direction(column, in.D);
        if (row == kOfValues && input == Input::W_V)
          out[i] = static_cast<double>(3 + column / std::max<std::size_t>(1, in.Dv) % 4);
      } else if (is_of_queries(row, rows) == (input == Input::W_Q)) {
        out[i] = input == Input::W_V ? 8 * x : x;
      }
    }
    return result;
  };

  TensorMap result;
  for (const auto& [name, tensor] : given.tensors) {
    Tensor changed = tensor;
    const auto input = input_named(name);
    if (input && is_float(tensor.dtype())) {
      const std::size_t axis = tensor.rank() >= 2 ? token_axis(tensor, given.options) : 0;
      const std::size_t past = tensor.rank() >= 2 ? tensor.rank() - 2 : 0;
      switch (*input) {
        case Input::Q:
          changed = queries(tensor, axis);
          break;
        case Input::K:
          changed = keys(tensor, axis, true);
          break;
        case Input::past_K:
          changed = keys(tensor, past, true);
          break;
        case Input::V:
          changed = values(tensor, axis);
          break;
        case Input::past_V:
          changed = values(tensor, past);
          break;
        case Input::embeddings:
        case Input::memory:
        case Input::memory_V:
          changed = is_projected
                        ? embeddings(tensor, axis, *input == Input::embeddings,
                                     *input != Input::embeddings || !given.has(Input::memory))
                        : keys(tensor, axis, false);
          break;
        case Input::W_Q:
        case Input::W_K:
        case Input::W_V:
          if (is_projected && tensor.shape()[0] >= kFewest) changed = weights(tensor, *input);
          break;
        default:
          break;
      }
      if (changed.dtype() != tensor.dtype()) changed = cast(changed, tensor.dtype());
    }
    result.set(name, changed);
  }
  if (const Tensor* sinks = given.find(Input::sinks)) {
    Variant plain{result, given.options, RowChange::none};
    plain.erase({Input::sinks});
    plain.options.lse_base = std::numbers::e;
    plain.options.compute = Compute::f64;
    const Tensor sums =
        attend(plain.tensors, plain.options, {Output::logsumexp}).at(name_of(Output::logsumexp));
    std::vector<double> all(sums.data<double>().begin(), sums.data<double>().end());
    std::erase_if(all, [](double x) { return !std::isfinite(x); });
    std::sort(all.begin(), all.end());
    Tensor changed(DType::f64, sinks->shape());
    for (std::size_t h = 0; h < changed.size(); ++h)
      changed.mutable_data<double>()[h] = (all.empty()  ? 1
                                           : h % 2 == 0 ? all[all.size() / 2]
                                                        : all[all.size() / 10]) +
                                          0.5 + 0.1 * static_cast<double>(h % 5);
    result.set(std::string(name_of(Input::sinks)), cast(changed, sinks->dtype()));
  }
  return result;
}

}  // namespace attn
