#include "attn/core/mask.h"

#include <limits>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xoperation.hpp>

#include "attn/core/heads.h"
#include "attn/tensor/array.h"

namespace attn {
namespace {

bool is_open(const Options& options) {
  return options.causal == Causal::none && options.window.left < 0 && options.window.right < 0;
}

/// Causality and the window, for a key this far behind (negative) or ahead of i + offset.
bool reaches(const Options& options, std::int64_t distance) {
  return !(options.causal != Causal::none && distance > 0) &&
         !(options.window.left >= 0 && -distance > options.window.left) &&
         !(options.window.right >= 0 && distance > options.window.right);
}

/// (R, S), boolean: what causality and the window leave visible.
Tensor band(const Options& options, const std::vector<std::size_t>& rows, std::size_t L,
            std::size_t S) {
  Tensor visible(DType::boolean, {rows.size(), S});
  bool* out = visible.mutable_data<bool>().data();
  const auto offset = options.causal == Causal::bottom_right
                          ? static_cast<std::int64_t>(S) - static_cast<std::int64_t>(L)
                          : 0;
  for (const std::size_t i : rows)
    for (std::size_t j = 0; j < S; ++j)
      *out++ =
          reaches(options, static_cast<std::int64_t>(j) - static_cast<std::int64_t>(i) - offset);
  return visible;
}

/// The mask for the rows computed, where it has a row for each query.
Tensor rows_of(const Tensor& mask, const std::vector<std::size_t>& rows, std::size_t L) {
  return mask.shape()[2] == L && L != 1 ? take_rows(mask, rows) : mask;
}

template <class T>
Masked masked(const Tensor& scaled, const std::optional<Tensor>& mask, const Options& options,
              const std::vector<std::size_t>& rows, std::size_t L) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  Masked result{scaled, Tensor(DType::boolean, scaled.shape())};
  auto scores = mutable_array_of<T>(result.scores);
  auto visible = mutable_array_of<bool>(result.visible);
  visible.fill(true);
  if (!is_open(options)) {
    const Tensor seen = band(options, rows, L, scaled.shape()[3]);
    xt::noalias(visible) = visible && array_of<bool>(seen);  // broadcast over B and H
  }
  if (mask && mask->dtype() == DType::boolean) {
    const bool attend = options.mask_polarity == MaskPolarity::attend;
    xt::noalias(visible) = visible && xt::equal(array_of<bool>(*mask), attend);
  } else if (mask) {
    const auto bias = array_of<T>(*mask);
    xt::noalias(visible) = visible && xt::not_equal(bias, kHidden);
    xt::noalias(scores) = scores + bias;
  }
  xt::noalias(scores) = xt::where(visible, scores, kHidden);
  return result;
}

}  // namespace

Masked mask_scores(const Tensor& scaled, const std::optional<Tensor>& mask, const Options& options,
                   const std::vector<std::size_t>& rows, std::size_t L) {
  const std::optional<Tensor> mask_rows =
      mask ? std::optional<Tensor>(rows_of(*mask, rows, L)) : std::nullopt;
  return scaled.dtype() == DType::f64 ? masked<double>(scaled, mask_rows, options, rows, L)
                                      : masked<float>(scaled, mask_rows, options, rows, L);
}

}  // namespace attn
