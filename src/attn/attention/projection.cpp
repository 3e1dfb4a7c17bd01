#include "attn/attention/projection.h"

#include "attn/attention/gemm.h"
#include "attn/base/error.h"
#include "attn/tensor/rearrange.h"

namespace attn {
namespace {

template <class T>
T sum(T y, T b, Output) {
  return y + b;
}

std::int64_t sum(std::int64_t y, std::int64_t b, Output stage) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(y, b, &result))
    fail_data({.subject = std::string(name_of(stage)),
               .expected = "integers within int64",
               .found = "an overflow",
               .hint = "give the tensors as floating-point numbers"});
  return result;
}

template <class T>
Tensor add(Tensor y, const Tensor& b, Output stage) {
  const auto bias = b.data<T>();
  const auto out = y.mutable_data<T>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = sum(out[i], bias[i % bias.size()], stage);
  return y;
}

Tensor add_bias(const Tensor& y, const Tensor& b, Output stage) {
  const DType dtype = y.dtype() == DType::i64 ? b.dtype() : y.dtype();
  const Tensor left = cast(y, dtype), right = cast(b, dtype);
  if (dtype == DType::f64) return add<double>(left, right, stage);
  if (dtype == DType::f32) return add<float>(left, right, stage);
  return add<std::int64_t>(left, right, stage);
}

}  // namespace

Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
               Output stage) {
  Tensor y = W ? matmul(x, *W, Second::plain, name_of(stage)) : x;
  return b ? add_bias(y, *b, stage) : std::move(y);
}

Tensor weight_heads(Output output, const Inputs& in) {
  const Tensor& W = at(in.tensors, *row_of(output).source);
  const std::size_t heads = row_of(output).axes.contains(Axis::H) ? in.H : in.G;
  const std::size_t M = W.shape()[0], width = W.shape()[1];
  return split_heads(W.reshaped({1, M, width}), heads).reshaped({heads, M, width / heads});
}

}  // namespace attn
