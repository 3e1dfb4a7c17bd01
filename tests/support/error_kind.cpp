#include "support/error_kind.h"

#include <catch2/catch.hpp>

attn::ErrorKind kind_of(const std::function<void()>& action, const std::string& message) {
  try {
    action();
  } catch (const attn::Error& error) {
    CHECK_THAT(error.what(), Catch::Matchers::Contains(message));
    return error.kind();
  }
  FAIL("nothing was thrown; expected: " << message);
  return attn::ErrorKind::internal;
}
