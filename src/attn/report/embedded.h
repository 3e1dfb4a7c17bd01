// Files that the build puts into the program (cmake/embed.S.in), as they stand on disk.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attn {

struct EmbeddedFile {
  std::string_view bytes;
  std::string_view sha256;  ///< 64 hexadecimal digits
};

EmbeddedFile embedded_font();  ///< DejaVu Sans, TrueType

/// src/attn/report/page/: the frame of the HTML page, its style, and its scripts in order.
EmbeddedFile embedded_page();
EmbeddedFile embedded_style();
std::span<const EmbeddedFile> embedded_scripts();

EmbeddedFile embedded_steps_style();  ///< of worked steps (report/worked_steps.h)

/// "'sha256-...'", as a Content-Security-Policy names a script or a style.
std::string hash_source(const EmbeddedFile& file);

}  // namespace attn
