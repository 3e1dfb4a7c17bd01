#include "attn/model/layer_shapes.h"

#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/tensor_part.h"
#include "attn/job/field_value.h"
#include "attn/job/job.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

constexpr const char* kWeights[] = {"W_Q", "W_K", "W_V", "W_O"};

/// Zeros that take no memory until they are read.
Tensor untouched(DType dtype, const Shape& shape) {
  const std::size_t bytes =
      saturating_sum(saturating_product({element_count(shape), size_of(dtype)}), 1);
  void* const pages =
      mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return Tensor(
      dtype, shape,
      std::shared_ptr<const std::byte>(static_cast<const std::byte*>(pages),
                                       [pages, bytes](const std::byte*) { munmap(pages, bytes); }));
}

/// A tensor of zeros with the shape of the one that a key names, in float64 or float32. The check
/// of shapes treats float16 and bfloat16 as float32.
Tensor without_elements(const std::string& name, TensorFiles& files) {
  const TensorRef ref = parse_tensor_ref(name);
  const NamedPart named = split_part(ref.member);
  std::optional<StoredTensor> stored = files.stored(ref.path, ref.member);
  if (!stored) {
    stored = files.stored(ref.path, named.name);
    stored->shape =
        within(ref.path, [&] { return shape_of_part(stored->shape, named.part + ref.part); });
  }
  return untouched(stored->dtype == "F64" ? DType::f64 : DType::f32, stored->shape);
}

/// The number that a key of the layer has; 0 if it has none.
std::size_t number_of_key(const LayerJob& layer, const char* key) {
  for (const auto& [name, value] : layer.keys())
    if (name == key) return static_cast<std::size_t>(integer_of(value));
  return 0;
}

/// The heads and widths that a configuration states; 0: unknown.
struct LayerWidths {
  std::size_t heads, kv_heads, head, hidden;
};

LayerWidths widths_of(const LayerJob& layer) {
  const Config& config = layer.config();
  LayerWidths widths{number_of_key(layer, "heads"), number_of_key(layer, "kv_heads"), 0,
                     layer.hidden_width()};
  if (widths.kv_heads == 0) widths.kv_heads = widths.heads;
  for (const char* key : {"d_kv", "head_dim"})
    if (config.has(key)) widths.head = static_cast<std::size_t>(config.count(key));
  if (widths.head == 0 && widths.heads > 0 && widths.hidden % widths.heads == 0)
    widths.head = widths.hidden / widths.heads;
  return widths;
}

/// The weight of a projection, with the axes (out, in).
struct ProjectionWeight {
  std::string name;
  std::size_t out_heads, in_heads;  ///< 0: as wide as the hidden states
  Shape found;
};

std::vector<ProjectionWeight> projections_of(const Architecture& architecture,
                                             const LayerJob& layer, const LayerWidths& widths) {
  const std::size_t H = widths.heads, G = widths.kv_heads;
  std::vector<ProjectionWeight> all;
  const auto add = [&](std::string_view name, std::size_t out_heads, std::size_t in_heads) {
    const std::string weight = std::string(name) + ".weight";
    Shape shape = layer.shape_of(weight);
    if (architecture.weights.projections == Projections::columns)
      std::reverse(shape.begin(), shape.end());
    all.push_back({layer.full_name(weight), out_heads, in_heads, std::move(shape)});
  };
  if (architecture.weights.projections == Projections::separate) {
    add(architecture.weights.q, H, 0);
    add(architecture.weights.k, G, 0);
    add(architecture.weights.v, G, 0);
  } else {
    add(architecture.weights.q, H + 2 * G, 0);
  }
  add(architecture.weights.output, 0, H);
  return all;
}

}  // namespace

