"""Random cases of jax.vjp: jax.nn.dot_product_attention, (B, length, heads, width), and the formula in jax.numpy with
heads first."""

import jax
import numpy as np
from jax import numpy as jnp
from peers.cases import Case, Draw
from peers.jax_family import SHAPES, as_jax

COUNT = 150
DTYPES = ["float64", "float64", "float32"]


def vjp(function, arrays, seed):
    """The derivatives by all `arrays`, in the dtype of `arrays` and in float64."""
    results = []
    for dtype in seed.dtype, "float64":
        given = {name: as_jax(x.astype(dtype)) for name, x in arrays.items()}
        _, pull = jax.vjp(function, given)
        (found,) = pull(as_jax(seed.astype(dtype)))
        results.append({f"grad_{name}": np.asarray(x) for name, x in found.items()})
    return results


def formula(layout, **given):
    """The context in this layout, from a dict of Q, K, V and, if there are any, bias and sinks."""
    def context(x):
        q, k, v = (x[name] if layout == "bhld" else x[name].swapaxes(1, 2) for name in "QKV")
        k, v = (jnp.repeat(part, q.shape[1] // part.shape[1], 1) for part in (k, v))
        scores = jnp.einsum("bhld,bhsd->bhls", q, k) * given.get("scale", q.shape[-1] ** -0.5)
        if "softcap" in given:
            scores = given["softcap"] * jnp.tanh(scores / given["softcap"])
        scores = scores + x["bias"] if "bias" in x else scores
        i, j = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])
        keep = given.get("mask", True)
        if given.get("causal"):
            keep = keep & (j <= i)
        scores = jnp.where(keep, scores, -jnp.inf)
        if "sinks" in x:
            sinks = jnp.broadcast_to(x["sinks"][:, None, None], (*scores.shape[:3], 1))
            scores = jnp.concatenate([scores, sinks], 3)
        weights = jax.nn.softmax(scores, 3)[..., :k.shape[2]]
        if "dropout_mask" in given:
            weights = weights * given["dropout_mask"] / (1 - given["dropout_p"])
        result = jnp.einsum("bhls,bhsd->bhld", weights, v)
        return result if layout == "bhld" else result.swapaxes(1, 2)
    return context


def draw_tensors(draw, dtype, layout):
    B, L, S, H, G, E = draw.pick(*SHAPES)
    shape = lambda n, heads: (B, heads, n, E) if layout == "bhld" else (B, n, heads, E)
    arrays = {"Q": draw.normal(*shape(L, H), dtype=dtype), "K": draw.normal(*shape(S, G), dtype=dtype),
              "V": draw.normal(*shape(S, G), dtype=dtype)}
    return arrays, draw.normal(*shape(L, H), dtype=dtype), (B, H, L, S)


def case(name, dtype, job, arrays, function, seed):
    library, exact = vjp(function, arrays, seed)
    return Case(name, dtype, {**job, **arrays, "grad_context": seed, "outputs": [f"grad_{x}" for x in arrays]},
                library, exact)


def attention():
    """jax.nn.dot_product_attention, whose softmax is in float32 for all dtypes: float64 from the formula."""
    for number in range(COUNT):
        draw = Draw("jax gradients", number)
        arrays, seed, (B, H, L, S) = draw_tensors(draw, "float32", "blhd")
        job, given = {"convention": "jax"}, {}
        if draw.chance(0.5):
            arrays["bias"] = draw.normal(draw.pick(1, B), draw.pick(1, H), L, S, dtype="float32")
        if draw.chance(0.5):
            given["mask"] = job["mask"] = draw.mask(B, 1, L, S)
            given["mask"][..., 0] = True  # JAX has finite scores for queries without keys
        if draw.chance(0.3):
            given["causal"] = job["causal"] = True
        if draw.chance(0.3):
            given["scale"] = job["scale"] = draw.pick(0.1, 1.0, -0.5)

        def library(x, given=given):
            return jax.nn.dot_product_attention(
                x["Q"], x["K"], x["V"], bias=x.get("bias"), mask=given.get("mask"),
                is_causal=given.get("causal", False), scale=given.get("scale"))

        found = case(f"jax gradients {number}", "float32", job, arrays, library, seed)
        found.exact = vjp(formula("blhd", **given), arrays, seed)[1]
        yield found


def layouts():
    """The formula in both layouts, with softcap, sinks, dropout and gradients of biases."""
    for number in range(COUNT):
        draw, dtype = Draw("jax layouts", number), DTYPES[number % len(DTYPES)]
        layout = draw.pick("blhd", "bhld")
        arrays, seed, (B, H, L, S) = draw_tensors(draw, dtype, layout)
        job = {}
        if draw.chance(0.4):
            arrays["bias"] = draw.normal(draw.pick(1, B), draw.pick(1, H), draw.pick(1, L), S, dtype=dtype)
        if draw.chance(0.4):
            arrays["sinks"] = draw.normal(H, dtype=dtype)
        if draw.chance(0.4):
            job["mask"] = draw.mask(B, draw.pick(1, H), L, S)
            job["mask"][..., 0] = True
        if draw.chance(0.4):
            job["causal"] = True
        if draw.chance(0.3):
            job["softcap"] = 1.5
        if draw.chance(0.3):
            job |= {"dropout_p": 0.4, "dropout_mask": draw.mask(B, H, L, S)}
        if draw.chance(0.3):
            job["scale"] = draw.pick(0.01, 0.5, 1.0)
        yield case(f"jax {layout} gradients {number}", dtype, {**job, "layout": layout}, arrays,
                   formula(layout, **job), seed)
