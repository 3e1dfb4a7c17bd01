// The options of the job in the provenance of a result.
#pragma once

#include <string>

#include "attn/io/json_write.h"
#include "attn/problem/options.h"

namespace attn {

/// A key of the recorded job, such as "rotary.base"; nullptr if it was not given.
const Json* recorded_key(const Json& made_by, const std::string& key);

/// The options that the recorded job gives and, of those of its convention,
/// set_results_of_convention(). Values that are not valid are ignored.
Options recorded_options(const Json& made_by);

}  // namespace attn
