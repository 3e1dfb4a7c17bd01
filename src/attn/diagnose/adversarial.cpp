#include "attn/diagnose/adversarial.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <span>
#include <vector>

#include "attn/attention/attention.h"
#include "attn/problem/inputs.h"
#include "attn/problem/score_scale.h"

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
/// Layout::blhd, Layout::thd or packed heads another, the tokens.
struct Element {
  std::size_t token, column, head;
};

std::size_t token_axis(const Tensor& tensor, const Options& options) {
  const std::size_t rank = tensor.rank();
  if (rank == 4) return options.layout == Layout::bhld ? 2 : 1;
  if (rank == 3 && (options.batch_second || options.layout == Layout::thd)) return 0;
  return rank - 2;
}

Element element_of(const Tensor& tensor, std::size_t axis, std::size_t i, std::size_t D) {
  const Shape& shape = tensor.shape();
  std::size_t stride = 1;
  for (std::size_t k = axis + 1; k < shape.size(); ++k) stride *= shape[k];
  const std::size_t column = i % shape.back();
  if (shape.size() == 3 && axis == 0 && shape[2] == D)  // Layout::thd, or one head
    return {i / stride, column, i / D % shape[1]};
  if (shape.size() < 4)
    return {i / stride % shape[axis], column, column / std::max<std::size_t>(1, D)};
  const std::size_t heads = axis == 2 ? i / stride / shape[2] : i / shape[3];
  return {i / stride % shape[axis], column, heads % shape[axis == 2 ? 1 : 2]};
}

/// A direction that all keys share, the same in all heads: +1 and -1, or more in some of D columns
/// and 0 in others. Rotary positions turn columns of the first half of their pairs by large angles.
std::vector<double> shared_direction(const Inputs& in) {
  const std::size_t D = std::max<std::size_t>(1, in.D);
  const Rotary& rotary = in.options.rotary;
  const std::size_t width = rotary.width == 0 ? D : static_cast<std::size_t>(rotary.width);
  const auto is_fast = [&](std::size_t column) {
    if (rotary.kind == Rotary::Kind::none || width <= 4 || column >= width) return false;
    return (rotary.kind == Rotary::Kind::half ? column % (width / 2) : column / 2) < width / 4;
  };
  std::vector<double> direction(D);
  double squares = 0;
  for (std::size_t column = 0; column < D; ++column) {
    direction[column] = is_fast(column) ? 0 : column % 2 == 0 ? 1 : -1;
    squares += direction[column] * direction[column];
  }
  for (double& x : direction) x *= std::sqrt(static_cast<double>(D) / squares);
  return direction;
}

/// Keys after the longest length are hidden.
std::size_t longest_sequence(const Variant& given, const Inputs& in) {
  const Tensor* lengths = given.find(Input::key_lengths);
  if (lengths == nullptr || in.P > 0) return in.S;
  std::size_t longest = 1;
  const Tensor all = cast(*lengths, DType::i64);
  for (const std::int64_t length : all.data<std::int64_t>())
    longest = std::max(longest, static_cast<std::size_t>(std::max<std::int64_t>(1, length)));
  return longest;
}

// Columns of embeddings: kOfQuery and kOfKeys carry what the elements of a query or key have in
// common, kOfValues the mean of the values, and half of the others their differences.
enum Column : std::size_t { kOfQuery, kOfKeys, kOfValues, kFirstOther, kFewest = 16 };

bool is_of_queries(std::size_t column, std::size_t columns) {
  return column >= kFirstOther && column < columns / 2;
}

std::size_t columns_of(Input input, const Variant& given) {
  const Tensor* tensor = given.find(input);
  return tensor == nullptr ? 0 : tensor->shape().back();
}

/// Many values have a mean that is not near 0 in half of the columns.
double mean_of(std::size_t column, std::size_t head) {
  return column % 2 == 0 ? static_cast<double>(3 + head % 4) : 0;
}

/// Makes the numbers of each input.
class AdversarialNumbers {
 public:
  AdversarialNumbers(const Variant& given, std::uint64_t seed)
      : given_(given),
        in_(make_inputs(given)),
        normal_(seed),
        direction_(shared_direction(in_)),
        longest_(longest_sequence(given, in_)) {}

  TensorMap make() {
    TensorMap result;
    for (const auto& [name, tensor] : given_.tensors) {
      const auto input = input_named(name);
      const bool may_change = input && is_float(tensor.dtype());
      result.set(name, may_change ? cast(changed(*input, tensor), tensor.dtype()) : tensor);
    }
    if (const Tensor* sinks = given_.find(Input::sinks))
      result.set(std::string(name_of(Input::sinks)),
                 cast(sinks_of(result, *sinks), sinks->dtype()));
    return result;
  }

