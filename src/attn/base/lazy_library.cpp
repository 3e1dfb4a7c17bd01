#include "attn/base/lazy_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "attn/base/error.h"
#include "attn/base/text.h"

namespace attn {
namespace {

namespace fs = std::filesystem;

/// The folder of the program or shared library that contains this code, without symbolic links; ""
/// if it cannot be determined. argv[0], which the caller chooses, is not used.
fs::path folder_of_code() {
  Dl_info info{};
  void* object = nullptr;
  const bool is_known =
      dladdr1(reinterpret_cast<const void*>(&folder_of_code), &info, &object, RTLD_DL_LINKMAP) != 0;
  const std::string_view path = is_known ? static_cast<const link_map*>(object)->l_name : "";
  std::error_code error;
  const fs::path file = fs::canonical(path.empty() ? "/proc/self/exe" : path, error);
  return error ? fs::path() : file.parent_path();
}

/// The folders that may contain bundled libraries (docs/decisions/0017-packages.md).
std::vector<fs::path> bundle_folders() {
  const fs::path folder = folder_of_code();
  if (folder.empty()) return {};
  return {folder.parent_path() / "lib/attn", folder / "lib/attn"};
}

/// Recognises the loader's messages ("cannot allocate memory", "failed to map segment", "cannot map
/// pages").
bool is_out_of_memory(std::string_view reason) {
  return reason.find(" memory") != reason.npos || reason.find(" map ") != reason.npos;
}

}  // namespace

LazyLibrary::LazyLibrary(const char* what, const char* file) : what_(what) {
  const std::vector<fs::path> folders = bundle_folders();
  std::string path = file;  // the dynamic linker searches for a name without folders
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (fs::status(folder / file, error).type() == fs::file_type::not_found) continue;
    path = (folder / file).string();
    break;
  }
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) return;
  const char* const found = dlerror();
  const std::string reason = found != nullptr ? found : path;
  if (is_out_of_memory(reason)) throw std::bad_alloc();
  std::string hint;
  if (path == file && !folders.empty())
    hint = "; install it, or copy it to " + printable(folders.front().string());
  throw Error(ErrorKind::io, what_ + ": " + printable_message(reason) + hint);
}

void* LazyLibrary::symbol(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr) throw Error(ErrorKind::internal, what_ + ": has no function " + name);
  return found;
}

}  // namespace attn
