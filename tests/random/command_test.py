#!/usr/bin/env python3
"""`attn random` as a command: one stream over several arrays, its outputs, its refusals."""

import io
import json
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402


def printed(arrays, show=str):
    """One array alone; several under their names."""
    texts = [show(array) + "\n" for array in arrays]
    if len(texts) == 1:
        return texts[0]
    return "\n".join(f"arr_{i}:\n{text}" for i, text in enumerate(texts))


def text(checks):
    def same(expected, *args):
        run = attn("random", *args)
        checks.check(run.stdout.decode() == expected, f"{args}: {run}")

    def stream(seed):
        return np.random.RandomState(seed)

    r = stream(42)
    same(printed(r.randint(0, 3, (3, 3)) for _ in range(3)),
         "randint", "--seed", 42, "--high", 3, "--shape", "3,3", "--repeat", 3)
    r = stream(7)
    same(printed((r.randn(3) for _ in range(3)), repr),
         "randn", "--seed", 7, "--shape", 3, "--repeat", 3, "--repr")
    same(printed([stream(1).rand()]), "rand", "--seed", 1)
    same(printed([stream([42]).rand(2)]), "rand", "--seed", "42,", "--shape", "2,")
    same(printed([stream(5).uniform(-2, -0.5, 3)]),
         "uniform", "--seed", 5, "--low", -2, "--high", -0.5, "--shape", 3)
    same(printed([stream(5).choice(5, 3, replace=False)]),
         "choice", "--seed", 5, "--n", 5, "--no-replace", "--shape", 3)
    # Numbers as a shell has them, as every other flag takes them.
    same(printed([stream(1).normal(-.5, .25, 3)]),
         "normal", "--seed", 1, "--loc", "-.5", "--scale", ".25", "--shape", 3)
    same(printed([stream(1).uniform(0.0, 2.0)]), "uniform", "--seed", 1, "--low", "0", "--high", "2.")
    same(printed([stream(1).choice(3, 4, p=[.2, .3, .5])]),
         "choice", "--seed", 1, "--n", 3, "--p", ".2,3e-1,.5,", "--shape", "4")
    r = stream(6)
    same(printed(r.permutation(6) for _ in range(2)),
         "permutation", "--seed", 6, "--n", 6, "--repeat", 2)
    rng = np.random.default_rng(2**100)
    same(printed(rng.integers(-3, 4, 5, dtype=np.int16) for _ in range(2)),
         "integers", "--generator", "default_rng", "--seed", 2**100, "--low", -3, "--high", 4,
         "--dtype", "i16", "--shape", 5, "--repeat", 2)


def structured(checks):
    args = ["randn", "--seed", 3, "--shape", "2,3"]
    r = np.random.RandomState(3)
    first, second = r.randn(2, 3), r.randn(2, 3)
    found = json.loads(attn("random", *args, "--format", "json").stdout)
    checks.check(np.array_equal(found, first), "JSON of one array")
    found = json.loads(attn("random", *args, "--format", "json", "--repeat", 2).stdout)
    checks.check(list(found) == ["arr_0", "arr_1"] and np.array_equal(found["arr_1"], second),
                 "JSON of two arrays")
    found = np.loadtxt(io.BytesIO(attn("random", *args, "--format", "csv").stdout), delimiter=",")
    checks.check(np.array_equal(found, first), "CSV")


def files(checks, folder):
    args = ["randn", "--seed", 3, "--shape", "2,3"]
    r = np.random.RandomState(3)
    draws = [r.randn(2, 3) for _ in range(3)]

    def written(name, *more):
        run = attn("random", *args, "-o", name, *more, cwd=folder)
        checks.check(run.returncode == 0 and run.stdout == b"", f"{name}: {run}")
        return folder / name

    checks.check(np.array_equal(np.load(written("a.npy")), draws[0]), ".npy")
    checks.check(np.array_equal(json.loads(written("a.json").read_text()), draws[0]), ".json")
    checks.check(np.array_equal(np.loadtxt(written("a.csv"), delimiter=","), draws[0]), ".csv")
    with np.load(written("a.npz", "--repeat", 3)) as archive:
        checks.check(archive.files == ["arr_0", "arr_1", "arr_2"], ".npz: names")
        checks.check(all(np.array_equal(archive[f"arr_{i}"], draws[i]) for i in range(3)), ".npz")

    # An existing file stays what it was, unless --force was given.
    (folder / "a.npy").write_bytes(b"mine")
    run = attn("random", *args, "-o", "a.npy", cwd=folder)
    checks.check(run.returncode == 73 and (folder / "a.npy").read_bytes() == b"mine", "no --force")
    checks.check(np.array_equal(np.load(written("a.npy", "--force")), draws[0]), "--force")
    run = attn("random", "shuffle", "--seed", 1, "--input", "a.npy", "-o", "a.npy", "--force",
               cwd=folder)
    checks.check(run.returncode == 73, f"onto the input: {run}")

    # In place, as np.random.shuffle: the second result is the first one shuffled further.
    rows = np.arange(10).reshape(5, 2)
    np.save(folder / "rows.npy", rows)
    attn("random", "shuffle", "--seed", 9, "--input", "rows.npy", "--repeat", 2, "-o", "s.npz",
         cwd=folder)
    r = np.random.RandomState(9)
    with np.load(folder / "s.npz") as archive:
        for name in archive.files:
            r.shuffle(rows)
            checks.check(np.array_equal(archive[name], rows), f"shuffle: {name}")


