#include "attn/model/layer_job.h"

#include <algorithm>
#include <array>
#include <optional>

#include "attn/base/text.h"

namespace attn {

Error quantised_error(const std::string& checkpoint, const std::string& tensor,
                      const std::string& form, const std::string& method) {
  return Error(
      ErrorKind::data,
      Problem{.where = {checkpoint, tensor},
              .message = "is quantised (" + (method.empty() ? "" : method + ", ") + form + ")",
              .hint = "dequantise the checkpoint to float16, bfloat16 or float32 first"});
}

void LayerJob::set(const std::string& key, Json value) {
  keys_.emplace_back(key, std::move(value));
}

bool LayerJob::has(const std::string& key) const {
  return std::any_of(keys_.begin(), keys_.end(),
                     [&](const auto& entry) { return entry.first == key; });
}

bool LayerJob::has_tensor(const std::string& name) const {
  return files_.stored(checkpoint_, prefix_ + name).has_value();
}

Shape LayerJob::shape_of_shared(const std::string& full_name) const {
  const std::optional<StoredTensor> stored = files_.stored(checkpoint_, full_name);
  return stored ? stored->shape : Shape{};
}

void LayerJob::set_tensor(const std::string& key, const std::string& name,
                          const std::string& part) {
  set_shared_tensor(key, prefix_ + name, part);
}

void LayerJob::require_tensor(const std::string& key, const std::string& full_name) const {
  constexpr std::array<std::string_view, 4> kDTypes = {"F64", "F32", "F16", "BF16"};
  const std::optional<StoredTensor> stored = files_.stored(checkpoint_, full_name);
  if (!stored)
    fail_data({.where = {checkpoint_},
               .message = "has no tensor '" + printable(full_name) + "', which '" + key +
                          "' of this model_type requires"});
  if (std::find(kDTypes.begin(), kDTypes.end(), stored->dtype) == kDTypes.end())
    throw quantised_error(checkpoint_, full_name, stored->dtype, quantisation_);
}

std::string LayerJob::required_tensor(const std::string& key, const std::string& name) const {
  require_tensor(key, prefix_ + name);
  return prefix_ + name;
}

void LayerJob::set_shared_tensor(const std::string& key, const std::string& full_name,
                                 const std::string& part) {
  require_tensor(key, full_name);
  set(key, Json{checkpoint_ + "#" + full_name + part});
}

void LayerJob::set_linear(const std::string& letter, const std::string& name,
                          const std::string& part, const std::string& bias_part) {
  set_tensor("W_" + letter, name + ".weight", part);
  if (has_tensor(name + ".bias")) set_tensor("b_" + letter, name + ".bias", bias_part);
}

}  // namespace attn
