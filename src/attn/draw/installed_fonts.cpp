#include "attn/draw/installed_fonts.h"

#include <memory>
#include <new>

#include "attn/base/error.h"
#include "attn/base/lazy_library.h"

namespace attn {
namespace {

// Declared here, because the headers are not needed for anything else.
using FcFunctionInit = int (*)();
using FcFunctionCreate = void* (*)();
using FcFunctionDestroy = void (*)(void*);
using FcFunctionAddChar = int (*)(void*, std::uint32_t);
using FcFunctionAddCharSet = int (*)(void*, const char*, const void*);
using FcFunctionAddBool = int (*)(void*, const char*, int);
using FcFunctionSubstitute = int (*)(void*, void*, int);
using FcFunctionMatch = void* (*)(void*, void*, int*);
using FcFunctionGetString = int (*)(const void*, const char*, int, unsigned char**);
using FcFunctionGetInteger = int (*)(const void*, const char*, int, int*);

class Fontconfig {
 public:
  Fontconfig() : library_("fontconfig", "libfontconfig.so.1") {
    if (function<FcFunctionInit>("FcInit")() == 0)
      throw Error(ErrorKind::io, "fontconfig: no configuration");
  }

  Fontconfig(const Fontconfig&) = delete;
  Fontconfig& operator=(const Fontconfig&) = delete;
  ~Fontconfig() { function<void (*)()>("FcFini")(); }

  std::optional<FontFile> font_with(std::uint32_t code) const {
    const auto create = function<FcFunctionCreate>("FcCharSetCreate");
    const Handle characters(create(), function<FcFunctionDestroy>("FcCharSetDestroy"));
    const Handle pattern = pattern_from(function<FcFunctionCreate>("FcPatternCreate")());
    if (!characters || !pattern) throw std::bad_alloc();
    function<FcFunctionAddChar>("FcCharSetAddChar")(characters.get(), code);
    function<FcFunctionAddCharSet>("FcPatternAddCharSet")(pattern.get(), "charset",
                                                          characters.get());
    function<FcFunctionAddBool>("FcPatternAddBool")(pattern.get(), "scalable", 1);
    constexpr int kMatchPattern = 0;
    function<FcFunctionSubstitute>("FcConfigSubstitute")(nullptr, pattern.get(), kMatchPattern);
    function<FcFunctionDestroy>("FcDefaultSubstitute")(pattern.get());
    int result = 0, index = 0;
    const Handle match =
        pattern_from(function<FcFunctionMatch>("FcFontMatch")(nullptr, pattern.get(), &result));
    unsigned char* path = nullptr;
    if (!match ||
        function<FcFunctionGetString>("FcPatternGetString")(match.get(), "file", 0, &path) != 0)
      return std::nullopt;
    function<FcFunctionGetInteger>("FcPatternGetInteger")(match.get(), "index", 0, &index);
    return FontFile{reinterpret_cast<const char*>(path), index};
  }

 private:
  using Handle = std::unique_ptr<void, FcFunctionDestroy>;

  template <class Function>
  Function function(const char* name) const {
    return library_.find(Function(nullptr), name);
  }
  Handle pattern_from(void* pattern) const {
    return {pattern, function<FcFunctionDestroy>("FcPatternDestroy")};
  }

  LazyLibrary library_;
};

}  // namespace

std::optional<FontFile> font_with(std::uint32_t code) {
  static const std::unique_ptr<Fontconfig> fontconfig = []() -> std::unique_ptr<Fontconfig> {
    try {
      return std::make_unique<Fontconfig>();
    } catch (const Error&) {
      return nullptr;  // not installed
    }
  }();
  return fontconfig ? fontconfig->font_with(code) : std::nullopt;
}

}  // namespace attn
