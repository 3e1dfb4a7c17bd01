// Text compared with the results of an example: only the correct text is accepted.
#include <string>

#include "attn/examples/check.h"
#include "attn/examples/printed_numbers.h"
#include "support/fuzz.h"

using namespace attn;

namespace {

/// Two cells: a printed matrix, then its elements as a list, a number, and a row of infinities.
Example example() {
  Show print{.form = Form::print, .values = {Reference{.text = "a"}}};
  Show list{.form = Form::list, .values = {Reference{.text = "a"}}, .elements = true};
  Show scalar{.form = Form::scalar, .values = {Reference{.text = "b"}}};
  Show repr{.form = Form::repr, .values = {Reference{.text = "c"}}};
  return {.name = "fuzz", .cells = {{"In [1]", {print, list}}, {"In [2]", {scalar, repr}}}};
}

Evaluation evaluation_of(const Example& example) {
  const Tensor a = Tensor::of<double>({2, 2}, {1, 0.5, 0.25, -2});
  const Tensor b = Tensor::of<double>({}, {2.718281828459045});
  const Tensor c = Tensor::of<double>({3}, {1e-5, -1.0 / 0.0, 0.0 / 0.0});
  Evaluation evaluation;
  const auto show = [&](std::size_t cell, std::size_t index, const Tensor& tensor) {
    const Cell& of = example.cells[cell];
    const std::vector<Value> values = {{tensor, {}}};
    evaluation.shown.push_back({&of, &of.shows[index], values, text_of(of.shows[index], values)});
  };
  show(0, 0, a), show(0, 1, a), show(1, 0, b), show(1, 1, c);
  return evaluation;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Example kExample = example();
  static const Evaluation kEvaluation = evaluation_of(kExample);
  static const std::string kText = text_of(kEvaluation);
  const std::string text(fuzz::text_of(data, size));
  const CheckResult result = check_text(kExample, kEvaluation, text);
  fuzz::require(result.passed == (text == kText), "only the same text passes");
  fuzz::require(!result.summary.empty(), "the result has a summary");
  return 0;
}
