// Any file: its format is detected, its job is computed under small limits, and the result is
// written and read back. A file of one array is used as queries, keys and values.
#include "attn/io/json_write.h"
#include "attn/print/numpy_text.h"
#include "attn/problem/threads.h"
#include "attn/run/execution.h"
#include "attn/run/memory_estimate.h"
#include "attn/run/result_file.h"
#include "attn/run/result_writer.h"
#include "support/confined.h"
#include "support/fuzz.h"
#include "support/heap.h"
#include "support/memory_file.h"

using namespace attn;

namespace {

constexpr std::size_t kMost = std::size_t{1} << 17;
// Memory that the smallest file may use.
constexpr std::size_t kAlways = std::size_t{3} << 20;

Document document_of(const FileBytes& file, TensorFiles& files) {
  if (!format_of(file).holds_one()) return read_document(file.path, files);
  Document document{.name = file.path};
  for (const char* name : {"Q", "K", "V"}) document.set({name, Json{file.path}, "", ""});
  return document;
}

/// Checks that the outputs match the plan.
void require_planned(const Plan& plan, const Result& result) {
  for (const PlannedOutput& planned : plan.outputs) {
    const Tensor& output = result.outputs.at(name_of(planned.request));
    fuzz::require(output.shape() == planned.shape, "the shape is the planned one");
    fuzz::require(output.dtype() == planned.dtype, "the dtype is the planned one");
  }
}

/// Writes safetensors, which supports all dtypes.
std::string safetensors_of(const Result& result) {
  const FormatRow& format = row_of(Format::safetensors);
  std::vector<TensorSpec> specs;
  std::vector<Elements> elements;
  for (const auto& [name, output] : result.outputs) {
    const DType dtype = format.stored_dtype(output.dtype());
    specs.push_back({name, dtype, output.shape()});
    elements.push_back(elements_of(output, dtype));
  }
  const std::vector<std::uint32_t> none(specs.size());  // this format has no checksums
  return fuzz::written([&](OutputFile& out) {
    write_layout(layout_of(format, specs, none, result, "result.safetensors"), specs, elements,
                 out);
  });
}

void require_readable(const Result& result) {
  TensorFiles files;
  files.add(fuzz::file_of(safetensors_of(result), "result.safetensors"));
  const ResultFile again = read_result("result.safetensors", files);
  fuzz::require(fuzz::same(again.tensors, result.outputs),
                "the outputs are the same when read back");
  fuzz::require(to_json(again.made_by) == to_json(result.made_by),
                "made_by is the same when read back");
  fuzz::require(again.tokens == result.tokens, "the tokens are the same when read back");
}

Result computed(const FileBytes& file, std::size_t& planned) {
  const fuzz::Confined confined;
  TensorFiles files({.memory = kMost, .npz = {.expanded = kMost}});
  files.add(file);
  Job job = make_job(document_of(file, files), files);
  PreparedJob prepared = prepare_job(job);
  MemoryEstimate memory(prepared.plan);
  memory.add_output_text(prepared.plan);
  planned = memory.bytes();
  memory.require(job.document.name, kMost);
  Result result = execute({job, prepared, &files}).result;
  require_planned(prepared.plan, result);
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  set_threads(1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FileBytes file = fuzz::file_of(fuzz::text_of(data, size));
  Result result;
  std::size_t planned = 0;
  const fuzz::HeapPeak heap;
  const bool done = fuzz::accepted([&] { result = computed(file, planned); });
  fuzz::require(heap.bytes() <= kAlways + 4 * kMost + 256 * size, "memory stays below the limit");
  if (!done) return 0;
  fuzz::require(heap.bytes() <= kAlways + planned, "memory stays below the plan");
  result_json(result, -1);
  for (const auto& [name, output] : result.outputs) numpy_str(output);
  require_readable(result);
  return 0;
}
