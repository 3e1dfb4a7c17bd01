// A file in memory with a path, for outputs of attn or as its standard input.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "attn/io/staged_file.h"

namespace attn::fuzz {

class MemoryFile {
 public:
  MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  int descriptor() const { return descriptor_; }
  void set(std::string_view bytes);  ///< replaces the content, and rewinds
  std::string bytes() const;         ///< the content

 private:
  int descriptor_;
};

/// The bytes that `write` writes to an output.
std::string written(const std::function<void(OutputFile&)>& write);

}  // namespace attn::fuzz
