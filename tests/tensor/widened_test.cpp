// Numbers in float64 that are converted when they are first read.
#include "attn/tensor/widened.h"

#include <catch2/catch.hpp>

#include "attn/tensor/gathered_rows.h"
#include "attn/tensor/rearrange.h"

namespace attn {
namespace {

/// 0, 1, 2, ... as float32, large enough not to be converted at once.
Tensor counted(const Shape& shape) {
  Tensor tensor(DType::f32, shape);
  float next = 0;
  for (float& value : tensor.mutable_data<float>()) value = next++;
  return tensor;
}

bool are_equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::equal(a.raw(), a.raw() + a.bytes(), b.raw());
}

}  // namespace

TEST_CASE("widened: the numbers of cast()") {
  const Tensor narrow = counted({2, 8, 32, 64});
  const Tensor wide = widened(narrow, DType::f64);
  CHECK(wide.narrow() != nullptr);
  CHECK(are_equal(wide, cast(narrow, DType::f64)));
  CHECK(are_equal(wide.reshaped({16, 2048}).range(3, 5).reshaped({5, 32, 64}),
                  cast(narrow.reshaped({16, 2048}).range(3, 5).reshaped({5, 32, 64}), DType::f64)));
  CHECK(are_equal(wide.at(1), cast(narrow.at(1), DType::f64)));
  CHECK(are_equal(swap_middle_axes(wide), cast(swap_middle_axes(narrow), DType::f64)));
}

TEST_CASE("widened: nothing is converted for a narrower type") {
  const Tensor narrow = counted({2, 8, 32, 64});
  CHECK(cast(widened(narrow, DType::f64), DType::f32).raw() == narrow.raw());
  CHECK(cast(widened(narrow, DType::f64).reshaped({16, 2048}).range(2, 9), DType::f32).raw() ==
        narrow.raw() + 2 * 2048 * sizeof(float));
  CHECK(are_equal(cast(widened(narrow, DType::f64), DType::f16), cast(narrow, DType::f16)));
}

TEST_CASE("widened: a change leaves the narrow numbers as they are") {
  const Tensor narrow = counted({256, 128});
  Tensor wide = widened(narrow, DType::f64).reshaped({128, 256});
  wide.mutable_data<double>()[300] = 0.1;
  CHECK(wide.narrow() == nullptr);
  CHECK(wide.shape() == Shape{128, 256});
  CHECK(wide.data<double>()[300] == 0.1);
  CHECK(wide.data<double>()[301] == 301);
  CHECK(narrow.data<float>()[300] == 300);
}

TEST_CASE("widened: few numbers, wider ones and integers are converted at once") {
  CHECK(widened(counted({4, 4}), DType::f64).narrow() == nullptr);
  CHECK(widened(Tensor(DType::f64, {256, 128}), DType::f64).narrow() == nullptr);
  CHECK(widened(Tensor(DType::f64, {256, 128}), DType::f32).narrow() == nullptr);
  CHECK(widened(Tensor(DType::i64, {256, 128}), DType::f64).narrow() == nullptr);
  CHECK(widened(as_gathered(counted({256, 128})), DType::f64).narrow() == nullptr);
}

TEST_CASE("widened: numbers in 16 bits as float32, and from there as float64") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor narrow = cast(counted({2, 8, 32, 64}), dtype);
    const Tensor wide = widened(narrow, DType::f32);
    REQUIRE(wide.narrow() != nullptr);
    CHECK(wide.dtype() == DType::f32);
    CHECK(are_equal(wide.at(1), cast(narrow.at(1), DType::f32)));
    CHECK(are_equal(swap_middle_axes(wide), cast(swap_middle_axes(narrow), DType::f32)));
    const Tensor wider = widened(wide.reshaped({16, 2048}), DType::f64);
    CHECK(wider.narrow()->raw() == narrow.raw());
    CHECK(are_equal(wider, cast(narrow, DType::f64).reshaped({16, 2048})));
  }
}

TEST_CASE("widened: rearranged rows stay narrow") {
  const Tensor narrow = cast(counted({4, 8, 32, 64}), DType::f16);
  const Tensor wide = widened(narrow, DType::f32);
  const auto check = [](const Tensor& found, const Tensor& expected) {
    REQUIRE(found.narrow() != nullptr);
    CHECK(found.narrow()->dtype() == DType::f16);
    CHECK(are_equal(found, cast(expected, DType::f32)));
  };
  const std::vector<std::size_t> rows = {0, 3, 4, 5, 6, 7, 8, 9, 20, 21, 22, 23, 24, 25, 26, 31};
  check(take_rows(wide, rows), take_rows(narrow, rows));
  check(repeated(widened(narrow.reshaped({1, 1024, 64}), DType::f32), 3),
        repeated(narrow.reshaped({1, 1024, 64}), 3));
  check(append_rows(wide, wide), append_rows(narrow, narrow));
  const Tensor few = cast(counted({4, 8, 1, 64}), DType::f16);  // exact in float16
  check(append_rows(wide, cast(few, DType::f32)), append_rows(narrow, few));
  Tensor inexact = cast(few, DType::f32);
  inexact.mutable_data<float>()[0] = 0.1F;
  CHECK(are_equal(append_rows(wide, inexact), append_rows(cast(narrow, DType::f32), inexact)));
}

}  // namespace attn