 private:
  /// The standard deviation of the elements of a query, and what they have in common: a factor of
  /// the direction.
  struct Kind {
    double size, common;
  };
  Kind kind_of(std::size_t from_end) const {
    switch (kOrder[from_end % kOrder.size()]) {
      case 0:
        return Kind{0.1 / deviation_, 0};
      case 1:
        return Kind{temperature_ / deviation_, 0};
      case 2:
        return Kind{sharp_, 0};
      case 3:
        return Kind{capped_, 0};
      case 4: {  // all scores are about -6, or near the lower end of the softcap
        const double low = -6 * temperature_;
        const double score = from_end / kOrder.size() % 2 == 0 ? low : std::min(low, -3 * cap_);
        return Kind{0.2 / deviation_, score / (deviation_ * std::sqrt(D_))};
      }
      default:  // or about 3
        return Kind{0.5 * temperature_ / deviation_,
                    3 * temperature_ / (deviation_ * std::sqrt(D_))};
    }
  }

  /// The deviation of the elements of a key, and what they have in common, which grows, so that the
  /// maxima of later keys are larger. Keys at both ends get about a quarter of the weights of the
  /// queries that see all others alike. Normalised ones cannot be larger than others, but nearer to
  /// the direction.
  Kind key_of(std::size_t token, std::size_t count) const {
    const bool is_last = token + 1 == std::min(count, longest_), is_end = token == 0 || is_last;
    const double size = is_at_edge(token, count) ? 1.5 : 1;
    const double common = 1 + 0.2 * static_cast<double>(token) / static_cast<double>(count);
    if (has_norm_) return Kind{size, is_last ? 6 : is_end ? 2.5 : 1.1 * size * common};
    const double at_end = 1 + std::log(std::max(4.0, static_cast<double>(in_.S) / 4)) / 3;
    return Kind{size, common * (is_end ? at_end : 1)};
  }

  bool is_at_edge(std::size_t token, std::size_t count) const {
    return token == 0 || token + kEdge >= std::min(count, longest_);
  }

  /// The scores of queries along the direction are about the same for all keys, unless their
  /// components differ.
  void set_component(std::span<double> key, double component) const {
    double own = 0;
    for (std::size_t i = 0; i < key.size(); ++i) own += key[i] * direction_[i] / D_;
    for (std::size_t i = 0; i < key.size(); ++i) key[i] += (component - own) * direction_[i];
  }

