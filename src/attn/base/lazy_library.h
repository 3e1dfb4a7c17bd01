// A shared library that is loaded on first use, so that other runs do not pay for loading it.
// docs/decisions/0005-openblas-on-first-use.md.
#pragma once

#include <string>

namespace attn {

class LazyLibrary {
 public:
  /// Loads `file`, a name for the dynamic linker. `what` is its name in errors. Errors: io;
  /// std::bad_alloc.
  LazyLibrary(const char* what, const char* file);

  /// The function `name`, of the type of `declared`.
  template <class Result, class... Parameters>
  auto find(Result (*declared)(Parameters...), const char* name) const {
    return reinterpret_cast<decltype(declared)>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  std::string what_;
  void* handle_;  ///< never closed
};

}  // namespace attn
