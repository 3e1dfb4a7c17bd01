// Help topics, for `attn help TOPIC` and section 7 of the manual: docs/topics.txt, embedded.
#pragma once

#include <string>
#include <vector>

namespace attn {

struct Topic {
  std::string name, what;
  std::string text;  ///< lines of at most 76 columns, then "Example:" and command lines
};

const std::vector<Topic>& topics();
const Topic* find_topic(const std::string& name);  ///< nullptr if there is none
std::vector<std::string> topic_names();

}  // namespace attn
