#include "attn/tensor/widened.h"

#include <mutex>
#include <optional>
#include <utility>

namespace attn {
namespace {

class WidenedElements final : public DeferredElements {
 public:
  explicit WidenedElements(Tensor narrow) : narrow_(std::move(narrow)) {}

  const std::byte* data() const override {
    const std::lock_guard lock(mutex_);
    if (!wide_) wide_ = cast(narrow_, DType::f64);
    return wide_->raw();
  }
  const Tensor* narrow() const override { return &narrow_; }

 private:
  const Tensor narrow_;
  mutable std::mutex mutex_;
  mutable std::optional<Tensor> wide_;  ///< guarded by mutex_
};

}  // namespace

Tensor widened(const Tensor& tensor) {
  constexpr std::size_t kLeastBytes = 65536;  // a copy of fewer costs less than this object
  const bool is_narrow = is_float(tensor.dtype()) && tensor.dtype() != DType::f64;
  if (!is_narrow || tensor.bytes() < kLeastBytes || tensor.rows() != nullptr)
    return cast(tensor, DType::f64);
  return Tensor(DType::f64, tensor.shape(), std::make_shared<const WidenedElements>(tensor));
}

}  // namespace attn
