#include "attn/cli/idle.h"

#include "attn/base/error.h"

namespace attn {

void refuse_idle(std::initializer_list<Typed> options, const std::string& companion) {
  for (const Typed& option : options)
    if (option.given)
      throw Error(ErrorKind::usage, std::string(option.flag) + ": goes with " + companion);
}

}  // namespace attn
