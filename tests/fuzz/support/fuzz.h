// Shared parts of the fuzz targets: input bytes as a file, and checks that hold for any input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "attn/base/error.h"
#include "attn/io/file.h"
#include "attn/tensor/tensor.h"

namespace attn::fuzz {

/// A file of exactly these bytes, so that AddressSanitizer detects reads past its end.
FileBytes file_of(std::string_view bytes, const std::string& path = "input");

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Aborts, which libFuzzer reports as a finding, if `holds` is false.
void require(bool holds, const char* what);

/// Same dtype and shape, and the same bits.
bool same(const Tensor& a, const Tensor& b);
bool same(const TensorMap& a, const TensorMap& b);  ///< in any order

/// Checks an error: one or more non-empty lines without control characters, and not an internal
/// error.
void require_well_formed(const Error& error);

/// Whether `read` accepts the input; false if it throws an Error, which is checked. Any other
/// exception is a finding.
template <class Read>
bool accepted(Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    require_well_formed(error);
    return false;
  }
}

}  // namespace attn::fuzz
