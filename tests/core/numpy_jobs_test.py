#!/usr/bin/env python3
"""Whole jobs through the program against a plain NumPy and SciPy script, stage by stage.

Self-attention, encoder-decoder attention and given Q, K, V; heads and groups of heads; masks,
causality, windows; positions; weights drawn from a seed, written in the job or taken from files.
Floats agree to 1e-12 of the stage's largest magnitude (of 1, if that is less), integers exactly.
"""

import json
import pathlib
import random
import sys
import tempfile

import numpy as np
from scipy.special import logsumexp, softmax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn

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


def visible(job, length, keys):
    """(L, S): what causality and the window let a query see."""
    offset = keys - length if job.get("causal") == "bottom-right" else 0
    i, j = np.arange(length)[:, None] + offset, np.arange(keys)[None, :]
    seen = np.ones((length, keys), bool)
    if job.get("causal"):
        seen &= j <= i
    left, right = job.get("window", [-1, -1])
    if left >= 0:
        seen &= j >= i - left
    if right >= 0:
        seen &= j <= i + right
    return seen


def normalise(x, seen, axis):
    """Weights and logsumexp of (H, L, S) scores."""
    weights, sums = np.zeros(x.shape), np.zeros(x.shape[:2])
    for h in range(x.shape[0]):
        if axis == "all":
            if seen[h].any():
                weights[h] = softmax(x[h])
            sums[h] = logsumexp(x[h])
            continue
        for i in range(x.shape[1]):
            if seen[h, i].any():
                weights[h, i] = softmax(x[h, i])
            sums[h, i] = logsumexp(x[h, i]) if seen[h, i].any() else -np.inf
    return weights, sums


def expected(job, tensors):
    """Every stage of one job, by name."""
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
    share = np.arange(heads) // (heads // groups)
    k, v = keys[share], values[share]
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
    seen = np.broadcast_to(visible(job, length, keys.shape[1]), (heads, length, keys.shape[1]))
    if "mask" in t:
        mask = np.broadcast_to(t["mask"], seen.shape)
        if mask.dtype == bool:
            seen = seen & (mask == (job.get("mask_polarity", "attend") == "attend"))
        else:
            seen = seen & (mask != -np.inf)
            scores = scores + mask[:, rows]
    seen = seen[:, rows]
    scores = np.where(seen, scores, -np.inf)
    stages["masked_scores"] = scores
    axis = job.get("softmax", {}).get("axis", "keys")
    stages["weights"], stages["logsumexp"] = normalise(scores, seen, axis)
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


class Draw:
    """One random job: the document, and its tensors as NumPy has them."""

    def __init__(self, seed, folder):
        self.choose, self.numpy = random.Random(seed), np.random.RandomState(seed)
        self.folder, self.job, self.tensors = folder, {}, {}
        self.integers = self.chance(0.4)
        self.seeded = self.chance(0.3)
        if self.seeded:
            self.job["seed"] = seed
        kind = self.choose.choice(["given", "self", "cross"])
        heads, share = self.choose.choice([0, 0, 1, 2, 3]), self.choose.choice([1, 1, 2])
        groups = max(heads, 1)
        if heads and share > 1:
            heads *= share
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
            # In the order in which a seed draws them.
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
        if not hasattr(self, "stream"):  # a seed that nothing is drawn from is refused
            self.job.pop("seed", None)
        self.options(length, keys, heads)

    def chance(self, p):
        return self.choose.random() < p

    def values(self, shape):
        return self.numpy.randint(-4, 5, shape) if self.integers else self.numpy.randn(*shape)

    def give(self, name, array_or_shape):
        """A tensor written in the job, or in a file beside it."""
        array = array_or_shape
        if isinstance(array, tuple):
            array = self.values(array)
        self.tensors[name] = array
        if self.chance(0.5) or np.isinf(array).any():
            np.save(self.folder / f"{name}.npy", array)
            self.job[name] = f"{name}.npy"
        else:
            self.job[name] = array.tolist()

    def draw(self, name, shape):
        """A weight, drawn by the job's own seed where it has one."""
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


def agrees(found, wanted):
    """"" when equal (integers) or close (floats); else what differs."""
    if found.shape != wanted.shape:
        return f"shape {found.shape}, expected {wanted.shape}"
    if wanted.dtype.kind in "iu":
        return "" if found.dtype == np.int64 and (found == wanted).all() else "integers differ"
    if found.dtype != np.float64:
        return f"dtype {found.dtype}"
    finite = np.isfinite(wanted)
    if np.isnan(wanted).any() or not np.array_equal(found[~finite], wanted[~finite]):
        return "what is not finite differs"
    if not finite.any():
        return ""
    distance, norm = np.abs(found[finite] - wanted[finite]), np.abs(wanted[finite]).max()
    return "" if distance.max() <= TOLERANCE * max(norm, 1) else f"off by {distance.max()}"


def main():
    checks = Checks("numpy_jobs")
    met = set()
    for seed in range(JOBS):
        with tempfile.TemporaryDirectory() as name, np.errstate(divide="ignore"):
            folder = pathlib.Path(name)
            drawn = Draw(seed, folder)
            stages = expected(drawn.job, drawn.tensors)
            (folder / "job.json").write_text(json.dumps(drawn.job))
            run = attn("run", "job.json", "-o", "out.npz", "--outputs", ",".join(stages),
                       cwd=folder)
            if not checks.check(run.returncode == 0, f"job {seed}: {run.stderr.decode()}"):
                continue
            results = np.load(folder / "out.npz")
            for stage, wanted in stages.items():
                differs = agrees(results[stage], np.asarray(wanted))
                checks.check(not differs, f"job {seed}, {stage}: {differs}; {drawn.job}")
            met.update(drawn.job, stages)
    for name in ("positions", "output", "seed", "memory", "kv_heads", "rows", "mask", "score"):
        checks.check(name in met, f"no job had {name}")
    checks.finish()


main()
