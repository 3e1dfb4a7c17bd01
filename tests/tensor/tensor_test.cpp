#include "attn/tensor/tensor.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <new>

#include "attn/base/error.h"
#include "attn/tensor/array.h"

using namespace attn;

namespace {

template <class F>
std::string complaint(ErrorKind kind, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

template <class To, class From>
To converted(From value) {
  return cast(Tensor::of<From>({}, {value}), dtype_of<To>).template data<To>()[0];
}

}  // namespace

TEST_CASE("shapes are formatted as Python tuples") {
  CHECK(to_string(Shape{}) == "()");
  CHECK(to_string(Shape{4}) == "(4,)");
  CHECK(to_string(Shape{4, 3, 0}) == "(4, 3, 0)");
}

TEST_CASE("counting elements does not wrap") {
  constexpr std::size_t kHuge = std::size_t{1} << 62;
  CHECK(element_count({}) == 1);
  CHECK(element_count({4, 3}) == 12);
  CHECK(element_count({4, 0, 3}) == 0);
  CHECK(element_count({kHuge}) == kHuge);
  CHECK(element_count({0, kHuge}) == 0);
  for (const Shape& shape : {Shape{kHuge, 2}, Shape{kHuge, 4}, Shape{kHuge, kHuge, kHuge},
                             Shape{0, kHuge, 4}, Shape{kHuge, 4, 0}}) {
    INFO(to_string(shape));
    CHECK(complaint(ErrorKind::data, [&] { element_count(shape); }) ==
          "shape " + to_string(shape) + " has more than 2^63 elements");
  }
}

TEST_CASE("a new tensor is zero, aligned, and has its own memory") {
  Tensor tensor(DType::f32, {2, 3});
  CHECK(tensor.rank() == 2);
  CHECK(tensor.size() == 6);
  CHECK(tensor.bytes() == 24);
  CHECK(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64 == 0);
  for (const float value : tensor.data<float>()) CHECK(value == 0);
  CHECK(Tensor().shape() == Shape{0});
  CHECK_THROWS_AS(Tensor(DType::f64, {std::size_t{1} << 62}), std::bad_alloc);
}

TEST_CASE("changes of a copy do not affect the original") {
  Tensor a = Tensor::of<double>({2}, {1, 2});
  Tensor b = a;
  CHECK(a.raw() == b.raw());
  b.mutable_data<double>()[0] = 7;
  CHECK(a.data<double>()[0] == 1);
  CHECK(b.data<double>()[0] == 7);
  Tensor row = Tensor::of<double>({2, 2}, {1, 2, 3, 4}).at(1);
  row.mutable_data<double>()[1] = 9;
  CHECK(row.data<double>()[0] == 3);
  CHECK(row.data<double>()[1] == 9);
}

TEST_CASE("borrowed elements are shared for reading and copied for writing") {
  const auto file = std::make_shared<std::vector<std::int32_t>>(std::vector<std::int32_t>{1, 2, 3});
  const std::weak_ptr<std::vector<std::int32_t>> alive = file;
  {
    Tensor tensor(DType::i32, {3}, {file, reinterpret_cast<const std::byte*>(file->data())});
    CHECK(static_cast<const void*>(tensor.raw()) == file->data());
    CHECK(alive.use_count() == 2);
    tensor.mutable_data<std::int32_t>()[0] = 7;
    CHECK((*file)[0] == 1);
    CHECK(tensor.data<std::int32_t>()[0] == 7);
  }
  CHECK(alive.use_count() == 1);
}

TEST_CASE("reshape and at share the storage") {
  const Tensor tensor = Tensor::of<std::int64_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor reshaped = tensor.reshaped({3, 2});
  CHECK(reshaped.shape() == Shape{3, 2});
  CHECK(reshaped.raw() == tensor.raw());
  const Tensor row = tensor.at(1);
  CHECK(row.shape() == Shape{3});
  CHECK(row.data<std::int64_t>()[0] == 4);
  CHECK(row.raw() == tensor.raw() + 24);
  CHECK(row.at(2).shape() == Shape{});
  CHECK(row.at(2).data<std::int64_t>()[0] == 6);
}

TEST_CASE("violated preconditions are internal errors") {
  const Tensor tensor = Tensor::of<float>({2}, {1, 2});
  CHECK(complaint(ErrorKind::internal, [&] { tensor.reshaped({3}); }) == "reshape (2,) to (3,)");
  CHECK(complaint(ErrorKind::internal, [&] { tensor.at(2); }) == "index 2 in (2,)");
  CHECK(complaint(ErrorKind::internal, [&] { tensor.at(0).at(0); }) == "index 0 in ()");
  CHECK(complaint(ErrorKind::internal, [&] { tensor.data<double>(); }) ==
        "tensor is float32, asked for float64");
  CHECK(complaint(ErrorKind::internal, [] {
          Tensor::of<float>({3}, {1, 2});
        }) == "shape (3,) takes 3 elements, got 2");
}

TEST_CASE("casts keep all values or are refused") {
  CHECK(converted<float>(0.1) == 0.1f);
  CHECK(converted<double>(0.1f) == static_cast<double>(0.1f));
  CHECK(converted<Half>(0.1).bits == 0x2E66);
  CHECK(converted<BFloat16>(1.0).bits == 0x3F80);
  CHECK(converted<float>(BFloat16(1.5)) == 1.5f);
  CHECK(converted<double>(std::int64_t{9007199254740993}) == 9007199254740992.0);
  CHECK(converted<std::int8_t>(std::int64_t{-128}) == -128);
  CHECK(converted<std::uint64_t>(std::int64_t{7}) == 7);
  CHECK(converted<std::int64_t>(-2.9) == -2);  // toward zero, as in NumPy's astype
  CHECK(converted<std::int64_t>(-9223372036854775808.0) == INT64_MIN);
  CHECK(converted<std::uint64_t>(18446744073709549568.0) == 18446744073709549568u);
  CHECK(converted<bool>(0.5));
  CHECK_FALSE(converted<bool>(-0.0));
  CHECK(converted<std::int64_t>(true) == 1);
  CHECK(converted<double>(true) == 1);

  const auto refused = [](auto f) { return complaint(ErrorKind::data, f); };
  CHECK(refused([] { converted<std::int8_t>(std::int64_t{128}); }) == "128 does not fit int8");
  CHECK(refused([] { converted<std::uint8_t>(std::int64_t{-1}); }) == "-1 does not fit uint8");
  CHECK(refused([] { converted<std::int64_t>(std::uint64_t{1} << 63); }) ==
        "9223372036854775808 does not fit int64");
  CHECK(refused([] { converted<std::int64_t>(9223372036854775808.0); }) != "");
  CHECK(refused([] { converted<std::uint8_t>(-1.0); }) != "");
  CHECK(refused([] { converted<std::int64_t>(std::nan("")); }) == "nan does not fit int64");
  CHECK(refused([] { converted<std::int32_t>(Half(INFINITY)); }) == "inf does not fit int32");
}

TEST_CASE("a cast keeps the shape, and a cast to the same dtype copies nothing") {
  const Tensor tensor = Tensor::of<double>({2, 1}, {1, 2});
  CHECK(cast(tensor, DType::f32).shape() == Shape{2, 1});
  CHECK(cast(tensor, DType::f64).raw() == tensor.raw());
  CHECK(cast(Tensor(DType::f64, {0, 3}), DType::i32).shape() == Shape{0, 3});
}

TEST_CASE("xtensor views the tensor's memory") {
  Tensor tensor = Tensor::of<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(array_of<double>(tensor)(1, 0) == 4);
  mutable_array_of<double>(tensor)(1, 0) = 7;
  CHECK(tensor.data<double>()[3] == 7);
}

TEST_CASE("a shape has at most 64 axes") {
  const std::vector<std::size_t> most(Shape::kMaxAxes, 1), more(Shape::kMaxAxes + 1, 1);
  Shape shape(most.begin(), most.end());
  CHECK(shape.size() == 64);
  const std::string refusal = "shape has 65 axes; at most 64 are supported";
  CHECK(complaint(ErrorKind::data, [&] { Shape(more.begin(), more.end()); }) == refusal);
  CHECK(complaint(ErrorKind::data, [&] { shape.push_back(1); }) == refusal);
  CHECK(complaint(ErrorKind::data, [&] { shape.insert(shape.begin(), 1); }) == refusal);
  CHECK(shape.size() == 64);
}

TEST_CASE("shapes of few and of many axes behave like a vector") {
  std::vector<std::size_t> expected;
  Shape shape;
  const auto same = [&] {
    return Shape(expected.begin(), expected.end()) == shape && shape.size() == expected.size() &&
           std::equal(expected.begin(), expected.end(), shape.begin(), shape.end());
  };
  for (std::size_t i = 0; i < 20; ++i) {
    const auto place = static_cast<std::ptrdiff_t>(i / 3);
    expected.insert(expected.begin() + place, i);
    shape.insert(shape.begin() + place, i);
    const Shape copy = shape;
    REQUIRE(same());
    REQUIRE(copy == shape);
  }
  while (!expected.empty()) {
    const auto place = static_cast<std::ptrdiff_t>(expected.size() / 2);
    expected.erase(expected.begin() + place);
    shape.erase(shape.begin() + place);
    REQUIRE(same());
  }
  shape.push_back(7);
  CHECK(shape == Shape{7});
  CHECK_FALSE(shape == Shape{7, 7});
}

TEST_CASE("a map of many tensors finds each, and keeps its position on replacement") {
  TensorMap map;
  for (double i = 0; i < 40; ++i)
    map.set("t" + std::to_string(static_cast<int>(i)), Tensor::of<double>({}, {i}));
  map.set("t39", Tensor::of<double>({}, {-39}));
  map.set("t3", Tensor::of<double>({}, {-3}));
  REQUIRE(map.size() == 40);
  CHECK(map.names()[3] == "t3");
  CHECK(map.at("t3").data<double>()[0] == -3);
  CHECK(map.at("t17").data<double>()[0] == 17);
  CHECK(map.at("t39").data<double>()[0] == -39);
  CHECK(map.find("t40") == nullptr);
}

TEST_CASE("a map keeps the order of insertion") {
  TensorMap map;
  CHECK(map.empty());
  map.set("W_Q", Tensor::of<double>({}, {1}));
  map.set("", Tensor::of<double>({}, {2}));
  map.set("Q", Tensor::of<double>({}, {3}));
  map.set("W_Q", Tensor::of<double>({}, {4}));
  CHECK(map.size() == 3);
  CHECK(map.names() == std::vector<std::string>{"W_Q", "", "Q"});
  CHECK(map.at("W_Q").data<double>()[0] == 4);
  CHECK(map.contains(""));
  CHECK(map.find("q") == nullptr);
  CHECK(complaint(ErrorKind::internal, [&] { map.at("K"); }) == "no tensor 'K'");
}
