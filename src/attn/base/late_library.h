// A shared library that is opened when its first function is called: a run that calls none does not
// pay for loading it. docs/decisions/0005-late-libraries.md.
#pragma once

#include <string>

namespace attn {

class LateLibrary {
 public:
  /// Opens `file`, a name that the dynamic linker knows. Errors: io, beginning with `what`, the
  /// name that people know it by; std::bad_alloc.
  LateLibrary(const char* what, const char* file);

  /// The function `name`, which has the type of `declared`.
  template <class Result, class... Parameters>
  auto find(Result (*declared)(Parameters...), const char* name) const {
    return reinterpret_cast<decltype(declared)>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  std::string what_;
  void* handle_;  ///< stays open to the end
};

}  // namespace attn
