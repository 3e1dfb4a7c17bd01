#include "attn/problem/input_table.h"

namespace attn {

const std::vector<std::string>& input_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const InputRow& row : kInputs) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

}  // namespace attn
