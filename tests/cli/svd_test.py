#!/usr/bin/env python3
"""attn svd against numpy.linalg.svd: values, vectors up to sign, forms of output, errors."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn

SHAPES = [(4, 4), (1, 1), (1, 6), (6, 1), (3, 8), (8, 3), (50, 20), (20, 50), (120, 120)]


def aligned(ours, theirs, axis):
    """`ours`, each vector along `axis` with the sign that it has in `theirs`."""
    signs = np.sign((ours * theirs).sum(axis=axis, keepdims=True))
    return ours * signs


def check_random_matrices(checks, folder):
    rng = np.random.RandomState(7)
    for m, n in SHAPES:
        for dtype in (np.float64, np.float32, np.int32):
            matrix = (10 * rng.randn(m, n)).astype(dtype)
            np.save(folder / "a.npy", matrix)
            run = attn("svd", folder / "a.npy", "-o", folder / "f.npz", "--force")
            what = f"{m}x{n} {dtype.__name__}"
            if not checks.check(run.returncode == 0, f"{what}: {run.stderr}"):
                continue
            factors = np.load(folder / "f.npz")
            U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
            single = dtype is np.float32
            tolerance = 1e-3 if single else 1e-10  # vectors of close singular values are loose
            checks.check(list(factors) == ["U", "s", "Vt"], f"{what}: names {list(factors)}")
            checks.check(factors["s"].dtype == (np.float32 if single else np.float64), what)
            checks.check(np.allclose(factors["s"], s, rtol=0, atol=s[0] * (1e-5 if single else 1e-13)),
                         f"{what}: singular values")
            checks.check(np.allclose(aligned(factors["U"], U, 0), U, rtol=0, atol=tolerance),
                         f"{what}: U")
            checks.check(np.allclose(aligned(factors["Vt"], Vt, 1), Vt, rtol=0, atol=tolerance),
                         f"{what}: Vt")
            product = factors["U"] * factors["s"] @ factors["Vt"]
            checks.check(np.allclose(product, matrix, rtol=0, atol=s[0] * (1e-5 if single else 1e-13)),
                         f"{what}: product")


def check_rank(checks, folder):
    matrix = np.random.RandomState(3).rand(6, 5)
    np.savetxt(folder / "a.csv", matrix, delimiter=",", fmt="%.17g")
    s = np.linalg.svd(matrix, compute_uv=False)
    for rank in range(1, 6):
        run = attn("svd", folder / "a.csv", "--rank", rank, "--format", "json")
        result = json.loads(run.stdout)
        checks.check(np.allclose(result["s"], s[:rank]), f"rank {rank}: s")
        checks.check(np.shape(result["U"]) == (6, rank), f"rank {rank}: U {np.shape(result['U'])}")
        share = 100 * (s[:rank]**2).sum() / (s**2).sum()
        expected = f"attn: {rank} of 5 singular values keep {share:.6g}% of the sum of squares\n"
        checks.check(run.stderr.decode() == expected, f"{run.stderr} is not {expected}")
    quiet = attn("svd", folder / "a.csv", "--rank", 1, "-q")
    checks.check(quiet.stderr == b"", f"-q: {quiet.stderr}")


def check_threads(checks, folder):
    np.save(folder / "a.npy", np.random.RandomState(5).randn(300, 200))
    outputs = set()
    for threads in ("1", "2", "3"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        run = subprocess.run([ATTN, "svd", folder / "a.npy", "--format", "json"],
                             capture_output=True, env=environment)
        outputs.add(run.stdout)
    checks.check(len(outputs) == 1 and outputs != {b""}, "the same bytes on any number of threads")


def check_text(checks, folder):
    np.save(folder / "d.npy", np.array([[0.0, 2.0], [5.0, 0.0]]))
    run = attn("svd", folder / "d.npy")
    checks.check(run.stderr == b"", f"{run.stderr}")
    U, s, Vt = np.linalg.svd(np.load(folder / "d.npy"))
    blocks = run.stdout.decode().split("\n\n")
    titles = [block.split("\n")[0] for block in blocks]
    checks.check(titles == ["U (2, 2): left singular vectors, a column each",
                            "s (2,): singular values",
                            "Vt (2, 2): right singular vectors, a row each"], f"{titles}")
    checks.check(blocks[1].split("\n")[1] == str(s), blocks[1])
    run = attn("svd", folder / "d.npy", "--repr")
    checks.check("\narray([5., 2.])\n" in run.stdout.decode(), f"{run.stdout}")


def check_outputs(checks, folder):
    np.savez(folder / "in.npz", A=np.eye(2), B=np.ones((2, 3)))
    run = attn("svd", f"{folder}/in.npz#B", "-o", folder / "new.npz")
    checks.check(run.returncode == 0 and run.stdout == b"", f"-o: {run}")
    checks.check(np.allclose(np.load(folder / "new.npz")["s"], [6**0.5, 0]), "B's singular values")
    before = (folder / "new.npz").read_bytes()
    run = attn("svd", f"{folder}/in.npz#A", "-o", folder / "new.npz")
    checks.check(run.returncode == 73 and (folder / "new.npz").read_bytes() == before,
                 f"an output that exists: {run}")
    run = attn("svd", f"{folder}/in.npz#A", "-o", folder / "in.npz", "--force")
    checks.check(run.returncode != 0 and "B" in np.load(folder / "in.npz"), f"onto the input: {run}")
    run = attn("svd", f"{folder}/in.npz#B", "-o", folder / "new.json")
    result = json.loads((folder / "new.json").read_text())
    checks.check(result["made_by"]["svd"]["matrix"].endswith("in.npz#B"), f"{result['made_by']}")
    checks.check(len(result["made_by"]["inputs"]) == 1, f"{result['made_by']}")


def check_errors(checks, folder):
    np.save(folder / "nan.npy", np.array([[1, np.nan]]))
    np.save(folder / "vector.npy", np.arange(3))
    np.save(folder / "good.npy", np.eye(2))
    np.savez(folder / "two.npz", A=np.eye(2), B=np.eye(3))
    for args, code, words in [
        ([folder / "nan.npy"], 65, "nan.npy: expected finite numbers, found NaN at [0, 1]"),
        ([folder / "vector.npy"], 65, "vector.npy: expected a matrix, found shape (3,)"),
        ([folder / "good.npy", "--rank", 3], 65, "rank 3 is over 2"),
        ([folder / "good.npy", "--rank", -1], 2, "--rank"),
        ([folder / "two.npz"], 65, "A"),
        ([folder / "none.npy"], 66, "none.npy"),
        ([folder / "good.npy", "-o", folder / "x.txt"], 2, "x.txt"),
        ([folder / "good.npy", "--format", "yaml"], 2, "yaml"),
        ([], 2, "MATRIX"),
    ]:
        run = attn("svd", *args)
        checks.check(run.returncode == code and words in run.stderr.decode(), f"{args}: {run}")
        checks.check(run.stdout == b"" and run.stderr.count(b"\n") == 1, f"{args}: one line: {run}")
    np.save(folder / "empty.npy", np.zeros((3, 0)))
    run = attn("svd", folder / "empty.npy", "--format", "json")
    checks.check(json.loads(run.stdout)["s"] == [], f"empty: {run}")


if __name__ == "__main__":
    checks = Checks("svd")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_random_matrices(checks, folder)
        check_rank(checks, folder)
        check_threads(checks, folder)
        check_text(checks, folder)
        check_outputs(checks, folder)
        check_errors(checks, folder)
    checks.finish()
