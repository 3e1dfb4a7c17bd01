#include "attn/model/latent_attention.h"

#include <algorithm>
#include <optional>
#include <span>

#include "attn/attention/gemm.h"
#include "attn/attention/qk_norm.h"
#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/problem/options.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

/// Matrices (rows, width) in float64, charged to the budget until this object is destroyed.
class LatentProjector {
 public:
  LatentProjector(const LatentAttention& layer, TensorFiles& files)
      : layer_(layer), files_(files), charge_(&files.budget(), printable(layer.checkpoint)) {}

  bool is_wide() const { return is_wide_; }  ///< whether a tensor was float64 or of integers
  /// `count` numbers of 8 bytes.
  void charge(std::size_t count) { charge_.add(count, sizeof(double)); }

  Tensor wide(const Tensor& tensor) {
    note_dtype(tensor);
    if (tensor.dtype() != DType::f64) charge(tensor.size());
    return cast(tensor, DType::f64);
  }

  Tensor projected(const Tensor& x, const std::string& name, const std::string& bias,
                   std::size_t width) {
    const std::size_t rows = x.shape()[0];
    charge(saturating_product({rows, width}));
    Tensor y(DType::f64, {rows, width});
    {
      MemoryCharge copy(&files_.budget(), printable(layer_.checkpoint));
      const Tensor W = read(name);
      if (W.dtype() != DType::f64) copy.add(W.size(), sizeof(double));
      y = matmul(x, cast(W, DType::f64), Second::transposed, name);
    }
    if (bias.empty()) return y;
    const Tensor b = wide(read(bias));
    const auto out = y.mutable_data<double>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += b.data<double>()[i % width];
    return y;
  }

  Tensor normalised(const Tensor& x, const std::string& weight, double epsilon) {
    const std::size_t rows = x.shape()[0], width = x.shape()[1];
    const Tensor factors = wide(read(weight)).reshaped({1, width});
    charge(saturating_product({rows, width}));
    Options options;
    options.qk_norm = QkNorm::rms;
    options.qk_norm_epsilon = epsilon;
    return qk_normalised(x.reshaped({1, 1, rows, width}), factors, std::nullopt, options,
                         DType::f64)
        .reshaped({rows, width});
  }

 private:
  Tensor read(const std::string& name) {
    Tensor tensor = files_.read({layer_.checkpoint, name});
    note_dtype(tensor);
    return tensor;
  }

  void note_dtype(const Tensor& tensor) {
    is_wide_ = is_wide_ || !is_float(tensor.dtype()) || tensor.dtype() == DType::f64;
  }

  const LatentAttention& layer_;
  TensorFiles& files_;
  MemoryCharge charge_;
  bool is_wide_ = false;
};

/// The columns of `source` form `groups` groups of equal width, those of `target` `heads` groups.
/// Copies columns [first, first + width) of each group to column `to` of the same group of
/// `target`, or of all groups if `source` has one.
void copy_columns(const Tensor& source, std::size_t groups, std::size_t first, std::size_t width,
                  Tensor& target, std::size_t heads, std::size_t to) {
  const std::size_t rows = source.shape()[0];
  const std::size_t from_row = source.shape()[1], to_row = target.shape()[1];
  const double* const from = source.data<double>().data();
  double* const out = target.mutable_data<double>().data();
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t group = groups == 1 ? 0 : head;
      std::copy_n(from + row * from_row + group * (from_row / groups) + first, width,
                  out + row * to_row + head * (to_row / heads) + to);
    }
}

Shape shape_of(const LatentAttention& layer, const std::string& name, TensorFiles& files) {
  const auto stored = files.stored(layer.checkpoint, name);
  return stored ? stored->shape : Shape{};
}

/// The number of elements of the latent vector of the queries.
std::size_t rank_of_queries(const LatentAttention& layer, TensorFiles& files) {
  const Shape shape = shape_of(layer, layer.q_down, files);
  return shape.empty() ? 0 : shape[0];
}

}  // namespace

std::size_t hidden_width_of(const LatentAttention& layer, TensorFiles& files) {
  const Shape shape = shape_of(layer, layer.kv_down, files);
  return shape.size() == 2 ? shape[1] : 0;
}

