#include "attn/core/project.h"

#include "attn/base/error.h"
#include "attn/core/gemm.h"

namespace attn {
namespace {

template <class T>
T sum(T y, T b, const std::string&) {
  return y + b;
}

std::int64_t sum(std::int64_t y, std::int64_t b, const std::string& stage) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(y, b, &result))
    throw Error(ErrorKind::data, Problem{.subject = stage,
                                         .expected = "integers within int64",
                                         .found = "an overflow",
                                         .hint = "give the tensors as floating-point numbers"});
  return result;
}

template <class T>
Tensor add(Tensor y, const Tensor& b, const std::string& stage) {
  const auto bias = b.data<T>();
  const auto out = y.mutable_data<T>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = sum(out[i], bias[i % bias.size()], stage);
  return y;
}

Tensor add_bias(const Tensor& y, const Tensor& b, const std::string& stage) {
  const DType dtype = y.dtype() == DType::i64 ? b.dtype() : y.dtype();
  const Tensor left = cast(y, dtype), right = cast(b, dtype);
  if (dtype == DType::f64) return add<double>(left, right, stage);
  if (dtype == DType::f32) return add<float>(left, right, stage);
  return add<std::int64_t>(left, right, stage);
}

}  // namespace

Tensor project(const Tensor& x, const std::optional<Tensor>& W, const std::optional<Tensor>& b,
               const std::string& stage) {
  const Tensor y = W ? matmul(x, *W, Second::plain, stage) : x;
  return b ? add_bias(y, *b, stage) : y;
}

}  // namespace attn
