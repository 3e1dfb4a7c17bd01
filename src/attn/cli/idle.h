// Options that the others leave without effect: "--force: goes with --out-dir".
#pragma once

#include <initializer_list>
#include <string>

namespace attn {

/// An option as it is typed, and whether it was.
struct Typed {
  const char* flag;
  bool given;
};

/// These would change nothing, for lack of `companion`. Errors: usage, for the first that was
/// given.
void refuse_idle(std::initializer_list<Typed> options, const std::string& companion);

}  // namespace attn
