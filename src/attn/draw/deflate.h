// Compression of the data of pages.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace attn {

/// `bytes` in the zlib format (RFC 1950), compressed for speed.
std::vector<std::byte> deflated(std::span<const std::byte> bytes);

}  // namespace attn
