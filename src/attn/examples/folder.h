// Where the worked examples are.
#pragma once

#include <string>
#include <vector>

namespace attn {

/// The folder that holds one folder an example: `asked` (--data) if given, then the environment
/// variable ATTN_DATA, then what belongs to the running program, wherever it was put:
/// ../share/attn/examples beside its bin folder, or data/examples above it in a source tree.
/// Errors: no_input, naming what was looked for.
std::string examples_folder(const std::string& asked);

/// The examples in it (folders with an example.json), sorted by name.
std::vector<std::string> example_names(const std::string& folder);

}  // namespace attn
