"""Random cases of PyTorch's scaled_dot_product_attention, MultiheadAttention and FlexAttention."""

import ml_dtypes  # noqa: F401  NumPy's bfloat16
import numpy as np
import torch
from torch.nn import functional
from torch.nn.attention import flex_attention as flex_module
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn
from peers.cases import Case, Draw
from support.paged_jobs import PagedJob

COUNT = 600
torch.set_num_threads(1)
flex_module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True  # the formula, not compiled
DTYPES = ["float64", "float64", "float32", "float16", "bfloat16"]


def tensor(array, dtype):
    """A torch tensor, with floats converted to `dtype`."""
    if array.dtype.name == "bfloat16":
        array = array.astype("float32")
    made = torch.from_numpy(np.ascontiguousarray(array))
    return made.to(getattr(torch, dtype)) if made.is_floating_point() else made


def both(compute, dtype):
    """The results of `compute(dtype)` for the case's dtype and for float64, as NumPy arrays."""
    with torch.no_grad():
        return [{name: (value.float() if value.dtype == torch.bfloat16 else value).numpy()
                 for name, value in compute(d).items()} for d in (dtype, "float64")]


def draw_qkv(draw, dtype):
    """Q, K and V of rank 2, 3 or 4, sometimes with grouped heads, and the full shape of the mask."""
    L, S = draw.pick(1, 2, 5, 17, 40), draw.pick(1, 3, 8, 33)
    E, Ev = draw.pick(1, 4, 8, 24), draw.pick(1, 8, 10)
    rank = draw.pick(2, 3, 4, 4, 4)
    B, G, times = draw.pick(1, 2, 3), draw.pick(1, 2, 3), draw.pick(1, 1, 2, 4)
    lead_q, lead_k = {2: ((), ()), 3: ((B,), (B,)), 4: ((B, G * times), (B, G))}[rank]
    return {"Q": draw.normal(*lead_q, L, E, dtype=dtype), "K": draw.normal(*lead_k, S, E, dtype=dtype),
            "V": draw.normal(*lead_k, S, Ev, dtype=dtype)}, (*lead_q, L, S)


def draw_mask(draw, full, dtype):
    """A boolean or additive mask that broadcasts to `full`."""
    rank = draw.choose.randint(2, len(full))
    shape = [1 if axis < len(full) - 2 and draw.chance(0.3) else n for axis, n in enumerate(full)]
    shape = shape[len(full) - rank:]
    visible = draw.mask(*shape)
    if draw.chance(0.5):
        return visible
    return np.where(visible | draw.chance(0.5), draw.normal(*shape), -np.inf).astype(dtype)


def sdpa():
    for seed in range(COUNT):
        draw, dtype = Draw("sdpa", seed), DTYPES[seed % len(DTYPES)]
        job, full = draw_qkv(draw, dtype)
        kind = draw.pick("none", "causal", "mask", "mask")
        if kind == "causal":
            job["causal"] = True
        elif kind == "mask":
            job["mask"] = draw_mask(draw, full, dtype)
        if draw.chance(0.3):
            job["scale"] = draw.pick(0.01, 0.5, 1.0, 1.0 if kind == "causal" else -0.7)

        def compute(d):
            q, k, v, mask = (tensor(job[x], d) if x in job else None for x in ("Q", "K", "V", "mask"))
            return {"context": functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=kind == "causal", scale=job.get("scale"),
                enable_gqa=q.ndim == 4)}

        yield Case(f"sdpa {seed}", dtype, {"convention": "torch", **job, "outputs": ["context"]},
                   *both(compute, dtype))


def paged():
    """Sequences whose keys are in pages, which PyTorch gathers by index."""
    for seed in range(200):
        made = PagedJob(seed, softcap=False)
        job = {key: np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for key, x in made.jobs()[0].items()}

        def attend(q, k, v, d):
            q, k, v = (tensor(x.transpose(1, 0, 2), d) for x in (q, k, v))
            if k.shape[1] == 0:
                return torch.zeros(*q.shape[:2], v.shape[2], dtype=q.dtype)
            return functional.scaled_dot_product_attention(
                q, k, v, attn_mask=torch.from_numpy(~made.hidden(q.shape[1], k.shape[1])), enable_gqa=True)

        def compute(d):
            return {"context": torch.from_numpy(made.joined(
                job, [attend(*qkv, d).float().numpy().transpose(1, 0, 2) if d != "float64" else
                      attend(*qkv, d).numpy().transpose(1, 0, 2) for qkv in made.sequences(job)]))}

        yield Case(f"paged {seed}", made.dtype, {**job, "outputs": ["context"]}, *both(compute, made.dtype))


