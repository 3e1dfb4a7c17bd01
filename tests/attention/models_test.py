"""Options of particular models. The expected values are NumPy versions of the models' published code.

Each test runs on both paths.
"""

import math

import numpy as np
import pytest

from support.jobs import run_arrays

H, G, L, D, M = 4, 2, 6, 4, 10


@pytest.fixture(params=["auto", "reference"])
def run_job(request, tmp_path):
    """Runs a job of arrays and options on one of the paths; returns its outputs by name."""
    def run(options, **tensors):
        return run_arrays(tmp_path, tensors, **{**options, "path": request.param})
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


def longrope(r, base, short, long, original, context, factor):
    """transformers' _compute_longrope_parameters: inverse frequencies and attention factor."""
    attention_factor = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    divisors = np.array(long if context > original else short)
    return 1 / (divisors * base ** (np.arange(0, r, 2) / r)), attention_factor


def dynamic_ntk(r, base, original, context, factor):
    """transformers' _compute_dynamic_ntk_parameters."""
    context = max(context, original)
    base *= ((factor * context / original) - (factor - 1)) ** (r / (r - 2))
    return 1 / base ** (np.arange(0, r, 2) / r)


def rotated_ones(run_job, rotary, position, dtype="float64"):
    """The angles and lengths of the rotated pairs (1, 0) of a query at this position."""
    r = 8
    q = np.repeat([1.0, 0.0], r // 2)[None].astype(dtype)
    found = run_job({"rotary": {"kind": "half", **rotary}, "outputs": ["queries"]}, Q=q, K=q,
                    position_ids=np.array([position]))["queries"][0].astype("float64")
    return np.arctan2(found[r // 2:], found[:r // 2]), np.hypot(found[r // 2:], found[:r // 2])


SHORT, LONG = [1.0, 1.5, 2.25, 3.0], [1.25, 4.0, 16.5, 33.0]


@pytest.mark.parametrize("position", [0, 1, 4094, 4095, 4096, 9999])
@pytest.mark.parametrize("factor", [1, 32])
def test_longrope(run_job, position, factor):
    """Phi-3: the long factors apply to contexts longer than original_length."""
    f, length = longrope(8, 1e4, SHORT, LONG, 4096, position + 1, factor)
    rotary = {"scaling": "longrope", "original_length": 4096, "factor": factor, "short_factor": SHORT,
              "long_factor": LONG}
    angles, lengths = rotated_ones(run_job, rotary, position)
    turns = (angles - position * f) / (2 * np.pi)
    assert np.abs(turns - turns.round()).max() < 1e-11
    assert close(lengths, np.full(4, length))


def test_longrope_attention_factor(run_job):
    rotary = {"scaling": "longrope", "original_length": 64, "factor": 8, "short_factor": SHORT,
              "long_factor": LONG, "attention_factor": 1.75}
    assert close(rotated_ones(run_job, rotary, 5)[1], np.full(4, 1.75))


def test_factors_of_longrope_stay_exact_in_float32_jobs(run_job):
    """Rounding the first factor to float32 would turn the query by 8e-4 at this position."""
    position, short = 10 ** 5, [1.1, 1.3, 2.7, 3.9]
    f, _ = longrope(8, 1e4, short, short, 10 ** 6, position + 1, 1)
    rotary = {"scaling": "longrope", "original_length": 10 ** 6, "short_factor": short, "long_factor": short}
    angles, _ = rotated_ones(run_job, rotary, position, "float32")
    turns = (angles - position * f) / (2 * np.pi)
    assert np.abs(turns - turns.round()).max() < 1e-6


def test_context_of_longrope_includes_the_past(run_job):
    """The last of 3 new keys after 62 past ones is in a context of 65 tokens."""
    t = random_tensors(5, Q=(3, 8), K=(3, 8), V=(3, 8), past_K=(62, 8), past_V=(62, 8))
    rotary = {"kind": "half", "scaling": "longrope", "original_length": 64, "short_factor": SHORT,
              "long_factor": LONG}
    f, _ = longrope(8, 1e4, SHORT, LONG, 64, 65, 1)
    found = run_job({"rotary": rotary, "outputs": ["keys"]}, **t)["keys"]
    assert close(found, rotate(t["K"], np.arange(62, 65)[:, None] * f))


@pytest.mark.parametrize("position", [1, 2047, 2048, 8191])
def test_dynamic_ntk(run_job, position):
    f = dynamic_ntk(8, 1e4, 2048, position + 1, 2.5)
    rotary = {"scaling": "dynamic-ntk", "original_length": 2048, "factor": 2.5}
    angles, lengths = rotated_ones(run_job, rotary, position)
    turns = (angles - position * f) / (2 * np.pi)
    assert np.abs(turns - turns.round()).max() < 1e-11
    assert close(lengths, np.ones(4))


def test_dbrx(run_job):
    """DbrxAttention: clip_qkv clamps queries, keys and values after their projection."""
    t = random_tensors(6, **LAYER)
    q, k, v = (np.clip(x, -1.25, 1.25) for x in projections(t))
    found = run_job({**HEADS, "clip_qkv": 1.25}, **t)["context"]
    assert close(found, attention(split(q, H), split(k, G), split(v, G)))


def test_clip_qkv_comes_before_qk_norm(run_job):
    t = random_tensors(7, Q=(L, D), K=(L, D), V=(L, D))
    q, k, v = (np.clip(t[name], -0.5, 0.5)[None] for name in "QKV")
    found = run_job({"clip_qkv": 0.5, "qk_norm": "rms"}, **t)["context"]
    assert close(found, attention(rms_norm(q, 1, 1e-6), rms_norm(k, 1, 1e-6), v))


def test_clipped_integers_are_floats(run_job):
    q = np.array([[-3, 0, 3]])
    found = run_job({"clip_qkv": 1.5, "outputs": ["queries"]}, Q=q, K=q)["queries"]
    assert found.tolist() == [[-1.5, 0, 1.5]] and found.dtype == np.float64


@pytest.mark.parametrize("first", [None, 0, 1])
@pytest.mark.parametrize("rows", [None, [4, -1]])
def test_llama_4(run_job, first, rows):
    """Llama4TextAttention: attn_scales = log1p(floor((position + 1) / floor_scale)) * attn_scale + 1."""
    t = random_tensors(8, **LAYER)
    q, k, v = projections(t)
    positions = np.array([0, 1, 2, 3, 16, 8191])
    scales = np.log1p(np.floor((positions + (1 if first is None else first)) / 2)) * 0.1 + 1
    scale = {"factor": 0.1, "length": 2, **({} if first is None else {"first": first})}
    options = {**HEADS, "query_scale": scale}
    expected = attention(split(q, H) * scales[:, None], split(k, G), split(v, G))
    found = run_job(options | ({"rows": rows} if rows else {}), **t, position_ids=positions)["context"]
    assert close(found, expected if rows is None else expected[rows])


def test_swin_v2(run_job):
    """Swinv2SelfAttention: cosine scores times exp(min(logit_scale, log 100)) of each head."""
    t = random_tensors(9, Q=(2, H, L, D), K=(2, H, 5, D), V=(2, H, 5, D), head_scale=(H,))
    logit_scale = np.log(10) + t["head_scale"]
    t["head_scale"] = np.exp(np.minimum(logit_scale, math.log(100)))
    q, k = (t[name] / np.linalg.norm(t[name], axis=-1, keepdims=True) for name in "QK")
    scores = q @ k.swapaxes(2, 3)
    found = run_job({"score": "cosine", "outputs": ["scores", "scaled_scores", "context"]}, **t)
    assert close(found["scores"], scores)
    scores = scores * t["head_scale"][:, None, None]
    assert close(found["scaled_scores"], scores)
    assert close(found["context"], softmax(scores) @ t["V"])


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-13), ("float32", 2e-6)])
@pytest.mark.parametrize("L", [1, 3, 70])
@pytest.mark.parametrize("outputs", [["context"], ["weights"], ["scores", "context"], ["scaled_scores", "weights"]],
                         ids="+".join)
