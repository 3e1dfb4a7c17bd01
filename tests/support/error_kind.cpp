#include "support/error_kind.h"

#include <catch2/catch.hpp>

attn::ErrorKind kind_of(const std::function<void()>& action, const std::string& says) {
  try {
    action();
  } catch (const attn::Error& error) {
    CHECK_THAT(error.what(), Catch::Matchers::Contains(says));
    return error.kind();
  }
  FAIL("nothing was thrown; expected: " << says);
  return attn::ErrorKind::internal;
}
