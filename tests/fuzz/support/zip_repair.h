// Corrects the checksums of archives, so that mutations get past the check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace attn::fuzz {

/// Sets the checksum of each stored or deflated member of the central directory in both headers.
/// Bytes outside the archive are not changed.
void repair_checksums(std::span<unsigned char> archive);

/// libFuzzer's own mutation, after which the checksums are corrected in seven of eight cases.
/// Parameters and result are those of LLVMFuzzerCustomMutator.
std::size_t mutate_archive(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);

}  // namespace attn::fuzz
