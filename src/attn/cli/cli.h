// The entry point of the program: dispatches to the command that was given.
#pragma once

namespace attn {

/// Runs the program and returns its exit code; every error ends here as lines on stderr that begin
/// with "attn: ". Nothing is thrown.
int run_cli(int argc, char** argv);

}  // namespace attn
