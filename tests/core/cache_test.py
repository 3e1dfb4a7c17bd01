#!/usr/bin/env python3
"""Decoding token by token with a cache gives the weights of one pass over all tokens.

The layer is Llama's: rotary positions, grouped heads, causal, an output projection. Each step is a
run of its own, which reads the keys and values that the step before it wrote.
"""

import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

TOKENS, WIDTH, HEADS, GROUPS, D = 16, 24, 6, 2, 8
LAYER = ["--wq", "layer.npz#W_Q", "--wk", "layer.npz#W_K", "--wv", "layer.npz#W_V", "--wo",
         "layer.npz#W_O", "--heads", HEADS, "--kv-heads", GROUPS, "--rotary", "half", "--causal"]


def run(checks, folder, *args):
    done = attn("run", *LAYER, *args, cwd=folder)
    checks.check(done.returncode == 0, f"{args}: {done.stderr.decode()}")


def steps(checks, folder, sizes, *options):
    """Runs the tokens in groups of `sizes`; gives the rows of weights and outputs, in order."""
    first, past, weights, outputs = 0, [], [], []
    for size in sizes:
        np.save(folder / "now.npy", np.load(folder / "x.npy")[first:first + size])
        out = [f"present_K=k{first}.npy", f"present_V=v{first}.npy", "weights=w.npy",
               "output=o.npy"]
        run(checks, folder, "--embeddings", "now.npy", *past, *options, "--force",
            *(word for name in out for word in ("-o", name)))
        past = ["--past-k", f"k{first}.npy", "--past-v", f"v{first}.npy"]
        w = np.load(folder / "w.npy")
        weights += [np.pad(w[:, i], ((0, 0), (0, TOKENS - w.shape[2]))) for i in range(size)]
        outputs += list(np.load(folder / "o.npy"))
        first += size
    return np.stack(weights, 1), np.stack(outputs)


def main():
    checks = Checks("cache")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        np.savez(folder / "layer.npz", W_Q=rng.standard_normal((WIDTH, HEADS * D)),
                 W_K=rng.standard_normal((WIDTH, GROUPS * D)),
                 W_V=rng.standard_normal((WIDTH, GROUPS * D)),
                 W_O=rng.standard_normal((HEADS * D, WIDTH)))
        np.save(folder / "x.npy", rng.standard_normal((TOKENS, WIDTH)))
        for options in [], ["--window", "5,0"], ["--alibi", "--qk-norm", "rms"], \
                ["--position", "sinusoidal"]:
            run(checks, folder, "--embeddings", "x.npy", *options, "-o", "full.npz", "--outputs",
                "weights,output", "--force")
            full = np.load(folder / "full.npz")
            for sizes in [1] * TOKENS, [7, 1, 1, 7]:
                weights, outputs = steps(checks, folder, sizes, *options)
                off = np.abs(weights - full["weights"]).max()
                checks.check(off <= 1e-14, f"{options} {sizes}: weights are off by {off}")
                norm = np.abs(full["output"]).max()
                off = np.abs(outputs - full["output"]).max() / norm
                checks.check(off <= 1e-14, f"{options} {sizes}: outputs are off by {off}")
    checks.finish()


main()
