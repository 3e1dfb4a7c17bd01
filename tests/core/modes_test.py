#!/usr/bin/env python3
"""Every option of attention, alone and together, against plain loops.

Each random job is run by the program and by tests/support/plain_attention.py, which have to agree at
every stage to 1e-12. Each option is also left out of the plain loops again: the test counts how often
that changes the result, so that a program that ignores an option cannot pass.
"""

import collections
import json
import pathlib
import random
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402
from support.plain_attention import attend  # noqa: E402

JOBS = 300
TOLERANCE = 1e-12


class Draw:
    """One random job: its tensors, 4-D, and its options."""

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
        self.give("K", self.B, self.G, self.N, self.D)
        self.give("V", self.B, self.G, self.N, self.Dv)
        if self.P:
            self.give("past_K", self.B, self.G, self.P, self.D)
            self.give("past_V", self.B, self.G, self.P, self.Dv)
        self.visibility()

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
        if self.chance(0.3):
            o["window"] = [choose.randint(-1, 3), choose.randint(-1, 2)]
        if self.chance(0.25):
            t["key_lengths"] = self.rng.integers(0, self.S + 1, self.B)
        if self.chance(0.25):
            t["query_lengths"] = self.rng.integers(0, self.L + 1, self.B)
        if self.chance(0.4):
            self.documents()
        if self.chance(0.4):
            self.mask()
        if self.chance(0.4):
            o["empty_rows"] = choose.choice(["uniform", "nan", "zero"])

    def documents(self):
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


def differs(found, wanted):
    """"" when close, NaN and infinities at the same places; else what differs."""
    if found.shape != wanted.shape:
        return f"shape {found.shape}, expected {wanted.shape}"
    with np.errstate(invalid="ignore"):
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        distance = np.abs(found - wanted)[~same]
    finite = wanted[np.isfinite(wanted)]
    norm = max(1, np.abs(finite).max(initial=0))
    return "" if (distance <= TOLERANCE * norm).all() else f"off by {distance.max()}"


def write_job(folder, t, o):
    np.savez(folder / "in.npz", **t)
    job = {**o, **{name: f"in.npz#{name}" for name in t}}
    (folder / "job.json").write_text(json.dumps(job))


def without(t, o, name):
    """The job without one option (and what only makes sense beside it)."""
    beside = {"past_K": ["past_V"], "documents": ["key_documents"],
              "cu_seqlens_q": ["cu_seqlens_k"]}
    gone = [name, *beside.get(name, [])]
    return ({k: v for k, v in t.items() if k not in gone},
            {k: v for k, v in o.items() if k not in gone})


def same_everywhere(a, b):
    return all(not differs(a[name], b[name]) for name in ("context", "logsumexp", "weights"))


def random_jobs(checks, folder):
    matters = collections.Counter()
    for seed in range(JOBS):
        drawn = Draw(seed)
        wanted = attend(drawn.t, drawn.o)
        write_job(folder, drawn.t, drawn.o)
        run = attn("run", "job.json", "--nan", "allow", "--force", "-o", "out.npz", "--outputs",
                   ",".join(wanted), cwd=folder)
        if not checks.check(run.returncode == 0, f"job {seed}: {run.stderr.decode()}"):
            continue
        with np.load(folder / "out.npz") as results:
            for stage, numbers in wanted.items():
                text = differs(results[stage], numbers)
                checks.check(not text, f"job {seed}, {stage}: {text}; {drawn.o} {list(drawn.t)}")
        for name in {*drawn.o, *drawn.t} - {"Q", "K", "V", "past_V", "key_documents",
                                            "cu_seqlens_k"}:
            t, o = without(drawn.t, drawn.o, name)
            if "past_K" == name and ({"mask", "key_documents", "cu_seqlens_k", "key_lengths"} &
                                     set(t) or "documents" in t or "cu_seqlens_q" in t):
                continue
            matters[name] += not same_everywhere(attend(t, o), wanted)
    for name in OPTIONS:
        checks.check(matters[name] >= 5, f"{name}: mattered in {matters[name]} jobs")


OPTIONS = ["causal", "alignment", "window", "mask", "mask_polarity", "empty_rows", "past_K",
           "key_lengths", "query_lengths", "documents", "cu_seqlens_q"]


def main():
    checks = Checks("modes")
    with tempfile.TemporaryDirectory() as name:
        random_jobs(checks, pathlib.Path(name))
    checks.finish()


main()
