"""`attn compare --weights-precision`: bounds for kernels that round weights to 8 bits before they multiply values."""

import json

import numpy as np
import pytest

from support.attn import attn
from support.stored_jobs import BYTES, CODES


def rounded(x, code):
    """To the nearest number of an 8-bit type, ties to even; x >= 0."""
    numbers = CODES[code](BYTES[:128])
    numbers = numbers[np.isfinite(numbers)]
    above = np.clip(np.searchsorted(numbers, x), 1, len(numbers) - 1)
    low, high = numbers[above - 1], numbers[above]
    upper = (x - low > high - x) | ((x - low == high - x) & (above % 2 == 0))
    return np.where(upper, high, low)


def context(Q, K, V, code, factor):
    """Attention with the weights, before they are divided by their sum, rounded to 8 bits."""
    scores = Q.astype(float) @ K.T.astype(float) / np.sqrt(Q.shape[1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return rounded(weights * factor, code) / factor @ V.astype(float) / weights.sum(-1, keepdims=True)


def compare(folder, *flags):
    return attn("compare", "mine.npy", "--reference", "job.json", *flags, cwd=folder)


@pytest.mark.parametrize("code, factor", [("e4m3", 1), ("e4m3", 256), ("e5m2", 1)])
def test_rounded_weights_are_within_the_bound(tmp_path, code, factor):
    ratios = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        L, S, D = rng.integers(1, 12), rng.integers(1, 400), 16
        Q, K, V = (rng.standard_normal((n, D)).astype("f4") * rng.choice([0.5, 1, 3]) for n in (L, S, S))
        np.savez(tmp_path / "j.npz", Q=Q, K=K, V=V)
        (tmp_path / "job.json").write_text(json.dumps({name: f"j.npz#{name}" for name in "QKV"}))
        np.save(tmp_path / "mine.npy", context(Q, K, V, code, factor).astype("f4"))
        run = compare(tmp_path, "--weights-precision", code, "--json")
        assert run.returncode == 0, (seed, run.stdout.decode())
        assert S < 5 or compare(tmp_path).returncode == 1
        ratios.append(json.loads(run.stdout)["tensors"][0]["bound"]["worst"]["value"])
    assert max(ratios) > 0.02  # the bound is not arbitrarily wide


def test_a_mistake_is_outside_the_bound(tmp_path):
    rng = np.random.default_rng(7)
    Q, K, V = (rng.standard_normal((n, 16)).astype("f4") for n in (8, 100, 100))
    np.savez(tmp_path / "j.npz", Q=Q, K=K, V=V)
    (tmp_path / "job.json").write_text(json.dumps({name: f"j.npz#{name}" for name in "QKV"}))
    np.save(tmp_path / "mine.npy", context(Q * 1.5, K, V, "e4m3", 1).astype("f4"))
    assert compare(tmp_path, "--weights-precision", "e4m3").returncode == 1


def test_it_needs_a_reference(tmp_path):
    np.save(tmp_path / "mine.npy", np.ones(3))
    run = attn("compare", "mine.npy", "mine.npy", "--weights-precision", "e4m3", cwd=tmp_path)
    assert run.returncode == 2
    assert b"--weights-precision" in run.stderr
