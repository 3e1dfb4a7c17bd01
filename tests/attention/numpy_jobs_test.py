"""Whole jobs compared with a plain NumPy and SciPy script, stage by stage.

The random jobs cover self-attention, encoder-decoder attention and given Q, K, V; heads and grouped
heads; masks, causality and windows; positions; weights drawn from a seed, written in the job or read
from files. Floats agree to 1e-12 of the stage's largest magnitude (or to 1e-12, if that is less than 1),
integers exactly.
"""

import json
import random

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from support.attn import attn

JOBS = 300
TOLERANCE = 1e-12


def split(x, heads):
    """(N, heads * D) -> (heads, N, D)"""
    return np.stack(np.hsplit(x, heads)) if heads > 1 else x[np.newaxis]


def positions(spec, length, dim):
    """The sinusoidal encoding, as a loop over columns."""
    table = np.zeros((length, dim))
    for p in range(length):
        for column in range(dim):
            pair = column // 2
            exponent = (4 if spec.get("exponent") == "doubled" else 2) * pair / dim
            term = (spec.get("first", 0) + p) / spec.get("base", 10000) ** exponent
            table[p, column] = np.cos(term) if column % 2 else np.sin(term)
    if spec.get("last_column_zero") and dim % 2:
        table[:, -1] = 0
    return table


def visible_keys(job, length, keys):
    """(L, S): the keys that causality and the window leave visible to each query."""
    offset = keys - length if job.get("causal") == "bottom-right" else 0
    i, j = np.arange(length)[:, None] + offset, np.arange(keys)[None, :]
    visible = np.ones((length, keys), bool)
    if job.get("causal"):
        visible &= j <= i
    left, right = job.get("window", [-1, -1])
    if left >= 0:
        visible &= j >= i - left
    if right >= 0:
        visible &= j <= i + right
    return visible


def normalise(x, visible, axis):
    """Weights and logsumexp of (H, L, S) scores."""
    weights, sums = np.zeros(x.shape), np.zeros(x.shape[:2])
    for h in range(x.shape[0]):
        if axis == "all":
            if visible[h].any():
                weights[h] = softmax(x[h])
            sums[h] = logsumexp(x[h])
            continue
        for i in range(x.shape[1]):
            if visible[h, i].any():
                weights[h, i] = softmax(x[h, i])
            sums[h, i] = logsumexp(x[h, i]) if visible[h, i].any() else -np.inf
    return weights, sums


def expected_stages(job, tensors):
    """All stages of one job by their output names."""
    t, stages = tensors, {}
    heads, groups = job.get("heads", 1), job.get("kv_heads", job.get("heads", 1))
    if "Q" in t:
        queries, keys, values = t["Q"], t["K"], t.get("V", t["K"])
    else:
        inputs = t["embeddings"]
        if "position" in job:
            spec = job["position"]
            scale = spec.get("embedding_scale", 1)
            inputs = inputs * (np.sqrt(inputs.shape[1]) if scale == "sqrt" else scale)
            stages["positions"] = positions(spec, *inputs.shape)
            inputs = inputs + stages["positions"]
            if spec.get("last_column_zero") and inputs.shape[1] % 2:
                inputs[:, -1] = 0
        stages["inputs"] = inputs
        memory = t.get("memory", inputs)
        queries, keys, values = (
            x @ t["W_" + name] + t.get("b_" + name, 0)
            for x, name in ((inputs, "Q"), (memory, "K"), (memory, "V")))
    length = len(queries)
    rows = [i % length for i in job.get("rows", range(length))]
    for name in ("positions", "inputs"):
        if name in stages:
            stages[name] = stages[name][rows]
    queries, keys, values = split(queries, heads)[:, rows], split(keys, groups), split(values, groups)
    stages.update(queries=queries, keys=keys, values=values)
    group = np.arange(heads) // (heads // groups)  # of each query head
    k, v = keys[group], values[group]
    scores = queries @ np.swapaxes(k, 1, 2)
    if job.get("score") == "cosine":
        scores = scores / (np.linalg.norm(queries, axis=2)[:, :, None] *
                           np.linalg.norm(k, axis=2)[:, None, :])
    stages["scores"] = scores
    scale = job.get("scale", "auto")
    if scale == "auto" and job.get("score") != "cosine":
        scores = scores / queries.shape[2] ** 0.5
    elif not isinstance(scale, str):
        scores = scores * scale
    cap = job.get("softcap", 0)
    scores = np.tanh(scores / cap) * cap if cap else scores * 1.0
    stages["scaled_scores"] = scores
    visible = np.broadcast_to(visible_keys(job, length, keys.shape[1]), (heads, length, keys.shape[1]))
    if "mask" in t:
        mask = np.broadcast_to(t["mask"], visible.shape)
        if mask.dtype == bool:
            visible = visible & (mask == (job.get("mask_polarity", "attend") == "attend"))
        else:
            visible = visible & (mask != -np.inf)
            scores = scores + mask[:, rows]
    visible = visible[:, rows]
    scores = np.where(visible, scores, -np.inf)
    stages["masked_scores"] = scores
    axis = job.get("softmax", {}).get("axis", "keys")
    stages["weights"], stages["logsumexp"] = normalise(scores, visible, axis)
    context = stages["weights"] @ v
    stages["head_context"] = context
    stages["context"] = np.hstack(list(context))
    if "heads" not in job:
        for name in ("queries", "keys", "values", "scores", "scaled_scores", "masked_scores",
                     "weights", "logsumexp", "head_context"):
            stages[name] = stages[name][0]
    if "W_O" in t:
        stages["output"] = stages["context"] @ t["W_O"] + t.get("b_O", 0)
    return stages


