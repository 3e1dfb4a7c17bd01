// Files that the build embeds in the program (cmake/embed.S.in).
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

/// src/attn/report/page/: the frame of the HTML page, its style sheet, and its scripts in order.
EmbeddedFile embedded_page();
EmbeddedFile embedded_style();
std::span<const EmbeddedFile> embedded_scripts();

EmbeddedFile embedded_steps_style();  ///< of worked steps (report/worked_steps.h)

/// "'sha256-...'" for a Content-Security-Policy.
std::string hash_source(const EmbeddedFile& file);

}  // namespace attn
