"""Error bounds of gradients through norms, rotary tables and projections: a layer computed here with NumPy, with planted faults.

The layer computes in float32 and stores each result, forward and back, in its precision, as autograd does.
"""

import json

import numpy as np
import pytest

from support.attn import attn
from support.jobs import run_arrays
from support.rounding import rounded

F = np.float32
B, H, G, L, M, D, SCALE = 1, 2, 1, 12, 8, 8, 0.1
PRECISIONS = ["f16", "bf16", "f32"]
NORMS = [("rms", "head"), ("rms", "all"), ("l2", "head"), ("layer", "head"), ("layer", "all"), ("rms", "inputs"), ("layer", "inputs")]
EPSILON = {"rms": 1e-6, "l2": 1e-12, "layer": 1e-5}


def tensors(precision, norm, axis, seed=0):
    """Queries, keys and values to be normalised; embeddings with axis "inputs"."""
    rng = np.random.default_rng(seed)
    if axis == "inputs":
        shapes = {"embeddings": (B, L, M), "W_Q": (M, H * D), "W_K": (M, G * D), "W_V": (M, G * D), "input_norm_weight": (M,)}
        names = ["input_norm"]
    else:
        shapes = {"Q": (B, L, H * D), "K": (B, L, G * D), "V": (B, L, G * D),
                  "q_norm": (H * D if axis == "all" else D,), "k_norm": (G * D if axis == "all" else D,)}
        names = ["q_norm", "k_norm"]
    if norm == "layer":
        shapes |= {f"{name}_bias": shapes.get(name, (M,)) for name in names}
    t = {name: rng.standard_normal(shape) for name, shape in {**shapes, "grad_context": (B, L, H * D)}.items()}
    for name in t:
        if name in ("Q", "K", "embeddings"):
            t[name] *= 16
        if name[0] == "W":
            t[name] *= M ** -0.5
        if name in ("q_norm", "k_norm", "input_norm_weight"):
            t[name] = 1 + t[name] / 2
    if axis != "inputs":
        angles = np.arange(L)[:, None] * 10000.0 ** (-np.arange(0, D, 2) / D)
        t |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    return {name: rounded(x, precision) for name, x in t.items()}


def options(norm, axis):
    common = {"heads": H, "kv_heads": G, "causal": True, "scale": SCALE}
    if axis == "inputs":
        return {**common, "input_norm": norm}
    return {**common, "rotary": {"kind": "half"}, "qk_norm": norm, "qk_norm_axis": axis}


def split(x, heads):
    return x.reshape(B, L, heads, D).transpose(0, 2, 1, 3)


def joined(x):
    return x.transpose(0, 2, 1, 3).reshape(B, L, -1)


class Norm:
    """A norm of the last axis of x (B, L, columns), or of each head's columns."""

    def __init__(self, x, kind, weight, bias, store, fault):
        self.kind, self.weight, self.store, self.fault = kind, weight, store, fault
        shape = x.shape
        self.x = x.reshape(*shape[:2], -1, weight.size)
        mean = self.x.mean(-1, keepdims=True) if kind == "layer" else 0
        squares = (self.x - mean) ** 2
        epsilon = EPSILON[kind]
        self.n = np.maximum(np.sqrt(squares.sum(-1, keepdims=True)), epsilon) if kind == "l2" else \
            np.sqrt(squares.mean(-1, keepdims=True) + x.dtype.type(epsilon))
        self.u = store((self.x - mean) / self.n)
        self.y = store(self.u * weight + (0 if bias is None else bias)).reshape(shape)

    def back(self, g):
        """The derivatives by x, weight and bias."""
        shape, g = g.shape, g.reshape(self.x.shape)
        h = g if self.fault == "weight of a norm left out" else self.store(g * self.weight)
        total = np.sum if self.kind == "l2" else np.mean
        along = total(self.u * h, -1, keepdims=True)
        if self.fault == "norm taken for a constant":
            along = 0 * along
        mean = h.mean(-1, keepdims=True) if self.kind == "layer" and self.fault != "mean of layer norm left out" else 0
        x = self.store((h - mean - self.u * along) / (1 if self.fault == "not divided by the norm" else self.n))
        of_weight = g * (self.x if self.fault == "weight of a norm times x" else self.u)
        return x.reshape(shape), self.store(self.store(of_weight).sum((0, 1, 2))), self.store(g.sum((0, 1, 2)))