def kernel_of_varlen(q, k, v, cu_q, cu_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None,
                     window_size_left=None, window_size_right=None, seqused_k=None, alibi_slopes=None, block_table=None,
                     num_splits=None):
    """What varlen_attn calls, for processors: scaled_dot_product_attention of each sequence."""
    assert dropout_p == 0 and alibi_slopes is None and num_splits is None and not return_debug_mask
    context = torch.empty(*q.shape[:2], v.shape[-1], dtype=q.dtype)
    for n, (begin, end) in enumerate(zip(cu_q[:-1].tolist(), cu_q[1:].tolist())):
        if block_table is None:
            keys, values = (x[cu_k[n]:cu_k[n + 1]] for x in (k, v))
        else:
            keys, values = (x[block_table[n].clamp(0).long()].flatten(0, 1) for x in (k, v))
        if seqused_k is not None:
            keys, values = keys[:seqused_k[n]], values[:seqused_k[n]]
        distance = torch.arange(len(keys)) - torch.arange(end - begin)[:, None] - (len(keys) - (end - begin))
        visible = torch.ones(distance.shape, dtype=torch.bool)
        if window_size_left >= 0:
            visible &= distance >= -window_size_left
        if window_size_right >= 0:
            visible &= distance <= window_size_right
        context[begin:end] = functional.scaled_dot_product_attention(
            *(x.transpose(0, 1) for x in (q[begin:end], keys, values)), attn_mask=visible, scale=scale, enable_gqa=True
        ).transpose(0, 1)
    return context, torch.zeros(q.shape[1], q.shape[0]), torch.zeros(2), torch.zeros(1), torch.zeros(1)


