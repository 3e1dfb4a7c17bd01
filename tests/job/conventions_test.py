#!/usr/bin/env python3
"""Conventions and saved layers: each library's meaning, written out in NumPy as its manual has it."""

import json
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

RNG = np.random.default_rng(7)
B, H, L, S, D = 2, 3, 4, 6, 2
E = H * D


def normal(*shape):
    return RNG.standard_normal(shape)


def softmax(x):
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


def hidden(x, keep):
    return np.where(keep, x, -np.inf)


def run(checks, folder, convention, tensors, options, outputs):
    """Runs a job with everything in one archive, as the library's arrays."""
    np.savez(folder / "in.npz", **tensors)
    words = [f"--{key}={value}" for key, value in options.items()]
    done = attn("run", "in.npz", "--convention", convention, *words, "--outputs", outputs, "-o",
                "out.npz", "--force", "--nan", "allow", cwd=folder)
    if not checks.check(done.returncode == 0, f"{convention}: {done.stderr.decode()}"):
        return dict.fromkeys(outputs.split(","), np.zeros(0))
    with np.load(folder / "out.npz") as out:
        return {name: out[name] for name in out.files}


def close(checks, found, wanted, what):
    same = found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-12, atol=1e-12,
                                                       equal_nan=True)
    checks.check(same, f"{what} differs: {found.ravel()[:6]} instead of {wanted.ravel()[:6]}")


def heads_of(x, heads=H):
    """(B, N, heads * D) -> (B, heads, N, D)"""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def torch_multihead_attention(checks, folder):
    """torch.nn.MultiheadAttention(E, H, add_bias_kv=True, add_zero_attn=True), batch second."""
    state = {"in_proj_weight": normal(3 * E, E), "in_proj_bias": normal(3 * E),
             "bias_k": normal(1, 1, E), "bias_v": normal(1, 1, E),
             "out_proj.weight": normal(E, E), "out_proj.bias": normal(E)}
    query, key, value = normal(L, B, E), normal(S, B, E), normal(S, B, E)
    attn_mask = RNG.random((B * H, L, S)) < 0.4  # True: ignored
    padding = RNG.random((B, S)) < 0.3
    tensors = {**state, "embeddings": query, "memory": key, "memory_V": value, "mask": attn_mask,
               "key_mask": padding}
    out = run(checks, folder, "torch-mha", tensors, {"heads": H, "zero-key": "true"},
              "output,mean_weights,weights")

    q, k, v = (x.swapaxes(0, 1) @ w.T + b for x, w, b in zip(
        (query, key, value), np.split(state["in_proj_weight"], 3),
        np.split(state["in_proj_bias"], 3)))
    k, v = (np.concatenate([x, np.broadcast_to(b, (B, 1, E)), np.zeros((B, 1, E))], 1)
            for x, b in ((k, state["bias_k"]), (v, state["bias_v"])))
    keep = ~attn_mask.reshape(B, H, L, S) & ~padding[:, None, None]
    keep = np.concatenate([keep, np.ones((B, H, L, 2), bool)], 3)
    weights = softmax(hidden(heads_of(q) @ heads_of(k).swapaxes(2, 3) / np.sqrt(D), keep))
    context = (weights @ heads_of(v)).swapaxes(1, 2).reshape(B, L, E)
    wanted = context @ state["out_proj.weight"].T + state["out_proj.bias"]
    close(checks, out["output"], wanted.swapaxes(0, 1), "torch-mha: output (L, B, E)")
    close(checks, out["mean_weights"], weights.mean(1), "torch-mha: averaged weights")
    close(checks, out["weights"], weights, "torch-mha: weights")