  Tensor queries(const Tensor& like, std::size_t axis) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto [token, column, head] = element_of(like, axis, i, in_.D);
      const auto [size, common] = kind_of(like.shape()[axis] - 1 - token + head);
      out[i] = size * normal_() + common * direction_[column % direction_.size()];
      if (has_norm_ && token % 5 == 1) out[i] *= 1e-3;
    }
    return result;
  }

  Tensor keys(const Tensor& like, std::size_t axis, bool common) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto [token, column, head] = element_of(like, axis, i, in_.D);
      const std::size_t tokens = like.shape()[axis];
      const bool is_end = token == 0 || token + 1 == tokens;
      const auto [size, shared] = key_of(token, tokens);
      const double factor = has_norm_ && token % 7 == 3 ? 1e-3 : 1;
      out[i] = factor * size * normal_();
      if (!common && is_end) out[i] *= 4;
      if (common && (i + 1) % direction_.size() == 0)
        set_component(out.subspan(i + 1 - direction_.size(), direction_.size()), factor * shared);
    }
    return result;
  }

  Tensor values(const Tensor& like, std::size_t axis) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto [token, column, head] = element_of(like, axis, i, in_.Dv);
      out[i] = normal_() * (is_at_edge(token, like.shape()[axis]) ? 24 : 8) + mean_of(column, head);
    }
    return result;
  }

  Tensor embeddings(const Tensor& like, std::size_t axis, bool has_queries, bool has_keys) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    const std::size_t columns = like.shape().back(), tokens = like.shape()[axis];
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto [token, column, head] = element_of(like, axis, i, columns);
      const auto [size, common] = kind_of(tokens - 1 - token);
      const double query = has_norm_ && token % 5 == 1 ? 1e-3 : 1;
      const double key = has_norm_ && token % 7 == 3 ? 1e-3 : 1;
      if (column == kOfQuery)
        out[i] = has_queries ? query * common : 0;
      else if (column == kOfKeys)
        out[i] = has_keys ? key * key_of(token, tokens).common : 0;
      else if (column == kOfValues)
        out[i] = has_keys ? 1 : 0;
      else if (is_of_queries(column, columns))
        out[i] = has_queries ? query * size * normal_() : 0;
      else
        out[i] = has_keys ? key * key_of(token, tokens).size * normal_() : 0;
    }
    return result;
  }

  Tensor weights(const Tensor& like, Input input) {
    Tensor result(DType::f64, like.shape());
    const auto out = result.mutable_data<double>();
    const std::size_t rows = like.shape()[0], columns = like.shape()[1];
    const std::size_t of_queries = rows / 2 - kFirstOther;
    const std::size_t used = input == Input::W_Q ? of_queries : rows - of_queries - kFirstOther;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / columns, column = i % columns;
      const double x = normal_() / std::sqrt(static_cast<double>(used));
      if (row < kFirstOther) {
        const bool is_common = row == kOfQuery  ? input == Input::W_Q
                               : row == kOfKeys ? input == Input::W_K
                                                : false;
        if (is_common) out[i] = direction_[column % direction_.size()];
        if (row == kOfValues && input == Input::W_V)
          out[i] = mean_of(column, column / std::max<std::size_t>(1, in_.Dv));
      } else if (is_of_queries(row, rows) == (input == Input::W_Q)) {
        out[i] = input == Input::W_V ? 24 * x : x;
      }
    }
    if (input == Input::W_K)
      for (std::size_t i = kFirstOther * columns; i + direction_.size() <= out.size();
           i += direction_.size())
        set_component(out.subspan(i, direction_.size()), 0);
    return result;
  }

  /// The tensor of an input with other numbers; as it is given if these do not matter.
  Tensor changed(Input input, const Tensor& tensor) {
    const std::size_t axis = tensor.rank() >= 2 ? token_axis(tensor, given_.options) : 0;
    const std::size_t past = tensor.rank() >= 2 ? tensor.rank() - 2 : 0;
    switch (input) {
      case Input::Q:
        return queries(tensor, axis);
      case Input::K:
        return keys(tensor, axis, true);
      case Input::past_K:
        return keys(tensor, past, true);
      case Input::V:
        return values(tensor, axis);
      case Input::past_V:
        return values(tensor, past);
      case Input::embeddings:
      case Input::memory:
      case Input::memory_V:
        return is_projected_ ? embeddings(tensor, axis, input == Input::embeddings,
                                          input != Input::embeddings || !given_.has(Input::memory))
                             : keys(tensor, axis, false);
      case Input::W_Q:
      case Input::W_K:
      case Input::W_V:
        return is_projected_ && tensor.shape()[0] >= kFewest ? weights(tensor, input) : tensor;
      case Input::b_Q:
      case Input::b_K:  // larger ones would hide epsilon, and turn keys from the direction
        return biases(tensor, has_norm_ ? 2e-3 : 0.5 / (input == Input::b_Q ? deviation_ : 1));
      case Input::alibi_slopes:
        return slopes(tensor);
      case Input::head_scale:
        return head_scales(tensor);
      default:
        return tensor;
    }
  }

  Tensor biases(const Tensor& like, double size) {
    Tensor result(DType::f64, like.shape());
    for (double& x : result.mutable_data<double>()) x = size * normal_();
    return result;
  }

  static Tensor slopes(const Tensor& given) {
    Tensor result = cast(given, DType::f64);
    std::size_t h = 0;
    for (double& x : result.mutable_data<double>())
      x = std::max(std::abs(x), 0.1 + 0.02 * static_cast<double>(h++ % 8));
    return result;
  }

  /// None near 1.
  static Tensor head_scales(const Tensor& given) {
    Tensor result = cast(given, DType::f64);
    for (double& x : result.mutable_data<double>())
      if (std::abs(x - 1) < 0.25) x = x < 1 ? 0.75 : 1.25;
    return result;
  }

  /// Sinks about as large as the scores of some queries together.
  Tensor sinks_of(const TensorMap& others, const Tensor& sinks) const {
    Variant plain{{others, given_.options}};
    plain.erase({Input::sinks});
    report_natural_logsumexp(plain.options);
    plain.options.compute = Compute::f64;
    const Tensor sums = attend(plain, {Output::logsumexp}).at(name_of(Output::logsumexp));
    std::vector<double> all(sums.data<double>().begin(), sums.data<double>().end());
    std::erase_if(all, [](double x) { return !std::isfinite(x); });
    std::sort(all.begin(), all.end());
    Tensor changed(DType::f64, sinks.shape());
    for (std::size_t h = 0; h < changed.size(); ++h) {
      const double low = all.empty() ? 0 : all[all.size() / (h % 2 == 0 ? 20 : 5)] + 0.5;
      // Not near 0, where a factor would make no difference.
      const double sink = std::abs(low) < 1.5 ? 1.5 : low;
      changed.mutable_data<double>()[h] = sink + 0.5 * static_cast<double>(h % 3);
    }
    return changed;
  }

  const Variant& given_;
  const Inputs in_;
  Normal normal_;
  const std::vector<double> direction_;
  const std::size_t longest_;  ///< longest_sequence()
  const double D_ = static_cast<double>(std::max<std::size_t>(1, in_.D));
  /// The standard deviation of the scores of unit queries and keys.
  const double deviation_ = std::max(1e-6, std::abs(in_.scale.factor()) * std::sqrt(D_));
  const double cap_ = in_.options.softcap, temperature_ = in_.options.temperature;
  const double sharp_ = 2 * temperature_ / deviation_;
  const double capped_ = cap_ > 0 ? std::max(2.0, 0.6 * cap_) / deviation_ : sharp_;
  const bool has_norm_ = in_.options.qk_norm != QkNorm::none;
  const bool is_projected_ =
      columns_of(Input::embeddings, given_) >= kFewest && given_.has(Input::W_Q) &&
      given_.has(Input::W_K) &&
      (!given_.has(Input::memory) || columns_of(Input::memory, given_) >= kFewest);
};

}  // namespace

TensorMap adversarial_inputs(const Variant& given, std::uint64_t seed) {
  return AdversarialNumbers(given, seed).make();
}

}  // namespace attn
