"""`attn compare --preset` and `--baseline` against the rules of the projects, restated here.

The rules are those of docs/comparing.md. Each is applied to tensors that it barely accepts and barely rejects.
"""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.rounding import rounded

DTYPES = {"f16": "f2", "f32": "f4", "f64": "f8"}


def flashmla(a, b, absolute=8e-4, relative=2.01 / 128, most=5e-6):
    a, b = a.astype("f8"), b.astype("f8")
    error = abs(a - b)
    if not ((error < absolute) | (error / (abs(b) + 1e-6) < relative)).all():
        return False
    return (b * b).sum() < 1e-12 or abs(1 - 2 * (a * b).sum() / (a * a + b * b).sum()) <= most


def fla(a, b):
    a, b = a.astype("f8"), b.astype("f8")
    root = lambda x: np.sqrt((x * x).mean())  # noqa: E731
    return abs(a - b).max() <= 1e-6 or root(a - b) / (root(b) + 1e-8) < 0.005


def flashinfer(a, b):
    tolerance = {"float16": 1e-3, "float32": 1e-5, "float64": 1e-7}[a.dtype.name]
    u, v = a.astype("f8"), b.astype("f8")
    cosine = (u * v).sum() / np.sqrt((u * u).sum()) / np.sqrt((v * v).sum())
    return np.isclose(u, v, rtol=tolerance, atol=tolerance).all() and cosine >= 0.999


def llama_cpp(a, b):
    a, b = a.astype("f8"), b.astype("f8")
    return ((a - b) ** 2).sum() / (b ** 2).sum() <= 5e-4


def triton(a, b):
    return np.allclose(a.astype("f8"), b.astype("f8"), atol=1e-2, rtol=0)


def tt(a, b):
    return np.corrcoef(a.ravel().astype("f8"), b.ravel().astype("f8"))[0, 1] >= 0.99


RULES = {"flashmla": flashmla, "fla": fla, "flashinfer": flashinfer, "llama.cpp": llama_cpp, "triton": triton, "tt": tt}


def verdicts(folder, pairs, preset, name="x{}"):
    """Whether attn accepts each pair."""
    for side in (0, 1):
        np.savez(folder / f"{'ab'[side]}.npz", **{name.format(i): pair[side] for i, pair in enumerate(pairs)})
    run = attn("compare", "a.npz", "b.npz", "--preset", preset, "--json", cwd=folder)
    assert run.stderr == b""
    tensors = json.loads(run.stdout)["tensors"]
    assert all(tensor["gates"][0]["preset"] == preset for tensor in tensors)
    return [tensor["same"] for tensor in tensors]


