"""Numbers that were wrong: each test compares with exact arithmetic or a published formula."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from support import safetensors_file
from support.attn import attn


def run_job(folder, tensors, *flags):
    """Runs a job of float arrays; returns its outputs by name and what it wrote to stderr."""
    np.savez(folder / "job.npz", **tensors)
    run = attn("run", "job.npz", *flags, "-o", "out.npz", "--force", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    with np.load(folder / "out.npz") as found:
        return dict(found), run.stderr.decode()


def yarn_frequencies(r, base, factor, original, beta_fast, beta_slow, truncate):
    """transformers' modeling_rope_utils._compute_yarn_parameters (inv_freq)."""
    def correction(turns):
        return r * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = correction(beta_fast), correction(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, r - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(r // 2) - low) / (high - low), 0, 1)
    plain = 1 / base ** (np.arange(0, r, 2) / r)
    return plain / factor * ramp + plain * (1 - ramp)


@pytest.mark.parametrize("truncate", [None, True, False])
@pytest.mark.parametrize("r, base, factor, original", [(64, 150000, 32, 4096), (64, 10000, 4, 512), (8, 1e6, 2, 100)],
                         ids=["gpt-oss", "low", "narrow"])
def test_yarn_truncate(tmp_path, r, base, factor, original, truncate):
    """A query of ones in the first half: the rotated one has the cosines, then the sines, of a position."""
    position = 1  # angles of less than a turn
    f = yarn_frequencies(r, base, factor, original, 32, 1, truncate is not False)
    flags = [f"--rotary-{k}={v}" for k, v in dict(kind="half", base=base, scaling="yarn", factor=factor,
                                                  original_length=original, attention_factor=1).items()]
    flags = [flag.replace("_", "-") for flag in flags]
    if truncate is not None:
        flags.append(f"--rotary-truncate={str(truncate).lower()}")
    Q = np.repeat([1.0, 0.0], r // 2)[None]
    out, _ = run_job(tmp_path, {"Q": Q, "K": Q, "position_ids": np.array([position])}, *flags, "--outputs", "queries")
    angles = np.arctan2(out["queries"][0, r // 2:], out["queries"][0, :r // 2])
    np.testing.assert_allclose(angles, position * f, rtol=1e-13)


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


def exact_softmax(scores):
    """Weights and logsumexp in long doubles, whose range is far larger."""
    x = scores.astype(np.longdouble)
    largest = x.max(-1, keepdims=True)
    e = np.exp(x - largest)
    return e / e.sum(-1, keepdims=True), (largest[..., 0] + np.log(e.sum(-1)))


LARGEST = {"float32": 3.4e38, "float64": 1.79e308}
TOLERANCE = {"float32": 3e-5, "float64": 1e-12}


@pytest.mark.parametrize("outputs", ["context", "context,logsumexp,weights", "scores,masked_scores,weights",
                                     "mean_weights,row_max,entropy,key_weights"])
@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("L, S", [(1, 2), (3, 5), (70, 300)])
def test_scores_near_the_ends_of_the_range(tmp_path, L, S, dtype, outputs):
    """Every third query has scores up to the largest number, or down to the lowest; all are finite."""
    rng = np.random.default_rng(L)
    B, H, D = 2, 3, 2
    root = math.sqrt(LARGEST[dtype])
    Q = rng.standard_normal((B, H, L, D))
    K = np.zeros((B, H, S, D))
    K[..., 0] = rng.uniform(0.7, 1, (B, H, S)) * root
    K[..., 1] = rng.standard_normal((B, H, S))
    Q[..., 0] = 0
    Q[:, :, ::3, 0] = rng.choice([-1, 1], Q[:, :, ::3, 0].shape) * root * 0.999
    Q[:, :, ::3, 1] = 0
    Q, K = Q.astype(dtype), K.astype(dtype)
    V = rng.standard_normal((B, H, S, 4)).astype(dtype)
    out, messages = run_job(tmp_path, {"Q": Q, "K": K, "V": V}, "--scale", "none", "--outputs", outputs)
    scores = np.einsum("bhld,bhsd->bhls", Q, K, dtype=dtype)
    assert np.isfinite(scores).all() and np.abs(scores).max() > 0.7 * LARGEST[dtype]
    weights, logsumexp = exact_softmax(scores)
    expected = {"scores": scores, "masked_scores": scores, "weights": weights, "logsumexp": logsumexp,
                "context": weights @ V.astype(np.longdouble), "row_max": scores.max(-1),
                "mean_weights": weights.mean(1), "key_weights": weights.sum(2),
                "entropy": -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)}
    for name in outputs.split(","):
        assert out[name].dtype == dtype
        np.testing.assert_allclose(out[name], expected[name].astype(dtype), err_msg=name,
                                   rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert "NaN" not in messages


def test_nan_and_infinity_stay(tmp_path):
    """Infinite inputs give NaN where the formula gives NaN."""
    K = np.array([[1], [np.inf], [2]], "float32")
    out, _ = run_job(tmp_path, {"Q": np.array([[1], [-1]], "float32"), "K": K, "V": K[::-1]}, "--scale", "none",
                     "--outputs", "weights", "--nan", "allow")
    assert np.isnan(out["weights"][0]).all()
    np.testing.assert_allclose(out["weights"][1], np.exp([-1, -np.inf, -2]) / np.exp([-1, -2]).sum(), rtol=1e-6)


# Statements of docs/semantics.md.

PATHS = ["auto", "reference"]
TEMPERATURE = 3.0


def problem_of_temperature():
    """Q, K and V, and the scaled scores."""
    rng = np.random.default_rng(9)
    Q, K, V = (rng.standard_normal(shape) for shape in [(1, 2, 5, 4), (1, 2, 7, 4), (1, 2, 7, 3)])
    return {"Q": Q, "K": K, "V": V}, np.einsum("bhld,bhsd->bhls", Q, K) / 2


@pytest.mark.parametrize("path", PATHS)
def test_sinks_are_not_divided_by_the_temperature(tmp_path, path):
    tensors, scores = problem_of_temperature()
    sinks = np.array([0.75, -2.0])
    out, _ = run_job(tmp_path, {**tensors, "sinks": sinks}, "--path", path, "--temperature", TEMPERATURE,
                     "--outputs", "weights,logsumexp")
    e = np.exp(scores / TEMPERATURE)
    total = e.sum(-1) + np.exp(sinks)[:, None]
    np.testing.assert_allclose(out["weights"], e / total[..., None], rtol=1e-13)
    np.testing.assert_allclose(out["logsumexp"], np.log(total), rtol=1e-13)


@pytest.mark.parametrize("normaliser", ["softmax", "sparsemax", "entmax15", "hardmax", "sigmoid", "none"])
@pytest.mark.parametrize("path", PATHS)
def test_logsumexp_is_that_of_scores_divided_by_the_temperature(tmp_path, path, normaliser):
    tensors, scores = problem_of_temperature()
    out, _ = run_job(tmp_path, tensors, "--path", path, "--temperature", TEMPERATURE,
                     "--normaliser", normaliser, "--outputs", "logsumexp")
    np.testing.assert_allclose(out["logsumexp"], np.log(np.exp(scores / TEMPERATURE).sum(-1)), rtol=1e-13)


DTYPES = {"f16": (np.float16, "F16"), "bf16": (np.float32, "BF16"), "f32": (np.float32, "F32"), "f64": (np.float64, "F64")}
LOWEST = {"f16": -65504.0, "bf16": -float.fromhex("0x1.fep127"), "f32": float(np.finfo("f4").min),
          "f64": float(np.finfo("f8").min)}
L, S, WIDTH = 3, 4, 2


def weights_with_mask(folder, dtype, path, mask):
    """The weights of L queries and S keys, all of them hidden by `mask`, and those without a mask."""
    rng = np.random.default_rng(2)
    numpy_dtype, name = DTYPES[dtype]
    header, data = {}, b""
    for key, array in {"Q": rng.standard_normal((L, WIDTH)), "K": rng.standard_normal((S, WIDTH)),
                       "mask": np.full((L, S), mask)}.items():
        bits = array.astype(numpy_dtype)
        if dtype == "bf16":
            bits = (bits.view(np.uint32) >> 16).astype(np.uint16)
        header[key] = safetensors_file.entry(len(data), len(data) + bits.nbytes, name, list(array.shape))
        data += bits.tobytes()
    (folder / "job.safetensors").write_bytes(safetensors_file.build(header, data))
    found = []
    for source in ["job.safetensors"], ["--q", "job.safetensors#Q", "--k", "job.safetensors#K"]:
        run = attn("run", *source, "--path", path, "--outputs", "weights", "--nan", "allow",
                   "-o", "out.json", "--force", cwd=folder)
        assert run.returncode == 0, run.stderr.decode()
        text = (folder / "out.json").read_text()
        found.append(np.array(json.loads(text)["weights"], dtype=np.float64))
    return found


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_the_lowest_number_absorbs_scores(tmp_path, dtype, path):
    weights, _ = weights_with_mask(tmp_path, dtype, path, LOWEST[dtype])
    assert (weights == 1 / S).all()


@pytest.mark.parametrize("path", PATHS)
def test_the_lowest_float16_does_not(tmp_path, path):
    weights, unmasked = weights_with_mask(tmp_path, "f16", path, LOWEST["f16"])
    np.testing.assert_allclose(weights, unmasked, rtol=2 ** -8 + 2 ** -11)
    assert np.ptp(unmasked, -1).min() > 0.01


@pytest.mark.parametrize("visible, rows, weights", [
    ([0, 0, 0], [0, 0, 0], {"zero": 0, "uniform": 1 / 6, "nan": math.nan}),  # no query sees a key
    ([1, 0, 0], [1 / 3, 0, 0], {"zero": 0, "uniform": 0, "nan": 0}),
])
@pytest.mark.parametrize("empty_rows", ["zero", "uniform", "nan"])
def test_softmax_over_all_rows_without_visible_keys(tmp_path, visible, rows, weights, empty_rows):
    """The third query is padding: its weights are 0, and it does not count."""
    mask = np.repeat(np.array(visible, bool)[:, None], 3, axis=1)
    tensors = {"Q": np.zeros((3, 1)), "K": np.zeros((3, 1)), "mask": mask, "query_lengths": np.array([2])}
    out, _ = run_job(tmp_path, tensors, "--softmax-axis", "all", "--empty-rows", empty_rows, "--outputs", "weights",
                     "--nan", "allow")
    expected = [[weights[empty_rows] or row] * 3 for row in rows[:2]] + [[0] * 3]
    np.testing.assert_allclose(out["weights"], expected, rtol=1e-15)
