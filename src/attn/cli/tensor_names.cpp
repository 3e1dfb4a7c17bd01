#include "attn/cli/tensor_names.h"

#include <map>

#include "attn/base/error.h"
#include "attn/base/suggestion.h"
#include "attn/base/text.h"

namespace attn {
namespace {

[[noreturn]] void refuse_as(const std::string& message) { fail_usage("--as: " + message); }

}  // namespace

Option as_option(std::vector<std::string>& target, const std::string& help) {
  return list("--as", target, "TENSOR=NAME,...", help, ',');
}

TensorMap renamed(const TensorMap& tensors, const std::vector<std::string>& as,
                  const std::string& file) {
  std::map<std::string, std::string> names;  // new names by old ones
  for (const std::string& entry : as) {
    const std::size_t equals = entry.rfind('=');
    std::string tensor = entry.substr(0, equals);
    const std::string name = equals == std::string::npos ? entry : entry.substr(equals + 1);
    if (equals == std::string::npos) {
      if (tensors.size() != 1)
        refuse_as("requires a single tensor, but " + printable(file) + " has " +
                  std::to_string(tensors.size()) + " (" + list_names(tensors.names()) +
                  "); use TENSOR=" + printable(name));
      tensor = tensors.begin()->first;
    }
    if (name.empty()) refuse_as("expected TENSOR=NAME, found '" + printable(entry) + "'");
    if (!tensors.contains(tensor))
      refuse_as(printable(file) + " has no tensor '" + printable(tensor) + "'" +
                did_you_mean(tensor, tensors.names(), NameKind::tensor));
    if (!names.emplace(tensor, name).second)
      refuse_as("'" + printable(tensor) + "' is given twice");
  }
  TensorMap result;
  for (const auto& [tensor, elements] : tensors) {
    const auto found = names.find(tensor);
    const std::string& name = found == names.end() ? tensor : found->second;
    if (result.contains(name))
      refuse_as("two tensors of " + printable(file) + " are named '" + printable(name) + "'");
    result.set(name, elements);
  }
  return result;
}

}  // namespace attn