void require_projections(const Architecture& architecture, const LayerJob& layer) {
  const LayerWidths widths = widths_of(layer);
  if (layer.latent() || widths.heads == 0 || widths.head == 0) return;
  const std::vector<ProjectionWeight> all = projections_of(architecture, layer, widths);
  // Of a cross-attention, keys and values come from hidden states that may have another width.
  const bool is_cross = architecture.stack == "cross";
  const auto shape_for = [&](const ProjectionWeight& each, std::size_t head) {
    const std::size_t in =
        is_cross && each.out_heads > 0 && each.found.size() == 2 ? each.found[1] : widths.hidden;
    return Shape{each.out_heads == 0 ? widths.hidden : each.out_heads * head,
                 each.in_heads == 0 ? in : each.in_heads * head};
  };
  const auto fits = [&](std::size_t head) {
    return std::all_of(all.begin(), all.end(), [&](const ProjectionWeight& each) {
      const Shape shape = shape_for(each, head);
      // The output may have another width than the hidden states.
      return each.found.size() == 2 && each.found[1] == shape[1] &&
             (each.out_heads == 0 || each.found[0] == shape[0]);
    });
  };
  if (fits(widths.head)) return;
  // The rows of blocks follow from the configuration.
  const bool may_differ = !layer.config().has("head_dim") &&
                          architecture.weights.projections != Projections::blocks &&
                          architecture.weights.projections != Projections::falcon;
  const std::size_t given = all[0].found.empty() ? 0 : all[0].found[0] / all[0].out_heads;
  const bool needs_pairs = layer.has("rotary.kind") && !layer.has("rotary.width");
  if (may_differ && given > 0 && !(needs_pairs && given % 2 == 1) && fits(given)) return;
  for (const ProjectionWeight& each : all) {
    Shape required = shape_for(each, widths.head), found = each.found;
    if (found == required) continue;
    if (architecture.weights.projections == Projections::columns) {
      std::swap(required[0], required[1]);
      std::reverse(found.begin(), found.end());
    }
    const std::string of_keys =
        widths.kv_heads == widths.heads ? "" : " and " + counted(widths.kv_heads, "key/value head");
    fail_data({.where = {layer.checkpoint(), each.name},
               .expected = "shape " + to_string(required) + ", for " +
                           counted(widths.heads, "head") + of_keys + " of width " +
                           std::to_string(widths.head) + " (" +
                           (layer.config().has("head_dim") ? "head_dim of " : "") + "config.json)",
               .found = to_string(found)});
  }
}

void check_shapes(Document document, const LayerJob& layer, bool is_cross, TensorFiles& files) {
  const std::size_t left = files.budget().left();
  const bool is_transposed = *word_of(document.at("weights_layout").value) == "out-in";
  std::set<std::string> transposed;
  Shape shape_of_keys;  // (in, out)
  for (const char* key : kWeights) {
    const Entry* const given = document.find(key);
    if (given == nullptr) continue;
    Entry entry = *given;
    Tensor weights = without_elements(*entry.value.get<std::string>(), files);
    if (const Shape& shape = weights.shape(); is_transposed && shape.size() == 2) {
      weights = weights.reshaped({shape[1], shape[0]});
      transposed.insert(key);
    }
    if (std::string_view(key) == "W_K") shape_of_keys = weights.shape();
    entry.numbers = std::make_shared<const Tensor>(std::move(weights));
    entry.in_out = true;
    document.set(std::move(entry));
  }
  const auto set = [&](const char* key, std::size_t width) {
    document.set({.key = key,
                  .value = Json{},
                  .origin = "",
                  .folder = "",
                  .numbers = std::make_shared<const Tensor>(DType::f32, Shape{1, width})});
  };
  if (const std::optional<LatentAttention>& latent = layer.latent()) {
    require_shapes(*latent, files);
    const std::size_t width = latent->heads * (latent->plain_width + latent->rotary_width);
    set("Q", width);
    set("K", width);
    set("V", latent->heads * latent->value_width);
  } else {
    const std::size_t of_keys = shape_of_keys.empty() ? 0 : shape_of_keys[0];
    set("embeddings", layer.hidden_width() == 0 ? of_keys : layer.hidden_width());
    if (is_cross) set("memory", of_keys);
  }
  Job job = make_job(std::move(document), files);
  job.transposed = std::move(transposed);
  prepare_job(job);
  files.budget().release(left - files.budget().left());
}

}  // namespace attn