def smallest_rejected(rule, b, noise, dtype):
    """The scale of the noise from which the rule rejects, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rule((b + middle * noise).astype(dtype), b) else (low, middle)
    return high


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preset", RULES)
def test_preset_at_its_limit(tmp_path, preset, dtype):
    rng = np.random.default_rng(4)
    rule, pairs = RULES[preset], []
    for _ in range(40):
        b = (rng.standard_normal((8, 16)) * rng.choice([0.01, 1, 10])).astype(DTYPES[dtype]).astype("f8")
        noise = rng.standard_normal(b.shape) * (rng.random(b.shape) < rng.choice([0.05, 1]))
        noise.flat[0] = 1
        limit = smallest_rejected(rule, b, noise, DTYPES[dtype])
        pairs += [((b + factor * limit * noise).astype(DTYPES[dtype]), b) for factor in (0.9, 0.99, 1.01, 1.1, 3)]
    expected = [bool(rule(a, b)) for a, b in pairs]
    assert expected.count(True) > 20 and expected.count(False) > 20
    assert verdicts(tmp_path, pairs, preset) == expected


def test_flashmla_logsumexp(tmp_path):
    """The rule of logsumexp is stricter."""
    rng = np.random.default_rng(5)
    b = 1 + rng.random((1, 2, 300))
    for factor in 2.0 ** -np.arange(3, 18, 0.5):
        a = b * (1 + factor * rng.random(b.shape))
        np.savez(tmp_path / "a.npz", logsumexp=a), np.savez(tmp_path / "b.npz", logsumexp=b)
        run = attn("compare", "a.npz", "b.npz", "--preset", "flashmla", cwd=tmp_path)
        assert (run.returncode == 0) == flashmla(a, b, 1e-6, 8.01 / 65536, 1e-7)


def test_flashmla_accepts_small_errors_of_a_zero_reference(tmp_path):
    zeros = np.zeros((2, 3), "f2")
    assert verdicts(tmp_path, [(zeros + np.float16(5e-4), zeros), (zeros + np.float16(9e-4), zeros)],
                    "flashmla") == [True, False]


class Job:
    """Causal attention of 48 tokens with grouped heads, computed in a low precision as PyTorch does."""

    def __init__(self, folder, precision, softcap=0):
        rng = np.random.default_rng(6)
        self.folder, self.precision, self.softcap = folder, precision, softcap
        self.q, self.k, self.v = (rounded(rng.standard_normal(shape) * 2, precision)
                                  for shape in ((4, 48, 20), (2, 48, 20), (2, 48, 24)))
        for name, x in zip("qkv", (self.q, self.k, self.v)):
            np.save(folder / f"{name}.npy", x[None])
        self.flags = ["--reference", *(word for name in "qkv" for word in (f"--{name}", f"{name}.npy")), "--causal",
                      "--precision", precision, *(["--softcap", str(softcap)] if softcap else [])]

    def attention(self, stored, scale_on="k", round_weights=True):
        """`stored`: the precision that every operation rounds to."""
        low = lambda x: rounded(x, stored)  # noqa: E731
        k, v = np.repeat(self.k, 2, 0), np.repeat(self.v, 2, 0)
        scale = 20 ** -0.5
        scores = low(self.q @ low(k * scale).transpose(0, 2, 1)) if scale_on == "k" else \
            low(low(self.q @ k.transpose(0, 2, 1)) * scale)
        if self.softcap:
            scores = low(self.softcap * np.tanh(scores / self.softcap))
        scores = np.where(np.tri(48, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return low((low(weights) if round_weights else weights) @ v)

    def compare(self, result, *flags):
        np.save(self.folder / "context.npy", result[None])
        run = attn("compare", "context.npy", *self.flags, *flags, "--json", cwd=self.folder)
        assert run.stderr == b""
        return json.loads(run.stdout)["tensors"][0]

    def values(self, *flags):
        return self.compare(self.attention("f64"), *flags)["gates"][0]["values"]


@pytest.mark.parametrize("softcap", [0, 5])
@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_baseline_is_the_formula_in_low_precision(tmp_path, precision, softcap):
    job = Job(tmp_path, precision, softcap)
    found = job.values("--gate", "baseline_rms + baseline_mean_abs + baseline_max_abs > 0")
    error = job.attention(precision) - job.attention("f64")
    assert found["baseline_rms"] == pytest.approx(np.sqrt((error ** 2).mean()), rel=2e-3)
    assert found["baseline_mean_abs"] == pytest.approx(abs(error).mean(), rel=2e-3)
    assert found["baseline_max_abs"] == pytest.approx(abs(error).max(), rel=2e-2)
    for change in {"scale_on": "scores"}, {"round_weights": False}:  # would be noticed
        other = job.attention(precision, **change) - job.attention("f64")
        assert np.sqrt((other ** 2).mean()) != pytest.approx(found["baseline_rms"], rel=4e-3)


class Gradients(Job):
    """The gradients of the same attention, as PyTorch's autograd computes them in a low precision."""

    def __init__(self, folder, precision, softcap=0):
        super().__init__(folder, precision, softcap)
        self.grad = rounded(np.random.default_rng(7).standard_normal((4, 48, 24)), precision)
        np.savez(folder / "job.npz", Q=self.q[None], K=self.k[None], V=self.v[None], grad_context=self.grad[None])
        self.flags = ["job.npz", *(flag for flag in self.flags if not flag.endswith(("--q", "--k", "--v", ".npy")))]

    def gradients(self, stored, rounds_heads=True):
        low = lambda x: rounded(x, stored)  # noqa: E731
        transposed = lambda x: x.transpose(0, 2, 1)  # noqa: E731
        of_groups = lambda x: low((low(x) if rounds_heads else x).reshape(2, 2, *x.shape[1:]).sum(1))  # noqa: E731
        v, scale = np.repeat(self.v, 2, 0), 20 ** -0.5
        k = low(np.repeat(self.k, 2, 0) * scale)
        scores = low(self.q @ transposed(k))
        if self.softcap:
            scores = low(self.softcap * np.tanh(scores / self.softcap))
        visible = np.tri(48, dtype=bool)
        weights = np.exp(np.where(visible, scores - scores.max(-1, keepdims=True), -np.inf))
        weights = low(weights / weights.sum(-1, keepdims=True))
        of_weights = low(np.where(visible, self.grad @ transposed(v), 0))
        slopes = low(weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True)))
        if self.softcap:
            slopes = low(slopes * (1 - (scores / self.softcap) ** 2))
        of_keys = low(low(transposed(slopes) @ self.q) * scale)
        return {"grad_Q": low(slopes @ k), "grad_K": of_groups(of_keys), "grad_V": of_groups(transposed(weights) @ self.grad),
                "delta": low((low(weights @ v) * self.grad).sum(-1))}