class RandomJob:
    """The JSON object and the NumPy arrays of a random job. Some of the arrays are files in `folder`, which
    the job names relative to the folder above."""

    def __init__(self, seed, folder):
        self.choose, self.numpy = random.Random(seed), np.random.RandomState(seed)
        self.folder, self.job, self.tensors = folder, {}, {}
        self.integers = self.chance(0.4)
        self.seeded = self.chance(0.3)
        if self.seeded:
            self.job["seed"] = seed
        kind = self.choose.choice(["given", "self", "cross"])
        heads, heads_per_group = self.choose.choice([0, 0, 1, 2, 3]), self.choose.choice([1, 1, 2])
        groups = max(heads, 1)
        if heads and heads_per_group > 1:
            heads *= heads_per_group
            self.job["kv_heads"] = groups
        if heads:
            self.job["heads"] = heads
        heads = max(heads, 1)
        width, value_width = self.choose.randint(1, 6), self.choose.randint(1, 5)
        length = self.choose.randint(1, 7)
        keys = length if kind == "self" else self.choose.randint(1, 9)
        if kind == "given":
            self.give("Q", (length, heads * width))
            self.give("K", (keys, groups * width))
            if self.chance(0.8):
                self.give("V", (keys, groups * value_width))
            else:
                value_width = width
        else:
            model = self.choose.randint(1, 6)
            source = model if kind == "self" else self.choose.randint(1, 5)
            self.give("embeddings", (length, model))
            if kind == "cross":
                self.give("memory", (keys, source))
            # In the order in which the program draws them from the seed.
            out = self.chance(0.4)
            self.draw("W_Q", (model, heads * width))
            self.draw("W_K", (source, groups * width))
            self.draw("W_V", (source, groups * value_width))
            if out:
                self.draw("W_O", (heads * value_width, self.choose.randint(1, 4)))
            if self.chance(0.3):
                self.draw("b_Q", (heads * width,))
            if self.chance(0.3):
                self.draw("b_K", (groups * width,))
            if out and self.chance(0.3):
                self.draw("b_O", (self.tensors["W_O"].shape[1],))
            self.position()
        if not hasattr(self, "stream"):  # a seed is refused if no tensor is random
            self.job.pop("seed", None)
        self.options(length, keys, heads)

    def chance(self, p):
        return self.choose.random() < p

    def values(self, shape):
        return self.numpy.randint(-4, 5, shape) if self.integers else self.numpy.randn(*shape)

    def give(self, name, array_or_shape):
        """Adds a tensor, written in the job or in a file."""
        array = array_or_shape
        if isinstance(array, tuple):
            array = self.values(array)
        self.tensors[name] = array
        if self.chance(0.5) or np.isinf(array).any():
            np.save(self.folder / f"{name}.npy", array)
            self.job[name] = f"{self.folder.name}/{name}.npy"
        else:
            self.job[name] = array.tolist()

    def draw(self, name, shape):
        """Adds a weight, drawn from the job's seed if it has one."""
        if not self.seeded:
            return self.give(name, shape)
        if not hasattr(self, "stream"):
            self.stream = np.random.RandomState(self.job["seed"])
        if self.integers:
            self.tensors[name] = self.stream.randint(0, 3, shape)
            self.job[name] = {"randint": {"low": 0, "high": 3, "shape": list(shape)}}
        else:
            method = self.choose.choice(["rand", "randn"])
            self.tensors[name] = getattr(self.stream, method)(*shape)
            self.job[name] = {method: {"shape": list(shape)}}

    def position(self):
        if not self.chance(0.3):
            return
        self.job["position"] = {
            "kind": "sinusoidal",
            "base": self.choose.choice([10000, 50.5]),
            "first": self.choose.choice([0, 1, 7]),
            "exponent": self.choose.choice(["standard", "doubled"]),
            "last_column_zero": self.chance(0.5),
            "embedding_scale": self.choose.choice([1, 0.5, "sqrt"]),
        }

    def options(self, length, keys, heads):
        job = self.job
        if self.chance(0.4):
            job["causal"] = self.choose.choice([True, "top-left", "bottom-right"])
        if self.chance(0.2):
            job["window"] = [self.choose.randint(-1, 2), self.choose.randint(-1, 2)]
        if self.chance(0.4):
            job["scale"] = self.choose.choice(["auto", "none", 0.25, -1.5])
        if self.chance(0.2):
            job["softcap"] = self.choose.choice([1, 4.5])
        if self.chance(0.15) and not self.integers and "position" not in job:
            job["score"] = "cosine"
        if self.chance(0.2):
            job["softmax"] = {"axis": "all"}
        if self.chance(0.25):
            job["rows"] = [self.choose.randint(-length, length - 1) for _ in range(2)]
        if self.chance(0.4):
            self.mask(length, keys, heads)

    def mask(self, length, keys, heads):
        shape = self.choose.choice([(length, keys), (keys,), (length, 1), (1, keys)] +
                                   ([(heads, length, keys)] if "heads" in self.job else []))
        if self.chance(0.5):
            self.give("mask", self.numpy.rand(*shape) < 0.7)
            if self.chance(0.3):
                self.job["mask_polarity"] = "ignore"
        else:
            mask = self.numpy.randn(*shape)
            mask[self.numpy.rand(*shape) < 0.2] = -np.inf
            self.give("mask", mask)


