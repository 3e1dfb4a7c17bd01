#!/usr/bin/env python3
"""Numbers as JSON text against Python and NumPy.

What `attn convert X.npy --format json` writes is read with Python's json and has to be the array
bit for bit, in the fewest digits: those of Python's repr, and for float32 and float16 those of
NumPy's. What Python writes as JSON, `attn convert X.json -o X.npy` has to read bit for bit.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
RANDOM = np.random.default_rng(2024)


def finite_bits(dtype, count):
    """Floats of random bits, so of every exponent."""
    size = np.dtype(dtype).itemsize
    values = np.frombuffer(RANDOM.bytes(count * size), dtype=dtype)
    return values[np.isfinite(values)]


def written(folder, array):
    """The array as attn writes it: nested lists of tokens, as text."""
    np.save(folder / "x.npy", array)
    run = attn("convert", "x.npy", "--format", "json", cwd=folder)
    if run.returncode != 0:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout, parse_float=str, parse_int=str)


def digits(token):
    """Significant digits: '1.50e-05' has 2."""
    return len(token.lstrip("-").split("e")[0].replace(".", "").strip("0")) or 1


def check_floats(checks, folder, array, name):
    tokens = written(folder, array)
    numbers = np.array([WORDS.get(token, token) for token in tokens], dtype=np.float64)
    checks.check(np.array_equal(numbers.astype(array.dtype), array, equal_nan=True)
                 and np.array_equal(np.signbit(numbers), np.signbit(array)), f"{name}: values")
    finite = [(token, value) for token, value in zip(tokens, array) if np.isfinite(value)]
    if array.dtype == np.float64:
        wrong = [(t, v) for t, v in finite if t != repr(float(v))]
    else:
        wrong = [(t, v) for t, v in finite
                 if digits(t) > digits(np.format_float_scientific(v, unique=True))]
    checks.check(not wrong, f"{name}: digits {wrong[:3]}")


def check_exact(checks, folder, array, name):
    np.save(folder / "x.npy", array)
    run = attn("convert", "x.npy", "--format", "json", cwd=folder)
    value = json.loads(run.stdout) if run.returncode == 0 else run.stderr
    checks.check(value == array.tolist(), f"{name}: {str(value)[:200]}")


def check_reading(checks, folder, value, dtype, name):
    (folder / "y.json").write_text(json.dumps(value))
    run = attn("convert", "y.json", "-o", "y.npy", "--force", cwd=folder)
    if not checks.check(run.returncode == 0, f"{name}: {run.stderr[:200]}"):
        return
    array, expected = np.load(folder / "y.npy"), np.array(value, dtype=dtype)
    checks.check(array.dtype == expected.dtype and array.shape == expected.shape
                 and array.tobytes() == expected.tobytes(), f"{name}: {array}")


def main():
    checks = Checks("JSON against Python and NumPy")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1, 100000, 1e15, 1e16, 1e-4, 1e-5])
        check_floats(checks, folder, special, "special values")
        check_floats(checks, folder, finite_bits(np.float64, 50_000), "random float64")
        check_floats(checks, folder, RANDOM.standard_normal(50_000), "normal float64")
        check_floats(checks, folder, finite_bits(np.float32, 50_000), "random float32")
        halves = np.arange(0x10000, dtype=np.uint16).view(np.float16)
        check_floats(checks, folder, halves[np.isfinite(halves)], "every float16")

        for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
                      np.uint64):
            info = np.iinfo(dtype)
            check_exact(checks, folder, np.array([[info.min, info.max], [0, 1]], dtype=dtype),
                        np.dtype(dtype).name)
        check_exact(checks, folder, np.array([True, False]), "bool")
        check_exact(checks, folder, np.array(7.5), "no axes")
        check_exact(checks, folder, np.arange(24).reshape(2, 3, 4), "three axes")
        check_exact(checks, folder, np.zeros((2, 0)), "rows without elements")

        check_reading(checks, folder, finite_bits(np.float64, 50_000).reshape(-1, 1).tolist(),
                      np.float64, "float64 from Python")
        check_reading(checks, folder, RANDOM.integers(-2**63, 2**63 - 1, (100, 100)).tolist(),
                      np.int64, "int64 from Python")
        check_reading(checks, folder, [[2**64 - 1, 2**63], [0, 1]], np.uint64, "uint64 from Python")
        check_reading(checks, folder, [[True], [False]], np.bool_, "bool from Python")
        check_reading(checks, folder, [[1, 2], [3, 0.5]], np.float64, "integers beside a float")
    checks.finish()


main()