void require_shapes(const LatentAttention& layer, TensorFiles& files) {
  const auto require = [&](const std::string& name, const Shape& shape) {
    if (name.empty()) return;
    const Shape found = shape_of(layer, name, files);
    if (found != shape)
      fail_data({.where = {layer.checkpoint, name},
                 .expected = "shape " + to_string(shape),
                 .found = to_string(found)});
  };
  for (const std::string& name : {layer.kv_down, layer.q_down})
    if (!name.empty() && shape_of(layer, name, files).size() != 2)
      fail_data({.where = {layer.checkpoint, name},
                 .expected = "a matrix",
                 .found = to_string(shape_of(layer, name, files))});
  const std::size_t M = hidden_width_of(layer, files), H = layer.heads, P = layer.plain_width,
                    R = layer.rotary_width, Dv = layer.value_width, C = layer.latent_width;
  require(layer.input_norm, {M});
  const bool has_rank = !layer.q_down.empty();
  const std::size_t rank = has_rank ? rank_of_queries(layer, files) : M;
  if (has_rank) require(layer.q_down, {rank, M});
  require(layer.q_down_bias, {rank});
  require(layer.q_norm, {rank});
  require(layer.q_up, {H * (P + R), rank});
  require(layer.kv_down, {C + R, M});
  require(layer.kv_down_bias, {C + R});
  require(layer.kv_norm, {C});
  require(layer.kv_up, {H * (P + Dv), C});
}

LatentTensors latent_tensors(const LatentAttention& layer, const Tensor& hidden,
                             const std::string& hidden_name, TensorFiles& files) {
  require_shapes(layer, files);
  const std::size_t M = hidden_width_of(layer, files);
  const Shape& given = hidden.shape();
  if ((given.size() != 2 && given.size() != 3) || given.back() != M)
    fail_data({.where = {hidden_name},
               .expected = "hidden states of width " + std::to_string(M) + ", as the layers of " +
                           printable(layer.checkpoint),
               .found = to_string(given)});
  const std::size_t H = layer.heads, P = layer.plain_width, R = layer.rotary_width,
                    Dv = layer.value_width, C = layer.latent_width;
  const std::size_t rows = M == 0 ? 0 : hidden.size() / M;
  LatentProjector projector(layer, files);
  Tensor x = projector.wide(hidden.reshaped({rows, M}));
  if (!layer.input_norm.empty()) x = projector.normalised(x, layer.input_norm, layer.input_epsilon);

  Tensor q = x;
  if (!layer.q_down.empty()) {
    q = projector.projected(q, layer.q_down, layer.q_down_bias, rank_of_queries(layer, files));
    q = projector.normalised(q, layer.q_norm, layer.latent_epsilon);
  }
  q = projector.projected(q, layer.q_up, "", H * (P + R));
  const Tensor down = projector.projected(x, layer.kv_down, layer.kv_down_bias, C + R);
  projector.charge(saturating_product({rows, C}));
  Tensor latent(DType::f64, {rows, C});
  copy_columns(down, 1, 0, C, latent, 1, 0);
  const Tensor kv =
      projector.projected(projector.normalised(latent, layer.kv_norm, layer.latent_epsilon),
                          layer.kv_up, "", H * (P + Dv));

  projector.charge(saturating_product({rows, H, 2 * (R + P) + Dv}));
  Tensor Q(DType::f64, {rows, H * (R + P)}), K = Q, V(DType::f64, {rows, H * Dv});
  copy_columns(q, H, P, R, Q, H, 0);
  copy_columns(q, H, 0, P, Q, H, R);
  copy_columns(down, 1, C, R, K, H, 0);
  copy_columns(kv, H, 0, P, K, H, R);
  copy_columns(kv, H, P, Dv, V, H, 0);

  const DType dtype = projector.is_wide() ? DType::f64 : DType::f32;
  const auto finished = [&](const Tensor& tensor) {
    files.budget().charge(tensor.size() * size_of(dtype), hidden_name, "project");
    Shape shape = given;
    shape.back() = tensor.shape()[1];
    return cast(tensor, dtype).reshaped(shape);
  };
  return {finished(Q), finished(K), finished(V)};
}

}  // namespace attn
