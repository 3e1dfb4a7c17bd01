#include "attn/io/read_budget.h"

namespace attn {

void ReadBudget::refuse(const std::string& name) const {
  throw Error(ErrorKind::data, Problem{.where = {name},
                                       .message = "takes more than " + std::to_string(most_) +
                                                  " bytes of memory to read",
                                       .hint = "--max-memory permits more"});
}

}  // namespace attn
