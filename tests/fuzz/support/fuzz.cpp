#include "support/fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "attn/base/utf8.h"
#include "attn/io/elements.h"

namespace attn::fuzz {
namespace {

/// Whether a terminal shows this text as one line without control sequences.
bool is_one_line(const std::string& line) {
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t length = utf8_length(line, i);
    const auto byte = static_cast<unsigned char>(line[i]);
    if (length == 0 || byte < 0x20 || byte == 0x7F) return false;
    if (length > 1 && is_invisible(static_cast<char32_t>(code_point(line, i)))) return false;
    i += length;
  }
  return !line.empty();
}

}  // namespace

FileBytes file_of(std::string_view bytes, const std::string& path) {
  const std::shared_ptr<std::byte> data = allocate_bytes(bytes.size());
  if (!bytes.empty()) std::memcpy(data.get(), bytes.data(), bytes.size());
  return {.path = path, .data = data, .size = bytes.size()};
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

bool same(const TensorMap& a, const TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const Tensor* other = b.find(name);
    if (other == nullptr || !same(tensor, *other)) return false;
  }
  return true;
}

void require_well_formed(const Error& error) {
  require(error.kind() != ErrorKind::internal, "an error is not an internal error");
  require(!error.lines().empty(), "an error has a message");
  for (const std::string& line : error.lines()) {
    if (!is_one_line(line)) std::fprintf(stderr, "%s\n", line.c_str());
    require(is_one_line(line), "each line of an error is one line of text");
  }
}

}  // namespace attn::fuzz
