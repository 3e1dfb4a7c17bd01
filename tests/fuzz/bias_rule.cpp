// The text of a bias rule: the bias of all queries is that of each query alone, and the rule agrees
// with the mask rule of the same text.
#include "attn/problem/bias_rule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attn/attention/inputs_part.h"
#include "attn/problem/mask.h"
#include "attn/problem/mask_rule.h"
#include "support/fuzz.h"

using namespace attn;

namespace {

constexpr std::size_t kItems = 2, kHeads = 2, kQueries = 3,
                      kKeys = 150;  // more than are computed at once

/// Numbers from -1 to `modulus` - 2, plus `part`.
Tensor counted(DType dtype, Shape shape, std::int64_t modulus, double part = 0) {
  Tensor table(DType::f64, std::move(shape));
  std::int64_t next = 0;
  for (double& x : table.mutable_data<double>())
    x = static_cast<double>(next++ % modulus - 1) + part;
  return cast(table, dtype);
}

TensorMap tensors() {
  TensorMap all;
  all.set("Q", Tensor(DType::f32, {kItems, kHeads, kQueries, 1}));
  all.set("K", Tensor(DType::f32, {kItems, kHeads, kKeys, 1}));
  all.set("mask_tables.t", counted(DType::i64, {kKeys}, 7));
  all.set("mask_tables.u", counted(DType::i64, {3, 5}, 3));
  all.set("mask_tables.v", counted(DType::i64, {kItems, kKeys}, 11));
  all.set("mask_tables.x", counted(DType::f64, {kKeys, kHeads}, 13, 0.25));
  return all;
}

std::optional<Tensor> values(const Inputs& in) {
  std::optional<Tensor> found;
  if (fuzz::accepted([&] { found = cast(in.bias_rule->values(in), DType::f64); })) return found;
  return std::nullopt;
}

double element(const Tensor& values, std::size_t b, std::size_t h, std::size_t i, std::size_t j) {
  const Shape& s = values.shape();
  const auto at = [&](std::size_t axis, std::size_t n) { return s[axis] == 1 ? 0 : n; };
  return values.data<double>()[((at(0, b) * s[1] + at(1, h)) * s[2] + at(2, i)) * s[3] + at(3, j)];
}

struct Row {
  std::size_t item, head, query;
};

void require_parts(const Inputs& in, const std::optional<Tensor>& whole) {
  for (const auto [b, h, i] : {Row{0, 0, 2}, Row{0, 1, 1}, Row{1, 0, 0}, Row{1, 1, 2}}) {
    const std::optional<Tensor> part = values(part_of(head_of(in, b, h), {{i, 1}}));
    fuzz::require(part || !whole, "parts have no errors of their own");
    if (!part || !whole) continue;
    for (std::size_t j = 0; j < kKeys; ++j) {
      const double x = element(*part, 0, 0, 0, j);
      fuzz::require(std::isfinite(x), "biases are finite");
      fuzz::require(x == element(*whole, b, h, i, j), "parts have the biases of the whole");
    }
  }
}

/// Whether all numbers that an integer expression has are exact in float64: no product or sum of
/// its numbers, positions and elements of tables reaches 10^15.
bool is_exact(const Expression& rule) {
  double digits = 0;
  for_each_part(rule, [&](const Expression& part) {
    if (part.kind == Expression::Kind::number)
      digits += std::log10(1.0 + static_cast<double>(part.integer));
    if (part.kind == Expression::Kind::name || part.kind == Expression::Kind::index) digits += 2.5;
  });
  return digits < 15;
}

void require_same_as_mask(Inputs in, const std::string& text, const TensorMap& tensors,
                          const std::optional<Tensor>& biases) {
  if (!fuzz::accepted([&] {
        in.mask_rule =
            std::make_shared<const MaskRule>(std::vector<std::string>{text}, tensors, in);
      }))
    return;
  if (!is_exact(parse_mask_rule(text, tensors))) return;
  in.token_positions = std::vector(in.B, in.token_positions.front());  // rows of each item
  bool is_valid = true;
  for (std::size_t b = 0; b < kItems; ++b)
    for (std::size_t h = 0; h < kHeads; ++h) {
      RuleRows rows(in, b, h);
      for (std::size_t i = 0; i < kQueries; ++i) {
        bool visible[kKeys];
        const bool shown = fuzz::accepted([&] { rows.show(i, 0, kKeys, visible); });
        is_valid = is_valid && shown;
        if (!shown || !biases) continue;
        for (std::size_t j = 0; j < kKeys; ++j)
          fuzz::require(visible[j] == (element(*biases, b, h, i, j) != 0),
                        "numbers that are not 0 show keys");
      }
    }
  fuzz::require(is_valid == biases.has_value(), "both kinds of rules have the same errors");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TensorMap kTensors = tensors();
  static const Inputs kInputs = make_inputs({kTensors});
  Inputs in = kInputs;
  const std::string text(fuzz::text_of(data, size));
  const auto parse = [&](const std::string& rule) {
    return fuzz::accepted(
        [&] { in.bias_rule = std::make_shared<const BiasRule>(rule, kTensors, in); });
  };
  if (parse(text)) {
    const std::optional<Tensor> whole = values(in);
    require_parts(in, whole);
    require_same_as_mask(in, text, kTensors, whole);
  } else if (parse("0 + (" + text + ")")) {  // a truth value
    require_same_as_mask(in, text, kTensors, values(in));
  }
  return 0;
}
