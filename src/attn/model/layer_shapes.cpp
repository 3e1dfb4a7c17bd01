#include "attn/model/layer_shapes.h"

#include <sys/mman.h>

#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "attn/base/error.h"
#include "attn/base/text.h"
#include "attn/io/tensor_part.h"
#include "attn/job/job.h"

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

}  // namespace

void check_shapes(Document document, const LayerJob& layer, bool is_cross, TensorFiles& files) {
  const std::size_t left = files.budget().left();
  const Json* const layout = &document.find("weights_layout")->value;
  const bool is_transposed = *layout->get<std::string>() == "out-in";
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
  Job job = make_job(document, files);
  job.transposed = std::move(transposed);
  prepare_job(job, document);
  files.budget().release(left - files.budget().left());
}

}  // namespace attn
