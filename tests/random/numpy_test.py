#!/usr/bin/env python3
"""A million draws of every method of `attn random`, bit for bit those of NumPy."""

import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

COUNT = 1_000_000
SEEDS = [0, 42, 2**32 - 1, [1, 2, 3]]
WEIGHTS = [0.1, 0.05, 0.25, 0.0, 0.4, 0.125, 0.075]
RANGES = {  # each seed draws from a range of its own
    "bool": [(0, 2), (0, 2), (1, 2)],
    "int8": [(-128, 128), (-100, 100), (0, 3)],
    "uint8": [(0, 256), (3, 200), (0, 10)],
    "int16": [(-(2**15), 2**15), (-5, 1000), (0, 3)],
    "uint16": [(0, 2**16), (1, 40_000), (0, 10)],
    "int32": [(-(2**31), 2**31), (-(2**31), 5), (0, 3)],
    "uint32": [(0, 2**32), (7, 2**31 + 9), (0, 10)],
    "int64": [(-(2**63), 2**63), (-(2**62), 2**40), (0, 3), (0, 2**32)],
    "uint64": [(0, 2**64), (0, 2**63 + 1), (0, 10), (1, 2**32 + 1)],
}
FLOATS = {  # method: its arguments
    "rand": {},
    "random": {},
    "random_sample": {},
    "randn": {},
    "standard_normal": {},
    "uniform": {"low": -2.5, "high": 0.1},
    "normal": {"loc": 3.25, "scale": 0.7},
}


class Drawing:
    """Runs the program into one folder and compares what it wrote with what NumPy gave."""

    def __init__(self, checks, folder):
        self.checks, self.folder = checks, pathlib.Path(folder)

    def compare(self, expected, *args, seed):
        words = seed if isinstance(seed, list) else [seed]
        output = self.folder / "drawn.npy"
        run = attn("random", *args, "--seed", ",".join(map(str, words)), "-o", output, "--force")
        what = f"attn random {' '.join(map(str, args))} --seed {seed}"
        if not self.checks.check(run.returncode == 0, f"{what}: {run.stderr.decode()}"):
            return
        found = np.load(output)
        expected = np.ascontiguousarray(expected)
        self.checks.check(found.dtype == expected.dtype and found.shape == expected.shape,
                          f"{what}: {found.dtype} {found.shape}")
        self.checks.check(found.tobytes() == expected.tobytes(),
                          f"{what}: {np.sum(found != expected)} of {expected.size} differ")


def options(arguments):
    return [text for name, value in arguments.items() for text in (f"--{name}", value)]


def float_methods(drawing):
    for method, arguments in FLOATS.items():
        for seed in SEEDS:
            draw = getattr(np.random.RandomState(seed), method)
            shaped = method in ("rand", "randn")
            expected = draw(COUNT) if shaped else draw(size=COUNT, **arguments)
            drawing.compare(expected, method, *options(arguments), "--shape", COUNT, seed=seed)


def integer_methods(drawing):
    for dtype, ranges in RANGES.items():
        for seed, (low, high) in zip(SEEDS, ranges):
            shape = (1000, COUNT // 1000)
            args = ["--low", low, "--high", high, "--dtype", dtype, "--shape", "%d,%d" % shape]
            drawing.compare(np.random.RandomState(seed).randint(low, high, shape, dtype),
                            "randint", *args, seed=seed)
            drawing.compare(np.random.default_rng(seed).integers(low, high, shape, dtype),
                            "integers", "--generator", "default_rng", *args, seed=seed)


def generator_methods(drawing):
    chosen = ["--generator", "default_rng", "--shape", COUNT]
    for seed in [*SEEDS, 2**128 - 1, [2**70, 5]]:
        rng = np.random.default_rng
        drawing.compare(rng(seed).random(COUNT), "random", *chosen, seed=seed)
        drawing.compare(rng(seed).random(COUNT, dtype=np.float32), "random", *chosen, "--dtype",
                        "float32", seed=seed)
        drawing.compare(rng(seed).uniform(-7, 1e9, COUNT), "uniform", *chosen, "--low", -7,
                        "--high", 1e9, seed=seed)


def permutations(drawing):
    rows = np.random.RandomState(99).randint(0, 1000, (COUNT // 4, 4))
    line = np.random.RandomState(98).standard_normal(COUNT).astype(np.float32)
    for name, array in ("rows", rows), ("line", line):
        np.save(drawing.folder / f"{name}.npy", array)
    for seed in SEEDS:
        drawing.compare(np.random.RandomState(seed).permutation(COUNT), "permutation", "--n", COUNT,
                        seed=seed)
        for name, array in ("rows", rows), ("line", line):
            source = ["--input", drawing.folder / f"{name}.npy"]
            drawing.compare(np.random.RandomState(seed).permutation(array), "permutation", *source,
                            seed=seed)
            shuffled = array.copy()
            np.random.RandomState(seed).shuffle(shuffled)
            drawing.compare(shuffled, "shuffle", *source, seed=seed)


def choices(drawing):
    line = np.load(drawing.folder / "line.npy")
    weights = np.arange(2000.0)
    weights /= weights.sum()
    for seed in SEEDS:
        def choice(*args, **kwargs):
            return np.random.RandomState(seed).choice(*args, **kwargs)

        drawing.compare(choice(12345, COUNT), "choice", "--n", 12345, "--shape", COUNT, seed=seed)
        drawing.compare(choice(COUNT, COUNT, replace=False), "choice", "--n", COUNT, "--shape",
                        COUNT, "--no-replace", seed=seed)
        drawing.compare(choice(7, COUNT, p=WEIGHTS), "choice", "--n", 7, "--shape", COUNT, "--p",
                        ",".join(map(repr, WEIGHTS)), seed=seed)
        drawing.compare(choice(2000, (30, 50), replace=False, p=weights), "choice", "--n", 2000,
                        "--shape", "30,50", "--no-replace", "--p", ",".join(map(repr, weights)),
                        seed=seed)
        drawing.compare(choice(line, (10, 20)), "choice", "--input", drawing.folder / "line.npy",
                        "--shape", "10,20", seed=seed)


def main():
    checks = Checks("random/numpy")
    with tempfile.TemporaryDirectory() as folder:
        drawing = Drawing(checks, folder)
        float_methods(drawing)
        integer_methods(drawing)
        generator_methods(drawing)
        permutations(drawing)
        choices(drawing)
    checks.finish()


if __name__ == "__main__":
    main()
