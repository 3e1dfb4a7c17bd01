// A file in memory that has a path: what attn writes to a file, or reads from standard input.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "attn/io/output_file.h"

namespace attn::fuzz {

class MemoryFile {
 public:
  MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  int descriptor() const { return descriptor_; }
  void set(std::string_view bytes);  ///< these and no others, to be read from the first on

 private:
  int descriptor_;
};

/// The bytes that `write` puts into an output.
std::string written(const std::function<void(OutputFile&)>& write);

}  // namespace attn::fuzz