def torch_separate_widths(checks, folder):
    """kdim and vdim of their own; a query that sees nothing is NaN, as with need_weights."""
    kdim, vdim = 5, 7
    state = {"q_proj_weight": normal(E, E), "k_proj_weight": normal(E, kdim),
             "v_proj_weight": normal(E, vdim), "out_proj.weight": normal(E, E)}
    query, key, value = normal(L, E), normal(S, kdim), normal(S, vdim)
    mask = np.zeros((L, S), bool)
    mask[1] = True
    tensors = {**state, "embeddings": query, "memory": key, "memory_V": value, "mask": mask}
    out = run(checks, folder, "torch-mha", tensors, {"heads": H}, "output")
    q, k, v = (heads_of((x @ w.T)[None]) for x, w in (
        (query, state["q_proj_weight"]), (key, state["k_proj_weight"]),
        (value, state["v_proj_weight"])))
    weights = softmax(hidden(q @ k.swapaxes(2, 3) / np.sqrt(D), ~mask))
    wanted = (weights @ v).swapaxes(1, 2).reshape(L, E) @ state["out_proj.weight"].T
    checks.check(np.isnan(wanted[1]).all() and not np.isnan(wanted[0]).any(), "the oracle's NaN")
    close(checks, out["output"], wanted, "torch-mha: kdim, vdim")


def keras_multi_head_attention(checks, folder):
    """keras.layers.GroupQueryAttention's weights by their paths; masks keep where True."""
    G, M = 1, 5
    state = {"gqa/query/kernel": normal(M, H, D), "gqa/query/bias": normal(H, D),
             "gqa/key/kernel": normal(M, G, D), "gqa/key/bias": normal(G, D),
             "gqa/value/kernel": normal(M, G, D), "gqa/value/bias": normal(G, D),
             "gqa/attention_output/kernel": normal(H, D, M), "gqa/attention_output/bias": normal(M)}
    query, value = normal(B, L, M), normal(B, S, M)
    keep = RNG.random((B, 1, L, S)) < 0.6
    keep[0, :, 2] = False
    tensors = {**state, "embeddings": query, "memory": value, "mask": keep}
    out = run(checks, folder, "keras", tensors, {}, "output,weights")
    w = {name[4:]: array for name, array in state.items()}
    q = np.einsum("blm,mhd->bhld", query, w["query/kernel"]) + w["query/bias"][None, :, None]
    k = np.einsum("bsm,mhd->bhsd", value, w["key/kernel"]) + w["key/bias"][None, :, None]
    v = np.einsum("bsm,mhd->bhsd", value, w["value/kernel"]) + w["value/bias"][None, :, None]
    scores = np.where(keep, q @ k.swapaxes(2, 3) / np.sqrt(D), -1e30)  # finite: nothing seen is even
    weights = softmax(scores)
    wanted = np.einsum("bhld,hdm->blm", weights @ v, w["attention_output/kernel"])
    close(checks, out["weights"], weights, "keras: weights")
    close(checks, out["output"], wanted + w["attention_output/bias"], "keras: output")


def jax_dot_product_attention(checks, folder):
    """(B, T, N, H); a finite fill, so that what sees nothing is the mean; padded queries are 0."""
    q, k, v = normal(B, L, H, D), normal(B, S, H, D), normal(B, S, H, D)
    q_lengths, k_lengths = np.array([3, 4]), np.array([5, 0])
    tensors = {"Q": q, "K": k, "V": v, "query_lengths": q_lengths, "key_lengths": k_lengths}
    out = run(checks, folder, "jax", tensors, {"causal": "true", "window": "2,1"}, "context")
    i, j = np.arange(L)[:, None], np.arange(S)
    keep = (j <= i) & (j >= i - 2) & (j < k_lengths[:, None, None, None])
    x = np.einsum("blhd,bshd->bhls", q, k) / np.sqrt(D)
    wanted = np.einsum("bhls,bshd->blhd", softmax(np.where(keep, x, -1e30)), v)
    wanted[np.arange(L) >= q_lengths[:, None]] = 0
    close(checks, out["context"], wanted, "jax")


