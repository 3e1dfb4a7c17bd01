// The text of a gate: parsed, then evaluated on tensors with all kinds of values.
#include "attn/compare/gate.h"

#include <cmath>
#include <limits>

#include "support/fuzz.h"

using namespace attn;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A comparison that gates are evaluated on.
struct Pair {
  Tensor a, b;
  Comparison found = compare(a, b, {1e-3, 1e-3, {}, true});
  Measured measured{a, b, found, {0}, DType::f16};
};

void require_verdict(const Gate& gate, const Pair& pair, const Pair& baseline) {
  const GateOutcome outcome = evaluate(gate, pair.measured, &baseline.measured);
  bool names_metrics = false;
  for_each_part(gate.condition, [&](const Expression& part) {
    names_metrics |= part.kind == Expression::Kind::name || part.kind == Expression::Kind::call;
  });
  fuzz::require(names_metrics == !outcome.values.empty(), "each metric has a value");
  gate.selects({outcome.text});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Pair kExact{Tensor::of<double>({2, 2}, {1, 2, 3, 4}),
                           Tensor::of<double>({2, 2}, {1, 2, 3, 4})};
  static const Pair kRounded{Tensor::of<double>({2, 2}, {1.01, 2, 3, -4}),
                             Tensor::of<double>({2, 2}, {1, 2, 3, 4})};
  static const Pair kSpecial{Tensor::of<double>({3, 1}, {0, kInfinity, std::nan("")}),
                             Tensor::of<double>({3, 1}, {0, kInfinity, 1})};
  static const Pair kEmpty{Tensor(DType::f64, {0, 2}), Tensor(DType::f64, {0, 2})};
  const std::string text(fuzz::text_of(data, size));
  Gate gate;
  if (!fuzz::accepted([&] { gate = parse_gate(text); })) return 0;
  for (const Pair* pair : {&kExact, &kRounded, &kSpecial, &kEmpty})
    require_verdict(gate, *pair, kRounded);
  return 0;
}
