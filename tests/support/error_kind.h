// What kind of Error an action ends in.
#pragma once

#include <functional>
#include <string>

#include "attn/base/error.h"

/// The kind of Error that `action` throws, whose text has to contain `says`; a failure of the test
/// when it throws none.
attn::ErrorKind kind_of(const std::function<void()>& action, const std::string& says);
