// Finds the worked examples.
#pragma once

#include <string>
#include <vector>

namespace attn {

/// The folder that contains a folder for each example: `given` (--data); else the environment
/// variable ATTN_DATA; else ../share/attn/examples relative to the program's folder, or
/// data/examples in a parent folder of the program (a source tree). Errors: no_input.
std::string examples_folder(const std::string& given);

/// The names of its examples (folders with an example.json), sorted.
std::vector<std::string> example_names(const std::string& folder);

}  // namespace attn
