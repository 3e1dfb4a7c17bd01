#include "attn/core/mask.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xoperation.hpp>

#include "attn/core/alibi.h"
#include "attn/core/heads.h"
#include "attn/core/relative_bias.h"
#include "attn/core/visibility.h"
#include "attn/tensor/array.h"

namespace attn {
namespace {

std::vector<bool> padding(const Inputs& in) {
  std::vector<bool> padding;
  for (std::size_t b = 0; b < in.B; ++b)
    for (const std::size_t i : in.rows) padding.push_back(is_padding(in, b, i));
  return padding;
}

/// c tanh(x / c), in doubles.
template <class T>
void cap(std::span<T> scores, double c) {
  for (T& x : scores) x = static_cast<T>(c * std::tanh(static_cast<double>(x) / c));
}

template <class T>
std::pair<Tensor, VisibleKeys> mask_as(const Tensor& scaled, const Inputs& in,
                                       const Options& options) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  Tensor masked = scaled;
  VisibleKeys result{Tensor(DType::boolean, scaled.shape()), padding(in)};
  auto scores = mutable_array_of<T>(masked);
  auto visible = mutable_array_of<bool>(result.keys);
  const Tensor by_position = visible_by_position(in, options);
  xt::noalias(visible) = xt::broadcast(array_of<bool>(by_position), extents_of(scaled));
  for (const std::optional<Tensor>* given : {&in.mask, &in.key_mask}) {
    if (!*given) continue;
    const Tensor mask = fitted_mask(**given, in, options.mask_polarity);
    if (mask.dtype() == DType::boolean) {
      const bool attend = options.mask_polarity == MaskPolarity::attend;
      xt::noalias(visible) = visible && xt::equal(array_of<bool>(mask), attend);
    } else {
      const auto bias = array_of<T>(mask);
      xt::noalias(visible) = visible && xt::not_equal(bias, kHidden);
      xt::noalias(scores) = scores + bias;
    }
  }
  if (in.slopes) {
    const Tensor bias = alibi_bias(*in.slopes, in);
    xt::noalias(scores) = scores + array_of<T>(bias);
  }
  if (in.relative_bias) {
    const Tensor bias = relative_bias(*in.relative_bias, in, options);
    xt::noalias(scores) = scores + array_of<T>(bias);
  }
  if (options.softcap_order == SoftcapOrder::after_mask)
    cap(masked.mutable_data<T>(), options.softcap);
  xt::noalias(scores) = xt::where(visible, scores, kHidden);
  return {masked, result};
}

}  // namespace

Tensor fitted_mask(const Tensor& given, const Inputs& in, MaskPolarity polarity) {
  std::vector<std::size_t> all(in.L);
  std::iota(all.begin(), all.end(), std::size_t{0});
  const bool chosen = given.shape()[2] == in.L && in.L != 1 && in.rows != all;
  const Tensor mask = chosen ? take_rows(given, in.rows) : given;
  if (in.E == 0) return mask;
  const Shape& shape = mask.shape();
  const std::size_t keys = in.P + in.N, step = shape[3] == 1 ? 0 : 1;
  Tensor wide(mask.dtype(), {shape[0], shape[1], shape[2], in.S});
  visit(mask.dtype(), [&]<class T>(Type<T>) {
    const bool open = mask.dtype() == DType::boolean && polarity == MaskPolarity::attend;
    T* out = wide.mutable_data<T>().data();
    for (std::size_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row)
      for (std::size_t j = 0; j < in.S; ++j)
        *out++ = j < keys ? mask.data<T>()[row * shape[3] + j * step] : static_cast<T>(open);
  });
  return wide;
}

std::pair<Tensor, VisibleKeys> mask_scores(const Tensor& scaled, const Inputs& in,
                                           const Options& options) {
  return scaled.dtype() == DType::f64 ? mask_as<double>(scaled, in, options)
                                      : mask_as<float>(scaled, in, options);
}

}  // namespace attn
