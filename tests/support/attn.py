"""Runs the program for the Python tests.

The program is the one that the environment variable ATTN names, which ctest sets; without it,
build/release/attn. Needs only the standard library.
"""

import json
import logging
import os
import pathlib
import shlex
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTN = os.environ.get("ATTN", str(ROOT / "build" / "release" / "attn"))
LOG = logging.getLogger("attn")  # pytest shows it for a test that fails

# A shell makes its background jobs ignore SIGINT and SIGQUIT, nohup makes them ignore SIGHUP, and child
# processes inherit that. Tests send these signals to the program. A handler is reset in child processes.
for number in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM:
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


def under_asan():
    """Whether the program is built with AddressSanitizer. Its shadow memory takes terabytes of address
    space, so limits on the program's memory cannot be tested."""
    return is_built_with(b"__asan_init")


def under_sanitizer():
    """Whether the program is built with any sanitizer: these replace the allocator, or do not start
    after a preloaded library."""
    return is_built_with(b"__asan_init") or is_built_with(b"__ubsan_") or is_built_with(b"__tsan_init")


def is_built_with(symbol):
    with open(ATTN, "rb") as program:
        return symbol in program.read()


def log_run(run, args):
    """Logs the command line, the exit code and the start of the outputs."""
    lines = [f"$ attn {shlex.join(map(str, args))}", f"exit code {run.returncode}"]
    for name in "stdout", "stderr":
        text = getattr(run, name)[:2000].decode("utf-8", "backslashreplace")
        lines += [f"{name}:", text] if text else []
    LOG.info("%s", "\n".join(lines))


def attn(*args, stdin=b"", cwd=None, timeout=120):
    """Runs `attn ARGS...` and returns the CompletedProcess, with bytes in stdout and stderr."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    run = subprocess.run([ATTN, *map(str, args)], input=stdin, capture_output=True, cwd=cwd, timeout=timeout)
    log_run(run, args)
    return run


def attn_and_peak(*args, stdin=b"", cwd=None, timeout=120):
    """Like attn(), but also returns the run's peak resident memory in bytes. The peak of a process
    includes the process it was forked from, so a small interpreter starts the program."""
    small = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); " \
            "usage = resource.getrusage(resource.RUSAGE_CHILDREN); " \
            "print('peak', usage.ru_maxrss, file=sys.stderr); sys.exit(code % 256)"
    run = subprocess.run([sys.executable, "-S", "-E", "-c", small, ATTN, *map(str, args)], cwd=cwd,
                         input=stdin, capture_output=True, timeout=timeout)
    run.stderr, _, peak = run.stderr.rpartition(b"peak ")
    log_run(run, args)
    return run, 1024 * int(peak)


def json_lines(text):
    """The JSON values of an NDJSON text."""
    return [json.loads(line) for line in text.splitlines()]


def assert_error(run, code, *texts):
    """The run ended with this exit code, and its messages have these texts."""
    assert run.returncode == code
    for text in texts:
        assert text in run.stderr.decode()


def assert_verdict(run, code):
    """The comparison printed no message and ended with this exit code: 0 if the tensors agree, else 1."""
    assert run.stderr == b""
    assert run.returncode == code
