// The command line: what was typed, handed to what it means. The only room that knows CLI11.
#pragma once

namespace attn {

/// Runs the program and returns its exit code; every error ends here as lines on stderr that begin
/// with "attn: ". Nothing is thrown.
int run_cli(int argc, char** argv);

}  // namespace attn