class Rotation:
    def __init__(self, x, cos, sin, store):
        self.a, self.b, self.cos, self.sin, self.store = x[..., :D // 2], x[..., D // 2:], cos, sin, store
        self.y = self.turned(self.a, self.b, sin)

    def turned(self, a, b, sin):
        store = self.store
        return store(np.concatenate([store(a * self.cos) - store(b * sin), store(a * sin) + store(b * self.cos)], -1))

    def back(self, g):
        """The derivatives by x and both tables."""
        store, ga, gb = self.store, g[..., :D // 2], g[..., D // 2:]
        of_cos = store(store(ga * self.a).sum((0, 1))) + store(store(gb * self.b).sum((0, 1)))
        of_sin = store(store(gb * self.a).sum((0, 1))) - store(store(ga * self.b).sum((0, 1)))
        return self.turned(ga, gb, -self.sin), store(of_cos), store(of_sin)


def gradients(t, norm, axis, precision, fault="", dtype=F):
    """What a layer with this fault computes."""
    def store(x):
        return rounded(np.asarray(x, dtype), precision).astype(dtype)

    t = {name: x.astype(dtype) for name, x in t.items()}
    if axis == "inputs":
        inputs = Norm(t["embeddings"], norm, t["input_norm_weight"], t.get("input_norm_bias"), store, fault)
        q, k, v = (store(inputs.y @ t[f"W_{name}"]) for name in "QKV")
        queries, keys = split(q, H), split(k, G)
    else:
        q, k = (Norm(t[name.upper()], norm, t[f"{name}_norm"], t.get(f"{name}_norm_bias"), store, fault) for name in "qk")
        v, turned_q, turned_k = t["V"], *(Rotation(split(x.y, heads), t["cos"], t["sin"], store) for x, heads in ((q, H), (k, G)))
        queries, keys = turned_q.y, turned_k.y
    keys, values = (np.repeat(x, H // G, 1) for x in (keys, split(v, G)))
    scale = dtype(SCALE)
    scores = np.where(np.tri(L, dtype=bool), queries @ keys.swapaxes(2, 3) * scale, dtype(-np.inf))
    P = np.exp(scores - scores.max(-1, keepdims=True))
    P /= P.sum(-1, keepdims=True)
    dO = split(t["grad_context"], H)
    O = store(store(P) @ values)
    ds = store(P * (dO @ values.swapaxes(2, 3) - (dO * O).sum(-1, keepdims=True)))

    def of_group(x):
        return store(x.reshape(B, G, H // G, L, D).sum(2))

    dq, dk = store(scale * (ds @ keys)), of_group(scale * (ds.swapaxes(2, 3) @ queries))
    dv = joined(of_group(store(P).swapaxes(2, 3) @ dO))
    if axis == "inputs":
        back = [joined(dq), joined(dk), dv]
        rows = inputs.y.reshape(-1, M).T
        found = {f"grad_W_{name}": store(rows @ g.reshape(B * L, -1)) for name, g in zip("QKV", back)}
        back = [store(g @ t[f"W_{name}"].T) for name, g in zip("QKV", back)]
        parts = inputs.back(store(store(back[0] + back[1]) + back[2]))
        found |= zip(["grad_embeddings", "grad_input_norm_weight", "grad_input_norm_bias"], parts)
    else:
        dq, of_cos, of_sin = turned_q.back(dq)
        dk, more_cos, more_sin = turned_k.back(dk)
        if fault != "tables of the queries only":
            of_cos, of_sin = store(of_cos + more_cos), store(of_sin + more_sin)
        found = {"grad_V": dv, "grad_cos": of_cos, "grad_sin": of_sin}
        found |= zip(["grad_Q", "grad_q_norm", "grad_q_norm_bias"], q.back(joined(dq)))
        found |= zip(["grad_K", "grad_k_norm", "grad_k_norm_bias"], k.back(joined(dk)))
    return {name: x for name, x in found.items() if name[5:] in t}


def fractions(folder, t, found, norm, axis, precision):
    """The largest error of each gradient, as a fraction of its bound."""
    np.savez(folder / "in.npz", **t)
    np.savez(folder / "kernel.npz", **found)
    (folder / "job.json").write_text(json.dumps({**options(norm, axis), **{name: f"in.npz#{name}" for name in t}}))
    run = attn("compare", "kernel.npz", "--reference", "job.json", "--precision", precision, "--json", cwd=folder)
    assert run.returncode in (0, 1), run.stderr.decode()
    compared = {x["name"]: (x["bound"]["worst"] or {"value": 0})["value"] for x in json.loads(run.stdout)["tensors"]}
    assert set(compared) == set(found)
    return compared


@pytest.mark.parametrize("norm, axis", NORMS)
def test_the_layer_without_rounding_is_right(tmp_path, norm, axis):
    t = tensors("f64", norm, axis)
    right = gradients(t, norm, axis, "f64", dtype=np.float64)
    exact = run_arrays(tmp_path, t, **options(norm, axis), path="reference", outputs=list(right))
    for name, found in right.items():
        assert np.abs(found - exact[name]).max() <= 1e-11 * np.abs(exact[name]).max(), name


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("norm, axis", NORMS)
def test_right_layers_are_within_the_bound(tmp_path, norm, axis, precision):
    for seed in 0, 1:
        t = tensors(precision, norm, axis, seed)
        found = fractions(tmp_path, t, gradients(t, norm, axis, precision), norm, axis, precision)
        assert max(found.values()) <= 1, found


# What each fault spoils, of queries and keys or of embeddings, and where the bound is narrow enough to see it.
FAULTS = {"not divided by the norm": (["Q", "K", "embeddings"], PRECISIONS),
          "weight of a norm times x": (["q_norm", "k_norm", "input_norm_weight"], PRECISIONS),
          "norm taken for a constant": (["Q", "K", "embeddings"], ["f16", "f32"]),
          "tables of the queries only": (["cos", "sin"], ["f16", "f32"]),
          "weight of a norm left out": (["Q", "K", "embeddings"], ["f32"]),
          "mean of layer norm left out": (["Q", "K", "embeddings"], ["f16", "f32"])}


def faulty_jobs():
    for fault, (names, precisions) in FAULTS.items():
        for norm, axis in NORMS:
            spoilt = {f"grad_{name}" for name in names if name in tensors("f32", norm, axis)}
            if spoilt and (norm == "layer" or not fault.startswith("mean")):
                yield from [(fault, norm, axis, precision, spoilt) for precision in precisions]


@pytest.mark.parametrize("fault, norm, axis, precision, spoilt", faulty_jobs())
def test_faults_exceed_the_bound(tmp_path, fault, norm, axis, precision, spoilt):
    t = tensors(precision, norm, axis)
    found = fractions(tmp_path, t, gradients(t, norm, axis, precision, fault), norm, axis, precision)
    assert all((found[name] > 1) == (name in spoilt) for name in found), found
