// A tensor's elements as an xtensor expression. Heavy: include it from .cpp files only.
#pragma once

#include <xtensor/xadapt.hpp>

#include "attn/tensor/tensor.h"

namespace attn {

/// A shape as xtensor's own type.
inline xt::dynamic_shape<std::size_t> extents_of(const Tensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

/// A read-only xtensor array over the tensor's own memory; valid while the tensor exists.
template <class T>
auto array_of(const Tensor& tensor) {
  return xt::adapt(tensor.data<T>().data(), tensor.size(), xt::no_ownership(), extents_of(tensor));
}

/// The same, but writable.
template <class T>
auto mutable_array_of(Tensor& tensor) {
  return xt::adapt(tensor.mutable_data<T>().data(), tensor.size(), xt::no_ownership(),
                   extents_of(tensor));
}

}  // namespace attn
