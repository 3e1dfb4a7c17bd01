// Archives whose checksums are right, so that a mutation gets past them to what they protect.
#pragma once

#include <span>

namespace attn::fuzz {

/// Gives each stored or deflated member, as the central directory tells of it, the checksum of its
/// bytes; in both headers. What lies outside the archive is left alone.
void repair_checksums(std::span<unsigned char> archive);

}  // namespace attn::fuzz
