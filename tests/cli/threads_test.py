#!/usr/bin/env python3
"""The bytes of a result depend neither on the number of threads nor on what is computed beside it."""

import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402


def run(folder, *args):
    out = folder / "out.npz"
    done = attn("run", folder / "in.npz", "-o", out, "--force", *args)
    assert done.returncode == 0, done
    with np.load(out) as arrays:
        return {name: arrays[name] for name in arrays.files}


def same(a, b):
    return all(a[name].tobytes() == b[name].tobytes() for name in a)


def main():
    checks = Checks("threads")
    rng = np.random.default_rng(5)
    for dtype in np.float32, np.float64:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            q, k, v = (rng.standard_normal((2, 4, 300, 40)).astype(dtype) for _ in "qkv")
            np.savez(folder / "in.npz", Q=q, K=k, V=v)
            for options in [], ["--causal"], ["--window", "17,3", "--softcap", "5"]:
                one = run(folder, "--threads", 1, *options)
                for threads in 2, 3, 4, 7:
                    many = run(folder, "--threads", threads, *options)
                    checks.check(same(one, many), f"{dtype} {options}: {threads} threads")
                # Rows, heads and batch items alone.
                rows = run(folder, "--rows", "7,130,299", *options)
                checks.check(rows["weights"].tobytes() == one["weights"][:, :, [7, 130, 299]].tobytes(),
                             f"{dtype} {options}: some rows")
                np.savez(folder / "in.npz", Q=q[1:, 2:3], K=k[1:, 2:3], V=v[1:, 2:3])
                alone = run(folder, *options)
                checks.check(alone["context"].tobytes() == one["context"][1:, 2:3].tobytes(),
                             f"{dtype} {options}: one head")
                np.savez(folder / "in.npz", Q=q, K=k, V=v)
                # The two paths agree, and are not the same code.
                reference = run(folder, "--path", "reference", *options)
                eps = np.finfo(dtype).eps
                checks.check(np.abs(reference["context"] - one["context"]).max() < 100 * eps,
                             f"{dtype} {options}: the reference")
                checks.check(not same(reference, one), f"{dtype} {options}: two ways")
    checks.finish()


if __name__ == "__main__":
    main()
