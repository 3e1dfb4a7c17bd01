"""Errors of float32 results of attn and PyTorch, compared with float64."""

import pathlib
import subprocess
import tempfile

import numpy as np

from kernels import ROOT
from processes import attn


def exact(q, k, v, causal):
    q, k, v = (a.astype("float64") for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores[..., ~np.tri(*scores.shape[-2:], dtype=bool)] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    return scores / scores.sum(axis=-1, keepdims=True) @ v


def errors(found, expected):
    distance = found.astype("float64") - expected
    return float(np.sqrt(np.mean(distance ** 2))), float(np.abs(distance).max())


def measure(arguments):
    import torch
    rows = []
    torch.set_num_threads(arguments.threads)
    print("| problem | RMS, attn | RMS, torch | attn / torch | max, attn | max, torch |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        random = np.random.default_rng(7)
        for n in (128, 512, 2048):
            for d in (64, 128):
                for causal in (False, True):
                    q, k, v = arrays = random.standard_normal((3, 4, n, d), dtype="float32")
                    inputs = [folder / f"{tensor}.npy" for tensor in "qkv"]
                    for path, array in zip(inputs, arrays):
                        np.save(path, array)
                    context = folder / "context.npy"
                    subprocess.run(attn(inputs, context) + ["--force"] + ["--causal"] * causal,
                                   check=True)
                    expected = exact(q, k, v, causal)
                    ours = errors(np.load(context), expected)
                    theirs = errors(torch.nn.functional.scaled_dot_product_attention(
                        *map(torch.from_numpy, arrays), is_causal=causal).numpy(), expected)
                    kind = f"L=S={n} D={d} {'causal' if causal else 'full'}"
                    rows.append({"problem": kind, "attn": ours, "torch": theirs})
                    print(f"| {kind} | {ours[0]:.2e} | {theirs[0]:.2e} | {ours[0] / theirs[0]:.2f} "
                          f"| {ours[1]:.2e} | {theirs[1]:.2e} |", flush=True)
    return rows
