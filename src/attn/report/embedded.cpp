#include "attn/report/embedded.h"

extern "C" {
extern const char attn_font_begin[], attn_font_end[], attn_font_sha256[];
extern const char attn_page_begin[], attn_page_end[], attn_page_sha256[];
extern const char attn_style_begin[], attn_style_end[], attn_style_sha256[];
extern const char attn_values_begin[], attn_values_end[], attn_values_sha256[];
extern const char attn_draw_begin[], attn_draw_end[], attn_draw_sha256[];
extern const char attn_hands_begin[], attn_hands_end[], attn_hands_sha256[];
}

namespace attn {

EmbeddedFile embedded_font() { return {{attn_font_begin, attn_font_end}, attn_font_sha256}; }
EmbeddedFile embedded_page() { return {{attn_page_begin, attn_page_end}, attn_page_sha256}; }
EmbeddedFile embedded_style() { return {{attn_style_begin, attn_style_end}, attn_style_sha256}; }

std::span<const EmbeddedFile> embedded_scripts() {
  static const EmbeddedFile scripts[] = {{{attn_values_begin, attn_values_end}, attn_values_sha256},
                                         {{attn_draw_begin, attn_draw_end}, attn_draw_sha256},
                                         {{attn_hands_begin, attn_hands_end}, attn_hands_sha256}};
  return scripts;
}

}  // namespace attn
