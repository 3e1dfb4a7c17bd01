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

// Which tensors a gate is for.

bool is_any(const GatedTensor&) { return true; }

template <DType kDType>
bool is_stored_as(const GatedTensor& tensor) {
  return tensor.stored == kDType;
}

bool is_f64_or_integer(const GatedTensor& tensor) {
  return tensor.stored != DType::f16 && tensor.stored != DType::bf16 && tensor.stored != DType::f32;
}

bool is_of_gradient(const GatedTensor& tensor) {
  const std::optional<Request> request = request_named(tensor.name);
  return request && is_of_gradients(*request);
}

bool is_of_output(const GatedTensor& tensor) { return !is_of_gradient(tensor); }

bool is_of_lse(const GatedTensor& tensor) {
  return tensor.name == "logsumexp" || tensor.name == "lse";
}

bool is_of_another(const GatedTensor& tensor) { return !is_of_lse(tensor); }

bool has_no_softcap(const GatedTensor& tensor) { return !tensor.has_softcap; }

bool is_of_softcap_output(const GatedTensor& tensor) {
  return tensor.has_softcap && is_of_output(tensor);
}

bool is_of_softcap_gradient(const GatedTensor& tensor) {
  return tensor.has_softcap && is_of_gradient(tensor);
}

struct PresetGate {
  const char* gate;
  std::string when = "";  ///< for which tensors, in words; "": for all
  bool (*is_for)(const GatedTensor&) = is_any;
};

/// Of which file of which project, docs/comparing.md says.
struct Preset {
  std::string_view name;
  std::vector<PresetGate> gates;
};

const std::vector<Preset>& all_presets() {
  static const std::vector<Preset> kPresets = {
      {"fa2",
       {{"max_abs <= 2 * baseline_max_abs + 1e-5", "outputs", is_of_output},
        {"max_abs <= 3 * baseline_max_abs", "gradients", is_of_gradient}}},
      {"fa3",
       {{"max_abs <= 2 * baseline_max_abs + 2 * ref_rounding", "without a softcap", has_no_softcap},
        {"max_abs <= 3 * baseline_max_abs + 2 * ref_rounding", "outputs, with a softcap",
         is_of_softcap_output},
        {"max_abs <= 3 * baseline_max_abs + 2 * ref_rounding + 3e-4", "gradients, with a softcap",
         is_of_softcap_gradient}}},
      {"flashmla",
       {{"abs_or_rel(abs=8e-4, rel=2.01/128) == 0 and (cosdiff <= 5e-6 or ref_l2 < 1e-6)",
         "other tensors", is_of_another},
        {"abs_or_rel(abs=1e-6, rel=8.01/65536) == 0 and (cosdiff <= 1e-7 or ref_l2 < 1e-6)",
         "logsumexp", is_of_lse}}},
      {"fla", {{"rms_ratio < 0.005 or max_abs <= 1e-6"}}},
      {"flashinfer",
       {{"mismatched(rtol=1e-3, atol=1e-3) == 0 and cosine >= 0.999", "f16",
         is_stored_as<DType::f16>},
        {"mismatched(rtol=1e-2, atol=1e-2) == 0 and cosine >= 0.999", "bf16",
         is_stored_as<DType::bf16>},
        {"mismatched(rtol=1e-5, atol=1e-5) == 0 and cosine >= 0.999", "f32",
         is_stored_as<DType::f32>},
        {"mismatched(rtol=1e-7, atol=1e-7) == 0 and cosine >= 0.999", "f64", is_f64_or_integer}}},
      {"llama.cpp", {{"nmse <= 5e-4"}}},
      {"triton", {{"max_abs <= 1e-2"}}},
      {"tt", {{"pcc >= 0.99"}}}};
  return kPresets;
}

}  // namespace

std::vector<std::string> preset_names() { return texts_of(all_presets(), &Preset::name); }

std::vector<Gate> preset_gates(const std::string& name) {
  const auto& presets = all_presets();
  const auto preset = std::find_if(presets.begin(), presets.end(),
                                   [&](const Preset& known) { return known.name == name; });
  if (preset == presets.end())
    fail_usage("--preset: unknown preset '" + printable(name) + "'" +
               did_you_mean(name, preset_names(), NameKind::other) +
               "; presets: " + join(preset_names(), ", "));
  std::vector<Gate> gates;
  for (const PresetGate& row : preset->gates) {
    Gate gate = parse_gate(row.gate);
    gate.preset = name;
    gate.is_selective = false;
    gate.selects = [of_name = gate.selects, is_for = row.is_for](const GatedTensor& tensor) {
      return is_for(tensor) && of_name(tensor);
    };
    gates.push_back(std::move(gate));
  }
  return gates;
}

std::vector<Explained> explained_presets() {
  std::vector<Explained> all;
  for (const Preset& preset : all_presets())
    for (const PresetGate& row : preset.gates)
      all.emplace_back(&row == preset.gates.data() ? preset.name : "",
                       (row.when.empty() ? "" : row.when + ": ") + row.gate);
  return all;
}

}  // namespace attn
