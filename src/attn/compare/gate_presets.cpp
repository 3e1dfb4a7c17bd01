#include "attn/compare/gate_presets.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"
#include "attn/problem/output_table.h"

namespace attn {
namespace {

enum class When {
  always,
  f16,
  bf16,
  f32,
  f64,
  no_softcap,
  softcap,
  gradients_with_softcap,
  output,
  gradient,
  logsumexp,
  other
};

struct PresetGate {
  const char* gate;
  When when = When::always;
};

/// Of which file of which project, docs/comparing.md says.
struct Preset {
  std::string_view name;
  std::vector<PresetGate> gates;
};

const std::vector<Preset>& all_presets() {
  static const std::vector<Preset> kPresets = {
      {"fa2",
       {{"max_abs <= 2 * baseline_max_abs + 1e-5", When::output},
        {"max_abs <= 3 * baseline_max_abs", When::gradient}}},
      {"fa3",
       {{"max_abs <= 2 * baseline_max_abs + 2 * ref_rounding", When::no_softcap},
        {"max_abs <= 3 * baseline_max_abs + 2 * ref_rounding", When::softcap},
        {"max_abs <= 3 * baseline_max_abs + 2 * ref_rounding + 3e-4",
         When::gradients_with_softcap}}},
      {"flashmla",
       {{"abs_or_rel(abs=8e-4, rel=2.01/128) == 0 and (cosdiff <= 5e-6 or ref_l2 < 1e-6)",
         When::other},
        {"abs_or_rel(abs=1e-6, rel=8.01/65536) == 0 and (cosdiff <= 1e-7 or ref_l2 < 1e-6)",
         When::logsumexp}}},
      {"fla", {{"rms_ratio < 0.005 or max_abs <= 1e-6"}}},
      {"flashinfer",
       {{"mismatched(rtol=1e-3, atol=1e-3) == 0 and cosine >= 0.999", When::f16},
        {"mismatched(rtol=1e-2, atol=1e-2) == 0 and cosine >= 0.999", When::bf16},
        {"mismatched(rtol=1e-5, atol=1e-5) == 0 and cosine >= 0.999", When::f32},
        {"mismatched(rtol=1e-7, atol=1e-7) == 0 and cosine >= 0.999", When::f64}}},
      {"llama.cpp", {{"nmse <= 5e-4"}}},
      {"triton", {{"max_abs <= 1e-2"}}},
      {"tt", {{"pcc >= 0.99"}}}};
  return kPresets;
}

std::string_view text_of(When when) {
  switch (when) {
    case When::always:
      return "";
    case When::f16:
      return "f16";
    case When::bf16:
      return "bf16";
    case When::f32:
      return "f32";
    case When::f64:
      return "f64";
    case When::no_softcap:
      return "without a softcap";
    case When::softcap:
      return "outputs, with a softcap";
    case When::gradients_with_softcap:
      return "gradients, with a softcap";
    case When::output:
      return "outputs";
    case When::gradient:
      return "gradients";
    case When::logsumexp:
      return "logsumexp";
    case When::other:
      return "other tensors";
  }
  return "";
}

bool is_met(When when, const GatedTensor& tensor) {
  switch (when) {
    case When::always:
      return true;
    case When::f16:
      return tensor.stored == DType::f16;
    case When::bf16:
      return tensor.stored == DType::bf16;
    case When::f32:
      return tensor.stored == DType::f32;
    case When::f64:  // and integers
      return tensor.stored != DType::f16 && tensor.stored != DType::bf16 &&
             tensor.stored != DType::f32;
    case When::no_softcap:
      return !tensor.has_softcap;
    case When::softcap:
      return tensor.has_softcap && is_met(When::output, tensor);
    case When::gradients_with_softcap:
      return tensor.has_softcap && is_met(When::gradient, tensor);
    case When::output:
      return !is_met(When::gradient, tensor);
    case When::gradient: {
      const std::optional<Request> request = request_named(tensor.name);
      return request && is_of_gradients(*request);
    }
    case When::logsumexp:
      return tensor.name == "logsumexp" || tensor.name == "lse";
    case When::other:
      return !is_met(When::logsumexp, tensor);
  }
  return false;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : all_presets()) names.emplace_back(preset.name);
  return names;
}

std::vector<Gate> preset_gates(const std::string& name) {
  const auto& presets = all_presets();
  const auto preset = std::find_if(presets.begin(), presets.end(),
                                   [&](const Preset& known) { return known.name == name; });
  if (preset == presets.end())
    throw Error(ErrorKind::usage, "--preset: unknown preset '" + printable(name) + "'" +
                                      did_you_mean(name, preset_names(), NameKind::other) +
                                      "; presets: " + join(preset_names(), ", "));
  std::vector<Gate> gates;
  for (const PresetGate& row : preset->gates) {
    Gate gate = parse_gate(row.gate);
    gate.preset = name;
    gate.is_selective = false;
    gate.selects = [of_name = gate.selects, when = row.when](const GatedTensor& tensor) {
      return is_met(when, tensor) && of_name(tensor);
    };
    gates.push_back(std::move(gate));
  }
  return gates;
}

std::vector<Explained> explained_presets() {
  std::vector<Explained> all;
  for (const Preset& preset : all_presets())
    for (const PresetGate& row : preset.gates) {
      const std::string when(text_of(row.when));
      all.emplace_back(&row == preset.gates.data() ? preset.name : "",
                       (when.empty() ? "" : when + ": ") + row.gate);
    }
  return all;
}

}  // namespace attn
