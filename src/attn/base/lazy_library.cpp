#include "attn/base/lazy_library.h"

#include <dlfcn.h>

#include <new>
#include <string_view>

#include "attn/base/error.h"

namespace attn {
namespace {

/// Recognises the loader's messages ("cannot allocate memory", "failed to map segment", "cannot map
/// pages").
bool is_out_of_memory(std::string_view reason) {
  return reason.find(" memory") != reason.npos || reason.find(" map ") != reason.npos;
}

}  // namespace

LazyLibrary::LazyLibrary(const char* what, const char* file)
    : what_(what), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* reason = dlerror();
  if (reason != nullptr && is_out_of_memory(reason)) throw std::bad_alloc();
  throw Error(ErrorKind::io, what_ + ": " + (reason ? reason : file));
}

void* LazyLibrary::symbol(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) throw Error(ErrorKind::internal, what_ + ": has no function " + name);
  return found;
}

}  // namespace attn