def varlen():
    """varlen_attn with kernel_of_varlen() under it, because PyTorch has a kernel for CUDA only: what is compared is the
    meaning of its arguments. Half of the cases have keys in pages. Windows end at the own position or later: otherwise
    queries without keys are NaN here and 0 in FlashAttention."""
    library = torch.library.Library("aten", "IMPL")  # until the end of this function
    library.impl("_flash_attention_forward", kernel_of_varlen, "CPU")
    for seed in range(200):
        draw, dtype = Draw("varlen", seed), DTYPES[seed % len(DTYPES)]
        count, G, D = draw.pick(1, 2, 5), draw.pick(1, 2, 3), draw.pick(1, 8, 20)
        H = G * draw.pick(1, 2, 4)
        lengths = [draw.pick(1, 2, 7, 33) for _ in range(count)]
        keys = [n + draw.pick(0, 1, 9, 40) for n in lengths]
        window = draw.pick((-1, -1), (-1, 0), (4, 0), (0, 3), (12, 5))
        scale = draw.pick(None, 0.3)
        cu_q, cu_k = (np.cumsum([0, *each]) for each in (lengths, keys))
        job = {"Q": draw.normal(cu_q[-1], H, D, dtype=dtype), "cu_seqlens_q": cu_q, "layout": "thd"}
        if window != (-1, -1):
            job |= {"window": list(window), "alignment": "bottom-right"}
        if scale is not None:
            job["scale"] = scale
        is_paged = seed % 2 == 1
        if is_paged:
            size = draw.pick(1, 4, 16)
            columns = -(-max(keys) // size)
            pages = draw.rng.permutation(count * columns + 2)
            table = pages[:count * columns].reshape(count, columns)
            job |= {name: draw.normal(len(pages), size, G, D, dtype=dtype) for name in ("K_pages", "V_pages")}
            job |= {"block_table": table, "key_lengths": np.array(keys)}
        else:
            job |= {"K": draw.normal(cu_k[-1], G, D, dtype=dtype), "V": draw.normal(cu_k[-1], G, D, dtype=dtype),
                    "cu_seqlens_k": cu_k}

        def compute(d):
            q, k, v = (tensor(job[x], d) for x in ("Q", *(("K_pages", "V_pages") if is_paged else "KV")))
            pages = {"seqused_k": torch.tensor(keys), "block_table": torch.from_numpy(table)} if is_paged else {}
            return {"context": varlen_attn(q, k, v, torch.from_numpy(cu_q), None if is_paged else torch.from_numpy(cu_k),
                                           max(lengths), max(keys), scale=scale, window_size=window, enable_gqa=True, **pages)}

        yield Case(f"varlen {seed}", dtype, {**job, "outputs": ["context"]}, *both(compute, dtype))


def dropout():
    """With a given mask of the weights that are kept, which PyTorch accepts for tests."""
    for seed in range(COUNT):
        draw, dtype = Draw("dropout", seed), DTYPES[seed % len(DTYPES)]
        job, full = draw_qkv(draw, dtype)
        job |= {"causal": draw.chance(0.4), "dropout_p": draw.pick(0.1, 0.5, 0.9), "dropout_mask": draw.mask(*full)}

        def compute(d):
            q, k, v = (tensor(job[x], d) for x in "QKV")
            context, _ = torch.ops.aten._scaled_dot_product_attention_math(
                q, k, v, None, job["dropout_p"], job["causal"], tensor(job["dropout_mask"], d), enable_gqa=q.ndim == 4)
            return {"context": context}

        yield Case(f"dropout {seed}", dtype, {"convention": "torch", **job, "outputs": ["context"]},
                   *both(compute, dtype))


def layer_of(draw, dtype, width, heads, key_width, value_width, batch_first):
    """A MultiheadAttention with random weights, and the job's tensors with the same weights."""
    extra = {"bias": draw.chance(0.7), "add_bias_kv": draw.chance(0.25), "add_zero_attn": draw.chance(0.25)}
    torch.manual_seed(draw.choose.getrandbits(32))
    layer = torch.nn.MultiheadAttention(width, heads, kdim=key_width, vdim=value_width,
                                        batch_first=batch_first, dtype=getattr(torch, dtype), **extra)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    state = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    if "in_proj_weight" in state:
        W = np.split(state["in_proj_weight"], 3)
    else:
        W = [state[f"{x}_proj_weight"] for x in "qkv"]
    tensors = {"W_Q": W[0].T, "W_K": W[1].T, "W_V": W[2].T, "W_O": state["out_proj.weight"].T,
               "weights_layout": "in-out"}
    if extra["bias"]:
        b = np.split(state["in_proj_bias"], 3)
        tensors |= {"b_Q": b[0], "b_K": b[1], "b_V": b[2], "b_O": state["out_proj.bias"]}
    if extra["add_bias_kv"]:
        tensors |= {"bias_K": state["bias_k"].ravel(), "bias_V": state["bias_v"].ravel()}
    if extra["add_zero_attn"]:
        tensors["zero_key"] = True
    return layer, tensors


def mha():
    for seed in range(COUNT):
        draw, dtype = Draw("mha", seed), ["float64", "float32"][seed % 2]
        B, L, S = draw.pick(1, 2, 3), draw.pick(1, 4, 9, 20), draw.pick(1, 5, 12)
        heads, size = draw.pick(1, 2, 4), draw.pick(1, 4, 8)
        width, alone = heads * size, draw.chance(0.3)
        key_width = width if alone or draw.chance(0.5) else draw.pick(3, 6, 10)
        apart = not alone and draw.chance(0.5)  # values and keys from different sources
        value_width = draw.pick(3, 7) if apart else key_width
        S = L if alone else S
        first = draw.chance(0.5)
        layer, job = layer_of(draw, dtype, width, heads, key_width, value_width, first)

        def source(places, columns):
            return draw.normal(*((B, places) if first else (places, B)), columns, dtype=dtype)

        job |= {"convention": "torch-mha", "embeddings": source(L, width), "heads": heads}
        if first:
            job["batch_axis"] = "first"
        if not alone:
            job["memory"] = source(S, key_width)
        if apart:
            job["memory_V"] = source(S, value_width)
        averaged = draw.chance(0.5)
        job["outputs"] = ["output", "mean_weights" if averaged else "weights"]
        # True in its boolean masks hides a key, and a query without visible keys becomes NaN.
        masks = {}
        kind = draw.pick("none", "bool", "float", "causal", "padding", "padding", "both")
        if kind in ("bool", "both"):
            shape = draw.pick((L, S), (B * heads, L, S))
            masks["attn_mask"] = ~draw.mask(*shape)
        elif kind == "float":
            masks["attn_mask"] = draw.normal(*draw.pick((L, S), (B * heads, L, S)), dtype=dtype)
        elif kind == "causal":
            masks["attn_mask"] = ~np.tri(L, S, dtype=bool)
            job["causal"] = True
        if kind in ("padding", "both"):
            masks["key_padding_mask"] = job["key_mask"] = ~draw.mask(B, S, p=0.8)
        if "attn_mask" in masks and kind != "causal":
            mask = masks["attn_mask"]
            job["mask"] = mask.reshape(B, heads, L, S) if mask.ndim == 3 else mask

        def compute(d):
            layer.to(getattr(torch, d))
            keys = job.get("memory", job["embeddings"])
            inputs = [tensor(x, d) for x in (job["embeddings"], keys, job.get("memory_V", keys))]
            output, weights = layer(*inputs, need_weights=True, average_attn_weights=averaged,
                                    **{name: tensor(value, d) for name, value in masks.items()})
            return {"output": output, job["outputs"][1]: weights}

        layer.eval()
        yield Case(f"mha {seed}", dtype, job, *both(compute, dtype))


def window_mod(left, right, causal, lengths, offset):
    """Which keys are visible to a query, as a mask function of FlexAttention."""
    def visible(b, h, q, k):
        q = q + offset
        keep = (k >= q - left) & (k <= q + right) & (k < lengths[b])
        return keep & (q >= k) if causal else keep
    return visible


def score_mod(softcap, slopes, bias, offset):
    """Softcap, ALiBi and a table of biases by head and distance, in this order."""
    def change(score, b, h, q, k):
        if softcap:
            score = softcap * torch.tanh(score / softcap)
        if slopes is not None:
            score = score - slopes[h] * (q + offset - k).abs()
        if bias is not None:
            score = score + bias[b, h, q, k]
        return score
    return change


def flex():
    for seed in range(COUNT):
        draw, dtype = Draw("flex", seed), ["float64", "float32"][seed % 2]
        B, G, times = draw.pick(1, 2), draw.pick(1, 2), draw.pick(1, 1, 2)
        H, L, S = G * times, draw.pick(1, 4, 9, 16), draw.pick(1, 6, 16)
        E, Ev = draw.pick(4, 8), draw.pick(4, 8)
        job = {"Q": draw.normal(B, H, L, E, dtype=dtype), "K": draw.normal(B, G, S, E, dtype=dtype),
               "V": draw.normal(B, G, S, Ev, dtype=dtype), "outputs": ["context", "logsumexp"]}
        left = right = 100  # none
        if draw.chance(0.4):
            job["window"] = [left, right] = [draw.choose.randint(0, 4), draw.choose.randint(0, 3)]
        if draw.chance(0.4):
            job["causal"] = True
        lengths = np.full(B, S)
        if draw.chance(0.3):
            lengths = job["key_lengths"] = draw.rng.integers(0, S + 1, B)
        if draw.chance(0.3):
            job["softcap"] = draw.pick(0.5, 2.0, 10.0)
        if draw.chance(0.3):
            job["alibi_slopes"] = np.abs(draw.normal(H, dtype=dtype))
        if draw.chance(0.3):
            job["mask"] = draw.normal(B, H, L, S, dtype=dtype)
        if draw.chance(0.3):
            job["scale"] = draw.pick(0.1, 1.0)
        offsets = Draw("flex offset", seed)  # another stream, so that older cases stay the same
        if {"window", "causal", "alibi_slopes"} & job.keys() and offsets.chance(0.4):
            job["causal_offset"] = offsets.choose.randint(-4, 12)
        offset = job.get("causal_offset", 0)
        visible = window_mod(left, right, "causal" in job, torch.from_numpy(lengths), offset)

        def compute(d):
            q, k, v = (tensor(job[x], d) for x in "QKV")
            slopes, bias = (tensor(job[x], d) if x in job else None for x in ("alibi_slopes", "mask"))
            blocks = create_block_mask(visible, B, H, L, S, device="cpu")
            context, aux = flex_attention(
                q, k, v, score_mod(job.get("softcap"), slopes, bias, offset), blocks, job.get("scale"),
                enable_gqa=times > 1, return_aux=AuxRequest(lse=True))
            return {"context": context, "logsumexp": aux.lse}

        yield Case(f"flex {seed}", dtype, job, *both(compute, dtype))


def bias_rules(draw, H, L, S):
    """Name -> (bias_rule, mask_tables, causal_offset, the bias for b, h, q and k)."""
    offset, width = draw.choose.randint(-3, 9), draw.pick(2, 3, 5)
    slopes, learned = draw.normal(H).round(4), draw.normal(8, H)
    grid = draw.normal(2 * width - 1, 2 * max(L, S, width) - 1)
    of_grid, middle = torch.from_numpy(grid), max(L, S, width) - 1
    of_heads, of_distances = torch.from_numpy(slopes), torch.from_numpy(learned)
    return {
        "ALiBi": ("-slopes[h] * abs(q - k)", {"slopes": slopes}, offset,
                  lambda b, h, q, k: -of_heads[h] * (q + offset - k).abs()),
        "distances": ("learned[min(abs(q - k), 7), h]", {"learned": learned}, offset,
                      lambda b, h, q, k: of_distances[(q + offset - k).abs().clamp(max=7), h]),
        "KERPLE": ("-0.75 * log(1 + exp2(-h) * abs(q - k))", {}, offset,
                   lambda b, h, q, k: -0.75 * torch.log(1 + torch.exp2(-h.double()) * (q + offset - k).abs().double())),
        "grid": (f"t[q % {width} - k % {width} + {width - 1}, q // {width} - k // {width} + {middle}]", {"t": grid}, 0,
                 lambda b, h, q, k: of_grid[q % width - k % width + width - 1, q // width - k // width + middle]),
        "items": ("(b + 0.5) * (q % 3 == k % 3) - sqrt(k)", {}, 0,
                  lambda b, h, q, k: (b + 0.5) * (q % 3 == k % 3) - torch.sqrt(k.double())),
    }


def bias_rule():
    """Functions of scores that add a bias, which the job has as text. Both compute it in float64."""
    for seed in range(100):
        draw, dtype = Draw("bias rule", seed), ["float64", "float32"][seed % 2]
        B, G, times = draw.pick(1, 2), draw.pick(1, 2), draw.pick(1, 1, 2)
        H, L, S = G * times, draw.pick(1, 4, 9, 16), draw.pick(1, 6, 16)
        job = {"Q": draw.normal(B, H, L, 4, dtype=dtype), "K": draw.normal(B, G, S, 4, dtype=dtype),
               "V": draw.normal(B, G, S, 8, dtype=dtype), "outputs": ["context", "logsumexp"]}
        rules = bias_rules(draw, H, L, S)
        name = list(rules)[seed // 2 % len(rules)]
        job["bias_rule"], tables, offset, bias = rules[name]
        if tables:
            job["mask_tables"] = {table: x.tolist() for table, x in tables.items()}
        if offset:
            job["causal_offset"] = offset
        softcap = draw.pick(None, None, 2.0)
        if softcap:
            job["softcap"] = softcap

        def change(score, b, h, q, k):
            if softcap:
                score = softcap * torch.tanh(score / softcap)
            return score + bias(b, h, q, k).to(score.dtype)

        def compute(d):
            q, k, v = (tensor(job[x], d) for x in "QKV")
            context, aux = flex_attention(q, k, v, change, enable_gqa=times > 1, return_aux=AuxRequest(lse=True))
            return {"context": context, "logsumexp": aux.lse}

        yield Case(f"bias rule {name}, {seed}", dtype, job, *both(compute, dtype))
