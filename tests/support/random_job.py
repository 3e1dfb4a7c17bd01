"""Random jobs over all options of attention, for plain_attention.attend()."""

import random

import numpy as np


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
