"""All options of attention, alone and combined, compared with plain loops.

The program and tests/support/plain_attention.py compute the same random jobs and must agree at every
stage to 1e-12. Another test omits each option from the plain loops and counts in how many jobs this
changes the result, so that a program which ignores an option cannot pass.
"""

import collections
import functools
import json
import random

import numpy as np
import pytest

from support.attn import attn
from support.plain_attention import attend

JOBS = 200
TOLERANCE = 1e-12


class RandomJob:
    """The 4-D tensors `t` and the options `o` of a random job."""

    def __init__(self, seed):
        self.choose, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.G = self.choose.choice([1, 2])
        self.H, self.B = self.G * self.choose.choice([1, 2, 3]), self.choose.choice([1, 2, 3])
        self.L, self.N = self.choose.randint(1, 6), self.choose.randint(1, 7)
        self.P = self.choose.choice([0, 0, 1, 4])
        self.S = self.P + self.N
        self.D, self.Dv = self.choose.choice([2, 4, 6]), self.choose.randint(1, 5)
        self.t, self.o = {}, {}
        self.give("Q", self.B, self.H, self.L, self.D)
        self.Dk = self.D
        if self.chance(0.3):
            self.o["score"] = self.choose.choice(["cosine", "l2", "general", "additive", "concat"])
            if self.o["score"] in ("general", "additive", "concat"):
                self.Dk = self.choose.choice([2, 4, 6])
        self.give("K", self.B, self.G, self.N, self.Dk)
        self.give("V", self.B, self.G, self.N, self.Dv)
        if self.P:
            self.give("past_K", self.B, self.G, self.P, self.Dk)
            self.give("past_V", self.B, self.G, self.P, self.Dv)
        self.visibility()
        self.norms_and_rotary()
        self.scores()
        self.biases()
        self.weights()
        self.offset(random.Random(f"offset {seed}"))
        self.dropout(np.random.default_rng([5, seed]))

    def chance(self, p):
        return self.choose.random() < p

    def give(self, name, *shape):
        self.t[name] = self.rng.standard_normal(shape)

    def visibility(self):
        t, o, choose = self.t, self.o, self.choose
        if self.chance(0.4):
            o["causal"] = choose.choice([True, "bottom-right"])
        elif self.chance(0.3):
            o["alignment"] = "bottom-right"
            o["window"] = [choose.randint(-1, 3), choose.randint(0, 2)]
        if self.chance(0.3):
            o["window"] = [choose.randint(-1, 3), choose.randint(0, 2)]
        if self.chance(0.25):
            t["key_lengths"] = self.rng.integers(0, self.S + 1, self.B)
        if self.chance(0.25):
            t["query_lengths"] = self.rng.integers(0, self.L + 1, self.B)
        if self.chance(0.4):
            self.segments()
        if self.chance(0.4):
            self.mask()
        if self.chance(0.25):
            shape = tuple(1 if self.chance(0.2) else n for n in (self.B, self.H, self.L, self.S))
            self.give("bias", *shape)
            self.t["bias"][self.rng.random(shape) < 0.1] = -np.inf
        if self.chance(0.4):
            o["empty_rows"] = choose.choice(["uniform", "nan", "zero"])

    def offset(self, choose):
        is_aligned = "alignment" in self.o or self.o.get("causal") == "bottom-right"
        positions = {"causal", "window", "alibi", "alibi_slopes", "relative_bias"} & {*self.o, *self.t}
        if positions and not is_aligned and not {"documents", "cu_seqlens_q"} & {*self.t} and choose.random() < 0.5:
            self.o["causal_offset"] = choose.randint(-3, 7)

    def dropout(self, rng):
        if rng.random() < 0.25:
            S = self.S + ("bias_K" in self.t) + self.o.get("zero_key", False)
            shape = [1 if rng.random() < 0.2 else n for n in (self.B, self.H, self.L, S)]
            self.t["dropout_mask"] = rng.random(shape) < 0.6
            self.o["dropout_p"] = float(rng.choice([0, 0.1, 0.5]))

    def segments(self):
        def ends(n):
            return np.concatenate([[0], np.sort(self.rng.integers(0, n + 1, 2)), [n]])

        if self.chance(0.5):
            self.t["cu_seqlens_q"] = ends(self.L)
            if self.S != self.L or self.chance(0.5):
                self.t["cu_seqlens_k"] = ends(self.S)
            return
        shape = (lambda n: (self.B, n)) if self.chance(0.5) else lambda n: (n,)
        self.t["documents"] = self.rng.integers(-1, 3, shape(self.L))
        if self.S != self.L or self.chance(0.5):
            self.t["key_documents"] = self.rng.integers(-1, 3, shape(self.S))

    def mask(self):
        full = (self.B, self.H, self.L, self.S)
        rank = self.choose.randint(1, 4)
        shape = tuple(1 if self.chance(0.2) else n for n in full[4 - rank:])
        if self.chance(0.5):
            self.t["mask"] = self.rng.random(shape) < 0.7
            if self.chance(0.3):
                self.o["mask_polarity"] = "ignore"
        else:
            self.give("mask", *shape)
            self.t["mask"][self.rng.random(shape) < 0.2] = -np.inf

    def norms_and_rotary(self):
        t, o, choose = self.t, self.o, self.choose
        if self.chance(0.2):
            o["clip_qkv"] = choose.choice([0.75, 1.5])
        if self.chance(0.4):
            o["qk_norm"] = choose.choice(["rms", "l2", "layer"])
            if self.chance(0.5):
                o["qk_norm_epsilon"] = 0.5
            if self.chance(0.3):
                o["qk_norm_axis"] = "all"
            names = ["q_norm", "k_norm"]
            for name in names + [f"{name}_bias" for name in names if o["qk_norm"] == "layer"]:
                heads, width = (self.H, self.D) if name[0] == "q" else (self.G, self.Dk)
                shapes = [(heads * width,)] if "qk_norm_axis" in o else [(width,), (heads, width)]
                if self.chance(0.5):
                    self.give(name, *choose.choice(shapes))
        if self.chance(0.2):
            o["query_scale"] = {"factor": choose.choice([0.5, -0.25]), "length": choose.choice([2, 3])}
            if self.chance(0.5):
                o["query_scale"]["first"] = 0
            if self.chance(0.5):
                t["position_ids"] = self.rng.integers(0, 9, (self.B, self.L))
        if self.chance(0.6) or self.Dk != self.D:
            return
        o["rotary"] = {"kind": choose.choice(["half", "interleaved"])}
        if "position_ids" in t or self.chance(0.4):
            t["position_ids"] = self.rng.integers(0, 9, (self.B, self.L))
            if self.L != self.N or self.chance(0.5):
                t["key_position_ids"] = self.rng.integers(0, 9, self.N)
        if self.chance(0.25):
            r = choose.randrange(2, self.D + 1, 2) // 2
            shape = (16, r)
            if self.L == self.N and self.chance(0.5):
                shape = (self.B, self.L, r)
            self.give("cos", *shape)
            self.give("sin", *shape)
            return
        if self.chance(0.3):
            o["rotary"]["width"] = choose.randrange(2, self.D + 1, 2)
        if self.chance(0.5):
            o["rotary"]["base"] = 10
        width = o["rotary"].get("width", self.D)
        kind = choose.choice([None, "linear", "yarn", "llama3", "longrope"] +
                             (["ntk", "dynamic-ntk"] if width > 2 else []))
        if kind is None:
            return
        o["rotary"].update(scaling=kind, factor=choose.choice([2, 4.5]))
        if kind in ("yarn", "llama3"):
            o["rotary"]["original_length"] = choose.choice([16, 64])
        if kind in ("dynamic-ntk", "longrope"):
            o["rotary"]["original_length"] = choose.choice([3, 5, 16])
        if kind == "longrope":
            for name in "short_factor", "long_factor":
                o["rotary"][name] = self.rng.uniform(1, 4, width // 2).tolist()
            if self.chance(0.5):
                o["rotary"]["attention_factor"] = 1.5
        if kind == "yarn" and self.chance(0.5):
            o["rotary"].update(beta_fast=8, beta_slow=0.5, attention_factor=1.5)
        if kind == "llama3" and self.chance(0.5):
            o["rotary"].update(low_frequency_factor=1.5, high_frequency_factor=9)

    def scores(self):
        o, A, kind = self.o, self.choose.choice([1, 3]), self.o.get("score", "dot")
        if self.chance(0.4):
            o["scale"] = self.choose.choice(["none", 0.3, -1.5])
        if self.chance(0.2):
            self.give("head_scale", self.H)
        if self.chance(0.3):
            o["softcap"] = self.choose.choice([0.5, 3])
            if self.chance(0.5):
                o["softcap_order"] = "after-mask"
        if kind == "general":
            self.give("W_score", self.D, self.Dk)
        elif kind == "concat":
            self.give("W_score", self.D + self.Dk, A)
        elif kind == "additive":
            if self.chance(0.7):
                self.give("W_score_Q", self.D, A)
            else:
                A = self.D
            if A != self.Dk or self.chance(0.5):
                self.give("W_score_K", self.Dk, A)
        if kind in ("additive", "concat"):
            for name, shape in ("v_score", (A,)), ("b_score", (A,)), ("g_score", (1,)):
                if self.chance(0.6):
                    self.give(name, *shape)

    def biases(self):
        if self.chance(0.2):
            self.o["alibi"] = True
        elif self.chance(0.2):
            self.give("alibi_slopes", *self.choose.choice([(self.H,), (self.B, self.H)]))
        if self.chance(0.25):
            self.give("relative_bias", self.choose.choice([4, 8, 32]), self.H)
            if self.chance(0.6):
                self.o["relative"] = {"max_distance": 17,
                                      "direction": self.choose.choice(["both", "past"])}
        if self.chance(0.2):
            self.give("bias_K", self.G * self.Dk)
            self.give("bias_V", self.G * self.Dv)
        if self.chance(0.2) and self.o.get("score") != "cosine":  # 0 / 0
            self.o["zero_key"] = True

    def weights(self):
        o, choose = self.o, self.choose
        if self.chance(0.4):
            o["normaliser"] = choose.choice(["sparsemax", "entmax15", "hardmax", "sigmoid", "top_k",
                                             "none"])
            if o["normaliser"] == "top_k":
                o["top_k"] = choose.randint(1, 4)
        elif self.chance(0.3):
            self.give("sinks", self.H)
        if self.chance(0.2):
            self.give("gate", self.B, self.H, self.L, self.Dv)
        if self.chance(0.2):
            o["temperature"] = choose.choice([0.5, 3])


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
    """For each option, the number of random jobs whose result changes when it is omitted."""
    count = collections.Counter()
    for seed in range(JOBS):
        t, o, expected = random_job(seed)
        for name in set(OPTIONS) & {*o, *t}:
            if COUNT_KEYS.get(name, set()) & {*t}:
                continue
            found = attend(without(t, name), without(o, name))
            count[name] += any(difference(found[stage], expected[stage])
                               for stage in ("context", "logsumexp", "weights"))
    return count


@pytest.mark.parametrize("option", OPTIONS)
def test_option_changes_random_jobs(jobs_that_change, option):
    assert jobs_that_change[option] >= 2


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
