"""Times whole processes, from .npy to .npy: attn, and Python with NumPy and SciPy."""

import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np

from kernels import ROOT, spread

ATTN = ROOT / "build" / "release" / "attn"
SCRIPT = ["/usr/bin/python3", pathlib.Path(__file__).with_name("whole_process.py")]


def write_inputs(folder, heads, tokens, width):
    """Paths of Q, K and V, (heads, tokens, width) in float32."""
    random = np.random.default_rng(1)
    paths = [folder / f"{tensor}-{tokens}.npy" for tensor in "QKV"]
    for path in paths:
        np.save(path, random.standard_normal((heads, tokens, width), dtype="float32"))
    return paths


def attn(inputs, context, weights=None):
    command = [ATTN, "run", "-q", "-o", f"context={context}"]
    if weights:
        command += ["-o", f"weights={weights}"]
    return command + [word for flag, path in zip("qkv", inputs) for word in (f"--{flag}", path)]


def python(inputs, context, weights=None):
    return SCRIPT + inputs + [context] + ([weights] if weights else [])


def seconds(program, inputs, folder, with_weights):
    """Elapsed seconds, writing new files, which are then deleted."""
    outputs = [folder / "context.npy"] + ([folder / "weights.npy"] if with_weights else [])
    command = program(inputs, *outputs)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    elapsed = time.perf_counter() - start
    for output in outputs:
        output.unlink()
    return elapsed


def measure(arguments):
    rows = {}
    print("Milliseconds of a whole process, .npy to .npy (float32, 8 heads, D=64; four words: one head,\n"
          f"D=3), medians of interleaved runs; Python as a multiple of attn (minimum to maximum).\n")
    print("| tokens | outputs | attn, ms | Python, NumPy, SciPy | relative to context only |")
    print("| ---: | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = pathlib.Path(name)
        for tokens in (4, 512, 2048, 4096):
            shape = (1, tokens, 3) if tokens == 4 else (8, tokens, 64)
            inputs = write_inputs(folder, *shape)
            runs = max(arguments.rounds, 15 if tokens <= 512 else 7)
            sides = [(program, weights) for weights in (False, True) for program in (attn, python)]
            for side in sides:
                seconds(side[0], inputs, folder, side[1])
            times = {side: [] for side in sides}
            for _ in range(runs):
                for side in sides:
                    times[side].append(seconds(side[0], inputs, folder, side[1]))
            for weights in (False, True):
                ours, theirs = times[attn, weights], times[python, weights]
                row = {"seconds": ours, "python": [b / a for a, b in zip(ours, theirs)],
                       "relative_to_context": [a / b for a, b in zip(ours, times[attn, False])]}
                rows[f"{tokens} {'weights' if weights else 'context'}"] = row
                print(f"| {tokens} | {'context and weights' if weights else 'context'} "
                      f"| {1e3 * statistics.median(ours):.1f} | {spread(row['python'])} "
                      f"| {spread(row['relative_to_context']) if weights else ''} |", flush=True)
    return rows
