// Corrects the checksums of archives, so that mutations get past the check.
#pragma once

#include <span>

namespace attn::fuzz {

/// Sets the checksum of each stored or deflated member of the central directory in both headers.
/// Bytes outside the archive are not changed.
void repair_checksums(std::span<unsigned char> archive);

}  // namespace attn::fuzz
