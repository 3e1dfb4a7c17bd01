#include "attn/job/conventions.h"

#include "attn/base/utf8.h"
#include "attn/cache/latent.h"
#include "attn/problem/input_table.h"

namespace attn {
namespace {

using Row = std::vector<std::string>;

std::string word(Alignment alignment) {
  return alignment == Alignment::top_left ? "top-left" : "bottom-right";
}

std::string logsumexp_of(const Convention& c) {
  return std::string(c.lse_base == 2 ? "2" : "e") + (c.lse_sinks ? "" : ", no sinks") +
         (c.lse_empty == EmptyLogsumexp::infinity ? ", empty: inf" : "");
}

Row row_of(const Convention& c) {
  const std::string empty = c.empty_rows == EmptyRows::zero      ? "zero"
                            : c.empty_rows == EmptyRows::uniform ? "uniform"
                                                                 : "nan";
  const auto by_lengths = c.alignment_of_lengths;
  return {c.name,
          std::string(c.layout == Layout::bhld ? "bhld" : "blhd") + (c.packs_tokens ? ", thd" : ""),
          c.batch_second ? "second" : "first",
          c.mask_polarity == MaskPolarity::attend ? "attend" : "ignore",
          word(c.alignment) + (by_lengths ? "; " + word(*by_lengths) + " with lengths" : ""),
          empty,
          logsumexp_of(c),
          c.short_mask == ShortMask::hide ? "hide" : "refuse",
          c.weights_layout == WeightsLayout::out_in ? "out-in" : "in-out"};
}

}  // namespace

const std::vector<Convention>& conventions() {
  static const std::vector<Convention> table = {
      {.name = "attn", .library = "attn's own"},
      {.name = "onnx",
       .library = "ONNX Attention (opset 23 and later, as implemented in onnx 1.23)",
       .alignment_of_lengths = Alignment::bottom_right,
       .short_mask = ShortMask::hide},
      {.name = "torch",
       .library = "torch.nn.functional.scaled_dot_product_attention",
       .weights_layout = WeightsLayout::out_in},
      {.name = "torch-mha",
       .library = "torch.nn.MultiheadAttention, batch_first=False",
       .batch_second = true,
       .mask_polarity = MaskPolarity::ignore,
       .empty_rows = EmptyRows::nan,
       .weights_layout = WeightsLayout::out_in},
      {.name = "jax",
       .library = "jax.nn.dot_product_attention",
       .layout = Layout::blhd,
       .empty_rows = EmptyRows::uniform},
      {.name = "keras",
       .library = "keras.layers.MultiHeadAttention, keras.ops.nn.dot_product_attention",
       .layout = Layout::blhd,
       .empty_rows = EmptyRows::uniform,
       .mask_by_batch = true},
      {.name = "flash",
       .library = "flash_attn.flash_attn_func",
       .layout = Layout::blhd,
       .alignment = Alignment::bottom_right,
       .lse_empty = EmptyLogsumexp::infinity},
      {.name = "fa3",
       .library = "flash_attn_interface.flash_attn_func (FlashAttention 3)",
       .layout = Layout::blhd,
       .alignment = Alignment::bottom_right},
      {.name = "flashinfer",
       .library = "FlashInfer, kv_layout NHD: single, ragged and paged attention",
       .layout = Layout::blhd,
       .packs_tokens = true,
       .alignment = Alignment::bottom_right,
       .lse_base = 2},
      {.name = "flashmla",
       .library = "flash_mla.flash_mla_with_kvcache, flash_mla_sparse_fwd",
       .layout = Layout::blhd,
       .packs_tokens = true,
       .alignment = Alignment::bottom_right,
       .lse_sinks = false,
       .lse_empty = EmptyLogsumexp::infinity},
      {.name = "trtllm",
       .library = "TensorRT-LLM's kernels in FlashInfer, trtllm_batch_..._with_kv_cache",
       .layout = Layout::blhd,
       .packs_tokens = true,
       .page_layout = PoolLayout::hnd,
       .alignment = Alignment::bottom_right},
      {.name = "vllm",
       .library = "vLLM, FlashAttention backend",
       .layout = Layout::blhd,
       .packs_tokens = true,
       .alignment = Alignment::bottom_right},
  };
  return table;
}

namespace {

/// nullptr: there is none.
const Convention* convention_named(const std::string& name) {
  for (const Convention& convention : conventions())
    if (convention.name == name) return &convention;
  return nullptr;
}

/// The queries, or the embeddings from which they are computed; nullptr: neither.
const Tensor* given_rows(const TensorMap& tensors) {
  const Tensor* queries = given_queries(tensors);
  return queries != nullptr ? queries : find(tensors, Input::embeddings);
}

}  // namespace

void set_results_of_convention(const std::string& name, Options& options) {
  const Convention* c = convention_named(name);
  if (c == nullptr) return;
  options.empty_rows = c->empty_rows;
  options.lse_base = c->lse_base;
  options.lse_sinks = c->lse_sinks;
  options.lse_empty = c->lse_empty;
}

Options convention_options(const std::string& name, const TensorMap& tensors) {
  Options options;
  const Convention* c = convention_named(name);
  if (c == nullptr) return options;
  const Tensor* rows = given_rows(tensors);
  const std::size_t rank = rows == nullptr ? 0 : rows->rank();
  const auto is_boolean = [&](Input mask) {
    return contains(tensors, mask) && !is_float(at(tensors, mask).dtype());
  };
  if (rank == 4) options.layout = c->layout;
  if (rank == 3 && c->packs_tokens) options.layout = Layout::thd;
  options.page_layout = c->page_layout;
  options.batch_second = c->batch_second && rank == 3;
  if (is_boolean(Input::mask) || is_boolean(Input::key_mask))
    options.mask_polarity = c->mask_polarity;
  if (contains(tensors, Input::mask)) options.short_mask = c->short_mask;
  options.alignment = contains(tensors, Input::key_lengths)
                          ? c->alignment_of_lengths.value_or(c->alignment)
                          : c->alignment;
  options.weights_layout = c->weights_layout;
  set_results_of_convention(name, options);
  if (!contains(tensors, Input::sinks)) options.lse_sinks = true;
  return options;
}

void apply_mask_convention(const std::string& name, TensorMap& tensors) {
  const Convention* convention = convention_named(name);
  const Tensor* rows = given_rows(tensors);
  const Tensor* mask = find(tensors, Input::mask);
  if (convention == nullptr || !convention->mask_by_batch || rows == nullptr || rows->rank() != 3 ||
      mask == nullptr || mask->rank() != 3)
    return;
  const Shape shape = mask->shape();
  tensors.set(std::string(name_of(Input::mask)), mask->reshaped({shape[0], 1, shape[1], shape[2]}));
}

std::string conventions_table() {
  std::vector<Row> rows = {{"convention", "layout", "batch axis", "mask true", "alignment",
                            "empty rows", "logsumexp", "short mask", "weights"}};
  for (const Convention& convention : conventions()) rows.push_back(row_of(convention));
  std::vector<Row> libraries;
  for (const Convention& convention : conventions())
    libraries.push_back({convention.name, convention.library});
  return aligned_rows(rows, 0, 0) + "\n" + aligned_rows(libraries, 0, 0);
}

}  // namespace attn
