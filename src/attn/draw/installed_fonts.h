// Fonts installed on this machine, found with fontconfig. The library is loaded on first use;
// without it there are none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace attn {

struct FontFile {
  std::string path;
  int index = 0;  ///< of the face in the file
};

/// A scalable font that probably has the character.
std::optional<FontFile> font_with(std::uint32_t code);

}  // namespace attn
