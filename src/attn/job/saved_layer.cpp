#include "attn/job/saved_layer.h"

#include <cstring>
#include <functional>
#include <map>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/problem/input_table.h"
#include "attn/tensor/transposed.h"

namespace attn {
namespace {

Tensor flat(const Tensor& tensor) { return tensor.reshaped({tensor.size()}); }

/// An array with a known name: its number of axes, and how to add it to the layer.
struct KnownArray {
  std::size_t rank;
  std::function<void(const Tensor&, SavedLayer&)> add;
};

/// `convert` gives the array the layout of the input.
KnownArray as(Input input, std::size_t rank, Tensor (*convert)(const Tensor&)) {
  return {rank, [=](const Tensor& array, SavedLayer& layer) {
            layer.tensors.set(std::string(name_of(input)), convert(array));
          }};
}

/// The three inputs are thirds of the array's rows.
KnownArray thirds(Input q, Input k, Input v, std::size_t rank) {
  return {rank, [=](const Tensor& array, SavedLayer& layer) {
            std::size_t part = 0;
            for (const Input input : {q, k, v}) {
              const Tensor rows = part_of_rows(array, part++, 3);
              layer.tensors.set(std::string(name_of(input)),
                                rank == 2 ? transposed_matrices(rows) : rows);
            }
          }};
}

/// A projection (M, heads, width) as (M, heads * width); sets the number of heads, too.
KnownArray projection(Input input, std::int64_t SavedLayer::*heads) {
  return {3, [=](const Tensor& array, SavedLayer& layer) {
            const Shape& shape = array.shape();
            layer.tensors.set(std::string(name_of(input)),
                              array.reshaped({shape[0], shape[1] * shape[2]}));
            layer.*heads = static_cast<std::int64_t>(shape[1]);
          }};
}

Tensor joined_rows(const Tensor& array) {  // (H, Dv, M) -> (H * Dv, M)
  const Shape& shape = array.shape();
  return array.reshaped({shape[0] * shape[1], shape[2]});
}

const std::map<std::string, KnownArray>& torch_arrays() {
  static const std::map<std::string, KnownArray> names = {
      {"in_proj_weight", thirds(Input::W_Q, Input::W_K, Input::W_V, 2)},
      {"in_proj_bias", thirds(Input::b_Q, Input::b_K, Input::b_V, 1)},
      {"q_proj_weight", as(Input::W_Q, 2, transposed_matrices)},
      {"k_proj_weight", as(Input::W_K, 2, transposed_matrices)},
      {"v_proj_weight", as(Input::W_V, 2, transposed_matrices)},
      {"bias_k", as(Input::bias_K, 3, flat)},
      {"bias_v", as(Input::bias_V, 3, flat)},
      {"out_proj.weight", as(Input::W_O, 2, transposed_matrices)},
      {"out_proj.bias", as(Input::b_O, 1, flat)},
  };
  return names;
}

const std::map<std::string, KnownArray>& keras_arrays() {
  static const std::map<std::string, KnownArray> names = {
      {"query/kernel", projection(Input::W_Q, &SavedLayer::heads)},
      {"key/kernel", projection(Input::W_K, &SavedLayer::kv_heads)},
      {"value/kernel", projection(Input::W_V, &SavedLayer::kv_heads)},
      {"query/bias", as(Input::b_Q, 2, flat)},
      {"key/bias", as(Input::b_K, 2, flat)},
      {"value/bias", as(Input::b_V, 2, flat)},
      {"gate/kernel", projection(Input::W_gate, &SavedLayer::heads)},
      {"gate/bias", as(Input::b_gate, 2, flat)},
      {"attention_output/kernel", as(Input::W_O, 3, joined_rows)},
      {"attention_output/bias", as(Input::b_O, 1, flat)},
  };
  return names;
}

/// "multi_head_attention/query/kernel" -> "query/kernel".
std::string last_two(const std::string& path) {
  const std::size_t last = path.rfind('/');
  if (last == std::string::npos || last == 0) return path;
  const std::size_t before = path.rfind('/', last - 1);
  return before == std::string::npos ? path : path.substr(before + 1);
}

/// A name of torch_arrays() without the path of its layer, such as "encoder.self_attn."; nullopt if
/// it is none.
std::optional<std::string> torch_array_name(const std::string& path) {
  for (const auto& known : torch_arrays()) {
    const std::string& name = known.first;
    const bool ends = path.size() >= name.size() &&
                      path.compare(path.size() - name.size(), name.size(), name) == 0;
    if (ends && (path.size() == name.size() || path[path.size() - name.size() - 1] == '.'))
      return name;
  }
  return std::nullopt;
}

/// The path of the only layer of torch_arrays(). Errors: data, if there are several.
void check_one_layer(const TensorMap& arrays, const std::string& file) {
  std::set<std::string> paths;
  for (const auto& [path, array] : arrays)
    if (const auto name = torch_array_name(path))
      paths.insert(path.substr(0, path.size() - name->size()));
  if (paths.size() < 2) return;
  constexpr std::size_t kMaxListed = 8;
  const std::string found = paths.size() > kMaxListed
                                ? counted(paths.size(), "attention layer")
                                : "several attention layers: " + printable(join(paths, ", "));
  fail_data({.where = {file},
             .message = "contains " + found,
             .hint = "select one, as " + printable(file + "#" + *paths.begin())});
}

const KnownArray* find_array(const std::string& path) {
  if (const auto torch = torch_array_name(path)) return &torch_arrays().at(*torch);
  const auto keras = keras_arrays().find(last_two(path));
  return keras == keras_arrays().end() ? nullptr : &keras->second;
}

}  // namespace

Tensor part_of_rows(const Tensor& tensor, std::size_t part, std::size_t parts) {
  Shape shape = tensor.shape();
  shape[0] /= parts;
  Tensor result(tensor.dtype(), shape);
  if (result.size() > 0)
    std::memcpy(result.mutable_raw(), tensor.raw() + part * result.bytes(), result.bytes());
  return result;
}

SavedLayer saved_layer(const TensorMap& arrays, const std::string& file) {
  SavedLayer layer;
  check_one_layer(arrays, file);
  for (const auto& [name, array] : arrays) {
    const KnownArray* known = find_array(name);
    if (known == nullptr) continue;
    const bool in_thirds = name.find("in_proj_") != std::string::npos;
    if (array.rank() != known->rank || (in_thirds && array.shape()[0] % 3 != 0))
      fail_data({.where = {file, name},
                 .expected = std::to_string(known->rank) + " axes" +
                             (in_thirds ? ", rows in three parts" : ""),
                 .found = to_string(array.shape())});
    known->add(array, layer);
    layer.names.insert(name);
  }
  return layer;
}

}  // namespace attn
