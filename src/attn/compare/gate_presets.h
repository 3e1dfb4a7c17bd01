// The conditions under which projects accept the result of a kernel, as gates.
#pragma once

#include <string>
#include <vector>

#include "attn/compare/gate.h"

namespace attn {

std::vector<std::string> preset_names();

/// Errors: usage, for an unknown name.
std::vector<Gate> preset_gates(const std::string& name);

/// The gates of all presets. The name is that of the preset, "" for further gates of it.
std::vector<Explained> explained_presets();

}  // namespace attn
