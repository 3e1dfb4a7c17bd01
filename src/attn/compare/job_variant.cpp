#include "attn/compare/job_variant.h"

#include <memory>

namespace attn {
namespace {

/// The pages and tables that the job was given, with what else a PagedCache takes; nullptr if it
/// has no table of pages, or lists of slots.
std::shared_ptr<const TensorMap> given_cache(const Job& job) {
  const bool has_table =
      contains(job.replaced, Input::block_table) || contains(job.replaced, Input::kv_indptr);
  if (!has_table || job.options.index_space == IndexSpace::cache) return nullptr;
  auto cache = std::make_shared<TensorMap>(job.replaced);
  for (const Input input : {Input::Q, Input::cu_seqlens_q, Input::key_lengths})
    if (const Tensor* tensor = find(job.tensors, input))
      cache->set(std::string(name_of(input)), *tensor);
  return cache;
}

}  // namespace

Variant variant_of(const Job& job) {
  Variant variant{{job.tensors, job.options}};
  variant.cache = given_cache(job);
  return variant;
}

Output usual_output(const Job& job) {
  return contains(job.tensors, Input::W_O) ? Output::output : Output::context;
}

}  // namespace attn
