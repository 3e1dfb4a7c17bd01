"""Random cases of torch.autograd: attention written with PyTorch's operations, its SDPA and MultiheadAttention."""

import numpy as np
import torch
from torch.nn import functional

from peers.cases import Case, Draw
from peers.torch_family import COUNT, draw_mask, draw_qkv, layer_of, tensor

torch.set_num_threads(1)
DTYPES = ["float64", "float64", "float32"]


def both(loss, arrays, dtype):
    """The derivatives of `loss(tensors, dtype)` by all `arrays`, for the case's dtype and for float64."""
    results = []
    for d in dtype, "float64":
        leaves = {name: tensor(x, d).requires_grad_() for name, x in arrays.items()}
        loss(leaves, d).backward()
        results.append({f"grad_{name}": (torch.zeros_like(x) if x.grad is None else x.grad).numpy()
                        for name, x in leaves.items()})
    return results


def case(name, dtype, job, arrays, loss):
    return Case(name, dtype, {**job, **arrays, "outputs": [f"grad_{x}" for x in arrays]}, *both(loss, arrays, dtype))


def sdpa():
    """scaled_dot_product_attention with masks, causality, scale, grouped heads and an additive mask's gradient."""
    for seed in range(COUNT):
        draw, dtype = Draw("sdpa gradients", seed), DTYPES[seed % len(DTYPES)]
        arrays, full = draw_qkv(draw, dtype)
        job = {"convention": "torch", "empty_rows": "zero"}
        kind = draw.pick("none", "causal", "mask", "mask")
        job["grad_context"] = draw.normal(*full[:-1], arrays["V"].shape[-1], dtype=dtype)
        mask = draw_mask(draw, full, dtype) if kind == "mask" else None
        if kind == "causal":
            job["causal"] = True
        elif mask is not None and mask.dtype == bool:
            mask[..., 0] = True  # PyTorch's gradients are NaN where a query sees no key
            job["mask"] = mask
        elif mask is not None:
            arrays["mask"] = np.where(np.isinf(mask), 0, mask).astype(dtype)
        if draw.chance(0.3):
            job["scale"] = draw.pick(0.01, 0.5, 1.0)

        def loss(x, d):
            given = x["mask"] if "mask" in x else tensor(job["mask"], d) if "mask" in job else None
            context = functional.scaled_dot_product_attention(
                x["Q"], x["K"], x["V"], attn_mask=given, is_causal=kind == "causal", scale=job.get("scale"),
                enable_gqa=x["Q"].ndim == 4)
            return (context * tensor(job["grad_context"], d)).sum()

        yield case(f"sdpa gradients {seed}", dtype, job, arrays, loss)


