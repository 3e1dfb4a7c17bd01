#include "attn/cli/version.h"

#include "attn/attention/blas.h"
#include "attn/attention/machine.h"
#include "attn/base/error.h"
#include "attn/base/version.h"
#include "attn/batch/sandbox.h"

namespace attn {
namespace {

std::string blas_line() {
  try {
    const BlasLibrary blas = blas_library();
    return blas.version + ", " + blas.file + ", " +
           (blas.threads == "none" ? "built without threads; calls run one at a time"
                                   : "built with " + blas.threads + "; each call uses one thread");
  } catch (const Error& error) {
    return error.what();
  }
}

std::string sandbox_line() {
  const SandboxSupport support = sandbox_support();
  return std::string(support.has_seccomp ? "seccomp" : "no seccomp") + ", " +
         (support.landlock > 0 ? "Landlock " + std::to_string(support.landlock) : "no Landlock") +
         " (for batch --isolate)";
}

}  // namespace

std::string version_text(bool verbose) {
  std::string text = std::string("attn ") + kVersion + "\n";
  if (!verbose) return text;
  const Machine facts = machine();
  std::string isas;
  for (const std::string& isa : facts.available_isas) isas += (isas.empty() ? "" : ", ") + isa;
  return text + "kernels: " + facts.kernels + " (of " + isas + ")\n" + "BLAS: " + blas_line() +
         "\n" + "processors: " + std::to_string(facts.processors) + "\n" +
         "sandbox: " + sandbox_line() + "\n";
}

}  // namespace attn