def test_head_scale_with_any_outputs(run_job, outputs, L, dtype, tolerance):
    """Grouped heads, whose rows the kernels compute together."""
    t = random_tensors(10, Q=(2, 4, L, D), K=(2, 2, 33, D), V=(2, 2, 33, 3))
    t = {name: x.astype(dtype) for name, x in t.items()}
    t["head_scale"] = np.array([0.5, -2, 0, 3])
    k, v = (t[name].astype("float64").repeat(2, 1) for name in "KV")
    stages = {"scores": t["Q"].astype("float64") @ k.swapaxes(2, 3)}
    stages["scaled_scores"] = stages["scores"] * t["head_scale"][:, None, None] / math.sqrt(D)
    stages["weights"] = softmax(stages["scaled_scores"])
    stages["context"] = stages["weights"] @ v
    found = run_job({"outputs": outputs}, **t)
    assert [name for name in outputs if not close(found[name], stages[name], tolerance)] == []


def test_scaled_scores_beyond_the_range_of_a_kernel(run_job):
    """3e38 is finite in float32, but not as the power of 2 that the kernels use."""
    q = np.array([[1.0]], "float32")
    k = np.array([[1e38], [0]], "float32")
    found = run_job({"scale": "none", "outputs": ["scaled_scores", "weights"]}, Q=q, K=k, head_scale=np.array([3.0]))
    assert close(found["scaled_scores"], np.array([[3e38, 0]]), 1e-7)
    assert found["weights"].tolist() == [[1, 0]]


