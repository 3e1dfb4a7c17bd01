// The settings of a call of the library.
#pragma once

#include <cstddef>

#include "attn/compare/compare_reference.h"
#include "attn/io/file_cache.h"
#include "attn/run/warnings.h"

namespace attn {

struct RunSettings {
  std::size_t threads = 0;  ///< 0: one per processor
  ReadLimits limits;
  NanPolicy nan = NanPolicy::warn;
};

/// The settings of attn_run() from JSON text or nullptr. Errors: usage.
RunSettings run_settings(const char* json);

struct CompareSettings {
  ReadLimits limits;
  ReferenceOptions reference;
};

/// The settings of attn_compare(). Errors: usage.
CompareSettings compare_settings(const char* json);

}  // namespace attn
