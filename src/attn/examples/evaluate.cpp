#include "attn/examples/evaluate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/examples/printed_numbers.h"
#include "attn/io/tensor_file.h"
#include "attn/job/job.h"
#include "attn/run/execution.h"

namespace attn {
namespace {

/// +1 or -1 for each vector, whichever brings it closer to the printed one.
std::vector<double> nearest_signs(const Value& value, const std::vector<double>& printed) {
  const Tensor numbers = cast(value.tensor, DType::f64);
  const std::size_t columns = value.tensor.shape()[1];
  std::vector<double> alignment(value.singular->determined.size());
  for (std::size_t i = 0; i < printed.size(); ++i)
    alignment[value.singular->axis == 0 ? i / columns : i % columns] +=
        numbers.data<double>()[i] * printed[i];
  for (double& sum : alignment) sum = sum < 0 ? -1 : 1;
  return alignment;
}

/// The largest element of |U^T U - I| and |Vt Vt^T - I|.
double orthogonality_error(const Svd& svd) {
  const Tensor U = cast(svd.U, DType::f64), Vt = cast(svd.Vt, DType::f64);
  const std::size_t k = svd.s.size(), m = U.shape()[0], n = Vt.shape()[1];
  double worst = 0;
  for (std::size_t p = 0; p < k; ++p)
    for (std::size_t q = 0; q < k; ++q) {
      double u = p == q ? -1 : 0, v = u;
      for (std::size_t i = 0; i < m; ++i)
        u += U.data<double>()[i * k + p] * U.data<double>()[i * k + q];
      for (std::size_t j = 0; j < n; ++j)
        v += Vt.data<double>()[p * n + j] * Vt.data<double>()[q * n + j];
      worst = std::max({worst, std::abs(u), std::abs(v)});
    }
  return worst;
}

/// The Frobenius norm of A - U diag(s) Vt.
double residual(const Decomposition& decomposition) {
  const Tensor A = cast(decomposition.matrix, DType::f64);
  const Tensor U = cast(decomposition.svd.U, DType::f64), s = cast(decomposition.svd.s, DType::f64),
               Vt = cast(decomposition.svd.Vt, DType::f64);
  const std::size_t k = s.size(), n = Vt.shape()[1];
  double squares = 0;
  for (std::size_t at = 0; at < A.size(); ++at) {
    double rest = A.data<double>()[at];
    for (std::size_t p = 0; p < k; ++p)
      rest -= U.data<double>()[at / n * k + p] * s.data<double>()[p] *
              Vt.data<double>()[p * n + at % n];
    squares += rest * rest;
  }
  return std::sqrt(squares);
}

/// |values[first:]|
double norm(const Tensor& values, std::size_t first) {
  const Tensor numbers = cast(values, DType::f64);
  double squares = 0;
  for (const double value : numbers.data<double>().subspan(first)) squares += value * value;
  return std::sqrt(squares);
}

}  // namespace

Tensor with_printed_signs(const Value& value, const std::vector<double>& printed,
                          ChosenSigns& signs) {
  const auto& [recipe, axis, determined] = *value.singular;
  const auto sign = signs.try_emplace(recipe, nearest_signs(value, printed)).first->second;
  Tensor result = cast(value.tensor, DType::f64);
  const auto numbers = result.mutable_data<double>();
  const std::size_t columns = value.tensor.shape()[1];
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t k = axis == 0 ? i / columns : i % columns;
    numbers[i] = determined[k] ? sign[k] * numbers[i] : printed[i];
  }
  return cast(result, value.tensor.dtype());
}

std::string find_flaw(const Decomposition& decomposition) {
  const bool single = decomposition.svd.s.dtype() == DType::f32;
  const double epsilon =
      single ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const Shape& shape = decomposition.matrix.shape();
  const double bound = 20 * epsilon * static_cast<double>(shape[0] + shape[1]);

  if (!(orthogonality_error(decomposition.svd) <= bound))
    return "the singular vectors are not orthonormal";
  const double all = norm(decomposition.all_s, 0);
  const double cut = norm(decomposition.all_s, decomposition.svd.s.size());
  if (!(std::abs(residual(decomposition) - cut) <= bound * all))
    return "U diag(s) Vt is not the matrix";
  return "";
}

namespace {

Values job_values(const std::string& path) {
  TensorFiles files;
  Job job = make_job(read_document(path, files), files);
  const Execution execution = execute({job, prepare_job(job)});
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

Tensor tensor_of(const Recipe& recipe, const std::string& folder) {
  TensorRef ref = parse_tensor_ref(recipe.file);
  ref.path = (std::filesystem::path(folder) / ref.path).string();
  TensorFiles files;
  return files.read(ref);
}

Decomposition decompose(const Recipe& recipe, const std::string& folder) {
  const Tensor matrix = tensor_of(recipe, folder);
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

void convert(Values& values, std::optional<DType> dtype) {
  if (!dtype) return;
  for (auto& [name, value] : values) value.tensor = cast(value.tensor, *dtype);
}

/// Each row divided by its sum, both in the dtype.
Tensor shares(const Tensor& tensor, const std::string& name) {
  const Tensor totals = cast(row_sums(tensor, name), DType::f64);
  Tensor result = cast(tensor, DType::f64);
  const auto values = result.mutable_data<double>();
  const std::size_t n = tensor.shape().back();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] /= totals.data<double>()[i / n];
  return cast(result, tensor.dtype());
}

}  // namespace

Evaluation evaluate(const Example& example) {
  Evaluation evaluation;
  JobValues results;
  for (std::size_t i = 0; i < example.recipes.size(); ++i) {
    const Recipe& recipe = example.recipes[i];
    auto& values = results[recipe.name];
    switch (recipe.kind) {
      case Recipe::Kind::job:
        values = job_values((std::filesystem::path(example.folder) / recipe.file).string());
        convert(values, recipe.dtype);
        break;
      case Recipe::Kind::svd:
        evaluation.decompositions.push_back(decompose(recipe, example.folder));
        values = values_of(evaluation.decompositions.back(), i);
        break;
      case Recipe::Kind::tensor:
        values["tensor"] = {tensor_of(recipe, example.folder), {}};
        convert(values, recipe.dtype);
        break;
      case Recipe::Kind::shares:
        values["shares"] = {
            shares(resolve({recipe.operand}, results)[0].tensor, recipe.operand.text), {}};
        break;
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

namespace {

std::string label_of(const Cell& cell, CellLabels labels) {
  if (labels == CellLabels::hidden) return "";
  std::vector<std::string> values;
  if (labels == CellLabels::with_values)
    for (const Show& show : cell.shows)
      for (const Reference& value : show.values)
        if (std::find(values.begin(), values.end(), value.text) == values.end())
          values.push_back(value.text);
  return "# " + printable(cell.label) + (values.empty() ? "" : ": ") + join(values, ", ") + "\n";
}

}  // namespace

std::string text_of(const Evaluation& evaluation, CellLabels labels) {
  std::string text;
  const Cell* cell = nullptr;
  for (const Shown& shown : evaluation.shown) {
    if (cell != shown.cell) {
      text += cell == nullptr ? "" : "\n";
      text += label_of(*shown.cell, labels);
      cell = shown.cell;
    }
    text += shown.text;
  }
  return text;
}

}  // namespace attn