def options():
    """Everything that PyTorch's own operations can express, combined."""
    for seed in range(COUNT):
        draw, dtype = Draw("gradients", seed), DTYPES[seed % len(DTYPES)]
        B, G, times = draw.pick(1, 2), draw.pick(1, 2), draw.pick(1, 2, 3)
        H, L, S, D, Dv = G * times, draw.pick(1, 4, 9), draw.pick(2, 6, 11), draw.pick(2, 4, 8), draw.pick(1, 5)
        arrays = {"Q": draw.normal(B, H, L, D, dtype=dtype), "K": draw.normal(B, G, S, D, dtype=dtype),
                  "V": draw.normal(B, G, S, Dv, dtype=dtype)}
        job = {name: draw.normal(*shape, dtype=dtype) for name, shape in (
            ("grad_context", (B, H, L, Dv)), ("grad_weights", (B, H, L, S)), ("grad_logsumexp", (B, H, L)))
            if draw.chance(0.7)} or {"grad_context": draw.normal(B, H, L, Dv, dtype=dtype)}
        if draw.chance(0.4):
            arrays["bias"] = draw.normal(*(1 if draw.chance(0.3) else n for n in (B, H, L, S)), dtype=dtype)
        if draw.chance(0.3):
            arrays["sinks"] = draw.normal(H, dtype=dtype)
        if draw.chance(0.3):
            arrays["head_scale"] = draw.normal(H, dtype=dtype)
        if draw.chance(0.3):
            arrays["gate"] = draw.normal(B, H, L, Dv, dtype=dtype)
        if draw.chance(0.3):
            arrays |= {"past_K": draw.normal(B, G, 2, D, dtype=dtype), "past_V": draw.normal(B, G, 2, Dv, dtype=dtype)}
            arrays.pop("bias", None), job.pop("grad_weights", None)
            if not {"grad_context", "grad_logsumexp"} & set(job):
                job["grad_context"] = draw.normal(B, H, L, Dv, dtype=dtype)
        keys = S + (2 if "past_K" in arrays else 0)
        visible = draw.mask(B, 1, L, keys)
        visible[..., 0] = True
        job["mask"] = visible
        if draw.chance(0.4):
            job["softcap"] = 1.5
            job["softcap_order"] = draw.pick("before-mask", "after-mask")
        if draw.chance(0.3):
            job |= {"dropout_p": 0.4, "dropout_mask": draw.mask(B, H, L, keys)}
        if draw.chance(0.3):
            job["temperature"] = 0.7
        if draw.chance(0.3):
            job["clip_qkv"] = 1.0
        if draw.chance(0.4):
            job["qk_norm"] = draw.pick("rms", "layer")
            arrays |= {"q_norm": draw.normal(D, dtype=dtype), "k_norm": draw.normal(D, dtype=dtype)}
            if job["qk_norm"] == "layer":
                arrays |= {"q_norm_bias": draw.normal(D, dtype=dtype)}

        def norm(x, weight, bias):
            if job.get("qk_norm") == "layer":
                return functional.layer_norm(x, (D,), weight, bias, 1e-5)
            return functional.rms_norm(x, (D,), weight, 1e-6) if "qk_norm" in job else x

        def loss(x, d):
            q, k, v = x["Q"], x["K"], x["V"]
            if "clip_qkv" in job:
                q, k, v = (part.clamp(-1, 1) for part in (q, k, v))
            q, k = norm(q, x.get("q_norm"), x.get("q_norm_bias")), norm(k, x.get("k_norm"), None)
            if "past_K" in x:
                k, v = torch.cat([x["past_K"], k], 2), torch.cat([x["past_V"], v], 2)
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
            s = q @ k.mT / D ** 0.5
            if "head_scale" in x:
                s = s * x["head_scale"][:, None, None]

            def cap(s, order):
                c = job.get("softcap")
                return c * torch.tanh(s / c) if c and job["softcap_order"] == order else s

            s = cap(cap(s, "before-mask") + x.get("bias", 0), "after-mask") / job.get("temperature", 1)
            s = s.masked_fill(~torch.from_numpy(job["mask"]), -torch.inf)
            if "sinks" in x:
                s = torch.cat([s, x["sinks"][:, None, None].expand(B, H, L, 1)], 3)
            lse, w = torch.logsumexp(s, 3), torch.softmax(s, 3)[..., :keys]
            kept = w * torch.from_numpy(job["dropout_mask"]) / (1 - job["dropout_p"]) if "dropout_p" in job else w
            context = kept @ v
            if "gate" in x:
                context = context * torch.sigmoid(x["gate"])
            of = {"grad_context": context, "grad_weights": w, "grad_logsumexp": lse}
            return sum((of[name] * tensor(job[name], d)).sum() for name in of if name in job)

        yield case(f"gradients {seed}", dtype, job, arrays, loss)


def mha():
    """MultiheadAttention: gradients of embeddings, memory, all weights and biases."""
    for seed in range(COUNT):
        draw, dtype = Draw("mha gradients", seed), DTYPES[seed % len(DTYPES)]
        B, L, S, heads, size = draw.pick(1, 3), draw.pick(1, 4, 9), draw.pick(1, 5, 12), draw.pick(1, 2, 4), draw.pick(1, 4)
        width, first = heads * size, draw.chance(0.5)
        alone = draw.chance(0.4)
        key_width = width if alone else draw.pick(3, 6)
        layer, tensors = layer_of(draw, dtype, width, heads, key_width, key_width, first)
        arrays = {name: x for name, x in tensors.items() if isinstance(x, np.ndarray)}
        job = {"convention": "torch-mha", "heads": heads, **{k: v for k, v in tensors.items() if k not in arrays}}
        if first:
            job["batch_axis"] = "first"

        def source(tokens, columns):
            return draw.normal(*((B, tokens) if first else (tokens, B)), columns, dtype=dtype)

        arrays["embeddings"] = source(L, width)
        if not alone:
            arrays["memory"] = source(S, key_width)
        job["grad_output"] = source(L, width)
        if draw.chance(0.4) and alone:
            job["causal"] = True

        def loss(x, d):
            layer.to(getattr(torch, d))
            state = {}
            W = [x[f"W_{part}"].mT for part in "QKV"]
            if "in_proj_weight" in dict(layer.named_parameters()):
                state["in_proj_weight"] = torch.cat(W)
            else:
                state |= {f"{part}_proj_weight": w for part, w in zip("qkv", W)}
            state["out_proj.weight"] = x["W_O"].mT
            if "b_Q" in x:
                state |= {"in_proj_bias": torch.cat([x["b_Q"], x["b_K"], x["b_V"]]), "out_proj.bias": x["b_O"]}
            if "bias_K" in x:
                state |= {"bias_k": x["bias_K"].reshape(1, 1, -1), "bias_v": x["bias_V"].reshape(1, 1, -1)}
            keys = x.get("memory", x["embeddings"])
            hidden = torch.ones(L, L, dtype=torch.bool).triu(1) if "causal" in job else None
            output, _ = torch.func.functional_call(layer, state, (x["embeddings"], keys, keys),
                                                   {"need_weights": False, "attn_mask": hidden})
            return (output * tensor(job["grad_output"], d)).sum()

        layer.eval()
        yield case(f"mha gradients {seed}", dtype, job, arrays, loss)
