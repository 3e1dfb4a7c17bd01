// What every fuzz target is made of: bytes as a file, and what has to hold whatever they are.
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

/// A file of these bytes and no byte more, so that AddressSanitizer sees who reads past its end.
FileBytes file_of(std::string_view bytes, const std::string& path = "input");

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Ends the program, as a finding, where `holds` is false.
void require(bool holds, const char* what);

/// Same dtype and shape, and the same bits.
bool same(const Tensor& a, const Tensor& b);
bool same(const TensorMap& a, const TensorMap& b);  ///< in any order

/// What an error has to be: lines without control characters, at least one, none of them empty, and
/// not attn's own fault.
void require_fair(const Error& error);

/// Whether `read` takes the input: false where it throws an Error, which has to be fair. Anything
/// else that is thrown is a finding.
template <class Read>
bool accepted(Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    require_fair(error);
    return false;
  }
}

}  // namespace attn::fuzz