@pytest.mark.parametrize("softcap", [0, 5])
@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_baseline_of_gradients(tmp_path, precision, softcap):
    job = Gradients(tmp_path, precision, softcap)
    exact, low, other = job.gradients("f64"), job.gradients(precision), job.gradients(precision, rounds_heads=False)
    np.savez(tmp_path / "a.npz", **{name: x[None] for name, x in exact.items()})
    run = attn("compare", "a.npz", *job.flags, "--gate", "baseline_rms + baseline_max_abs > 0", "--json", cwd=tmp_path)
    assert run.stderr == b""
    tensors = json.loads(run.stdout)["tensors"]
    assert [tensor["name"] for tensor in tensors] == list(exact)
    for tensor in tensors:
        found, error = tensor["gates"][0]["values"], low[tensor["name"]] - exact[tensor["name"]]
        assert found["baseline_rms"] == pytest.approx(np.sqrt((error ** 2).mean()), rel=2e-3), tensor["name"]
        assert found["baseline_max_abs"] == pytest.approx(abs(error).max(), rel=2e-2)
        if tensor["name"] == "grad_V":  # would be noticed
            error = other[tensor["name"]] - exact[tensor["name"]]
            assert np.sqrt((error ** 2).mean()) != pytest.approx(found["baseline_rms"], rel=4e-3)


@pytest.mark.parametrize("flags", [["--preset", "fa2"], ["--preset", "fa3"], ["--baseline"]])
def test_baseline_judges_gradients(tmp_path, flags):
    """A right kernel passes; one without the scale in the gradient of the keys fails only there."""
    job = Gradients(tmp_path, "bf16")
    for factor, wrong in [(1, []), (20 ** 0.5, ["grad_K"])]:
        result = job.gradients("bf16")
        result["grad_K"] = rounded(result["grad_K"] * factor, "bf16")
        np.savez(tmp_path / "a.npz", **{name: x[None] for name, x in result.items()})
        run = attn("compare", "a.npz", *job.flags, *flags, "--json", cwd=tmp_path)
        assert run.stderr == b"" and run.returncode == (1 if wrong else 0)
        assert [tensor["name"] for tensor in json.loads(run.stdout)["tensors"] if not tensor["same"]] == wrong


def at_error(reference, error):
    """A result with this largest error."""
    result = reference.copy()
    result[0, 0, 0] += error
    return result


@pytest.mark.parametrize("flags, factor, rest", [(["--preset", "fa2"], 2, 1e-5), (["--baseline"], 2, 1e-5),
                                                 (["--baseline=3"], 3, 1e-5), (["--baseline=0.5,1e-3"], 0.5, 1e-3)])
def test_rule_of_flash_attention_2(tmp_path, flags, factor, rest):
    job = Job(tmp_path, "f16")
    limit = factor * abs(job.attention("f16") - job.attention("f64")).max() + rest
    for share in 0.97, 1.03:
        assert job.compare(at_error(job.attention("f64"), share * limit), *flags)["same"] == (share < 1)


