#include "attn/report/embedded.h"

#include <vector>

#include "attn/report/markup.h"

extern "C" {
extern const char attn_font_begin[], attn_font_end[], attn_font_sha256[];
extern const char attn_page_begin[], attn_page_end[], attn_page_sha256[];
extern const char attn_style_begin[], attn_style_end[], attn_style_sha256[];
extern const char attn_steps_begin[], attn_steps_end[], attn_steps_sha256[];
extern const char attn_values_begin[], attn_values_end[], attn_values_sha256[];
extern const char attn_draw_begin[], attn_draw_end[], attn_draw_sha256[];
extern const char attn_source_begin[], attn_source_end[], attn_source_sha256[];
extern const char attn_hands_begin[], attn_hands_end[], attn_hands_sha256[];
}

namespace attn {

EmbeddedFile embedded_font() { return {{attn_font_begin, attn_font_end}, attn_font_sha256}; }
EmbeddedFile embedded_page() { return {{attn_page_begin, attn_page_end}, attn_page_sha256}; }
EmbeddedFile embedded_style() { return {{attn_style_begin, attn_style_end}, attn_style_sha256}; }

EmbeddedFile embedded_steps_style() {
  return {{attn_steps_begin, attn_steps_end}, attn_steps_sha256};
}

std::span<const EmbeddedFile> embedded_scripts() {
  static const EmbeddedFile scripts[] = {{{attn_values_begin, attn_values_end}, attn_values_sha256},
                                         {{attn_source_begin, attn_source_end}, attn_source_sha256},
                                         {{attn_draw_begin, attn_draw_end}, attn_draw_sha256},
                                         {{attn_hands_begin, attn_hands_end}, attn_hands_sha256}};
  return scripts;
}

std::string hash_source(const EmbeddedFile& file) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < file.sha256.size(); i += 2)
    bytes.push_back(
        static_cast<std::byte>(std::stoi(std::string(file.sha256.substr(i, 2)), nullptr, 16)));
  std::string text = "'sha256-";
  append_base64(text, bytes);
  return text + "'";
}

}  // namespace attn
