#include "attn/report/embedded.h"

extern "C" {
extern const char attn_font_begin[], attn_font_end[];
}

namespace attn {

std::string_view embedded_font() { return {attn_font_begin, attn_font_end}; }

}  // namespace attn
