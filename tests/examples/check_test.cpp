#include "attn/examples/check.h"

#include <catch2/catch.hpp>
#include <cctype>
#include <filesystem>
#include <string>

#include "attn/examples/evaluate.h"
#include "attn/io/file.h"

using namespace attn;

namespace {

std::vector<double> numbers(const Tensor& tensor) {
  const auto data = tensor.data<double>();
  return {data.begin(), data.end()};
}

/// A matrix of rank 2, so that the third vectors are not determined.
Decomposition of_rank_two() {
  const Tensor matrix = Tensor::of<double>({3, 3}, {1, 2, 3, 0, 1, 1, 1, 3, 4});
  const Svd factors = svd(matrix);
  return {matrix, factors, factors.s};
}

/// Whether a character of an expected.txt belongs to a singular vector that is not compared: the
/// last two columns of U (lines 9 to 15) and the last two rows of Vt (lines 20 and 21).
bool is_undetermined(const std::string& name, std::size_t line, std::size_t column) {
  if (name != "latent-factors") return false;
  return (line >= 9 && line <= 15 && column >= 29) || line == 20 || line == 21;
}

}  // namespace

TEST_CASE("vectors are turned to the printed signs, the same for U and Vt") {
  const Svd factors = of_rank_two().svd;
  const std::vector<bool> known = {true, true, false};
  const Value U{factors.U, SingularVectors{0, 1, known}};
  const Value Vt{factors.Vt, SingularVectors{0, 0, known}};

  // As another program might give them: the first pair turned round, the third something else.
  auto u = numbers(factors.U), v = numbers(factors.Vt);
  for (std::size_t i = 0; i < 3; ++i) {
    u[3 * i] = -u[3 * i];
    v[i] = -v[i];
    u[3 * i + 2] = 0.25;
    v[6 + i] = -0.5;
  }
  ChosenSigns signs;
  CHECK(numbers(with_printed_signs(U, u, signs)) == u);
  CHECK(numbers(with_printed_signs(Vt, v, signs)) == v);
  CHECK(signs.size() == 1);

  // Vt turned without U is another decomposition, of another matrix.
  auto wrong = v;
  for (std::size_t j = 0; j < 3; ++j) wrong[3 + j] = -wrong[3 + j];
  CHECK(numbers(with_printed_signs(Vt, wrong, signs)) != wrong);
}

TEST_CASE("a decomposition is orthonormal and gives the matrix back") {
  Decomposition good = of_rank_two();
  CHECK(find_flaw(good).empty());

  Decomposition cut = good;
  cut.svd = svd(good.matrix, 1);
  CHECK(find_flaw(cut).empty());  // the error is the norm of the values that the rank cuts off

  Decomposition skewed = good;
  skewed.svd.U.mutable_data<double>()[0] += 1e-12;
  CHECK(find_flaw(skewed) == "the singular vectors are not orthonormal");

  Decomposition scaled = good;
  scaled.svd.s.mutable_data<double>()[1] += 1e-12;
  CHECK(find_flaw(scaled) == "U diag(s) Vt is not the matrix");

  Decomposition turned_row = good;
  const auto row = turned_row.svd.Vt.mutable_data<double>();
  for (std::size_t j = 0; j < 3; ++j) row[j] = -row[j];
  CHECK(find_flaw(turned_row) == "U diag(s) Vt is not the matrix");
}

TEST_CASE("every changed digit of every expected text is noticed") {
  const std::string data = std::string(ATTN_TEST_DIR) + "/../data/examples";
  for (const std::string& name : example_names(data)) {
    const std::string folder = (std::filesystem::path(data) / name).string();
    const Example example = read_example(folder);
    const Evaluation evaluation = evaluate(example);
    const FileBytes file = read_file((std::filesystem::path(folder) / "expected.txt").string());
    std::string text(file.text());
    REQUIRE(check_text(example, evaluation, text).passed);
    std::size_t line = 0, start = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '\n') {
        ++line;
        start = at + 1;
      }
      if (!std::isdigit(static_cast<unsigned char>(text[at]))) continue;
      const char digit = text[at];
      text[at] = digit == '9' ? '0' : static_cast<char>(digit + 1);
      if (check_text(example, evaluation, text).passed != is_undetermined(name, line, at - start))
        FAIL(name << ": character " << at << ", '" << digit << "'");
      text[at] = digit;
    }
  }
}