@pytest.mark.parametrize("softcap, factor", [(0, 2), (5, 3)])
def test_rule_of_flash_attention_3(tmp_path, softcap, factor):
    job = Job(tmp_path, "bf16", softcap)
    exact = rounded(job.attention("f64"), "bf16")
    shift = abs(rounded(rounded(exact + 0.3, "bf16") - 0.3, "bf16") - exact).max()
    limit = factor * abs(job.attention("bf16") - job.attention("f64")).max() + 2 * shift
    for share in 0.97, 1.03:
        assert job.compare(at_error(job.attention("f64"), share * limit), "--preset", "fa3")["same"] == (share < 1)


def test_presets_distinguish_a_wrong_scale(tmp_path):
    job = Job(tmp_path, "f16")
    right = job.attention("f64")
    job.q = job.q * 1.1
    wrong = job.attention("f64")
    for preset in ["fa2", "fa3", *RULES]:
        assert job.compare(right.astype("f2"), "--preset", preset)["same"], preset
        if preset != "tt":
            assert not job.compare(wrong.astype("f2"), "--preset", preset)["same"], preset


def test_presets_that_accept_a_dropped_softcap(tmp_path):
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal((256, 64)).astype("f2") for _ in range(3))
    for name, x in ("q", q), ("k", k), ("v", v):
        np.save(tmp_path / f"{name}.npy", x)
    scores = q.astype("f8") @ k.astype("f8").T / 8
    weights = np.exp(scores)
    np.save(tmp_path / "context.npy", (weights / weights.sum(1, keepdims=True) @ v.astype("f8")).astype("f2"))
    job = ["context.npy", "--reference", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--softcap", "50"]
    accepted = {preset for preset in ["fa2", "fa3", *RULES]
                if attn("compare", *job, "--preset", preset, cwd=tmp_path).returncode == 0}
    assert accepted == {"fla", "llama.cpp", "triton", "tt"}
    assert attn("compare", *job, cwd=tmp_path).returncode == 1


def test_baseline_that_overflows_accepts_nothing(tmp_path):
    for name, x in ("q", [[600.0]]), ("k", [[600.0]]), ("v", [[1.0]]), ("context", [[1.0]]):
        np.save(tmp_path / f"{name}.npy", np.asarray(x, "f2"))
    run = attn("compare", "context.npy", "--reference", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--baseline",
               cwd=tmp_path)
    assert run.returncode == 1
    assert b"max_abs 0, baseline_max_abs undefined" in run.stdout


@pytest.mark.parametrize("precision, message", [("f64", "set --precision f32, f16 or bf16"),
                                                ("tf32", "no baseline is known for tf32")])
def test_precisions_without_a_baseline(tmp_path, precision, message):
    job = Job(tmp_path, "f32")
    np.save(tmp_path / "context.npy", job.attention("f64")[None])
    flags = [precision if word == "f32" else word for word in job.flags]
    assert_error(attn("compare", "context.npy", *flags, "--baseline", cwd=tmp_path), 2, "context: ", message)


def test_gates_of_several_outputs(tmp_path):
    """A bound is needed only for tensors that no gate selects."""
    job = Job(tmp_path, "f16")
    for name in "context", "mean_weights":
        assert attn("run", *job.flags[1:-2], "--outputs", name, "-o", f"{name}.npz", cwd=tmp_path).returncode == 0
    results = {name: np.load(tmp_path / f"{name}.npz")[name] for name in ("context", "mean_weights")}
    np.savez(tmp_path / "all.npz", **results)
    run = attn("compare", "all.npz", *job.flags, cwd=tmp_path)
    assert_error(run, 2, "no error bound is known for mean_weights")
    run = attn("compare", "all.npz", *job.flags, "--gate", "mean_.*: rms < 1e-3", cwd=tmp_path)
    assert run.returncode == 0
    assert b"within the error bound of f16" in run.stdout and b"passes 1 gate" in run.stdout


def test_gates_with_the_bound(tmp_path):
    job = Job(tmp_path, "f16")
    right = job.attention("f64").astype("f2")
    bound = job.compare(right)["bound"]["worst"]["value"]
    tensor = job.compare(right, "--gate", "bound < 1 and mismatched == 0")
    assert tensor["same"] and tensor["gates"][0]["values"] == {"bound": bound, "mismatched": 0}
