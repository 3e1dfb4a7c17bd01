#!/usr/bin/env python3
"""`attn inspect` from outside: the table, its numbers against NumPy's, NDJSON, unreadable files."""

import json
import pathlib
import sys
import tempfile
import warnings

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import Checks, attn  # noqa: E402

DTYPES = ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64", "bool"]
checks = Checks("inspect")


def test_table(folder):
    np.savez(folder / "t.npz", W_Q=np.array([[2, 0, 2], [2, 0, 0], [2, 1, 2]]),
             mask=np.array([[True, False]]), scores=np.array([0.5, np.nan, -np.inf], np.float32),
             none=np.zeros((0, 3), np.float16))
    run = attn("inspect", folder / "t.npz")
    want = ("name    dtype    shape     min   max     mean  nan  inf\n"
            "W_Q     int64    (3, 3)      0     2  1.22222    0    0\n"
            "mask    bool     (1, 2)  False  True      0.5    0    0\n"
            "scores  float32  (3,)     -inf   0.5     -inf    1    1\n"
            "none    float16  (0, 3)      -     -        -    0    0\n")
    checks.check(run.returncode == 0 and run.stdout.decode() == want and run.stderr == b"",
                 f"table: {run.stdout.decode()!r} {run.stderr}")
    np.savez(folder / "i.npz", both=np.array([np.inf, -np.inf, 1]))
    run = attn("inspect", folder / "i.npz")
    checks.check(run.stdout.decode().splitlines()[1].split() == ["both", "float64", "(3,)", "-inf", "inf", "nan", "0",
                                                                 "2"], f"infinities meet: {run.stdout}")
    run = attn("inspect", f"{folder}/t.npz#mask")
    checks.check(run.stdout.decode().splitlines()[1:] ==
                 ["mask  bool   (1, 2)  False  True   0.5    0    0"], f"a member: {run.stdout}")


def test_numbers_against_numpy(folder):
    rng = np.random.default_rng(11)
    for dtype in map(np.dtype, DTYPES):
        if dtype.kind == "f":
            array = (rng.standard_normal((50, 40)) * 10).astype(dtype)
            array[3, 4] = np.nan
        elif dtype.kind == "b":
            array = rng.random((50, 40)) < 0.3
        else:
            limits = np.iinfo(dtype)
            array = rng.integers(limits.min, limits.max, (50, 40), dtype=dtype, endpoint=True)
        np.save(folder / "n.npy", array)
        run = attn("inspect", "--json", folder / "n.npy")
        lines = run.stdout.decode().splitlines()
        if not checks.check(run.returncode == 0 and len(lines) == 1, f"{dtype}: {run.stderr}"):
            continue
        told = json.loads(lines[0])
        checks.check(list(told) == ["file", "name", "dtype", "shape", "min", "max", "mean", "nan",
                                    "inf"], f"{dtype}: keys {list(told)}")
        checks.check(told["file"] == str(folder / "n.npy") and told["name"] is None and
                     told["dtype"] == dtype.name and told["shape"] == [50, 40], f"{dtype}: {told}")
        checks.check(dtype.type(told["min"]) == np.nanmin(array) and
                     dtype.type(told["max"]) == np.nanmax(array) and
                     told["nan"] == np.count_nonzero(np.isnan(array)) and told["inf"] == 0,
                     f"{dtype}: min, max, nan: {told}")
        mean = np.nanmean(array.astype(np.longdouble))
        checks.check(np.isclose(told["mean"], float(mean), rtol=1e-15, atol=1e-15),
                     f"{dtype}: mean {told['mean']!r}, not {float(mean)!r}")


def test_json_holds_what_is_not_finite(folder):
    np.savez(folder / "j.npz", a=np.array([np.inf, 1.0, np.nan]), b=np.array([np.nan]),
             c=np.array([], np.int32))
    run = attn("inspect", folder / "j.npz", "--json")
    a, b, c = map(json.loads, run.stdout.decode().splitlines())
    checks.check((a["name"], a["min"], a["max"], a["mean"], a["nan"], a["inf"]) ==
                 ("a", 1.0, "Infinity", "Infinity", 1, 1), f"infinity: {a}")
    checks.check(b["min"] is None and b["max"] is None and b["mean"] is None and b["nan"] == 1,
                 f"only NaN: {b}")
    checks.check(c["min"] is None and c["shape"] == [0] and c["nan"] == 0, f"empty: {c}")


def test_several_files(folder):
    np.save(folder / "a.npy", np.arange(3))
    (folder / "b.json").write_text('{"m": [[1.5, 2.5]]}')
    (folder / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00")
    missing = folder / "missing.npy"
    run = attn("inspect", missing, folder / "a.npy", folder / "broken.npy", folder / "b.json")
    want = (f"{folder}/a.npy:\n"
            "name  dtype  shape  min  max  mean  nan  inf\n"
            "-     int64  (3,)     0    2     1    0    0\n"
            "\n"
            f"{folder}/b.json:\n"
            "name  dtype    shape   min  max  mean  nan  inf\n"
            "m     float64  (1, 2)  1.5  2.5     2    0    0\n")
    errors = run.stderr.decode().splitlines()
    checks.check(run.stdout.decode() == want, f"the readable are shown: {run.stdout.decode()!r}")
    checks.check(run.returncode == 66, f"the first fault is the exit code: {run.returncode}")
    checks.check(len(errors) == 2 and "missing.npy" in errors[0] and "broken.npy" in errors[1] and
                 all(line.startswith("attn: ") for line in errors), f"all faults: {errors}")
    run = attn("inspect", folder / "broken.npy", missing, "--json")
    checks.check(run.returncode == 65 and run.stdout == b"", f"broken first: {run.returncode}")
    run = attn("inspect", folder / "a.npy", folder / "b.json", "--json")
    checks.check([json.loads(line)["name"] for line in run.stdout.decode().splitlines()] ==
                 [None, "m"], "NDJSON of several files")


def test_names_cannot_forge_lines(folder):
    np.savez(folder / "n.npz", **{"a\nb\x1b[2J": np.arange(2), "größe": np.arange(2)})
    lines = attn("inspect", folder / "n.npz").stdout.decode().splitlines()
    checks.check(len(lines) == 3 and "\x1b" not in lines[1], f"control characters: {lines}")
    checks.check(len(set(map(len, lines))) == 1, f"columns are counted in characters: {lines}")


def test_standard_input_and_usage(folder):
    run = attn("inspect", "-", stdin="[1, 2, 4]")
    checks.check(run.returncode == 0 and b"int64" in run.stdout, f"stdin: {run.stderr}")
    checks.check(attn("inspect").returncode == 2, "a file is required")


def main():
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_table(folder)
        test_numbers_against_numpy(folder)
        test_json_holds_what_is_not_finite(folder)
        test_several_files(folder)
        test_names_cannot_forge_lines(folder)
        test_standard_input_and_usage(folder)
    checks.finish()


main()
