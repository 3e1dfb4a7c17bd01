#include "attn/problem/input_table.h"

#include "attn/base/text.h"

namespace attn {

const std::vector<std::string>& input_names() {
  static const std::vector<std::string> names = texts_of(kInputs, &InputRow::name);
  return names;
}

}  // namespace attn
