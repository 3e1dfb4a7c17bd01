#!/usr/bin/env python3
"""Files that the jobs of a batch share: standard input is none of them, and missing ones cost nothing."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn, attn_and_peak, under_sanitizer  # noqa: E402
from support.jobs import is_expected, job  # noqa: E402


def standard_input(checks, folder):
    """Whatever it is called: a job that reads it would swallow those that follow."""
    os.symlink("/dev/stdin", folder / "link")
    os.symlink("link", folder / "again")
    for path in "-", "/dev/stdin", "/dev//stdin", "/dev/fd/0", "/dev/fd/../fd/0", "/proc/self/fd/0", \
            "/proc/thread-self/fd/0", "/proc/PID/fd/0", "link", "again":
        process = subprocess.Popen([ATTN, "batch", "-", "-j", "1"], cwd=folder, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        bad = json.dumps({"Q": path.replace("PID", str(process.pid)), "K": [[1.0]]})
        out, err = process.communicate(f"{bad}\n{json.dumps(job(1))}\n{bad}\n".encode(), timeout=60)
        results = [json.loads(line) for line in out.splitlines()]
        checks.check(process.returncode == 3 and len(results) == 3 and is_expected(results[1], 1)
                     and err.count(b"standard input holds the jobs") == 2, f"{path}: {out} {err}")
    # A file that is opened anew begins at its start.
    (folder / "numbers.csv").write_text("1,2\n")
    run = attn("batch", "-", "--k", "numbers.csv", stdin='{"Q": [[1.0, 2.0]]}', cwd=folder)
    checks.check(run.returncode == 0, f"another file: {run}")


def missing_files(checks):
    """A batch of any length takes the same memory, also where each line names another file."""
    def peak(count):
        lines = "".join(f'{{"Q":"{"x" * 100}{number}.npy","K":[[1]]}}\n' for number in range(count))
        run, most = attn_and_peak("batch", "-", "-q", "-j", "1", stdin=lines.encode())
        checks.check(run.returncode == 3 and run.stdout.count(b"\n") == count, f"{count}: {run.stderr[-200:]}")
        return most

    few, many = peak(100), peak(20000)
    checks.check(many < few + 4 * 1024**2, f"{few} bytes for 100 lines, {many} for 20000")


if __name__ == "__main__":
    checks = Checks("shared files")
    with tempfile.TemporaryDirectory() as folder:
        standard_input(checks, pathlib.Path(folder))
    if not under_sanitizer():
        missing_files(checks)
    checks.finish()
