#include "attn/tensor/widened.h"

#include <mutex>
#include <optional>
#include <utility>

namespace attn {
namespace {

class WidenedElements final : public DeferredElements {
 public:
  WidenedElements(Tensor narrow, DType dtype) : narrow_(std::move(narrow)), dtype_(dtype) {}

  const std::byte* data() const override {
    const std::lock_guard lock(mutex_);
    if (!wide_) wide_ = cast(narrow_, dtype_);
    return wide_->raw();
  }
  const Tensor* narrow() const override { return &narrow_; }

 private:
  const Tensor narrow_;
  const DType dtype_;
  mutable std::mutex mutex_;
  mutable std::optional<Tensor> wide_;  ///< guarded by mutex_
};

}  // namespace

Tensor widened(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  const Tensor& stored = tensor.stored();
  if (!is_widened_later(stored, dtype)) return cast(tensor, dtype);
  return Tensor(dtype, tensor.shape(),
                std::make_shared<const WidenedElements>(stored.reshaped(tensor.shape()), dtype));
}

bool is_widened_later(const Tensor& tensor, DType dtype) {
  constexpr std::size_t kLeastBytes = 65536;  // a copy of fewer costs less than the deferred one
  return is_float(tensor.dtype()) && is_float(dtype) && size_of(tensor.dtype()) < size_of(dtype) &&
         tensor.bytes() >= kLeastBytes && tensor.rows() == nullptr;
}

}  // namespace attn
