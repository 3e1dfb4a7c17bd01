"""Random cases of jax.nn.dot_product_attention.

JAX computes the softmax in float32 for all dtypes, so `exact` is its formula in NumPy's float64.
"""

import jax
import numpy as np
from peers.cases import Case, Draw

jax.config.update("jax_enable_x64", True)
COUNT = 600
DTYPES = ["float64", "float64", "float32", "float16", "bfloat16"]
# B, L, S, heads, key heads, width. Few of them, because JAX compiles each one.
SHAPES = [(1, 1, 1, 1, 1, 4), (2, 5, 5, 2, 2, 8), (2, 4, 9, 4, 2, 8), (3, 8, 3, 3, 1, 5),
          (1, 17, 17, 2, 1, 16), (2, 1, 12, 6, 3, 4), (1, 12, 7, 2, 2, 3), (3, 6, 6, 4, 4, 2)]


HIDDEN = -0.7 * float(np.finfo(np.float32).max)


def formula(q, k, v, bias=0.0, mask=True, scale=None, is_causal=False, local_window_size=None,
            key_value_seq_lengths=None, query_seq_lengths=None):
    """The formula that JAX documents, for (B, length, heads, width), in float64."""
    q, k, v = (x.astype("float64") for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = np.einsum("blhd,bshd->bhls", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    i, j = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])
    keep = np.broadcast_to(mask, scores.shape)
    if is_causal:
        keep = keep & (j <= i)
    if local_window_size is not None:
        keep = keep & (j >= i - local_window_size[0]) & (j <= i + local_window_size[1])
    if key_value_seq_lengths is not None:
        keep = keep & (j < key_value_seq_lengths[:, None, None, None])
    if query_seq_lengths is not None:
        keep = keep & (i < query_seq_lengths[:, None, None, None])
    scores = np.where(keep, scores + bias, HIDDEN)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    context = np.einsum("bhls,bshd->blhd", weights / weights.sum(axis=-1, keepdims=True), v)
    if query_seq_lengths is not None:
        context[np.arange(q.shape[1]) >= query_seq_lengths[:, None]] = 0
    return {"context": context}


def as_jax(value):
    if not isinstance(value, np.ndarray):
        return value
    return jax.numpy.asarray(value.astype("int32") if value.dtype.kind == "i" else value)


def attention():
    for seed in range(COUNT):
        draw, dtype = Draw("jax", seed), DTYPES[seed % len(DTYPES)]
        B, L, S, H, G, E = draw.pick(*SHAPES)
        job = {"convention": "jax",
               "Q": draw.normal(B, L, H, E, dtype=dtype), "K": draw.normal(B, S, G, E, dtype=dtype),
               "V": draw.normal(B, S, G, E, dtype=dtype), "outputs": ["context"]}
        given = {}
        if draw.chance(0.4):
            given["bias"] = draw.normal(draw.pick(1, B), draw.pick(1, H), L, S, dtype=dtype)
        if draw.chance(0.4):
            given["mask"] = draw.mask(draw.pick(1, B), draw.pick(1, H), L, S)
        if given:  # attn has one mask: finite numbers are added, -inf hides the key
            bias, keep = given.get("bias", np.zeros((1,) * 4, dtype)), given.get("mask")
            job["mask"] = (keep if "bias" not in given else bias if keep is None
                           else np.where(keep, bias, -np.inf).astype(dtype))
        if draw.chance(0.3):
            given["is_causal"] = job["causal"] = True
        if draw.chance(0.3):
            job["window"] = [draw.choose.randint(0, 4), draw.choose.randint(0, 4)]
            given["local_window_size"] = tuple(job["window"])
        if draw.chance(0.3):
            given["scale"] = job["scale"] = draw.pick(0.1, 1.0, -0.5)
        if draw.chance(0.3):
            given["key_value_seq_lengths"] = job["key_lengths"] = draw.rng.integers(1, S + 1, B)
        if draw.chance(0.3):
            given["query_seq_lengths"] = job["query_lengths"] = draw.rng.integers(1, L + 1, B)

        tensors = [job[x] for x in "QKV"]
        found = jax.nn.dot_product_attention(*map(as_jax, tensors),
                                             **{k: as_jax(v) for k, v in given.items()})
        yield Case(f"jax {seed}", dtype, job, {"context": np.asarray(found)},
                   formula(*tensors, **given))
