// A job document, up to the computation: keys are parsed, random tensors drawn, shapes checked and
// memory planned. Requests for too much memory are refused before the allocation.
#include "attn/job/job.h"

#include "attn/run/memory_estimate.h"
#include "attn/run/plan_text.h"
#include "support/confined.h"
#include "support/fuzz.h"
#include "support/heap.h"

using namespace attn;

namespace {

constexpr std::size_t kMost = std::size_t{1} << 17;
constexpr std::size_t kAlways = std::size_t{1} << 20;  // memory that the smallest job may use

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const FileBytes file = fuzz::file_of(fuzz::text_of(data, size));
  const fuzz::Confined confined;
  const fuzz::HeapPeak heap;
  fuzz::accepted([&] {
    TensorFiles files({.memory = kMost});
    const Job job = make_job(parse_document(file.text(), "job.json", ""), files);
    PreparedJob prepared = prepare_job(job);
    fuzz::require(prepared.plan.outputs.size() == job.outputs.size(), "every output is planned");
    MemoryEstimate memory(prepared.plan);
    memory.add_output_text(prepared.plan);
    plan_json(prepared.plan, memory), plan_text(prepared.plan, memory);
  });
  fuzz::require(heap.bytes() <= kAlways + 4 * kMost + 256 * size, "memory stays below the limit");
  return 0;
}
