#!/usr/bin/env python3
"""Writes tests/golden/random/*.npy, the numbers of NumPy's random methods, for golden_test.cpp.

    /usr/bin/python3 tests/random/golden.py

A file contains the numbers that one call draws for all seeds, in their order, on one axis. Integers
are stored in the narrowest dtype that fits them. golden_test.cpp finds the call by the file's name.
"""

import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden" / "random"
DRAWS = 320  # doubles of 640 words: beyond the first refill of the Mersenne Twister's state
INTEGERS = 160

LEGACY_SEEDS = [0, 1, 42, 2**32 - 1, [0], [1, 2, 3], list(range(700))]
RNG_SEEDS = [0, 1, 42, 2**32 - 1, 2**32, 2**64 + 5, [0], [7, 2**40, 0, 1, 2, 3]]

BOUNDS = {  # each range takes a different path through the code
    "bool": [(0, 1), (1, 2), (0, 2)],
    "int8": [(-128, 128), (-5, 95)],
    "uint8": [(0, 256), (3, 4), (0, 130)],
    "int16": [(-(2**15), 2**15), (-1000, 30001)],
    "uint16": [(0, 2**16), (0, 3)],
    "int32": [(-(2**31), 2**31), (-7, 2**31 - 9)],
    "uint32": [(0, 2**32), (0, 2**31 + 1)],
    "int64": [(-(2**63), 2**63), (-(2**62), 2**40), (0, 2**32), (0, 3)],
    "uint64": [(0, 2**64), (5, 2**63 + 6), (0, 2**32 + 1), (1, 7)],
}

WEIGHTS = np.arange(64.0)
WEIGHTS /= WEIGHTS.sum()


def shuffled(rng, shape):
    array = np.arange(np.prod(shape)).reshape(shape)
    rng.shuffle(array)
    return array


def crossing(rng):
    """Calls that leave state for the next one: the second normal number of a pair, parts of a word."""
    return [rng.standard_normal(3), rng.randint(0, 200, 5, dtype=np.uint8), rng.random_sample(2),
            rng.standard_normal(2), rng.randint(0, 2, 3, dtype=bool), rng.permutation(5),
            rng.randint(0, 900, 3, dtype=np.int16), rng.normal(1.5, 2.5, 3),
            rng.choice(9, 4, replace=False), rng.uniform(-1, 3, 3), rng.standard_normal(1)]


def rng_crossing(rng):
    """32-bit draws, which keep half a word for the next one, between draws of whole words."""
    return [rng.integers(0, 1000, 3), rng.random(2), rng.random(3, dtype=np.float32),
            rng.integers(0, 7, 5, dtype=np.uint8), rng.uniform(-1, 3, 3),
            rng.integers(0, 2, 3, dtype=bool), rng.integers(0, 2**40, 2), rng.integers(0, 10, 1)]


def legacy_calls():
    calls = {
        "random_sample": lambda r: r.random_sample(DRAWS),
        "uniform": lambda r: r.uniform(-2.5, 7.25, DRAWS),
        "standard_normal": lambda r: r.standard_normal(DRAWS),
        "normal": lambda r: r.normal(-1.25, 0.1, DRAWS),
        "permutation": lambda r: r.permutation(DRAWS),
        "permutation_rows": lambda r: r.permutation(np.arange(DRAWS).reshape(40, 4, 2)),
        "shuffle": lambda r: shuffled(r, DRAWS),
        "shuffle_rows": lambda r: shuffled(r, (40, 4, 2)),
        "choice": lambda r: r.choice(1000, DRAWS),
        "choice_no_replace": lambda r: r.choice(1000, DRAWS, replace=False),
        "choice_p": lambda r: r.choice(64, DRAWS, p=WEIGHTS),
        "choice_no_replace_p": lambda r: [r.choice(64, 32, False, WEIGHTS) for _ in range(10)],
        "crossing": crossing,
    }
    for dtype, ranges in BOUNDS.items():
        for k, (low, high) in enumerate(ranges):
            calls[f"randint_{dtype}_{k}"] = (
                lambda r, low=low, high=high, dtype=dtype: r.randint(low, high, INTEGERS, dtype))
    return calls


def rng_calls():
    calls = {
        "rng_random": lambda r: r.random(DRAWS),
        "rng_random_f32": lambda r: r.random(DRAWS, dtype=np.float32),
        "rng_uniform": lambda r: r.uniform(-2.5, 7.25, DRAWS),
        "rng_crossing": rng_crossing,
    }
    for dtype, ranges in BOUNDS.items():
        for k, (low, high) in enumerate(ranges):
            calls[f"rng_integers_{dtype}_{k}"] = (
                lambda r, low=low, high=high, dtype=dtype: r.integers(low, high, INTEGERS, dtype))
    return calls


def narrowed(values):
    if values.dtype.kind not in "iu":
        return values
    for dtype in (np.uint8, np.int8, np.int16, np.uint16, np.int32):
        info = np.iinfo(dtype)
        if info.min <= values.min() and values.max() <= info.max:
            return values.astype(dtype)
    return values


def write(name, call, generators):
    drawn = [call(generator) for generator in generators]
    parts = [np.ravel(part) for one in drawn for part in (one if isinstance(one, list) else [one])]
    if "crossing" in name:
        parts = [part.astype(np.float64) for part in parts]
    np.save(FOLDER / f"{name}.npy", narrowed(np.concatenate(parts)))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, call in legacy_calls().items():
        write(name, call, [np.random.RandomState(seed) for seed in LEGACY_SEEDS])
    for name, call in rng_calls().items():
        write(name, call, [np.random.default_rng(seed) for seed in RNG_SEEDS])


if __name__ == "__main__":
    main()
