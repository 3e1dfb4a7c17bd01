// The kind of Error that an action throws.
#pragma once

#include <functional>
#include <string>

#include "attn/base/error.h"

/// The kind of Error that `action` throws. The test fails if it throws none, or if its message does
/// not contain `message`.
attn::ErrorKind kind_of(const std::function<void()>& action, const std::string& message);
