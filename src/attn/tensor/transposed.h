// Transposition of matrices.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <span>

#include "attn/tensor/tensor.h"

namespace attn {

/// (..., M, N) -> (..., N, M). The elements are copied unless M or N is 1.
Tensor transposed_matrices(const Tensor& x);

/// Takes elements of a mapped file out of memory, until they are used again.
using ReleasePages = std::function<void(std::span<const std::byte>)>;

/// A matrix (M, N) whose transpose is stored, maybe in another float type. Products can use what is
/// stored; it is transposed when the elements are read otherwise. Thread-safe.
class TransposedMatrix final : public DeferredElements {
 public:
  TransposedMatrix(Tensor stored, DType dtype, ReleasePages release)
      : stored_(std::move(stored)), dtype_(dtype), release_(std::move(release)) {}

  const Tensor& stored() const { return stored_; }  ///< (N, M)
  /// The same matrix with elements of another float type.
  Tensor in_type(DType dtype) const;
  /// Says that these rows of stored() are no longer used.
  void release(std::size_t first, std::size_t count) const;

  const std::byte* data() const override;
  const TransposedMatrix* transpose() const override { return this; }

 private:
  const Tensor stored_;
  const DType dtype_;
  const ReleasePages release_;
  mutable std::mutex mutex_;
  mutable std::optional<Tensor> all_;  ///< guarded by mutex_
};

/// transposed_matrices(matrix). Large floats are transposed when they are first read
/// (Tensor::transpose()), and cast() to a float type converts them only then. `release` is called
/// after their last use.
Tensor deferred_transpose(const Tensor& matrix, const ReleasePages& release);

}  // namespace attn
