// Matrices whose transpose is stored.
#include "attn/tensor/transposed.h"

#include <catch2/catch.hpp>

namespace attn {
namespace {

/// 0, 1, 2, ... as float32.
Tensor consecutive(const Shape& shape) {
  Tensor tensor(DType::f32, shape);
  float next = 0;
  for (float& value : tensor.mutable_data<float>()) value = next++;
  return tensor;
}

bool have_same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::equal(a.raw(), a.raw() + a.bytes(), b.raw());
}

}  // namespace

TEST_CASE("deferred transpose: the numbers of transposed_matrices()") {
  const Tensor stored = consecutive({200, 100}), now = transposed_matrices(stored);
  const Tensor later = deferred_transpose(stored, {});
  REQUIRE(later.transpose() != nullptr);
  CHECK(later.shape() == Shape{100, 200});
  CHECK(later.data<float>()[1] == 100);
  CHECK(have_same_bytes(later, now));
  CHECK(have_same_bytes(cast(later, DType::f64), cast(now, DType::f64)));
  CHECK(have_same_bytes(cast(later, DType::i64), cast(now, DType::i64)));
  CHECK(have_same_bytes(later.reshaped({20000}), now.reshaped({20000})));
  CHECK(have_same_bytes(later.at(7), now.at(7)));
}

TEST_CASE("deferred transpose: types round as one after the other") {
  Tensor stored = consecutive({200, 100});
  for (float& value : stored.mutable_data<float>()) value = value / 7;
  const Tensor later = deferred_transpose(stored, {});
  CHECK(cast(later, DType::f16).transpose() != nullptr);
  CHECK(have_same_bytes(cast(cast(later, DType::f16), DType::f64),
                        cast(cast(transposed_matrices(stored), DType::f16), DType::f64)));
}

TEST_CASE("deferred transpose: a change leaves the stored numbers as they are") {
  const Tensor stored = consecutive({200, 100});
  Tensor later = deferred_transpose(stored, {});
  later.mutable_data<float>()[1] = -1;
  CHECK(later.transpose() == nullptr);
  CHECK(later.data<float>()[1] == -1);
  CHECK(later.data<float>()[2] == 200);
  CHECK(stored.data<float>()[100] == 100);
}

TEST_CASE("deferred transpose: the stored numbers are released after their use") {
  const Tensor stored = consecutive({200, 100});
  std::size_t released = 0;
  const auto release = [&](std::span<const std::byte> part) { released += part.size(); };
  const Tensor later = deferred_transpose(stored, release);
  CHECK(released == 0);
  later.raw();
  later.raw();
  CHECK(released == stored.bytes());
  later.transpose()->release(10, 5);
  CHECK(released == stored.bytes() + 5 * 100 * sizeof(float));
}

TEST_CASE("deferred transpose: few numbers and integers are transposed at once") {
  for (const Tensor& stored :
       {consecutive({4, 3}), cast(consecutive({200, 100}), DType::i64), consecutive({20000, 1})}) {
    std::size_t released = 0;
    const Tensor now = deferred_transpose(
        stored, [&](std::span<const std::byte> part) { released += part.size(); });
    CHECK(now.transpose() == nullptr);
    CHECK(have_same_bytes(now, transposed_matrices(stored)));
    CHECK(released == stored.bytes());
  }
}

}  // namespace attn
