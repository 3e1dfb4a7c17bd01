"""`attn compare --reference` for kernels with rotary positions and normalised queries and keys.

The kernels are computed here with NumPy in float32, and rounded to the precision where a library such as
transformers stores: angles in float32, but cosines, sines, each product and each result in the precision.
"""

import json
import random

import numpy as np
import pytest

from support.attn import attn, under_sanitizer
from support.rounding import rounded

F = np.float32
PRECISIONS = ["f32", "f16", "bf16"]
COUNT = 20 if under_sanitizer() else 120


def frequencies(rotary, r, last):
    """The angles of position 1 (docs/semantics.md), and the factor of cosines and sines, in float32."""
    k = np.arange(r // 2, dtype="f4")
    scaling, base, factor = rotary.get("scaling"), F(rotary["base"]), F(rotary.get("factor", 1))
    length = F(rotary.get("original_length", 0))
    if scaling == "dynamic-ntk":
        factor = factor * max(F(last + 1), length) / length - (factor - F(1))
    if scaling in ("ntk", "dynamic-ntk"):
        base = base * factor ** F(r / (r - 2))
    f = F(1) / base ** (F(2) * k / F(r))
    if scaling == "linear":
        return f / factor, F(1)
    if scaling == "longrope":
        divisors = np.array(rotary["long_factor" if last >= length else "short_factor"], "f4")
        return f / divisors, np.sqrt(F(1) + np.log(factor) / np.log(length)) if factor > 1 else F(1)
    turns = length * f / F(2 * np.pi)
    if scaling == "llama3":
        fast = np.clip((turns - F(1)) / F(3), F(0), F(1))
        return (F(1) - fast) * f / factor + fast * f, F(1)
    if scaling == "yarn":
        low, high = (F(r) * np.log(length / (F(beta) * F(2 * np.pi))) / (F(2) * np.log(base)) for beta in (32, 1))
        low, high = max(np.floor(low), F(0)), min(np.ceil(high), F(r - 1))
        slow = np.clip((k - low) / (high - low if high != low else F(0.001)), F(0), F(1))
        return f / factor * slow + f * (F(1) - slow), F(0.1) * np.log(factor) + F(1)
    return f, F(1)


def rotate(x, first, rotary, last, store):
    """x (L, D), whose first row has the position `first`."""
    r = rotary.get("width", x.shape[1])
    f, factor = frequencies(rotary, r, last)
    angles = np.arange(first, first + len(x)).astype("f4")[:, None] * f
    cos, sin = store(np.cos(angles) * factor), store(np.sin(angles) * factor)
    pairs = (slice(0, r // 2), slice(r // 2, r)) if rotary["kind"] == "half" else (slice(0, r, 2), slice(1, r, 2))
    a, b = (x[:, columns] for columns in pairs)
    y = x.copy()
    y[:, pairs[0]] = store(store(a * cos) - store(b * sin))
    y[:, pairs[1]] = store(store(a * sin) + store(b * cos))
    return y


def normalised(x, kind, weight, store):
    if kind == "none":
        return x
    if kind == "layer":
        x = x - x.mean(1, keepdims=True)
    squares = (x * x).sum(1, keepdims=True)
    norm = np.maximum(np.sqrt(squares), F(1e-12)) if kind == "l2" else \
        np.sqrt(squares / F(x.shape[1]) + F(1e-5 if kind == "layer" else 1e-6))
    return store(store(x / norm) * weight)


def kernel(job, precision, first=None, **changes):
    """Queries, keys and context of a job with one head, with `changes` to its rotary positions. The first
    query has the position `first`."""
    def store(x):
        return rounded(x, precision).astype("f4")
    q, k, v = (np.array(job.get(name, job["K"]), "f4") for name in "QKV")
    rotary, start = {**job["rotary"], **changes}, job["position_ids"][0]
    last = start + len(q) - 1
    norm = job.get("qk_norm", "none")
    q, k = (normalised(x, norm, np.array(job.get(weight, 1), "f4"), store)
            for x, weight in ((q, "q_norm"), (k, "k_norm")))
    q = rotate(q, start if first is None else first, rotary, last, store)
    k = rotate(k, start, rotary, last, store)
    scores = q @ k.T * F(1 / np.sqrt(q.shape[1]))
    scores = np.where(np.tri(len(q), dtype=bool), scores, F(-np.inf))
    w = np.exp(scores - scores.max(1, keepdims=True))
    context = store(store(w / w.sum(1, keepdims=True)) @ v)
    return {"queries": q, "keys": k, "context": context}


def random_rotary(draw, D):
    """Random rotary positions for width D."""
    rotary = {"kind": draw.choice(["half", "interleaved"]), "base": draw.choice([100.0, 1e4, 5e5])}
    r = D
    if draw.random() < 0.3:
        r = rotary["width"] = D // 2
    scaling = draw.choice(["none", "none", "linear", "ntk", "dynamic-ntk", "yarn", "llama3", "longrope"])
    if scaling == "none":
        return rotary
    rotary |= {"scaling": scaling, "factor": draw.choice([2.0, 4.5, 8.0])}
    if scaling not in ("linear", "ntk"):
        rotary["original_length"] = draw.choice([64, 1000])
    if scaling == "longrope":
        rotary |= {name: [draw.choice([1.0, 1.5, 3.0]) for _ in range(r // 2)] for name in ("short_factor", "long_factor")}
    return rotary


def random_job(precision, seed):
    draw, rng = random.Random(f"{precision} {seed}"), np.random.default_rng(seed)
    L, D = draw.choice([1, 5, 24]), draw.choice([8, 16, 64])
    first = draw.choice([0, 3, 100, 4000])

    def numbers(*shape):
        return rounded(rng.standard_normal(shape), precision).tolist()
    job = {**{name: numbers(L, D) for name in "QKV"}, "causal": True, "rotary": random_rotary(draw, D),
           "position_ids": list(range(first, first + L))}
    if draw.random() < 0.4:
        job |= {"qk_norm": draw.choice(["rms", "l2", "layer"]), "q_norm": numbers(1, D), "k_norm": numbers(1, D)}
    return job


def compared(folder, job, result, precision, field="value"):
    """{name: the largest error as a fraction of the bound}, or that bound."""
    np.savez(folder / "result.npz", **result)
    (folder / "job.json").write_text(json.dumps(job))
    run = attn("compare", "result.npz", "job.json", "--reference", "--precision", precision, "--json", cwd=folder)
    assert run.returncode in (0, 1), run.stderr
    return {tensor["name"]: tensor["bound"]["worst"][field] for tensor in json.loads(run.stdout)["tensors"]}


@pytest.fixture(scope="module", params=PRECISIONS)
def precision(request):
    return request.param


@pytest.fixture(scope="module")
def fractions(precision, module_path):
    """The fractions of the bounds that correct kernels use, of random jobs."""
    jobs = [random_job(precision, seed) for seed in range(COUNT)]
    return [compared(module_path, job, kernel(job, precision), precision) for job in jobs]


def test_correct_kernels_are_within_the_bound(fractions):
    assert [(seed, worst) for seed, worst in enumerate(fractions) if max(worst.values()) > 1] == []


def test_bound_of_queries_is_tight(fractions):
    """docs/error-bounds.md states the largest fractions."""
    assert 0.3 < max(worst["queries"] for worst in fractions) < 0.9


def documented_bound(q, positions, base, precision):
    """The bound of docs/error-bounds.md for queries (L, D), which the precision represents, rotated in halves."""
    r, tiny = {"f32": (2.0 ** -24, 2.0 ** -126), "f16": (2.0 ** -11, 2.0 ** -24), "bf16": (2.0 ** -8, 2.0 ** -126)}[precision]
    s, d = 2.0 ** -24, q.shape[1]
    x = 2 * np.arange(d // 2) / d
    angle = positions[:, None] * base ** -x
    of_angle = angle * (3 + (1 + 3 * np.log(base)) * x) * s
    a, b = abs(q[:, :d // 2]), abs(q[:, d // 2:])
    cos, sin = abs(np.cos(angle)), abs(np.sin(angle))
    of_cos, of_sin = (np.minimum(2, of_angle) + 3 * s + r * c + tiny for c in (cos, sin))

    def of_sum(first, second):
        return first * (of_cos + r * cos) + second * (of_sin + r * sin) + 3 * tiny
    exact = rotate(q, positions[0], {"kind": "half", "base": base}, 0, lambda y: y)
    return np.concatenate([of_sum(a, b), of_sum(b, a)], axis=1) + r * abs(exact)


def test_bound_is_the_documented_one(tmp_path, precision):
    rng = np.random.default_rng(3)
    job = {**{name: rounded(rng.standard_normal((9, 8)), precision).tolist() for name in "QK"},
           "position_ids": list(range(100, 109)), "rotary": {"kind": "half", "base": 5e5}}
    worst = compared(tmp_path, job, {"queries": kernel(job, precision)["queries"]}, precision, "bound")["queries"]
    documented = documented_bound(np.array(job["Q"]), np.arange(100.0, 109), 5e5, precision)
    assert min(abs(documented.ravel() / worst - 1)) < 1e-6


class TestWrongKernel:
    """Positions from 3, so that no angle is 0."""

    @pytest.fixture
    def judge(self, tmp_path, precision):
        def judge(**changes):
            rng = np.random.default_rng(2)
            job = {**{name: rounded(rng.standard_normal((16, 32)), precision).tolist() for name in "QKV"},
                   "causal": True, "position_ids": list(range(3, 19)), "rotary": {"kind": "half", "base": 1e4}}
            return compared(tmp_path, job, kernel(job, precision, **changes), precision)["context"]
        return judge

    def test_correct(self, judge):
        assert judge() < 1

    def test_other_base(self, judge):
        assert judge(base=5e5) > 1

    def test_other_pairs(self, judge):
        assert judge(kind="interleaved") > 1

    def test_queries_one_position_later(self, judge):
        assert judge(first=4) > 1

    def test_other_scaling(self, judge):
        assert judge(scaling="linear", factor=2.0) > 1


@pytest.mark.parametrize("command", [["compare", "wrong.json", "job.json", "--reference"], ["sensitivity", "job.json"]])
def test_mistakes_of_positions_are_sought_if_all_keys_are_in_the_cache(tmp_path, command):
    np.save(tmp_path / "none.npy", np.zeros((0, 2)))
    job = {"Q": [[1.0, 2]], "K": "none.npy", "V": "none.npy", "past_K": [[1.0, 0], [0, 1]], "past_V": [[1.0, 2], [3, 4]],
           "rotary": {"kind": "half"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    (tmp_path / "wrong.json").write_text("[[9.0, 9]]")
    run = attn(*command, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (1 if command[0] == "compare" else 0, b"")
