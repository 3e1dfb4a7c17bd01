#include "attn/core/machine.h"

#include "attn/kernel/cpus.h"
#include "attn/kernel/isa.h"

namespace attn {

std::size_t processors_for_us() { return kernel::available_cpus(); }

Machine machine() {
  Machine facts;
  facts.kernels = kernel::isa();
  for (const kernel::Isa isa : kernel::available_isas()) facts.offered.emplace_back(name_of(isa));
  facts.processors = processors_for_us();
  return facts;
}

}  // namespace attn