@pytest.mark.parametrize("given", ["gate", "W_gate", "W_gate and b_gate"])
def test_qwen_3_next(run_job, given):
    """Qwen3NextAttention: the context times sigmoid(gate), before the output projection."""
    t = random_tensors(11, **LAYER, W_gate=(M, H * D), b_gate=(H * D,), W_O=(H * D, M))
    q, k, v = projections(t)
    logits = t["embeddings"] @ t["W_gate"] + (t["b_gate"] if "b_gate" in given else 0)
    context = attention(split(q, H), split(k, G), split(v, G)) / (1 + np.exp(-logits))
    if "b_gate" not in given:
        del t["b_gate"]
    if given == "gate":
        t["gate"] = logits
        del t["W_gate"]
    found = run_job({**HEADS, "outputs": ["context", "output", "gates", "head_context"]}, **t)
    assert close(found["context"], context)
    assert close(found["output"], context @ t["W_O"])
    assert close(found["gates"], split(1 / (1 + np.exp(-logits)), H))
    assert close(found["head_context"], split(context, H))


def test_gate_of_tensors_with_a_head_axis(run_job):
    t = random_tensors(12, Q=(2, L, H, D), K=(2, 5, H, D), V=(2, 5, H, 3), gate=(2, L, H, 3))
    q, k, v, gate = (t[name].transpose(0, 2, 1, 3) for name in ("Q", "K", "V", "gate"))
    context = softmax(q @ k.swapaxes(2, 3) / math.sqrt(D)) @ v / (1 + np.exp(-gate))
    assert close(run_job({"layout": "blhd"}, **t)["context"], context.transpose(0, 2, 1, 3))


def test_weights_of_the_gate_out_in(run_job):
    t = random_tensors(13, embeddings=(L, D), W_gate=(D, D))
    x = t["embeddings"]
    expected = attention(x[None], x[None], x[None]) / (1 + np.exp(-x @ t["W_gate"].T))
    assert close(run_job({"weights_layout": "out-in"}, **t)["context"], expected)


@pytest.mark.parametrize("shape", [(2, H, L, 5), (H, 1, 5), (L, 5), (5,), (1, 1)])
def test_bias_and_boolean_mask_of_jax(run_job, shape):
    """jax.nn.dot_product_attention: logits * scale + bias, then the mask hides keys."""
    t = random_tensors(14, Q=(2, L, H, D), K=(2, 5, H, D), V=(2, 5, H, D), bias=shape)
    t["mask"] = np.random.default_rng(15).random((2, 1, L, 5)) < 0.6
    t["mask"][..., 0] = True
    q, k, v = (t[name].transpose(0, 2, 1, 3) for name in "QKV")
    scores = np.where(t["mask"], q @ k.swapaxes(2, 3) / math.sqrt(D) + t["bias"], -np.inf)
    found = run_job({"convention": "jax"}, **t)["context"]
    assert close(found, (softmax(scores) @ v).transpose(0, 2, 1, 3))


def test_bias_mask_and_key_mask_are_all_added(run_job):
    t = random_tensors(16, Q=(L, D), K=(5, D), V=(5, D), bias=(L, 5), mask=(1, 5), key_mask=(5,))
    expected = attention(t["Q"][None], t["K"][None], t["V"][None], bias=t["bias"] + t["mask"] + t["key_mask"])
    assert close(run_job({}, **t)["context"], expected)


def test_bias_and_past_keys(run_job):
    t = random_tensors(17, Q=(2, D), K=(2, D), V=(2, D), past_K=(3, D), past_V=(3, D), bias=(2, 5))
    k, v = (np.concatenate([t[f"past_{x}"], t[x]])[None] for x in "KV")
    assert close(run_job({}, **t)["context"], attention(t["Q"][None], k, v, bias=t["bias"]))


@pytest.mark.parametrize("batch_axis", ["first", "second"])
def test_keys_shared_by_a_batch(run_job, batch_axis):
    t = random_tensors(18, Q=(3, L, H * D), K=(5, G * D), V=(5, G * D))
    expected = np.stack([attention(split(q, H), split(t["K"], G), split(t["V"], G)) for q in t["Q"]])
    if batch_axis == "second":
        t["Q"], expected = t["Q"].swapaxes(0, 1), expected.swapaxes(0, 1)
    assert close(run_job({**HEADS, "batch_axis": batch_axis}, **t)["context"], expected)


def test_shared_keys_of_own_values(run_job):
    t = random_tensors(19, Q=(3, L, D), K=(5, D), V=(3, 5, D))
    expected = np.stack([attention(q[None], t["K"][None], v[None]) for q, v in zip(t["Q"], t["V"])])
    assert close(run_job({}, **t)["context"], expected)


def test_memory_shared_by_a_batch(run_job):
    t = random_tensors(20, embeddings=(3, L, M), memory=(5, 7), W_Q=(M, D), W_K=(7, D), W_V=(7, D))
    k, v = (t["memory"] @ t[name] for name in ("W_K", "W_V"))
    expected = np.stack([attention((x @ t["W_Q"])[None], k[None], v[None]) for x in t["embeddings"]])
    assert close(run_job({}, **t)["context"], expected)
