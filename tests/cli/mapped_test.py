#!/usr/bin/env python3
"""What happens to inputs while they are read: cut short, written to, replaced, removed."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402

LINE = b": was cut short while it was read, or its disk fails\n"


def started(folder, *args):
    """A run that takes a while, once it has mapped q.npy."""
    run = subprocess.Popen([ATTN, "run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy",
                            "--threads", "1", *args], cwd=folder, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    while run.poll() is None:
        try:
            maps = pathlib.Path(f"/proc/{run.pid}/maps").read_text()
        except OSError:
            continue
        if all(f"/{name}.npy" in maps for name in "qkv"):
            return run
        time.sleep(0.0005)
    return run


def main():
    checks = Checks("mapped")
    rng = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def fresh():
            for letter in "qkv":
                np.save(folder / f"{letter}.npy", arrays[letter])

        def after(deed, *args):
            """Code, stderr and files of a run during which `deed` was done."""
            fresh()
            run = started(folder, *args)
            deed()
            _, err = run.communicate(timeout=120)
            return run.returncode, err, sorted(os.listdir(folder))

        arrays = {letter: rng.standard_normal((10000, 64)).astype(np.float32) for letter in "qkv"}
        inputs = ["k.npy", "q.npy", "v.npy"]
        for outputs in ["-o", "context=c.npy"], ["--outputs", "context", "-o", "c.npz"]:
            code, err, files = after(lambda: os.truncate(folder / "q.npy", 4096), *outputs)
            checks.check((code, err, files) == (74, b"attn: q.npy" + LINE, inputs),
                         f"cut short, {outputs}: {code} {err} {files}")
            code, err, files = after(lambda: os.truncate(folder / "q.npy", 0), *outputs)
            checks.check((code, err, files) == (74, b"attn: q.npy" + LINE, inputs),
                         f"emptied, {outputs}: {code} {err} {files}")

        def write_to():
            with open(folder / "v.npy", "r+b") as file:
                file.seek(-4, os.SEEK_END)
                file.write(b"abcd")

        code, err, files = after(write_to, "-o", "context=c.npy")
        checks.check((code, err, files) ==
                     (74, b"attn: v.npy: was written to while it was read\n", inputs),
                     f"written to: {code} {err} {files}")

        fresh()
        done = attn("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "-o", "context=c.npy",
                    cwd=folder)
        checks.check(done.returncode == 0, f"undisturbed: {done}")
        expected = (folder / "c.npy").read_bytes()
        (folder / "c.npy").unlink()

        def replace():
            np.save(folder / "new.npy", arrays["k"])
            os.replace(folder / "new.npy", folder / "q.npy")
            (folder / "v.npy").unlink()

        code, err, files = after(replace, "-o", "context=c.npy")
        checks.check((code, err) == (0, b""), f"replaced and removed: {code} {err}")
        checks.check((folder / "c.npy").read_bytes() == expected, "the bytes that were there count")
        (folder / "c.npy").unlink()

        # A tensor that is given out goes from file to file.
        fresh()
        done = attn("convert", "q.npy", "-o", "copy.npy", cwd=folder)
        checks.check(done.returncode == 0 and (folder / "copy.npy").read_bytes() ==
                     (folder / "q.npy").read_bytes(), f"copied: {done}")
        done = attn("compare", "q.npy", "copy.npy", cwd=folder)
        checks.check(done.returncode == 0, f"compared: {done}")
        # A header that promises more than there is is bad data, as ever.
        os.truncate(folder / "q.npy", 300000)
        done = attn("inspect", "q.npy", cwd=folder)
        checks.check(done.returncode == 65 and b"only 299872 follow" in done.stderr, f"{done}")
        done = attn("run", "--q", "q.npy", "--k", "k.npy", "-o", "context=c.npy", cwd=folder)
        checks.check(done.returncode == 65 and b"only 299872 follow" in done.stderr, f"{done}")
    checks.finish()


if __name__ == "__main__":
    main()
