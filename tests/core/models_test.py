"""Options of particular models. The expected values are NumPy versions of the models' published code.

Each test runs on both paths.
"""

import json
import math

import numpy as np
import pytest

from support.attn import attn

H, G, L, D, M = 4, 2, 6, 4, 10


@pytest.fixture(params=["auto", "reference"])
def run_job(request, tmp_path):
    """Runs a job of arrays and options on one of the paths; returns its outputs by name."""
    def run(options, **tensors):
        np.savez(tmp_path / "in.npz", **tensors)
        job = {**options, **{name: f"in.npz#{name}" for name in tensors}, "path": request.param}
        (tmp_path / "job.json").write_text(json.dumps(job))
        done = attn("run", "job.json", "-o", "out.npz", "--force", cwd=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
        with np.load(tmp_path / "out.npz") as found:
            return dict(found)
    return run


def random_tensors(seed, **shapes):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def split(x, heads):
    """(N, heads * D) -> (heads, N, D)."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, scale=None, bias=0):
    """Context (N, heads * D) of queries (H, N, D), keys and values (G, S, D)."""
    k, v = (x.repeat(len(q) // len(x), 0) for x in (k, v))
    scores = q @ k.swapaxes(1, 2) * (q.shape[2] ** -0.5 if scale is None else scale)
    return np.concatenate(list(softmax(scores + bias) @ v), 1)


def rms_norm(x, weight, epsilon):
    return weight * x / np.sqrt(np.mean(x ** 2, -1, keepdims=True) + epsilon)


def layer_norm(x, weight, bias, epsilon):
    x = x - x.mean(-1, keepdims=True)
    return weight * x / np.sqrt(np.mean(x ** 2, -1, keepdims=True) + epsilon) + bias


def rotate(x, angles):
    """The rotary encoding of transformers: x * cos + rotate_half(x) * sin."""
    angles = np.concatenate([angles, angles], -1)
    half = x.shape[-1] // 2
    return x * np.cos(angles) + np.concatenate([-x[..., half:], x[..., :half]], -1) * np.sin(angles)


LAYER = {"embeddings": (L, M), "W_Q": (M, H * D), "W_K": (M, G * D), "W_V": (M, G * D)}
HEADS = {"heads": H, "kv_heads": G}


def projections(t):
    return (t["embeddings"] @ t[name] for name in ("W_Q", "W_K", "W_V"))


def close(found, expected, tolerance=1e-13):
    return found.shape == expected.shape and np.allclose(found, expected, rtol=0,
                                                         atol=tolerance * max(1, np.abs(expected).max()))


def test_olmo_2(run_job):
    """Olmo2Attention: norms over all heads, before the split into heads, then rotary positions."""
    t = random_tensors(1, **LAYER, q_norm=(H * D,), k_norm=(G * D,))
    q, k, v = projections(t)
    angles = np.arange(L)[:, None] / 10000 ** (np.arange(0, D, 2) / D)
    q = rotate(split(rms_norm(q, t["q_norm"], 1e-6), H), angles)
    k = rotate(split(rms_norm(k, t["k_norm"], 1e-6), G), angles)
    found = run_job({**HEADS, "qk_norm": "rms", "qk_norm_axis": "all", "rotary": {"kind": "half"}}, **t)
    assert close(found["context"], attention(q, k, split(v, G)))


def test_norm_over_all_heads_of_tensors_with_a_head_axis(run_job):
    t = random_tensors(2, Q=(2, H, L, D), K=(2, G, 5, D), V=(2, G, 5, D), q_norm=(H * D,))
    found = run_job({"qk_norm": "rms", "qk_norm_axis": "all", "outputs": ["queries"]}, **t)
    packed = t["Q"].transpose(0, 2, 1, 3).reshape(2, L, H * D)
    expected = rms_norm(packed, t["q_norm"], 1e-6).reshape(2, L, H, D).transpose(0, 2, 1, 3)
    assert close(found["queries"], expected)


@pytest.mark.parametrize("epsilon", [None, 0.25])
def test_cohere(run_job, epsilon):
    """CohereLayerNorm of shape (heads, head_dim), without bias."""
    t = random_tensors(3, **LAYER, q_norm=(H, D), k_norm=(G, D))
    q, k, v = projections(t)
    q = layer_norm(split(q, H), t["q_norm"][:, None], 0, epsilon or 1e-5)
    k = layer_norm(split(k, G), t["k_norm"][:, None], 0, epsilon or 1e-5)
    options = {**HEADS, "qk_norm": "layer", **({"qk_norm_epsilon": epsilon} if epsilon else {})}
    assert close(run_job(options, **t)["context"], attention(q, k, split(v, G)))


def test_phi(run_job):
    """PhiAttention with qk_layernorm: one LayerNorm with bias for all heads."""
    t = random_tensors(4, **LAYER, q_norm=(D,), k_norm=(D,), q_norm_bias=(D,), k_norm_bias=(D,))
    q, k, v = projections(t)
    q = layer_norm(split(q, H), t["q_norm"], t["q_norm_bias"], 1e-5)
    k = layer_norm(split(k, G), t["k_norm"], t["k_norm_bias"], 1e-5)
    assert close(run_job({**HEADS, "qk_norm": "layer"}, **t)["context"], attention(q, k, split(v, G)))
