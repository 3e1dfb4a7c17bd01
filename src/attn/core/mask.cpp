#include "attn/core/mask.h"

#include <limits>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xoperation.hpp>

#include "attn/core/heads.h"
#include "attn/tensor/array.h"

namespace attn {
namespace {

/// Causality and the window, for a key this far behind (negative) or ahead of a query's place.
bool reaches(const Options& options, std::int64_t distance) {
  return !(options.causal && distance > 0) &&
         !(options.window.left >= 0 && -distance > options.window.left) &&
         !(options.window.right >= 0 && distance > options.window.right);
}

/// (B, 1, R, S) or (1, 1, R, S), boolean: what the places of queries and keys leave visible.
Tensor band(const Inputs& in, const Options& options) {
  Tensor visible(DType::boolean, {in.places.size(), 1, in.rows.size(), in.S});
  bool* out = visible.mutable_data<bool>().data();
  for (const auto& [queries, keys] : in.places)
    for (const std::size_t i : in.rows)
      for (std::size_t j = 0; j < in.S; ++j)
        *out++ = queries.document[i] != Places::kPadding &&
                 queries.document[i] == keys.document[j] &&
                 reaches(options, keys.place[j] - queries.place[i]);
  return visible;
}

std::vector<bool> padding(const Inputs& in) {
  std::vector<bool> is_padding;
  for (std::size_t b = 0; b < in.B; ++b)
    for (const std::size_t i : in.rows) {
      const Places& places = in.places[in.places.size() == 1 ? 0 : b];
      is_padding.push_back(places.queries.document[i] == Places::kPadding);
    }
  return is_padding;
}

/// The mask for the rows computed, where it has a row for each query.
Tensor rows_of(const Tensor& mask, const Inputs& in) {
  return mask.shape()[2] == in.L && in.L != 1 ? take_rows(mask, in.rows) : mask;
}

template <class T>
Masked masked(const Tensor& scaled, const Inputs& in, const Options& options) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  Masked result{scaled, Tensor(DType::boolean, scaled.shape()), padding(in)};
  auto scores = mutable_array_of<T>(result.scores);
  auto visible = mutable_array_of<bool>(result.visible);
  const Tensor seen = band(in, options);
  xt::noalias(visible) = xt::broadcast(array_of<bool>(seen), scaled.shape());
  if (in.mask) {
    const Tensor mask = rows_of(*in.mask, in);
    if (mask.dtype() == DType::boolean) {
      const bool attend = options.mask_polarity == MaskPolarity::attend;
      xt::noalias(visible) = visible && xt::equal(array_of<bool>(mask), attend);
    } else {
      const auto bias = array_of<T>(mask);
      xt::noalias(visible) = visible && xt::not_equal(bias, kHidden);
      xt::noalias(scores) = scores + bias;
    }
  }
  xt::noalias(scores) = xt::where(visible, scores, kHidden);
  return result;
}

}  // namespace

Masked mask_scores(const Tensor& scaled, const Inputs& in, const Options& options) {
  return scaled.dtype() == DType::f64 ? masked<double>(scaled, in, options)
                                      : masked<float>(scaled, in, options);
}

}  // namespace attn
