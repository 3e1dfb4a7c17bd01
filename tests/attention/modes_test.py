"""All options of attention, alone and combined, compared with plain loops.

The program and tests/support/plain_attention.py compute the same random jobs and must agree at every
stage to 1e-12. Another test omits each option from the plain loops and counts in how many jobs this
changes the result, so that a program which ignores an option cannot pass.
"""

import collections
import functools
import json

import numpy as np
import pytest

from support.attn import attn
from support.plain_attention import attend
from support.random_job import RandomJob

JOBS = 200
TOLERANCE = 1e-12


@functools.lru_cache(maxsize=None)
def random_job(seed):
    """Tensors, options and expected stages."""
    job = RandomJob(seed)
    return job.t, job.o, attend(job.t, job.o)


def difference(found, expected):
    """An empty text if the arrays are close, with the same NaNs and infinities, otherwise what differs."""
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    with np.errstate(invalid="ignore"):
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        distance = np.abs(found - expected)[~same]
    largest = max(1, np.abs(expected[np.isfinite(expected)]).max(initial=0))
    return "" if (distance <= TOLERANCE * largest).all() else f"off by {distance.max()}"


def run_job(folder, t, o, *flags):
    """Runs a job; returns its outputs by name."""
    np.savez(folder / "in.npz", **t)
    job = {**o, **{name: f"in.npz#{name}" for name in t}}
    (folder / "job.json").write_text(json.dumps(job))
    run = attn("run", "job.json", *flags, "-o", "out.npz", "--force", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    with np.load(folder / "out.npz") as outputs:
        return dict(outputs)


@pytest.fixture(scope="module")
def results(module_path):
    """The folder with the results of all random jobs, numbered from 1, computed in one batch."""
    lines = []
    for seed in range(JOBS):
        t, o, expected = random_job(seed)
        np.savez(module_path / f"in{seed}.npz", **t)
        lines.append(json.dumps({**o, **{name: f"in{seed}.npz#{name}" for name in t}, "outputs": list(expected)}))
    attn("batch", "-", "--out-dir", "out", "--name", "{index}", "--nan", "allow", "-q", stdin="\n".join(lines),
         cwd=module_path)
    return module_path / "out"


@pytest.mark.parametrize("seed", range(JOBS))
def test_random_job_matches_plain_loops(results, seed):
    t, o, expected = random_job(seed)
    with np.load(results / f"{seed + 1}.npz") as outputs:
        found = dict(outputs)
    differences = {stage: difference(found[stage], array) for stage, array in expected.items()}
    assert not any(differences.values()), f"{differences}, options {o}, tensors {list(t)}"


# Options that can be omitted from a job.
OPTIONS = ["causal", "alignment", "causal_offset", "window", "mask", "bias", "mask_polarity", "empty_rows", "past_K",
           "key_lengths", "query_lengths", "documents", "cu_seqlens_q", "scale", "head_scale", "gate", "dropout_mask", "softcap",
           "softcap_order", "temperature", "normaliser", "sinks", "alibi", "alibi_slopes",
           "relative_bias", "relative", "bias_K", "zero_key", "clip_qkv", "query_scale", "qk_norm",
           "qk_norm_epsilon", "q_norm", "k_norm", "q_norm_bias", "k_norm_bias", "qk_norm_axis", "rotary",
           "cos", "position_ids", "key_position_ids", "b_score", "v_score", "g_score"]
# Options that need another one, and are omitted with it.
DEPENDENTS = {"past_K": ["past_V"], "dropout_mask": ["dropout_p"], "documents": ["key_documents"], "cu_seqlens_q": ["cu_seqlens_k"],
              "bias_K": ["bias_V"], "cos": ["sin"], "softcap": ["softcap_order"],
              "relative_bias": ["relative"], "normaliser": ["top_k"],
              "qk_norm": ["q_norm", "k_norm", "q_norm_bias", "k_norm_bias", "qk_norm_epsilon",
                          "qk_norm_axis"],
              "qk_norm_axis": ["q_norm", "k_norm", "q_norm_bias", "k_norm_bias"],  # of another shape
              "rotary": ["cos", "sin", "position_ids", "key_position_ids"]}
# Tensors whose shape includes these keys, which cannot be omitted from jobs with such tensors.
COUNT_KEYS = {"past_K": {"mask", "bias", "key_lengths", "documents", "cu_seqlens_q", "position_ids", "dropout_mask"},
              "bias_K": {"dropout_mask"}, "zero_key": {"dropout_mask"}}


def without(values, name):
    omitted = [name, *DEPENDENTS.get(name, [])]
    return {key: value for key, value in values.items() if key not in omitted}


@pytest.fixture(scope="module")
def jobs_that_change():
    """For each option, the number of random jobs whose result changes when it is omitted, counted to 2."""
    count = collections.Counter()
    for seed in range(JOBS):
        t, o, expected = random_job(seed)
        for name in set(OPTIONS) & {*o, *t}:
            if count[name] == 2 or COUNT_KEYS.get(name, set()) & {*t}:
                continue
            found = attend(without(t, name), without(o, name))
            count[name] += any(difference(found[stage], expected[stage])
                               for stage in ("context", "logsumexp", "weights"))
    return count


@pytest.mark.parametrize("option", OPTIONS)
def test_option_changes_random_jobs(jobs_that_change, option):
    assert jobs_that_change[option] == 2


@pytest.mark.parametrize("compute", ["f32", "f64"])
@pytest.mark.parametrize("precision, bits", [("f16", 11), ("bf16", 8), ("f32", 24), ("f64", 53)])
class TestSoftmaxPrecision:
    """softmax.precision rounds scores and weights, whatever precision the rest is computed in."""

    TENSORS = dict(zip("QKV", np.random.default_rng(1).standard_normal((3, 2, 2, 5, 4))))
    EXACT = attend(TENSORS, {})

    @pytest.fixture
    def outputs(self, tmp_path, precision, compute):
        return run_job(tmp_path, self.TENSORS, {"softmax": {"precision": precision}, "compute": compute})

    @staticmethod
    def rounding_unit(bits, compute):
        return 2.0 ** -min(bits, 24 if compute == "f32" else 53)

    def test_weights_have_the_dtype_of_the_computation(self, outputs, bits, compute):
        assert outputs["weights"].dtype == {"f32": "float32", "f64": "float64"}[compute]

    def test_weights_are_rounded(self, outputs, bits, compute):
        mantissa, _ = np.frexp(outputs["weights"].astype(np.float64))
        assert (mantissa * 2.0 ** bits % 1 == 0).all()

    def test_error_of_weights_is_that_of_the_precision(self, outputs, bits, compute):
        unit = self.rounding_unit(bits, compute)
        error = np.abs(outputs["weights"] - self.EXACT["weights"]).max()
        least = 0 if unit <= 2.0 ** -24 else 2.0 ** -(bits + 6)
        assert least <= error <= 4 * unit

    def test_error_of_context_is_that_of_the_precision(self, outputs, bits, compute):
        error = np.abs(outputs["context"] - self.EXACT["context"]).max()
        assert error <= 16 * self.rounding_unit(bits, compute)


class TestYarn:
    """A job in which every parameter of YaRN matters."""

    TENSORS = dict(zip("QKV", np.random.default_rng(2).standard_normal((3, 1, 1, 9, 6))))
    ROTARY = {"kind": "half", "scaling": "yarn", "factor": 4.5, "original_length": 4096,
              "beta_fast": 8, "beta_slow": 4, "attention_factor": 1.25}
    EXPECTED = attend(TENSORS, {"rotary": ROTARY})["weights"]

    def test_weights(self, tmp_path):
        weights = run_job(tmp_path, self.TENSORS, {"rotary": self.ROTARY})["weights"]
        assert np.abs(weights - self.EXPECTED).max() < TOLERANCE

    @pytest.mark.parametrize("parameter", ["beta_fast", "beta_slow", "attention_factor", "factor"])
    def test_parameter_matters(self, parameter):
        rotary = {key: value for key, value in self.ROTARY.items() if key != parameter}
        rotary.setdefault("factor", 2)
        weights = attend(self.TENSORS, {"rotary": rotary})["weights"]
        assert np.abs(weights - self.EXPECTED).max() > 1e-6


LOWEST = np.finfo("float32").min


@pytest.mark.parametrize("outputs", ["context", "context,masked_scores"])
@pytest.mark.parametrize("mask", [[], ["--mask", "mask.npy"]], ids=["no mask", "mask"])
@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("bias", [-np.inf, LOWEST], ids=["infinite", "lowest finite"])
class TestLowestRelativeBias:
    """A relative bias of -inf hides keys; one of the lowest finite number does not."""

    @staticmethod
    def run(folder, table, path, mask, outputs):
        """Values and outputs of a job of 70 queries and keys."""
        rng = np.random.default_rng(4)
        q, k, v = (rng.standard_normal((70, 4), dtype="float32") for _ in "QKV")
        for name, array in ("q", q), ("k", k), ("v", v), ("table", table):
            np.save(folder / f"{name}.npy", array)
        np.save(folder / "mask.npy", np.zeros((70, 70), "float32"))
        run = attn("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--relative-bias", "table.npy",
                   "--path", path, *mask, "--outputs", outputs, "-o", "out.npz", cwd=folder)
        assert run.returncode == 0, run.stderr.decode()
        with np.load(folder / "out.npz") as found:
            if "," in outputs:
                assert found["masked_scores"].reshape(70, 70)[0, -1] == table[-1]
            return v, found["context"]

    def test_at_all_distances(self, tmp_path, bias, path, mask, outputs):
        v, context = self.run(tmp_path, np.full((32, 1), bias, "float32"), path, mask, outputs)
        expected = np.full_like(v, np.nan) if bias == -np.inf else np.broadcast_to(v.mean(axis=0), v.shape)
        assert np.allclose(context, expected, rtol=1e-5, atol=1e-6, equal_nan=True)

    def test_at_all_distances_but_0(self, tmp_path, bias, path, mask, outputs):
        table = np.full((32, 1), bias, "float32")
        table[0] = 0
        v, context = self.run(tmp_path, table, path, mask, outputs)
        assert np.allclose(context, v, rtol=1e-5, atol=1e-6)
