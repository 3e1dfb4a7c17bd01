#include "attn/job/explainable.h"

#include "attn/tensor/error.h"

namespace attn {

void require_explainable(const Job& job) {
  const Options& o = job.options;
  std::vector<std::string> unknown;
  const auto refuse = [&](bool given, const char* name) {
    if (given) unknown.emplace_back(name);
  };
  refuse(o.score != Score::dot && o.score != Score::cosine, "score");
  refuse(o.normaliser != Normaliser::softmax, "normaliser");
  refuse(o.temperature != 1, "temperature");
  refuse(o.softmax_precision != SoftmaxPrecision::automatic, "softmax.precision");
  refuse(o.softcap_order == SoftcapOrder::after_mask, "softcap_order");
  refuse(o.zero_key, "zero_key");
  refuse(o.qk_norm != QkNorm::none, "qk_norm");
  refuse(o.rotary.kind != Rotary::Kind::none, "rotary");
  refuse(o.batch_second, "batch_axis");
  for (const char* name : {"past_K", "bias_K", "sinks", "memory_V"})
    refuse(job.tensors.contains(name), name);
  if (unknown.empty()) return;
  std::string list;
  for (const std::string& name : unknown) list += (list.empty() ? "" : ", ") + name;
  throw Error(
      ErrorKind::usage,
      "--explain: expected a job of dot products or cosines and softmax alone, found " + list);
}

}  // namespace attn
