// NumPy's text of an array with any options: the numbers in the text equal those of the array,
// within half a unit of the last printed place, and none are missing. Other styles must not crash.
#include "attn/print/numpy_text.h"

#include <fuzzer/FuzzedDataProvider.h>

#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "attn/examples/printed_numbers.h"
#include "attn/print/tensor_text.h"
#include "support/fuzz.h"

using namespace attn;

namespace {

Tensor tensor_of(FuzzedDataProvider& input) {
  constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16,   DType::i8,
                               DType::i64, DType::u8,  DType::u64, DType::boolean};
  const DType dtype = input.PickValueInArray(kDTypes);
  Shape shape;
  for (auto axes = input.ConsumeIntegralInRange(0, 3); axes > 0; --axes)
    shape.push_back(input.ConsumeIntegralInRange<std::size_t>(0, 4));
  Tensor tensor(dtype, shape);
  const auto data = reinterpret_cast<std::uint8_t*>(tensor.mutable_raw());
  input.ConsumeData(data, tensor.bytes());
  if (dtype == DType::boolean)
    for (std::size_t i = 0; i < tensor.bytes(); ++i) data[i] &= 1;
  return tensor;
}

PrintOptions options_of(FuzzedDataProvider& input) {
  PrintOptions options;
  options.precision = input.ConsumeIntegralInRange(0, 40);
  options.threshold = input.ConsumeBool() ? 1000 : input.ConsumeIntegralInRange(0, 20);
  options.edgeitems = input.ConsumeIntegralInRange(0, 4);
  options.linewidth = input.ConsumeIntegralInRange(0, 100);
  options.suppress = input.ConsumeBool();
  options.floatmode = static_cast<PrintOptions::FloatMode>(input.ConsumeIntegralInRange(0, 3));
  options.numpy = input.ConsumeIntegralInRange(1, 2);
  return options;
}

/// Printing may change a number by half a unit in the last place, or by more if the digits still
/// identify the element: the float16 65504 is printed as 65500.
template <class T>
bool is_printed(T element, const PrintedNumber& number) {
  const auto value = static_cast<double>(element);
  if constexpr (!std::is_integral_v<T>)
    if (static_cast<double>(T(number.value)) == value) return true;
  return is_printed_as(value, number);
}

void require_printed(const Tensor& tensor, const std::string& text) {
  if (tensor.dtype() == DType::boolean || tensor.size() == 0) return;
  const std::vector<PrintedNumber> printed = printed_numbers(text);
  fuzz::require(printed.size() == tensor.size(), "as many numbers as elements");
  visit(tensor.dtype(), [&]<class T>(Type<T>) {
    const auto elements = tensor.data<T>();
    for (std::size_t i = 0; i < printed.size(); ++i)
      fuzz::require(is_printed(elements[i], printed[i]), "the number");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  PrintOptions options = options_of(input);
  const Tensor tensor = tensor_of(input);
  const std::string text = numpy_str(tensor, options);
  numpy_repr(tensor, options);
  if (std::cmp_less_equal(tensor.size(), options.threshold)) require_printed(tensor, text);
  options.sci_mode = static_cast<PrintOptions::SciMode>(input.ConsumeIntegralInRange(0, 2));
  for (const TextStyle style : {TextStyle::torch, TextStyle::jax, TextStyle::tf}) {
    options.style = style;
    str_text(tensor, options);
    repr_text(tensor, options);
  }
  return 0;
}