def difference(found, expected):
    """An empty text if the arrays are equal (integers) or close (floats), otherwise what differs."""
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind in "iu":
        return "" if found.dtype == np.int64 and (found == expected).all() else "integers differ"
    if found.dtype != np.float64:
        return f"dtype {found.dtype}"
    finite = np.isfinite(expected)
    if np.isnan(expected).any() or not np.array_equal(found[~finite], expected[~finite]):
        return "non-finite values differ"
    if not finite.any():
        return ""
    distance, largest = np.abs(found[finite] - expected[finite]), np.abs(expected[finite]).max()
    return "" if distance.max() <= TOLERANCE * max(largest, 1) else f"off by {distance.max()}"


def make_job(seed, folder):
    """A random job and its expected stages."""
    folder.mkdir()
    job = RandomJob(seed, folder)
    with np.errstate(divide="ignore"):
        return job.job, expected_stages(job.job, job.tensors)


@pytest.fixture(scope="module")
def jobs(module_path):
    """All random jobs and their expected stages."""
    return [make_job(seed, module_path / str(seed)) for seed in range(JOBS)]


@pytest.fixture(scope="module")
def results(module_path, jobs):
    """The folder with the results of all jobs, numbered from 1, computed in one batch."""
    lines = [json.dumps(job | {"outputs": list(expected)}) for job, expected in jobs]
    attn("batch", "-", "--out-dir", "out", "--name", "{index}", "-q", stdin="\n".join(lines), cwd=module_path)
    return module_path / "out"


@pytest.mark.parametrize("seed", range(JOBS))
def test_random_job_matches_numpy(jobs, results, seed):
    job, expected = jobs[seed]
    with np.load(results / f"{seed + 1}.npz") as outputs:
        found = dict(outputs)
    differences = {stage: difference(found[stage], np.asarray(array)) for stage, array in expected.items()}
    assert not any(differences.values()), f"{differences}, job {job}"


@pytest.fixture(scope="module")
def keys_and_stages(jobs):
    """The keys and stages of all random jobs."""
    return {name for job in jobs for names in job for name in names}


@pytest.mark.parametrize("name", ["positions", "output", "seed", "memory", "kv_heads", "rows", "mask",
                                  "score"])
def test_random_jobs_cover(keys_and_stages, name):
    assert name in keys_and_stages
