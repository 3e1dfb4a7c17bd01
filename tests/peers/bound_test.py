"""How scripts/test-with/peers judges results."""

import numpy as np
import pytest

from peers.cases import Case, fraction_of_bound, run_jobs
from peers.conformance import Row

RNG = np.random.default_rng(3)
JOB = {**{name: RNG.standard_normal((5, 8)).astype("float32") for name in "QKV"}, "outputs": ["weights"]}
ROTARY = {**JOB, "rotary": {"kind": "half"}, "qk_norm": "rms"}
COSINE = {**JOB, "score": "cosine"}


def exact_weights(q, k):
    scores = q.astype("float64") @ k.astype("float64").T / np.sqrt(8)
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


EXACT = exact_weights(JOB["Q"], JOB["K"])


@pytest.fixture
def judge():
    """The row for a result with the given error; the library's result is exact."""
    def judge(error, job=JOB):
        case = Case("case", "float32", job, {"weights": EXACT}, {"weights": EXACT})
        return Row("float32", [case], [{"weights": (EXACT + error).astype("float32")}])
    return judge


def test_own_result_is_within_the_bound():
    assert 0 < fraction_of_bound(JOB, run_jobs([JOB])[0], "float32") < 1


def test_larger_error_is_not_within_the_bound():
    assert fraction_of_bound(JOB, {"weights": (EXACT + 1e-5).astype("float32")}, "float32") > 1


def test_rotary_positions_and_norms_have_a_bound():
    assert 0 < fraction_of_bound(ROTARY, run_jobs([ROTARY])[0], "float32") < 1


def test_other_shape_is_not_within_the_bound():
    assert fraction_of_bound(JOB, {"weights": EXACT[:-1].astype("float32")}, "float32") == np.inf


def test_other_scores_have_no_bound():
    assert fraction_of_bound(COSINE, run_jobs([COSINE])[0], "float32") is None


def test_error_within_the_bound_passes_although_the_library_was_exact(judge):
    assert judge(1e-8).failed == []


def test_row_counts_the_less_accurate_side(judge):
    assert judge(1e-8).less_accurate == {"attn": 1, "library": 0}


def test_error_above_the_bound_fails(judge):
    (_, message), = judge(9e-6).failed
    assert "of the error bound; weights: attn 9.0e-06, library 0.0e+00" in message


def test_row_states_the_fraction_of_the_bound(judge):
    assert "| error bound (largest error: 0." in str(judge(1e-8))


def test_job_without_a_bound_is_judged_by_the_error_of_the_library(judge):
    assert "twice the library's" in str(judge(1e-8, COSINE))
