#include "attn/run/plan_text.h"

#include <cstdio>

#include "attn/io/json_write.h"
#include "attn/job/job.h"
#include "attn/tensor/shape.h"

namespace attn {
namespace {

std::string scientific(double number) {
  char text[32];
  std::snprintf(text, sizeof text, number < 1e6 ? "%.0f" : "%.3g", number);
  return text;
}

}  // namespace

std::string plan_json(const Plan& plan, const MemoryEstimate& memory) {
  std::string text = "{\"outputs\":[";
  for (const PlannedOutput& output : plan.outputs) {
    if (text.back() != '[') text += ",";
    text += "{\"name\":" + json_quoted(name_of(output.request)) + ",\"shape\":[";
    for (const std::size_t extent : output.shape)
      text += (text.back() == '[' ? "" : ",") + std::to_string(extent);
    text += "],\"dtype\":" + json_quoted(name_of(output.dtype)) +
            ",\"bytes\":" + std::to_string(output.bytes) +
            ",\"flops\":" + scientific(output.flops) +
            (output.streamed ? ",\"streamed\":true}" : "}");
  }
  text += "],\"memory\":" + std::to_string(memory.bytes()) + ",\"flops\":" + scientific(plan.flops);
  if (plan.path) text += ",\"path\":" + json_quoted(plan.path);
  if (plan.fallback_reason) text += ",\"fallback_reason\":" + json_quoted(plan.fallback_reason);
  return text + "}";
}

std::string plan_text(const Plan& plan, const MemoryEstimate& memory) {
  std::string text;
  for (const PlannedOutput& output : plan.outputs)
    text += std::string(name_of(output.request)) + " " + to_string(output.shape) + " " +
            std::string(name_of(output.dtype)) + ": " + size_text(output.bytes) + ", " +
            scientific(output.flops) + " flops" +
            (output.streamed ? ", written during computation\n" : "\n");
  text += "total: at most " + size_text(memory.bytes()) + " of memory, " + scientific(plan.flops) +
          " flops";
  if (plan.path) text += plan.fallback_reason ? ", reference path" : ", fused kernels";
  if (plan.fallback_reason) text += std::string(" (because of ") + plan.fallback_reason + ")";
  return text + "\n";
}

}  // namespace attn
