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

JOBS = 200
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
        self.turns()
        self.scores()
        self.biases()
        self.weights()

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


    def turns(self):
        t, o, choose = self.t, self.o, self.choose
        if self.chance(0.3):
            o["qk_norm"] = choose.choice(["rms", "l2"])
            if self.chance(0.5):
                o["qk_norm_epsilon"] = 0.5
            if self.chance(0.5):
                self.give("q_norm", self.D)
            if self.chance(0.5):
                self.give("k_norm", self.Dk)
        if self.chance(0.6) or self.Dk != self.D:
            return
        o["rotary"] = {"kind": choose.choice(["half", "interleaved"])}
        if self.chance(0.4):
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
        kind = choose.choice([None, "linear", "yarn", "llama3"] + (["ntk"] if width > 2 else []))
        if kind is None:
            return
        o["rotary"].update(scaling=kind, factor=choose.choice([2, 4.5]))
        if kind in ("yarn", "llama3"):
            o["rotary"]["original_length"] = choose.choice([16, 64])
        if kind == "yarn" and self.chance(0.5):
            o["rotary"].update(beta_fast=8, beta_slow=0.5, attention_factor=1.5)
        if kind == "llama3" and self.chance(0.5):
            o["rotary"].update(low_frequency_factor=1.5, high_frequency_factor=9)

    def scores(self):
        o, A, kind = self.o, self.choose.choice([1, 3]), self.o.get("score", "dot")
        if self.chance(0.4):
            o["scale"] = self.choose.choice(["none", 0.3, -1.5])
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
            o["temperature"] = choose.choice([0.5, 3])


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
              "cu_seqlens_q": ["cu_seqlens_k"], "bias_K": ["bias_V"], "cos": ["sin"],
              "softcap": ["softcap_order"], "relative_bias": ["relative"],
              "normaliser": ["top_k"], "qk_norm": ["q_norm", "k_norm", "qk_norm_epsilon"],
              "rotary": ["cos", "sin", "position_ids", "key_position_ids"]}
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
        for name in set(OPTIONS) & {*drawn.o, *drawn.t}:
            if name == "past_K" and COUNTS_PAST & {*drawn.t}:
                continue
            matters[name] += not same_everywhere(attend(*without(drawn.t, drawn.o, name)), wanted)
    for name in OPTIONS:
        checks.check(matters[name] >= 2, f"{name}: mattered in {matters[name]} jobs")


# Options that can be left out of a job, which is then another one.
OPTIONS = ["causal", "alignment", "window", "mask", "mask_polarity", "empty_rows", "past_K",
           "key_lengths", "query_lengths", "documents", "cu_seqlens_q", "scale", "softcap",
           "softcap_order", "temperature", "normaliser", "sinks", "alibi", "alibi_slopes",
           "relative_bias", "relative", "bias_K", "zero_key", "qk_norm", "qk_norm_epsilon", "q_norm",
           "k_norm", "rotary", "cos", "position_ids", "key_position_ids", "b_score", "v_score",
           "g_score"]
# Tensors whose shape counts the keys of the past.
COUNTS_PAST = {"mask", "key_lengths", "documents", "cu_seqlens_q", "position_ids"}


def precision(checks, folder):
    """softmax.precision rounds scores and weights, whatever the rest is computed in."""
    rng = np.random.default_rng(1)
    t = {name: rng.standard_normal((2, 2, 5, 4)) for name in "QKV"}
    plain = attend(t, {})
    for kind, bits in ("f16", 11), ("bf16", 8), ("f32", 24), ("f64", 53):
        for compute in "f32", "f64":
            write_job(folder, t, {"softmax": {"precision": kind}, "compute": compute})
            attn("run", "job.json", "--force", "-o", "out.npz", cwd=folder)
            with np.load(folder / "out.npz") as out:
                w, context = out["weights"], out["context"]
            mantissa, _ = np.frexp(w.astype(np.float64))
            steps = mantissa * 2.0 ** bits
            at_most = min(bits, 24 if compute == "f32" else 53)
            checks.check(w.dtype == ("float32" if compute == "f32" else "float64"), f"{w.dtype}")
            checks.check((steps == np.round(steps)).all(), f"{kind}, {compute}: not rounded")
            off = np.abs(w - plain["weights"]).max()
            least = 0 if at_most >= 24 else 2.0 ** -(bits + 6)
            checks.check(least <= off <= 4 * 2.0 ** -at_most, f"{kind}, {compute}: off by {off}")
            off = np.abs(context - plain["context"]).max()
            checks.check(off <= 16 * 2.0 ** -at_most, f"{kind}, {compute}: context off by {off}")


def yarn(checks, folder):
    """Each knob of YaRN, in a job where it binds."""
    rng = np.random.default_rng(2)
    t = {name: rng.standard_normal((1, 1, 9, 6)) for name in "QKV"}
    rotary = {"kind": "half", "scaling": "yarn", "factor": 4.5, "original_length": 4096,
              "beta_fast": 8, "beta_slow": 4, "attention_factor": 1.25}
    whole = attend(t, {"rotary": rotary})
    write_job(folder, t, {"rotary": rotary})
    attn("run", "job.json", "--force", "-o", "out.npz", cwd=folder)
    with np.load(folder / "out.npz") as out:
        checks.check(np.abs(out["weights"] - whole["weights"]).max() < TOLERANCE, "yarn")
    for knob in "beta_fast", "beta_slow", "attention_factor", "factor":
        fewer = {name: value for name, value in rotary.items() if name != knob}
        if knob == "factor":
            fewer["factor"] = 2
        off = np.abs(attend(t, {"rotary": fewer})["weights"] - whole["weights"]).max()
        checks.check(off > 1e-6, f"yarn: {knob} does not matter: {off}")


def low_distances(checks, folder):
    """A relative bias of -inf, and of the lowest finite number, everywhere or but for distance 0."""
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((70, 4), dtype="float32") for _ in "QKV")
    lowest = np.finfo("float32").min
    np.save(folder / "mask.npy", np.zeros((70, 70), "float32"))
    for name, array in ("q", q), ("k", k), ("v", v):
        np.save(folder / f"{name}.npy", array)
    for low, kept, expected in ((-np.inf, True, v), (lowest, True, v),
                                (-np.inf, False, np.full_like(v, np.nan)),
                                (lowest, False, np.broadcast_to(v.mean(axis=0), v.shape))):
        table = np.full((32, 1), low, "float32")
        if kept:
            table[0] = 0
        np.save(folder / "table.npy", table)
        for path in "auto", "reference":
            for mask in [], ["--mask", "mask.npy"]:
                for outputs in "context", "context,masked_scores":
                    attn("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--relative-bias",
                         "table.npy", "--path", path, *mask, "--outputs", outputs, "--force",
                         "-o", "low.npz", cwd=folder)
                    what = f"relative bias of {low}, {kept=}, {path}, {mask}, {outputs}"
                    with np.load(folder / "low.npz") as found:
                        checks.check(np.allclose(found["context"], expected, rtol=1e-5, atol=1e-6,
                                                 equal_nan=True), what)
                        if "," in outputs:
                            checks.check(found["masked_scores"].reshape(70, 70)[0, -1] == low,
                                         f"{what}: masked scores")


def main():
    checks = Checks("modes")
    for part in random_jobs, precision, yarn, low_distances:
        with tempfile.TemporaryDirectory() as name:
            part(checks, pathlib.Path(name))
    checks.finish()


main()