def refusals(checks, folder):
    np.save(folder / "matrix.npy", np.zeros((2, 2)))
    usage = [
        (["rand", "--seed", -1], "seed: expected whole numbers >= 0 of at most 10000 digits, found '-1'"),
        (["rand", "--seed", ""], "--seed: expected a value, found ''"),
        (["rand", "--seed", "[]"], "seed: expected at least one whole number, found none"),
        (["rand", "--seed", 1, "--shape", "65536,65537"],
         "rand: shape: expected at most 2^32 elements, found (65536, 65537)"),
        (["rand", "--seed", 2**32], "seed: expected 0 to 4294967295, found a larger number"),
        (["randint", "--seed", 1], "randint: expected the argument 'high', found none"),
        (["randint", "--seed", 1, "--high", "3.5"], "randint: high: expected a whole number"),
        (["randint", "--seed", 1, "--low", 5, "--high", 3], "expected low < high, found [5, 3)"),
        (["randint", "--seed", 1, "--high", 300, "--dtype", "u8"], "uint8 holds [0, 256)"),
        (["randint", "--seed", 1, "--high", 3, "--dtype", "int3"], "randint: dtype: expected a dtype"),
        (["randn", "--seed", 1, "--low", 3], "randn: unknown argument 'low'"),
        (["rand", "--seed", 1, "--shape", "3x3"],
         "--shape: expected whole numbers with commas, such as 3,3, found '3x3'"),
        (["normal", "--seed", 1, "--scale", "x"], "--scale: expected a number, found 'x'"),
        (["normal", "--seed", 1, "--scale", "NaN"], "--scale: expected a number, found 'NaN'"),
        (["uniform", "--seed", 1, "--high", ".5."], "--high: expected a number, found '.5.'"),
        (["uniform", "--seed", 1, "--high", "true"], "--high: expected a number, found 'true'"),
        (["choice", "--seed", 1, "--n", 2, "--p", ".5,,.5"], "--p: expected numbers with commas"),
        (["randint", "--seed", 1, "--high", "x"], "--high: expected a number, found 'x'"),
        (["choice", "--seed", 1, "--n", "x"], "--n: expected a whole number, found 'x'"),
        (["choice", "--seed", 1, "--n", 2, "--p", "1;2"], "--p: expected numbers with commas"),
        (["foo", "--seed", 1], "unknown random method 'foo'; there are randint, rand, "),
        (["foo", "--seed", 1, "--generator", "default_rng"], "unknown random method 'foo'; there are random, integers, uniform"),
        (["randnit", "--seed", 1], "did you mean 'randint'?"),
        (["integers", "--seed", 1, "--high", 3], "integers: a method of the other generator"),
        (["shuffle", "--seed", 1], "shuffle: expected the argument 'values'"),
        (["permutation", "--seed", 1], "permutation: expected either 'n' or 'values'"),
        (["choice", "--seed", 1, "--n", 2, "--p", "0.5,0.6"], "the sum 1.1"),
        (["rand", "--seed", 1, "--repeat", 2, "--format", "csv"], "holds one tensor, found 2"),
        (["rand", "--seed", 1, "--repr", "--format", "json"], "--repr: goes with"),
        (["rand", "--seed", 1, "-o", "x.txt"], "expected a name that ends in .npz"),
        (["rand", "--seed", 1, "--repeat", 2, "-o", "x.npy"], "holds one tensor, found 2"),
        (["rand", "--sed", 1], "unknown flag '--sed' (did you mean '--seed'?)"),
        (["rand"], "--seed is required"),
    ]
    for args, message in usage:
        run = attn("random", *args, cwd=folder)
        checks.check(run.returncode == 2, f"{args}: exit {run.returncode}")
        checks.check(run.stderr.startswith(b"attn: ") and message in run.stderr.decode(),
                     f"{args}: {run.stderr}")
    run = attn("random", "choice", "--seed", 1, "--input", "matrix.npy", cwd=folder)
    checks.check(run.returncode == 65 and b"expected one axis" in run.stderr, f"a matrix: {run}")
    run = attn("random", "shuffle", "--seed", 1, "--input", "none.npy", cwd=folder)
    checks.check(run.returncode == 66, f"no input: {run}")
    checks.check(sorted(p.suffix for p in folder.iterdir()) == [".npy"], "nothing was written")


def main():
    checks = Checks("random/command")
    text(checks)
    structured(checks)
    for part in files, refusals:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()


if __name__ == "__main__":
    main()
