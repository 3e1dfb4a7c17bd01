#include "attn/cli/tensors_of.h"

#include "attn/base/printable.h"

namespace attn {

TensorMap tensors_of(const TensorRef& ref, TensorFiles& files) {
  if (ref.member.empty()) return files.all(ref.path);
  TensorMap tensors;
  tensors.set(ref.member, files.read(ref));
  return tensors;
}

std::string label_of(const std::string& path, const std::string& name) {
  return printable(path) + (name.empty() ? "" : ": ") + printable(name);
}

}  // namespace attn
