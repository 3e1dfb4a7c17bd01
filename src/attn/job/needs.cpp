#include "attn/job/needs.h"

#include <algorithm>

#include "attn/base/error.h"
#include "attn/job/fields.h"

namespace attn {
namespace {

struct Need {
  const char* key;
  const char* what;
  bool (*met)(const Job& job, const Document& document);
};

bool draws(const Job&, const Document& document) {
  return std::any_of(document.entries.begin(), document.entries.end(), [](const Entry& entry) {
    return find_field(entry.key)->form == FieldForm::tensor && entry.value.get<JsonObject>();
  });
}

bool has_positions(const Job& job, const Document&) {
  return job.options.position.kind != Position::Kind::none;
}

bool has_axes(const Job& job, const Document&) {
  const Tensor* Q = find(job.tensors, Input::Q);
  return Q != nullptr && Q->rank() == 4;
}

bool has_boolean_mask(const Job& job, const Document&) {
  const auto is_boolean = [&](Input input) {
    const Tensor* mask = find(job.tensors, input);
    return mask != nullptr && !is_float(mask->dtype());
  };
  return is_boolean(Input::mask) || is_boolean(Input::key_mask);
}

/// Whether anything looks at how far apart a query and a key stand.
bool counts_distances(const Job& job, const Document&) {
  const Options& options = job.options;
  return options.causal || options.window != Window{} || options.alibi ||
         contains(job.tensors, Input::alibi_slopes) || contains(job.tensors, Input::relative_bias);
}

bool has_embeddings(const Job& job, const Document&) {
  return contains(job.tensors, Input::embeddings);
}

const std::vector<Need> kNeeds = {
    {"layout", "4-D Q, K and V", has_axes},
    {"alignment", "causal, a window, ALiBi or relative_bias", counts_distances},
    {"mask_polarity", "a mask of booleans", has_boolean_mask},
    {"position.base", "position.kind sinusoidal", has_positions},
    {"position.first", "position.kind sinusoidal", has_positions},
    {"position.exponent", "position.kind sinusoidal", has_positions},
    {"position.last_column_zero", "position.kind sinusoidal", has_positions},
    {"position.embedding_scale", "embeddings", has_embeddings},
    {"seed", "a random tensor", draws},
    {"generator", "a random tensor", draws},
};

bool says_what_holds(const Entry& entry) {
  const Field& field = *find_field(entry.key);
  if (!field.apply) return false;
  Options options;
  field.apply(entry.value, options);
  return options == Options{};
}

}  // namespace

void check_needs(const Job& job, const Document& document) {
  ProblemList problems;
  bool only_flags = true;
  for (const auto& [key, what, met] : kNeeds) {
    const Entry* entry = document.find(key);
    if (entry == nullptr || entry->shared || met(job, document) || says_what_holds(*entry))
      continue;
    only_flags = only_flags && entry->from_flag;
    problems.add({.where = {entry->origin},
                  .subject = entry->from_flag ? "" : entry->key,
                  .expected = what + std::string(" beside it"),
                  .found = "none"});
  }
  if (!problems.empty()) problems.raise(only_flags ? ErrorKind::usage : ErrorKind::data);
}

}  // namespace attn
