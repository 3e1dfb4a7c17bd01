#include "attn/cli/command.h"

namespace attn {

void Command::add(Option option) { options.push_back(std::move(option)); }

void Command::add(std::vector<Option> more) {
  constexpr std::size_t kMany = 256;  // those of a job; moving them all again would take longer
  if (options.size() + more.size() > options.capacity()) options.reserve(kMany);
  for (Option& option : more) options.push_back(std::move(option));
}

const Option* Command::find(const std::string& option_name) const {
  for (const Option& option : options)
    if (option.has_name(option_name)) return &option;
  return nullptr;
}

}  // namespace attn
