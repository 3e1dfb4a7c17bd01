// The text of a bias rule: its values are finite, and those of a query are the same on their own.
#include "attn/core/bias_rule.h"

#include <algorithm>
#include <cmath>

#include "attn/core/inputs_part.h"
#include "support/fuzz.h"

using namespace attn;

namespace {

constexpr std::size_t kQueries = 3, kKeys = 150;  // more keys than are computed at once

Tensor counted(DType dtype, Shape shape, double step) {
  Tensor table(DType::f64, std::move(shape));
  double next = -1;
  for (double& x : table.mutable_data<double>()) x = next += step;
  return cast(table, dtype);
}

TensorMap tensors() {
  TensorMap all;
  all.set("Q", Tensor(DType::f32, {2, 2, kQueries, 1}));
  all.set("K", Tensor(DType::f32, {2, 2, kKeys, 1}));
  all.set("mask_tables.t", counted(DType::i64, {kKeys}, 1));
  all.set("mask_tables.u", counted(DType::f64, {3, 5}, 0.25));
  all.set("mask_tables.v", counted(DType::f32, {2, kKeys}, 0.5));
  return all;
}

void require_same(const Tensor& all, const Tensor& row, std::size_t query) {
  const Shape& shape = all.shape();
  const std::size_t keys = shape[3], rows = shape[2];
  const float *whole = all.data<float>().data(), *own = row.data<float>().data();
  for (std::size_t matrix = 0; matrix < shape[0] * shape[1]; ++matrix, own += keys)
    fuzz::require(std::equal(own, own + keys, whole + (matrix * rows + query % rows) * keys),
                  "a query has the same values on its own");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TensorMap kTensors = tensors();
  static const Inputs kInputs = make_inputs(kTensors, {});
  const std::string text(fuzz::text_of(data, size));
  std::shared_ptr<const BiasRule> rule;
  if (!fuzz::accepted([&] { rule = std::make_shared<const BiasRule>(text, kTensors, kInputs); }))
    return 0;
  Tensor all;
  if (!fuzz::accepted([&] { all = rule->values(kInputs); })) return 0;
  for (const float x : all.data<float>()) fuzz::require(std::isfinite(x), "values are finite");
  for (std::size_t query = 0; query < kQueries; ++query)
    require_same(all, rule->values(part_of(kInputs, {{query, 1}})), query);
  return 0;
}
