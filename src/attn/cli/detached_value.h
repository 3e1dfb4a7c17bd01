// "--view out.png": a value behind a flag that may stand alone, and takes one after '=' only.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace attn {

/// "; --view takes its value as --view=out.png", where `word` was typed right behind such a flag
/// and is a value for it; otherwise "". `typed` is the command line.
std::string detached_value(const CLI::App& app, std::span<char* const> typed,
                           const std::string& word);

}  // namespace attn
