"""What the Python tests share: running the program, and counting what failed.

Uses nothing but Debian's python3-numpy and the standard library. The program is taken from the
environment variable ATTN, which ctest sets; without it, build/release/attn.
"""

import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTN = os.environ.get("ATTN", str(ROOT / "build" / "release" / "attn"))

# Shells have what they run behind them ignore SIGINT and SIGQUIT, and nohup SIGHUP. A program inherits
# that, and tests send it such signals. Handlers, though they do nothing, are not inherited.
for number in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM:
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


def under_asan():
    """Whether the program is built with AddressSanitizer, whose shadow takes terabytes of address
    space: limits on memory then say nothing of the program."""
    return is_built_with(b"__asan_init")


def under_sanitizer():
    """Whether the program is built with any sanitizer: such a one brings its own allocator, or
    does not start with another library before it."""
    return is_built_with(b"__asan_init") or is_built_with(b"__ubsan_") or is_built_with(b"__tsan_init")


def is_built_with(symbol):
    with open(ATTN, "rb") as program:
        return symbol in program.read()


def attn(*args, stdin=b"", cwd=None, timeout=120):
    """Runs `attn ARGS...`; gives the CompletedProcess with bytes in stdout and stderr."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    return subprocess.run([ATTN, *map(str, args)], input=stdin, capture_output=True, cwd=cwd,
                          timeout=timeout)


def attn_and_peak(*args, stdin=b"", cwd=None, timeout=120):
    """As attn(), and the most memory that the run had at once, in bytes. A process's peak counts the
    one that it was forked from, so a small one stands between."""
    small = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); " \
            "usage = resource.getrusage(resource.RUSAGE_CHILDREN); " \
            "print('peak', usage.ru_maxrss, file=sys.stderr); sys.exit(code % 256)"
    run = subprocess.run([sys.executable, "-S", "-E", "-c", small, ATTN, *map(str, args)], cwd=cwd,
                         input=stdin, capture_output=True, timeout=timeout)
    run.stderr, _, peak = run.stderr.rpartition(b"peak ")
    return run, 1024 * int(peak)


class Checks:
    """Counts checks; `finish()` prints the count and exits 1 when one failed or none was made."""

    def __init__(self, name):
        self.name, self.passed, self.failures = name, 0, []

    def check(self, holds, what):
        if holds:
            self.passed += 1
        else:
            self.failures.append(what)
            if len(self.failures) <= 20:
                print(f"FAILED: {what}", file=sys.stderr)
        return holds

    def finish(self):
        print(f"{self.name}: {self.passed} passed, {len(self.failures)} failed")
        sys.exit(1 if self.failures or not self.passed else 0)
