// A shared library that is loaded on first use, so that other runs do not pay for loading it.
// docs/decisions/0005-openblas-on-first-use.md and 0017-packages.md.
#pragma once

#include <string>

namespace attn {

class LazyLibrary {
 public:
  /// Loads `file`, a name without folders. Let D be the folder of the program, or of the shared
  /// library, that contains this code. If D/../lib/attn or D/lib/attn contains the file, that copy
  /// is loaded or the call fails; otherwise, the dynamic linker searches the system. `what` is the
  /// library's name in errors. Errors: io; std::bad_alloc.
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
