"""Products of many columns, which are computed in parts by several threads: the bytes do not depend on the threads."""

import numpy as np
import pytest

from support.attn import attn, attn_and_peak

L, M, WIDE = 300, 400, 2100  # more rows than kProductRows, more columns than kProductColumns


@pytest.fixture(scope="module")
def job(module_path):
    r = np.random.default_rng(5)
    tensors = {"embeddings": r.normal(size=(2, L, M)), **{f"W_{x}": r.normal(size=(M, WIDE)) / 20 for x in "QKV"}}
    np.savez(module_path / "job.npz", **tensors)
    return module_path, tensors


def run(folder, threads, *flags):
    done = attn("run", "job.npz", "--heads", "7", "--outputs", "queries,context", "-o", f"out-{threads}.npz", "--force",
                "--threads", str(threads), *flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    return np.load(folder / f"out-{threads}.npz")


@pytest.mark.parametrize("flags", [[], ["--compute", "f32"], ["--path", "reference"]])
def test_bytes_do_not_depend_on_the_threads(job, flags):
    folder, tensors = job
    one = run(folder, 1, *flags)
    for threads in 2, 3, 7:
        other = run(folder, threads, *flags)
        for name in one:
            np.testing.assert_array_equal(other[name], one[name])
    queries = (tensors["embeddings"] @ tensors["W_Q"]).reshape(2, L, 7, WIDE // 7).swapaxes(1, 2)
    np.testing.assert_allclose(one["queries"], queries, rtol=0, atol=1e-4 if "f32" in flags else 1e-12)


def test_weights_as_rows(job):
    """weights_layout out-in: the product of the first operand with a transposed matrix has the same numbers."""
    folder, tensors = job
    np.savez(folder / "rows.npz", **{name: x if name == "embeddings" else x.T for name, x in tensors.items()})
    done = attn("run", "rows.npz", "--weights-layout", "out-in", "--heads", "7", "--outputs", "queries", "-o", "rows-out.npz",
                "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(folder / "rows-out.npz")["queries"], run(folder, 2)["queries"])


@pytest.mark.parametrize("threads", ["1", "8"])
def test_memory_stays_within_the_limit(job, threads):
    """OpenBLAS packs operands for each thread; the limit has 16 MiB for the program."""
    folder, tensors = job
    del tensors
    limit = 96
    done, peak = attn_and_peak("run", "job.npz", "--heads", "7", "--outputs", "context", "-o", "memory.npz", "--force",
                               "--threads", threads, "--max-memory", f"{limit}M", "--compute", "f32", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert peak <= (limit + 16) << 20, peak / 2**20
