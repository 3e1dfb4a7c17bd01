#include "attn/tensor/late_library.h"

#include <dlfcn.h>

#include "attn/tensor/error.h"

namespace attn {

LateLibrary::LateLibrary(const char* what, const char* file)
    : what_(what), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* reason = dlerror();
  throw Error(ErrorKind::internal, what_ + ": " + (reason ? reason : file));
}

void* LateLibrary::symbol(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) throw Error(ErrorKind::internal, what_ + ": has no function " + name);
  return found;
}

}  // namespace attn
