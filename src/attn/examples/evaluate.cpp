#include "attn/examples/evaluate.h"

#include <algorithm>
#include <filesystem>

#include "attn/base/error.h"
#include "attn/examples/show_text.h"
#include "attn/io/tensor_file.h"
#include "attn/job/job.h"
#include "attn/result/execution.h"

namespace attn {
namespace {

Values job_values(const std::string& path) {
  TensorFiles files;
  const Document document = read_document(path, files);
  const Job job = make_job(document, files);
  const Execution execution = execute({job, prepare_job(job, document), document});
  Values values;
  for (const auto& [name, tensor] : execution.result.outputs) values[name] = {tensor, {}};
  return values;
}

/// Which of the first `kept` singular vectors have a well-defined direction: the error of a vector
/// is about epsilon * s[0] / gap, where gap is the distance of its singular value from the others
/// and from zero.
std::vector<bool> determined(const Tensor& s, std::size_t kept) {
  const Tensor values = cast(s, DType::f64);
  const auto data = values.data<double>();
  std::vector<bool> result(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    const double above = i == 0 ? data[0] : data[i - 1] - data[i];
    const double below = i + 1 < data.size() ? data[i] - data[i + 1] : data[i];
    result[i] = std::min({above, below, data[i]}) > 1e-6 * data[0];
  }
  return result;
}

Decomposition decompose(const Recipe& recipe, const std::string& folder) {
  TensorRef ref = parse_tensor_ref(recipe.file);
  ref.path = (std::filesystem::path(folder) / ref.path).string();
  TensorFiles files;
  const Tensor matrix = files.read(ref);
  return {matrix, svd(matrix, recipe.rank), svd(matrix).s};
}

Values values_of(const Decomposition& decomposition, std::size_t recipe) {
  const auto& [U, s, Vt] = decomposition.svd;
  const auto known = determined(decomposition.all_s, s.size());
  return {{"matrix", {decomposition.matrix, {}}},
          {"U", {U, SingularVectors{recipe, 1, known}}},
          {"s", {s, {}}},
          {"Vt", {Vt, SingularVectors{recipe, 0, known}}}};
}

/// sum(a * b), added row by row as Python's sum() does.
Tensor sum_of_product(const Tensor& a, const Tensor& b, const std::string& name) {
  if (a.rank() != 1 || b.rank() != 2 || a.shape()[0] != b.shape()[1])
    throw Error(ErrorKind::data, name + ": expected a vector (n,) and a matrix (m, n), found " +
                                     to_string(a.shape()) + " and " + to_string(b.shape()));
  const Tensor factors = cast(a, DType::f64), matrix = cast(b, DType::f64);
  Tensor result(DType::f64, a.shape());
  const auto sum = result.mutable_data<double>();
  for (std::size_t i = 0; i < matrix.size(); ++i)
    sum[i % sum.size()] += factors.data<double>()[i % sum.size()] * matrix.data<double>()[i];
  return result;
}

}  // namespace

Evaluation evaluate(const Example& example) {
  Evaluation evaluation;
  Results results;
  for (std::size_t i = 0; i < example.recipes.size(); ++i) {
    const Recipe& recipe = example.recipes[i];
    auto& values = results[recipe.name];
    switch (recipe.kind) {
      case Recipe::Kind::job:
        values = job_values((std::filesystem::path(example.folder) / recipe.file).string());
        break;
      case Recipe::Kind::svd:
        evaluation.decompositions.push_back(decompose(recipe, example.folder));
        values = values_of(evaluation.decompositions.back(), i);
        break;
      case Recipe::Kind::sum_of_product: {
        const auto operands = resolve(recipe.operands, results);
        values["sum"] = {sum_of_product(operands[0].tensor, operands[1].tensor, recipe.name), {}};
        break;
      }
    }
  }
  for (const Cell& cell : example.cells)
    for (const Show& show : cell.shows) {
      auto values = resolve(show.values, results);
      std::string text = text_of(show, values);
      evaluation.shown.push_back({&cell, &show, std::move(values), std::move(text)});
    }
  return evaluation;
}

std::string text_of(const Evaluation& evaluation, CellLabels labels) {
  std::string text;
  const Cell* cell = nullptr;
  for (const Shown& shown : evaluation.shown) {
    if (cell != shown.cell) {
      text += cell == nullptr ? "" : "\n";
      text += labels == CellLabels::shown ? "# " + shown.cell->label + "\n" : "";
      cell = shown.cell;
    }
    text += shown.text;
  }
  return text;
}

}  // namespace attn
