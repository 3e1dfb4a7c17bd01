#include "attn/core/machine.h"

#include "attn/kernel/cpus.h"
#include "attn/kernel/isa.h"

namespace attn {

Machine machine() {
  Machine facts;
  facts.kernels = kernel::isa();
  for (const kernel::Isa isa : kernel::available_isas()) facts.offered.emplace_back(name_of(isa));
  facts.processors = kernel::available_cpus();
  return facts;
}

}  // namespace attn
