// Prevents access to files, devices and folders of this machine through paths in an input.
#pragma once

namespace attn::fuzz {

/// While an object exists, no file or descriptor (/dev/stdin, /dev/fd/3) can be opened by name and
/// no folder can be created. Files put into TensorFiles are still found.
class Confined {
 public:
  Confined();
  Confined(const Confined&) = delete;
  Confined& operator=(const Confined&) = delete;
  ~Confined();
};

}  // namespace attn::fuzz
