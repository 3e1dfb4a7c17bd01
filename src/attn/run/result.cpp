#include "attn/run/result.h"

#include <optional>
#include <utility>

#include "attn/attention/attention.h"
#include "attn/base/text.h"
#include "attn/base/version.h"
#include "attn/job/fields.h"
#include "attn/job/labels.h"
#include "attn/job/recorded_positions.h"
#include "attn/job/recorded_visibility.h"

namespace attn {
namespace {

/// The value of a key as recorded in results; for inline numbers only their shape. Moves the value
/// out of the entry.
Json recorded_value(Entry& entry, const Job& job) {
  const bool is_inline = entry.field->type == FieldType::tensor &&
                         entry.value.get<std::string>() == nullptr &&
                         entry.value.get<JsonObject>() == nullptr;
  if (!is_inline) return std::move(entry.value);
  const Tensor* tensor = job.replaced.find(entry.key);
  if (tensor == nullptr) tensor = job.tensors.find(entry.key);
  return tensor == nullptr ? std::move(entry.value)
                           : Json{"numbers of shape " + to_string(tensor->shape())};
}

Json provenance(const Job& job, const Inputs& in, const Plan& plan, Document document,
                const TensorFiles& files, const std::vector<std::int64_t>& layers) {
  JsonObject options, inputs;
  options.reserve(document.entries.size());
  for (Entry& entry : document.entries)
    if (entry.key != "schema" && entry.key != "tokens" && !entry.key.starts_with(kPrintOptions))
      add_member(options, entry.key, recorded_value(entry, job));
  for (auto& [name, digest] : files.digests())
    inputs.emplace_back(text_of_name(name), Json{std::move(digest)});
  JsonObject made_by;
  made_by.reserve(8);  // an initializer list would copy the job
  made_by.emplace_back("schema", Json{std::string("attn/1")});
  made_by.emplace_back("program", Json{std::string("attn ") + kVersion});
  made_by.emplace_back("job", Json{std::move(options)});
  made_by.emplace_back("inputs", Json{std::move(inputs)});
  record_labels(plan, layers, made_by);
  if (std::optional<Json> positions = recorded_positions(QueryPositions(in), in.S))
    made_by.emplace_back(kPositionsMember, std::move(*positions));
  if (needs_visibility(job))
    if (std::optional<Json> visible = recorded_visibility(in))
      made_by.emplace_back(kVisibleMember, std::move(*visible));
  return Json{std::move(made_by)};
}

}  // namespace

Result describe_job(const Job& job, const Inputs& in, const Plan& plan, Document document,
                    const TensorFiles& files, const std::vector<std::int64_t>& layers) {
  return with_origins(job, [&] {
    return Result{.outputs = {},
                  .streamed = {},
                  .tokens = job.tokens,
                  .made_by = provenance(job, in, plan, std::move(document), files, layers),
                  .overflows = {}};
  });
}

void compute_job(const Job& job, const PreparedJob& prepared, Result& result,
                 const RowConsumers& consumers) {
  with_origins(job, [&] {
    result.outputs = attend(prepared.inputs, job.outputs, consumers, &result.overflows);
  });
}

}  // namespace attn
