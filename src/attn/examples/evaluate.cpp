#include "attn/examples/evaluate.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "attn/io/tensor_file.h"
#include "attn/job/job.h"
#include "attn/tensor/error.h"

namespace attn {
namespace {

using Results = std::map<std::string, std::map<std::string, Value>>;

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::data, what); }

std::map<std::string, Value> job_values(const std::string& path) {
  TensorFiles files;
  const Document document = read_document(path, files);
  std::map<std::string, Value> values;
  for (const auto& [name, tensor] : run_job(make_job(document, files), document, files).outputs)
    values[name] = {tensor, {}};
  return values;
}

/// A singular vector has a direction where its singular value stands clear of its neighbours and of
/// zero: errors in it are about epsilon * s[0] / gap.
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

std::map<std::string, Value> values_of(const Decomposition& decomposition, std::size_t recipe) {
  const auto& [U, s, Vt] = decomposition.svd;
  const auto known = determined(decomposition.all_s, s.size());
  return {{"matrix", {decomposition.matrix, {}}},
          {"U", {U, SingularVectors{recipe, 1, known}}},
          {"s", {s, {}}},
          {"Vt", {Vt, SingularVectors{recipe, 0, known}}}};
}

/// sum(a * b) as Python's sum adds it up: row after row.
Tensor sum_of_product(const Tensor& a, const Tensor& b, const std::string& name) {
  if (a.rank() != 1 || b.rank() != 2 || a.shape()[0] != b.shape()[1])
    fail(name + ": expected a vector (n,) and a matrix (m, n), found " + to_string(a.shape()) +
         " and " + to_string(b.shape()));
  const Tensor factors = cast(a, DType::f64), matrix = cast(b, DType::f64);
  Tensor result(DType::f64, a.shape());
  const auto sum = result.mutable_data<double>();
  for (std::size_t i = 0; i < matrix.size(); ++i)
    sum[i % sum.size()] += factors.data<double>()[i % sum.size()] * matrix.data<double>()[i];
  return result;
}

Tensor transpose(const Tensor& matrix) {
  const std::size_t m = matrix.shape()[0], n = matrix.shape()[1];
  Tensor result(matrix.dtype(), {n, m});
  visit(matrix.dtype(), [&]<class T>(Type<T>) {
    const auto from = matrix.data<T>();
    const auto to = result.mutable_data<T>();
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) to[j * m + i] = from[i * n + j];
  });
  return result;
}

/// (H, M, D) -> (M, H*D)
Tensor side_by_side(const Tensor& heads) {
  const std::size_t H = heads.shape()[0], M = heads.shape()[1], D = heads.shape()[2];
  Tensor result(heads.dtype(), {M, H * D});
  visit(heads.dtype(), [&]<class T>(Type<T>) {
    const auto from = heads.data<T>();
    const auto to = result.mutable_data<T>();
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::size_t h = i / (M * D), m = i / D % M, d = i % D;
      to[m * H * D + h * D + d] = from[i];
    }
  });
  return result;
}

Tensor shape_tensor(const Shape& shape) {
  return Tensor::of<std::int64_t>({shape.size()}, {shape.begin(), shape.end()});
}

void require_rank(const Value& value, std::size_t rank, const Reference& reference) {
  if (value.tensor.rank() != rank)
    fail(reference.text + ": expected " + std::to_string(rank) + " axes, found shape " +
         to_string(value.tensor.shape()));
}

void apply(const Access& access, Value& value, const Reference& reference) {
  switch (access.kind) {
    case Access::Kind::index:
      if (value.singular) fail(reference.text + ": singular vectors are shown all together");
      if (value.tensor.rank() == 0 || access.index >= value.tensor.shape()[0])
        fail(reference.text + ": no element [" + std::to_string(access.index) + "] in shape " +
             to_string(value.tensor.shape()));
      value.tensor = value.tensor.at(access.index);
      break;
    case Access::Kind::transpose:
      require_rank(value, 2, reference);
      value.tensor = transpose(value.tensor);
      if (value.singular) value.singular->axis = 1 - value.singular->axis;
      break;
    case Access::Kind::joined:
      require_rank(value, 3, reference);
      value.tensor = side_by_side(value.tensor);
      break;
    case Access::Kind::shape:
      value = {shape_tensor(value.tensor.shape()), {}};
      break;
  }
}

template <class Map>
const typename Map::mapped_type& look_up(const Map& map, const std::string& name,
                                         const Reference& reference) {
  const auto found = map.find(name);
  if (found != map.end()) return found->second;
  std::vector<std::string> known;
  std::string list;
  for (const auto& entry : map) {
    known.push_back(entry.first);
    list += (list.empty() ? "" : ", ") + entry.first;
  }
  fail(reference.text + ": '" + printable(name) + "' is none of " + list +
       did_you_mean(name, known));
}

Value resolve(const Reference& reference, const Results& results) {
  Value value = look_up(look_up(results, reference.result, reference), reference.value, reference);
  for (const Access& access : reference.accesses) apply(access, value, reference);
  return value;
}

std::vector<Value> resolve(const std::vector<Reference>& references, const Results& results) {
  std::vector<Value> values;
  for (const Reference& reference : references) values.push_back(resolve(reference, results));
  return values;
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

}  // namespace attn
