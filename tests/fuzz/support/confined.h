// No file, device or folder of this machine, whatever path an input names.
#pragma once

namespace attn::fuzz {

/// While one lives, each file that attn opens by name is not there, no descriptor can be named
/// (/dev/stdin, /dev/fd/3), and no folder can be made. Files put into TensorFiles are still found.
class Confined {
 public:
  Confined();
  Confined(const Confined&) = delete;
  Confined& operator=(const Confined&) = delete;
  ~Confined();
};

}  // namespace attn::fuzz