def flash_attention(checks, folder):
    """(B, L, H, D); causality, window and ALiBi count from the bottom right; nothing seen is 0."""
    q, k, v = normal(B, S, H, D), normal(B, L, H, D), normal(B, L, H, D)  # more queries than keys
    slopes = np.array([0.5, 0.25, 1])
    tensors = {"Q": q, "K": k, "V": v, "alibi_slopes": slopes}
    distance = np.arange(L) - np.arange(S)[:, None] - (L - S)
    x = np.einsum("blhd,bshd->bhls", q, k) / np.sqrt(D)
    x = 5 * np.tanh(x / 5) - slopes[:, None, None] * abs(distance)
    for options, keep in (({"causal": "true"}, distance <= 0),
                          ({"window": "1,0"}, (distance >= -1) & (distance <= 0)), ({}, None)):
        out = run(checks, folder, "flash", tensors, {**options, "softcap": 5}, "context")
        weights = softmax(x if keep is None else hidden(x, keep))
        wanted = np.einsum("bhls,bshd->blhd", np.nan_to_num(weights), v)
        close(checks, out["context"], wanted, f"flash {options}")


def onnx_attention(checks, folder):
    """Short masks hide the rest; causality with lengths starts from each row's last key."""
    q, k, v = normal(B, H, L, D), normal(B, H, S, D), normal(B, H, S, D)
    lengths, short = np.array([5, 2]), RNG.random((L, 4)) < 0.7
    i, j = np.arange(L)[:, None], np.arange(S)
    x = q @ k.swapaxes(2, 3) / np.sqrt(D)
    wide = np.pad(short, ((0, 0), (0, S - 4)))
    cases = [
        ({}, {"causal": "true"}, j <= i),
        ({"mask": short}, {}, wide),
        ({"mask": np.where(short, 0.0, -np.inf)}, {}, wide),
        ({"mask": np.zeros((L, 1))}, {}, np.broadcast_to(j == 0, (L, S))),
        ({"key_lengths": lengths}, {"causal": "true"},
         (j <= i + lengths[:, None, None, None] - L) & (j < lengths[:, None, None, None])),
    ]
    for tensors, options, keep in cases:
        out = run(checks, folder, "onnx", {"Q": q, "K": k, "V": v, **tensors}, options, "weights")
        weights = np.nan_to_num(softmax(hidden(x, keep)))
        close(checks, out["weights"], np.broadcast_to(weights, x.shape), f"onnx {list(tensors)}")


def by_themselves(checks, folder):
    """An option wins over its convention; what is not known is refused."""
    q, k = normal(1, 2, 3, 4).tolist(), normal(1, 3, 2, 4).tolist()
    job = {"Q": q, "K": k, "convention": "jax", "layout": "bhld", "outputs": ["weights"]}
    shape = json.loads(attn("run", "-", "--format", "json", stdin=json.dumps(
        {**job, "K": q})).stdout)["weights"]
    checks.check(np.shape(shape) == (1, 2, 3, 3), "layout bhld over jax's blhd")
    for added, says in (({"convention": "jaxx"}, "did you mean 'jax'?"),
                        ({"convention": "torch-mha", "batch_axis": "second"}, "batch_axis: expected 3-D tensors"),
                        ({"short_mask": "hide", "mask": [[0.5, 1, 1, 1]]}, "mask: expected")):
        done = attn("run", "-", stdin=json.dumps({**job, **added}))
        checks.check(done.returncode == 65 and says in done.stderr.decode(), f"{added}: {done}")
    np.savez(folder / "bad.npz", in_proj_weight=normal(4, 3), embeddings=normal(2, 3))
    done = attn("run", "bad.npz", cwd=folder)
    checks.check(done.returncode == 65 and b"bad.npz: in_proj_weight: expected 2 axes" in done.stderr,
                 f"{done}")
    table = attn("conventions").stdout.decode()
    for name in "attn", "onnx", "torch", "torch-mha", "jax", "keras", "flash":
        checks.check(f"\n{name} " in table, f"the table has {name}")


def main():
    checks = Checks("conventions")
    for part in (torch_multihead_attention, torch_separate_widths, keras_multi_head_attention,
                 jax_dot_product_attention, flash_attention, onnx_attention, by_themselves):
        with tempfile.TemporaryDirectory() as name:
            part(checks, pathlib.Path(name))
    checks.finish()


main()
