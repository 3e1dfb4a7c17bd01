#include "attn/attention/machine.h"

#include <cstdlib>

#include "attn/kernel/isa.h"

namespace attn {

std::size_t available_processors() { return kernel::available_cpus(); }

Machine machine() {
  Machine facts;
  facts.kernels = kernel::isa();
  for (const kernel::Isa isa : kernel::available_isas())
    facts.available_isas.emplace_back(name_of(isa));
  facts.processors = available_processors();
  return facts;
}

void check_isa_variable() {
  if (std::getenv("ATTN_ISA") != nullptr) kernel::active_isa();
}

}  // namespace attn
