// The entry point of the program: dispatches to the command that was given.
#pragma once

namespace attn {

class Executor;

/// Runs the program and returns its exit code. Errors are reported as lines "attn: ..." on stderr.
/// Never throws.
int run_cli(int argc, char** argv);
/// With another executor than this process alone (cli/executor.h).
int run_cli(int argc, char** argv, Executor& executor);

}  // namespace attn
