"""How scripts/peers judges errors above its tolerance."""

import numpy as np
import pytest

from peers.cases import Case, run_jobs, within_bound
from peers.conformance import evaluate

RNG = np.random.default_rng(3)
JOB = {**{name: RNG.standard_normal((5, 8)).astype("float32") for name in "QKV"}, "outputs": ["weights"]}
ROTARY = {**JOB, "rotary": {"kind": "half"}}


def exact_weights(q, k):
    scores = q.astype("float64") @ k.astype("float64").T / np.sqrt(8)
    powers = np.exp(scores)
    return powers / powers.sum(axis=-1, keepdims=True)


EXACT = exact_weights(JOB["Q"], JOB["K"])


@pytest.fixture
def judge(monkeypatch, capsys):
    """The failed cases and the text for a result with the given error; the library's result is exact."""
    def judge(error):
        found = (EXACT + error).astype("float32")
        case = Case("case", "float32", JOB, {"weights": EXACT}, {"weights": EXACT})
        failed = evaluate("float32", [case], [{"weights": found}], False)[3]
        return [message for _, message in failed], capsys.readouterr().err
    return judge


def test_own_result_is_within_the_bound():
    assert within_bound(JOB, run_jobs([JOB])[0]) is True


def test_larger_error_is_not_within_the_bound():
    assert within_bound(JOB, {"weights": (EXACT + 1e-5).astype("float32")}) is False


def test_rotary_positions_have_a_bound():
    assert within_bound(ROTARY, run_jobs([ROTARY])[0]) is True


def test_error_within_the_bound_passes_although_the_library_was_exact(judge):
    assert judge(1e-8)[0] == []


def test_report_names_the_less_accurate_side(judge):
    assert "(attn is less accurate)" in judge(1e-8)[1]


def test_error_above_the_bound_fails(judge):
    assert judge(1e-5)[0][0].startswith("weights: attn 1.0e-05, library 0.0e+00")
