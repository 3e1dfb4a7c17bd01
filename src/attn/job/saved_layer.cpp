#include "attn/job/saved_layer.h"

#include <cstring>
#include <functional>
#include <map>
#include <optional>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/core/projection.h"

namespace attn {
namespace {

/// The rows of third `part` (0, 1 or 2) of the tensor.
Tensor third(const Tensor& tensor, std::size_t part) {
  Shape shape = tensor.shape();
  shape[0] /= 3;
  Tensor result(tensor.dtype(), shape);
  if (result.size() > 0)
    std::memcpy(result.mutable_raw(), tensor.raw() + part * result.bytes(), result.bytes());
  return result;
}

Tensor flat(const Tensor& tensor) { return tensor.reshaped({tensor.size()}); }

/// A known array name, its number of axes, and how to add the array to the layer.
struct Name {
  std::size_t rank;
  std::function<void(const Tensor&, SavedLayer&)> take;
};

/// `turn` converts the array to the layout of the job's tensor `key`.
Name as(const char* key, std::size_t rank, Tensor (*turn)(const Tensor&)) {
  return {rank,
          [=](const Tensor& array, SavedLayer& layer) { layer.tensors.set(key, turn(array)); }};
}

/// The three keys are thirds of the array's rows.
Name thirds(const char* q, const char* k, const char* v, std::size_t rank) {
  return {rank, [=](const Tensor& array, SavedLayer& layer) {
            std::size_t part = 0;
            for (const char* key : {q, k, v}) {
              const Tensor rows = third(array, part++);
              layer.tensors.set(key, rank == 2 ? transposed(rows) : rows);
            }
          }};
}

/// A projection (M, heads, width) as (M, heads * width); sets the number of heads, too.
Name projection(const char* key, std::int64_t SavedLayer::*heads) {
  return {3, [=](const Tensor& array, SavedLayer& layer) {
            const Shape& shape = array.shape();
            layer.tensors.set(key, array.reshaped({shape[0], shape[1] * shape[2]}));
            layer.*heads = static_cast<std::int64_t>(shape[1]);
          }};
}

Tensor joined_rows(const Tensor& array) {  // (H, Dv, M) -> (H * Dv, M)
  const Shape& shape = array.shape();
  return array.reshaped({shape[0] * shape[1], shape[2]});
}

const std::map<std::string, Name>& torch_names() {
  static const std::map<std::string, Name> names = {
      {"in_proj_weight", thirds("W_Q", "W_K", "W_V", 2)},
      {"in_proj_bias", thirds("b_Q", "b_K", "b_V", 1)},
      {"q_proj_weight", as("W_Q", 2, transposed)},
      {"k_proj_weight", as("W_K", 2, transposed)},
      {"v_proj_weight", as("W_V", 2, transposed)},
      {"bias_k", as("bias_K", 3, flat)},
      {"bias_v", as("bias_V", 3, flat)},
      {"out_proj.weight", as("W_O", 2, transposed)},
      {"out_proj.bias", as("b_O", 1, flat)},
  };
  return names;
}

const std::map<std::string, Name>& keras_names() {
  static const std::map<std::string, Name> names = {
      {"query/kernel", projection("W_Q", &SavedLayer::heads)},
      {"key/kernel", projection("W_K", &SavedLayer::kv_heads)},
      {"value/kernel", projection("W_V", &SavedLayer::kv_heads)},
      {"query/bias", as("b_Q", 2, flat)},
      {"key/bias", as("b_K", 2, flat)},
      {"value/bias", as("b_V", 2, flat)},
      {"gate/kernel", projection("W_gate", &SavedLayer::heads)},
      {"gate/bias", as("b_gate", 2, flat)},
      {"attention_output/kernel", as("W_O", 3, joined_rows)},
      {"attention_output/bias", as("b_O", 1, flat)},
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

/// A name of torch_names() without the path of its layer, such as "encoder.self_attn."; nullopt if
/// it is none.
std::optional<std::string> torch_name(const std::string& path) {
  for (const auto& known : torch_names()) {
    const std::string& name = known.first;
    const bool ends = path.size() >= name.size() &&
                      path.compare(path.size() - name.size(), name.size(), name) == 0;
    if (ends && (path.size() == name.size() || path[path.size() - name.size() - 1] == '.'))
      return name;
  }
  return std::nullopt;
}

/// The path of the only layer of torch_names(). Errors: data, if there are several.
void check_one_layer(const TensorMap& arrays, const std::string& file) {
  std::set<std::string> paths;
  for (const auto& [path, array] : arrays)
    if (const auto name = torch_name(path))
      paths.insert(path.substr(0, path.size() - name->size()));
  if (paths.size() < 2) return;
  throw Error(ErrorKind::data, Problem{.where = {file},
                                       .message = "contains several attention layers: " +
                                                  printable(join(paths, ", ")),
                                       .hint = "save one of them in a file of its own"});
}

const Name* find(const std::string& path) {
  if (const auto torch = torch_name(path)) return &torch_names().at(*torch);
  const auto keras = keras_names().find(last_two(path));
  return keras == keras_names().end() ? nullptr : &keras->second;
}

}  // namespace

SavedLayer saved_layer(const TensorMap& arrays, const std::string& file) {
  SavedLayer layer;
  check_one_layer(arrays, file);
  for (const auto& [name, array] : arrays) {
    const Name* known = find(name);
    if (known == nullptr) continue;
    const bool in_thirds = name.find("in_proj_") != std::string::npos;
    if (array.rank() != known->rank || (in_thirds && array.shape()[0] % 3 != 0))
      throw Error(ErrorKind::data, Problem{.where = {file, name},
                                           .expected = std::to_string(known->rank) + " axes" +
                                                       (in_thirds ? ", rows in three parts" : ""),
                                           .found = to_string(array.shape())});
    known->take(array, layer);
    layer.names.insert(name);
  }
  return layer;
}

}  // namespace attn
