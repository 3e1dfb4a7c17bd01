"""Numbers that were wrong: each test compares with exact arithmetic or a published formula."""

import math
from fractions import Fraction

import numpy as np
import pytest

from support.attn import attn


def run_job(folder, tensors, *flags):
    """Runs a job of float arrays; returns its outputs by name and what it wrote to stderr."""
    np.savez(folder / "job.npz", **tensors)
    run = attn("run", "job.npz", *flags, "-o", "out.npz", "--force", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    with np.load(folder / "out.npz") as found:
        return dict(found), run.stderr.decode()


def exact_entmax15(scores):
    """The support of entmax15 by exact arithmetic, and its weights (Peters et al. 2019, algorithm 2)."""
    x = [Fraction(score) / 2 for score in scores]
    best = max(x)
    x = [value - best for value in x]
    threshold = None
    for k in range(1, len(x) + 1):
        top = sorted(x, reverse=True)[:k]
        mean = sum(top) / k
        spread = (1 - sum((value - mean) ** 2 for value in top)) / k
        if spread < 0:
            break
        candidate = float(mean) - math.sqrt(spread)
        if candidate > top[-1]:
            break
        threshold = candidate
    return [max(float(value) - threshold, 0) ** 2 if value > -10 else 0.0 for value in x]


@pytest.mark.parametrize("scores", [[1e300, 1e300, 2], [1e308, -1e308, -1.7e308], [0, -1e154, -1e155],
                                    [1.7e308, -1.7e308], [0.5, 1.25, -1e200, 0.75], [2, 0, 1]])
def test_entmax15_of_distant_scores(tmp_path, scores):
    keys = np.array(scores)[:, None]
    tensors = {"Q": np.ones((1, 1)), "K": keys, "V": keys}
    out, _ = run_job(tmp_path, tensors, "--scale", "none", "--normaliser", "entmax15", "--outputs", "weights")
    assert out["weights"][0] == pytest.approx(exact_entmax15(scores), abs=1e-15)
