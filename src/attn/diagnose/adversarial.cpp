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

  const auto queries = [&](const Tensor& like, std::size_t axis) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto [token, column, head] = element_of(like, axis, i, in.D);
      const double x = normal(), common = direction(column, in.D);
      const std::size_t from_end = like.shape()[axis] - 1 - token;
      switch (kOrder[(from_end + head) % kOrder.size()]) {
        case 0:
          out[i] = 0.1 / deviation * x;
          break;
        case 1:
          out[i] = x / deviation;
          break;
        case 2:
          out[i] = sharp * x;
          break;
        case 3:
          out[i] = capped * x;
          break;
        case 4:  // all scores are about -6
          out[i] = 0.2 / deviation * x - 6 / (deviation * std::sqrt(D)) * common;
          break;
        default:  // or about 3
          out[i] = 0.5 / deviation * x + 3 / (deviation * std::sqrt(D)) * common;
      }
      if (in.options.qk_norm != QkNorm::none && token % 5 == 1) out[i] *= 1e-3;
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
          changed = keys(tensor, axis, false);
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
