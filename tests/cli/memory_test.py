#!/usr/bin/env python3
"""Under a limit on address space a run ends, with a line and an exit code: it never hangs."""

import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, under_asan  # noqa: E402


def limited(mebibytes, *args, cwd):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))

    return subprocess.run([ATTN, *args], cwd=cwd, capture_output=True, timeout=60,
                          preexec_fn=limit)


def main():
    checks = Checks("memory")
    if under_asan():
        checks.check(True, "there is nothing to see under AddressSanitizer")
        checks.finish()
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        np.savez(f"{folder}/in.npz", embeddings=rng.standard_normal((512, 64)),
                 W_Q=rng.standard_normal((64, 64)), W_K=rng.standard_normal((64, 64)))
        ended = set()
        for mebibytes in 40, 60, 80, 120, 160, 240, 320, 480, 640, 1280:
            for path in "auto", "reference":
                run = limited(mebibytes, "run", "in.npz", "--path", path, "--format", "npz", cwd=folder)
                ended.add(run.returncode)
                # 127: not even the program's libraries found room
                checks.check(run.returncode in (0, 65, 127), f"{mebibytes} MiB, {path}: {run}")
                lines = run.stderr.splitlines()
                checks.check(run.returncode != 65 or (len(lines) == 1 and
                                                      lines[0].startswith(b"attn: ")),
                             f"{mebibytes} MiB, {path}: {run.stderr}")
                checks.check(run.returncode == 0 or run.stdout == b"", f"{mebibytes}: no output")
        checks.check({0, 65} <= ended, f"some fit and some do not: {ended}")
    checks.finish()


if __name__ == "__main__":
    main()
