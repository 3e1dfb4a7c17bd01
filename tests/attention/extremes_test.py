"""Numbers at the ends of a dtype's range: finite results stay finite, and overflow is reported."""

import json
import os
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, attn


def supported_isas():
    """The instruction sets of this machine, from "kernels: avx512 (of baseline, avx2, avx512)"."""
    version = attn("--version", "-v").stdout.decode()
    return version.partition("(of ")[2].partition(")")[0].split(", ")


@pytest.fixture(params=supported_isas())
def isa(request):
    return request.param


def run_job(folder, tensors, *flags, isa=None):
    """Runs a job; returns what it wrote to stderr and its outputs by name."""
    np.savez(folder / "job.npz", **tensors)
    env = dict(os.environ, **({"ATTN_ISA": isa} if isa else {}))
    run = subprocess.run([ATTN, "run", "job.npz", *flags, "-o", "out.npz", "--force"], cwd=folder,
                         env=env, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    with np.load(folder / "out.npz") as arrays:
        return run.stderr.decode(), dict(arrays)


class TestLargeValues:
    """The context is a weighted mean of the values, so large values must not overflow it."""

    @pytest.mark.parametrize("L, S, outputs", [(5, 10, "context"), (9, 700, "context"),
                                               (9, 700, "weights,context"), (1, 3000, "context"),
                                               (200, 600, "context")])
    @pytest.mark.parametrize("dtype", ["f4", "f8"])
    def test_large_columns(self, tmp_path, dtype, isa, L, S, outputs):
        """Columns of large values come out right; the other columns keep every bit."""
        rng = np.random.default_rng(1)
        largest = float(np.finfo(dtype).max)
        q, k = (rng.standard_normal((n, 4)).astype(dtype) for n in (L, S))
        v = rng.standard_normal((S, 20)).astype(dtype)
        _, small = run_job(tmp_path, {"Q": q, "K": k, "V": v}, "--outputs", outputs, isa=isa)
        v_large = v.copy()
        v_large[:, 3] = 0.9 * largest
        v_large[:, 17] = rng.uniform(-0.9, 0.9, S) * largest
        v_large[:, 19] = np.inf

        _, found = run_job(tmp_path, {"Q": q, "K": k, "V": v_large}, "--outputs", outputs, isa=isa)

        scores = q.astype(float) @ k.astype(float).T / 2
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        expected = weights @ (v_large[:, [3, 17]].astype(float) / largest)
        context = found["context"]
        assert np.allclose(context[:, [3, 17]].astype(float) / largest, expected, rtol=0,
                           atol=1e-5 if dtype == "f4" else 1e-13)
        others = [i for i in range(20) if i not in (3, 17, 19)]
        assert np.array_equal(context[:, others], small["context"][:, others])
        assert np.all(context[:, 19] == np.inf)

    def test_all_values_are_the_largest(self, tmp_path, isa):
        rng = np.random.default_rng(1)
        largest = np.finfo("f4").max
        job = {"Q": rng.standard_normal((40, 8)).astype("f4"),
               "K": rng.standard_normal((1000, 8)).astype("f4"), "V": np.full((1000, 3), largest)}
        _, found = run_job(tmp_path, job, "--outputs", "context", isa=isa)
        assert np.allclose(found["context"] / largest, 1, rtol=1e-5)

    @pytest.mark.parametrize("path", ["auto", "reference"])
    def test_uniform_weights_of_empty_rows(self, tmp_path, path):
        job = {"Q": np.ones((2, 4), "f4"), "K": np.ones((30, 4), "f4"),
               "V": np.full((30, 3), 3e38, "f4"), "mask": np.zeros((2, 30), bool)}
        _, found = run_job(tmp_path, job, "--empty-rows", "uniform", "--outputs", "context", "--path", path)
        assert np.allclose(found["context"], np.float32(3e38), rtol=1e-5)

    @pytest.mark.parametrize("outputs", ["weights,context", "context"])
    def test_recomputing_one_batch_item_leaves_the_others_unchanged(self, tmp_path, isa, outputs):
        """Batch row 0 has an infinite value whose weight rounds to 0, so its context is NaN. It
        must stay NaN when row 1 overflows and is recomputed; blocks of keys would give infinity."""
        k = np.zeros((2, 1, 700, 1), "f4")
        k[:, :, :512] = -50
        k[:, :, 0] = -104
        job = {"Q": np.ones((2, 1, 1, 1), "f4"), "K": k, "V": np.ones((2, 1, 700, 1), "f4")}
        job["V"][0, 0, 0] = -np.inf
        _, without_overflow = run_job(tmp_path, job, "--outputs", outputs, isa=isa)
        job["V"][1] = 3e38
        _, with_overflow = run_job(tmp_path, job, "--outputs", outputs, isa=isa)
        assert np.array_equal(without_overflow["context"][0], with_overflow["context"][0], equal_nan=True)
        assert np.allclose(with_overflow["context"][1], 3e38, rtol=1e-5)

    def test_one_large_key_value_head_of_several(self, tmp_path):
        """Both query heads of the large key/value head are right, and all others keep every bit."""
        rng = np.random.default_rng(3)
        largest = float(np.finfo("f4").max)
        q, k, v = (rng.standard_normal(shape).astype("f4")
                   for shape in [(2, 4, 9, 8), (2, 2, 600, 8), (2, 2, 600, 5)])
        flags = ["--outputs", "context", "--rows", "8,2"]
        small = run_job(tmp_path, {"Q": q, "K": k, "V": v}, *flags)[1]["context"]
        v[1, 0] = rng.uniform(0.5, 1, (600, 5)) * largest

        context = run_job(tmp_path, {"Q": q, "K": k, "V": v}, *flags)[1]["context"]

        scores = q[1, :2, [8, 2]].swapaxes(0, 1).astype(float) @ k[1, 0].astype(float).T / np.sqrt(8)
        weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
        expected = weights @ (v[1, 0].astype(float) / largest)
        assert np.allclose(context[1, :2] / largest, expected, rtol=1e-5)
        assert np.array_equal(context[0], small[0])
        assert np.array_equal(context[1, 2:], small[1, 2:])


THIRDS = [1 / 3] * 3


class TestExtremeOptions:
    """Options whose product or quotient leaves the range of the dtype."""

    @pytest.mark.parametrize("dtype, flags, second_row", [
        # The first query is all zeros: its scores are 0, whatever they are multiplied with or
        # divided by. Scores of the second overflow, and inf - inf is NaN.
        ("f4", ["--scale", "1e39"], np.nan),
        ("f4", ["--temperature", "1e-39"], np.nan),
        ("f4", ["--scale", "1e38", "--temperature", "0.1"], np.nan),
        ("f4", ["--softcap", "1e-39"], THIRDS),
        ("f4", ["--softcap", "1e-50"], THIRDS),
        ("f8", ["--softcap", "1e-320"], THIRDS),
        ("f8", ["--temperature", "1e-320"], np.nan),
        ("f8", ["--scale", "1e308", "--temperature", "0.01"], np.nan),
    ], ids=lambda value: " ".join(value) if isinstance(value, list) and isinstance(value[0], str) else None)
    def test_weights(self, tmp_path, isa, dtype, flags, second_row):
        tensors = {"Q": np.array([[0, 0], [1, 0]], dtype), "K": np.array([[1, 0], [2, 0], [-1, 0]], dtype),
                   "V": np.array([[1], [2], [3]], dtype)}
        weights = run_job(tmp_path, tensors, *flags, "--outputs", "weights", isa=isa)[1]["weights"]
        assert np.allclose(weights[0], THIRDS, rtol=1e-6)
        assert np.allclose(weights[1], second_row, rtol=1e-6, equal_nan=True)

    @pytest.mark.parametrize("sink, weight, logsumexp", [
        (np.nan, np.nan, np.nan),
        (np.inf, np.nan, np.inf),
        (3e38, 0, 3e38),  # takes all the weight
        (-3e38, 1 / 3, np.sqrt(2) + np.log(3)),
        (-np.inf, 1 / 3, np.sqrt(2) + np.log(3)),
    ])
    def test_sinks(self, tmp_path, isa, sink, weight, logsumexp):
        """NaN in a sink is never lost: it reaches the weights, and a warning reports it."""
        tensors = {"Q": np.ones((2, 2), "f4"), "K": np.ones((3, 2), "f4"), "V": np.ones((3, 1), "f4"),
                   "sinks": np.array([sink], "f4")}
        stderr, found = run_job(tmp_path, tensors, "--heads", "1", "--outputs", "weights,logsumexp", isa=isa)
        assert np.allclose(found["weights"], weight, rtol=1e-6, equal_nan=True)
        assert np.allclose(found["logsumexp"], logsumexp, rtol=1e-6, equal_nan=True)
        assert ("values are NaN" in stderr) == bool(np.isnan(weight))


class TestFloat16Overflow:
    """float16 ends at 65504. Larger results become infinite, and a warning counts them."""

    @staticmethod
    def job(L, S):
        rng = np.random.default_rng(2)
        return {name: (300 * rng.standard_normal((n, 64))).astype("f2") for name, n in (("Q", L), ("K", S))}

    @pytest.mark.parametrize("outputs", ["masked_scores", "weights,masked_scores",
                                         "masked_scores,mean_weights"])
    @pytest.mark.parametrize("flags", [[], ["--causal=bottom-right"]], ids=["all keys", "causal"])
    @pytest.mark.parametrize("L, S", [(3, 3), (70, 600)])  # computed at once, and streamed
    def test_warning_counts_overflowed_scores(self, tmp_path, L, S, flags, outputs):
        job = self.job(L, S)
        scores = job["Q"].astype(float) @ job["K"].astype(float).T / 8
        visible = np.tri(L, S, S - L, bool) if flags else np.ones((L, S), bool)
        overflowed = int((abs(scores)[visible] >= 65520).sum())
        heads = ["--heads", "1"] if "mean" in outputs else []
        stderr, _ = run_job(tmp_path, job, *flags, *heads, "--outputs", outputs)
        assert f"masked_scores: {overflowed} of {L * S} values overflowed float16" in stderr

    def test_all_outputs_that_overflow_are_named(self, tmp_path):
        stderr, _ = run_job(tmp_path, self.job(70, 600), "--outputs", "scores,weights,masked_scores")
        assert "scores: 38863 of 42000 values, masked_scores: " in stderr and stderr.count("overflowed") == 1

    @pytest.mark.parametrize("flags", [["--outputs", "weights"],
                                       ["--compute", "f32", "--outputs", "scores"]], ids=" ".join)
    @pytest.mark.parametrize("L, S", [(3, 3), (70, 600)])
    def test_no_warning_where_nothing_overflows(self, tmp_path, L, S, flags):
        stderr, _ = run_job(tmp_path, self.job(L, S), *flags)
        assert stderr == ""

    def test_batch_names_the_line_that_overflows(self, tmp_path):
        np.savez(tmp_path / "job.npz", **self.job(70, 600))
        line = json.dumps({"Q": "job.npz#Q", "K": "job.npz#K", "outputs": ["scores"]}) + "\n"
        run = attn("batch", "-", stdin=line, cwd=tmp_path)
        assert b"line 1: warning: scores: 38863 of 42000 values overflowed float16" in run.stderr

    def test_infinities_from_infinite_inputs_are_not_reported(self, tmp_path):
        job = {"Q": np.full((1, 1), 6e4, "f2"), "K": np.full((1, 1), np.inf, "f2")}
        stderr, _ = run_job(tmp_path, job, "--outputs", "scores")
        assert stderr == ""
