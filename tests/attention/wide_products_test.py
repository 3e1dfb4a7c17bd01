"""Products of many columns, which are computed in parts by several threads: the bytes do not depend on the threads."""

import numpy as np
import pytest

from support.attn import attn, attn_and_peak, under_sanitizer
from support.checkpoints import write_tensors

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


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("compute", ["f32", "f64"])
@pytest.mark.parametrize("stored", ["f2", "f4", "f8"])
def test_large_weights_as_rows(tmp_path, stored, compute, threads):
    """Weights whose products are so large that they are not transposed, with and without a conversion."""
    r = np.random.default_rng(6)
    x, w = r.normal(size=(2, L, 600)).astype("f4"), (r.normal(size=(600, WIDE)) / 20).astype(stored)
    results = []
    for layout, weights in ("in-out", w), ("out-in", np.ascontiguousarray(w.T)):
        np.savez(tmp_path / "job.npz", embeddings=x, W_Q=weights, W_K=weights, W_V=weights)
        done = attn("run", "job.npz", "--weights-layout", layout, "--compute", compute, "--threads", threads,
                    "--outputs", "queries", "-o", "out.npy", "--force", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        results.append(np.load(tmp_path / "out.npy"))
    np.testing.assert_array_equal(results[1], results[0])
    expected = x.astype("f8") @ w.astype("f8")
    np.testing.assert_allclose(results[1], expected, rtol=0, atol=1e-4 if compute == "f32" else 1e-12)


def test_weights_as_rows_take_no_memory_of_their_own(tmp_path):
    """A weight of 64 MiB in float16, from a file that is mapped. A transposed copy would be as large, one in float32
    twice as large."""
    if under_sanitizer():
        pytest.skip("takes more memory")
    width, outputs = 2048, 16384
    write_tensors(tmp_path / "w.safetensors", {"w": np.ones((outputs, width), "f2")})
    np.save(tmp_path / "x.npy", np.ones((300, width), "f4"))
    done, peak = attn_and_peak("run", "--embeddings", "x.npy", "--w-q", "w.safetensors#w", "--w-k", "w.safetensors#w",
                               "--w-v", "w.safetensors#w", "--weights-layout", "out-in", "--threads", "2", "--outputs",
                               "queries", "-o", "out.npy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (np.load(tmp_path / "out.npy") == width).all()
    assert peak < 100 << 20, peak / 2**20


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
