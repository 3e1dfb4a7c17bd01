"""The reference for all options: attention in plain loops over batch, head, query and key.

`attend(t, o)` takes 4-D tensors (B, heads, length, width) and options by their names in a job, and
returns all stages by their output names. It shares no code with the program.
"""

import math

import numpy as np

PADDING = -1  # the segment of padded queries and keys


def segment_ids(t, name, cu_name, B, N, length_name):
    """(B, N): the segment of each query or key, PADDING for padding."""
    rows = np.zeros((B, N), int)
    if name in t:
        rows[:] = t[name]
    if cu_name in t:
        for d in range(len(t[cu_name]) - 1):
            rows[:, t[cu_name][d]:t[cu_name][d + 1]] = d
    if length_name in t:
        for b in range(B):
            rows[b, np.resize(t[length_name], B)[b]:] = PADDING
    return rows


def token_positions(t, o, B, L, S, P):
    """Segments and positions of queries (B, L) and keys (B, S). Positions count tokens within a segment;
    the alignment's offset is added to those of the queries."""
    shared = dict(t)
    if "documents" in t:
        shared.setdefault("key_documents", t["documents"])
    if "cu_seqlens_q" in t:
        shared.setdefault("cu_seqlens_k", t["cu_seqlens_q"])
    q_segments = segment_ids(t, "documents", "cu_seqlens_q", B, L, "query_lengths")
    k_segments = segment_ids(shared, "key_documents", "cu_seqlens_k", B, S, "key_lengths")
    q_positions, k_positions = np.zeros((B, L), int), np.zeros((B, S), int)
    for b in range(B):
        for i in range(L):
            same = [segment == q_segments[b, i] for segment in k_segments[b]]
            offset = sum(same[:P])
            if o.get("causal") == "bottom-right" or o.get("alignment") == "bottom-right":
                offset = sum(same) - sum(q_segments[b] == q_segments[b, i])
            offset = o.get("causal_offset", offset)
            q_positions[b, i] = sum(q_segments[b, :i] == q_segments[b, i]) + offset
        for j in range(S):
            k_positions[b, j] = sum(k_segments[b, :j] == k_segments[b, j])
    return q_segments, k_segments, q_positions, k_positions


def in_range(o, distance):
    """Whether causality and the window leave a key visible that is `distance` positions after the query."""
    left, right = o.get("window", [-1, -1])
    return not ((o.get("causal") and distance > 0) or (left >= 0 and distance < -left) or
                (right >= 0 and distance > right))


def mask_terms(t, o, shape):
    """Which keys the mask and the bias leave visible, and what they add to their scores."""
    visible, bias = np.ones(shape, bool), np.zeros(shape)
    if "mask" in t:
        mask = np.broadcast_to(t["mask"], shape)
        if mask.dtype == bool:
            visible = mask if o.get("mask_polarity") != "ignore" else ~mask
        else:
            visible, bias = mask != -np.inf, np.where(mask == -np.inf, 0, mask)
    if "bias" in t:
        added = np.broadcast_to(t["bias"], shape)
        visible, bias = visible & (added != -np.inf), bias + np.where(added == -np.inf, 0, added)
    return visible, bias


def normalise_qk(x, weight, bias, o):
    """The option qk_norm, applied to (B, heads, N, D)."""
    if o.get("qk_norm_axis") == "all":  # as one head
        B, heads, N, D = x.shape
        packed = x.transpose(0, 2, 1, 3).reshape(B, 1, N, heads * D)
        normal = normalise_qk(packed, weight, bias, {k: v for k, v in o.items() if k != "qk_norm_axis"})
        return normal.reshape(B, N, heads, D).transpose(0, 2, 1, 3)
    kind, out = o.get("qk_norm", "none"), x.copy()
    for row in np.ndindex(x.shape[:3]):
        centred = x[row] - (math.fsum(x[row]) / x.shape[3] if kind == "layer" else 0)
        squares = math.fsum(centred ** 2)
        if kind == "rms":
            out[row] = x[row] / math.sqrt(squares / x.shape[3] + o.get("qk_norm_epsilon", 1e-6))
        elif kind == "l2":
            out[row] = x[row] / max(math.sqrt(squares), o.get("qk_norm_epsilon", 1e-12))
        elif kind == "layer":
            out[row] = centred / math.sqrt(squares / x.shape[3] + o.get("qk_norm_epsilon", 1e-5))
        if weight is not None:
            out[row] *= weight[row[1]] if weight.ndim == 2 else weight
        if bias is not None:
            out[row] += bias[row[1]] if bias.ndim == 2 else bias
    return out


def frequencies(rotary, r, context):
    """The angle in radians by which each pair of columns rotates from one position to the next, for a
    context of that length."""
    base, scaling, factor = rotary.get("base", 10000), rotary.get("scaling"), rotary.get("factor", 1)
    length = rotary.get("original_length", 0)
    if scaling == "ntk":
        base *= factor ** (r / (r - 2))
    if scaling == "dynamic-ntk":
        base *= (factor * max(context, length) / length - (factor - 1)) ** (r / (r - 2))
    angles = [base ** (-2 * k / r) for k in range(r // 2)]
    if scaling == "linear":
        angles = [f / factor for f in angles]
    if scaling == "longrope":
        divisors = rotary["long_factor" if context > length else "short_factor"]
        angles = [f / d for f, d in zip(angles, divisors)]
    if scaling == "llama3":
        low, high = rotary.get("low_frequency_factor", 1), rotary.get("high_frequency_factor", 4)
        for k, f in enumerate(angles):
            wavelength = 2 * math.pi / f
            if wavelength > length / low:
                angles[k] = f / factor
            elif wavelength >= length / high:
                smooth = (length / wavelength - low) / (high - low)
                angles[k] = (1 - smooth) * f / factor + smooth * f
    if scaling == "yarn":
        def boundary(rotations):
            return r * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low = max(math.floor(boundary(rotary.get("beta_fast", 32))), 0)
        high = min(math.ceil(boundary(rotary.get("beta_slow", 1))), r - 1)
        for k, f in enumerate(angles):
            ramp = min(max((k - low) / ((high - low) or 0.001), 0), 1)
            angles[k] = f / factor * ramp + f * (1 - ramp)
    return angles


def rotate(x, t, o, positions, context):
    """Rotary encoding of (B, heads, N, D) at positions (B, N), in a context of that length."""
    rotary = o.get("rotary")
    if not rotary:
        return x
    r = rotary.get("width", x.shape[3])
    if "cos" in t:
        r = 2 * t["cos"].shape[-1]
    else:
        angles = frequencies(rotary, r, context)
    length = 1
    if rotary.get("scaling") == "yarn":
        length = rotary.get("attention_factor", 0.1 * math.log(rotary.get("factor", 1)) + 1)
    if rotary.get("scaling") == "longrope":
        log = math.log(rotary.get("factor", 1)) / math.log(rotary["original_length"])
        length = rotary.get("attention_factor", math.sqrt(1 + max(log, 0)))
    out = x.copy()
    for b, h, i in np.ndindex(x.shape[:3]):
        for k in range(r // 2):
            first, second = (k, k + r // 2) if rotary["kind"] == "half" else (2 * k, 2 * k + 1)
            if "cos" not in t:
                angle = positions[b, i] * angles[k]
                cos, sin = length * math.cos(angle), length * math.sin(angle)
            elif t["cos"].ndim == 3:
                cos, sin = (np.broadcast_to(t[name], (len(x), *t[name].shape[1:]))[b, i, k]
                            for name in ("cos", "sin"))
            else:
                cos, sin = t["cos"][positions[b, i], k], t["sin"][positions[b, i], k]
            p, q = x[b, h, i, first], x[b, h, i, second]
            out[b, h, i, first], out[b, h, i, second] = p * cos - q * sin, p * sin + q * cos
    return out


def clipped(x, o):
    limit = o.get("clip_qkv", 0)
    return np.minimum(np.maximum(x, -limit), limit) if limit else x


def position_factor(scale, position):
    """Llama 4's temperature of a query: log1p(floor((p + 1) / floor_scale)) * attn_scale + 1."""
    if not scale:
        return 1
    return math.log1p(math.floor((position + scale.get("first", 1)) / scale["length"])) * scale["factor"] + 1


def transformed(t, o):
    """Queries and new keys after clip_qkv, qk_norm, the rotary encoding and query_scale."""
    q, k = clipped(t["Q"], o).copy(), clipped(t["K"], o)
    P = t["past_K"].shape[2] if "past_K" in t else 0
    q_positions = np.broadcast_to(t.get("position_ids", P + np.arange(q.shape[2])),
                           (len(q), q.shape[2]))
    shared = t.get("position_ids") if k.shape[2] == q.shape[2] else None
    counted = P + np.arange(k.shape[2]) if shared is None else shared
    k_positions = np.broadcast_to(t.get("key_position_ids", counted), (len(k), k.shape[2]))
    if o.get("qk_norm", "none") != "none":
        q = normalise_qk(q, t.get("q_norm"), t.get("q_norm_bias"), o)
        k = normalise_qk(k, t.get("k_norm"), t.get("k_norm_bias"), o)
    context = 1 + max(q_positions.max(), k_positions.max())
    q, k = rotate(q, t, o, q_positions, context), rotate(k, t, o, k_positions, context)
    for b, h, i in np.ndindex(q.shape[:3]):
        q[b, h, i] *= position_factor(o.get("query_scale", {}), q_positions[b, i])
    return q, k


def score(q, k, t, kind):
    """The score of one query and one key."""
    if kind == "cosine":
        return math.fsum(q * k) / math.sqrt(math.fsum(q * q) * math.fsum(k * k))
    if kind == "l2":
        return -math.fsum((q - k) ** 2)
    if kind == "general":
        return math.fsum(a * w * b for a, row in zip(q, t["W_score"]) for w, b in zip(row, k))
    if kind in ("additive", "concat"):
        if kind == "concat":
            inner = np.concatenate([q, k]) @ t["W_score"]
        else:
            inner = (q @ t["W_score_Q"] if "W_score_Q" in t else q) + (
                k @ t["W_score_K"] if "W_score_K" in t else k)
        v = t.get("v_score", np.ones(len(inner)))
        if "g_score" in t:
            v = float(np.ravel(t["g_score"])[0]) * v / math.sqrt(math.fsum(v * v))
        return math.fsum(v * np.tanh(inner + t.get("b_score", 0)))
    return math.fsum(q * k)


def alibi_slopes(H):
    """The slopes of H heads (Press, Smith and Lewis 2022)."""
    def power_of_two_heads(n):
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]

    n = 2 ** int(math.log2(H))
    return power_of_two_heads(n) + power_of_two_heads(2 * n)[0::2][:H - n]


def t5_bucket(distance, count, both, max_distance):
    """T5's bucket of a distance: one for each near distance, a logarithmic scale up to max_distance
    for the others. Half of the buckets are for keys after the query if `both` directions count."""
    first = 0
    if both:
        count //= 2
        first = count if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = count // 2
    if distance < exact:
        return first + distance
    beyond = math.log(distance / exact) / math.log(max_distance / exact) * (count - exact)
    return first + min(exact + int(beyond + 1e-6), count - 1)


def distance_bias(t, o, b, h, H, distance):
    total = 0
    if o.get("alibi") or "alibi_slopes" in t:
        m = np.array(t.get("alibi_slopes", alibi_slopes(H)))
        m = m[b, h] if m.ndim == 2 else m[h]
        total -= m * abs(distance)
    if "relative_bias" in t:
        relative = o.get("relative", {})
        both = {"both": True, "past": False}.get(relative.get("direction"), not o.get("causal"))
        table = t["relative_bias"]
        total += table[t5_bucket(distance, len(table), both, relative.get("max_distance", 128)), h]
    return total


def simplex(x, power):
    """max(x - t, 0)^power, with the t that makes the sum 1. It is found by bisection."""
    low, high = max(x) - 1, max(x)
    for _ in range(200):
        t = (low + high) / 2
        if sum(np.maximum(x - t, 0) ** power) > 1:
            low = t
        else:
            high = t
    return np.maximum(x - high, 0) ** power


def normalise_without_softmax(x, kind, o):
    """Weights of visible scores by a normaliser other than softmax."""
    if kind == "sparsemax":
        return simplex(x, 1)
    if kind == "entmax15":
        return simplex(x / 2, 2)
    if kind == "hardmax":
        return (np.arange(len(x)) == np.argmax(x)).astype(float)
    if kind == "sigmoid":
        return 1 / (1 + np.exp(-x))
    if kind == "top_k":
        chosen = sorted(range(len(x)), key=lambda j: (-x[j], j))[:o["top_k"]]
        e = np.array([math.exp(v - max(x)) if j in chosen else 0 for j, v in enumerate(x)])
        return e / e.sum()
    return x


def normalise(x, visible, o, padding, sink):
    """The weights and the logsumexp of one query."""
    x = x / o.get("temperature", 1)
    if not visible.any() and (padding or sink is None):
        empty = {"zero": 0, "uniform": 1 / max(len(x), 1), "nan": math.nan}
        return np.full(len(x), 0 if padding else empty[o.get("empty_rows", "zero")]), -math.inf
    known = list(x[visible]) + ([] if sink is None else [sink])
    total = math.fsum(math.exp(v - max(known)) for v in known)
    weights = np.array([math.exp(v - max(known)) / total if s else 0 for v, s in zip(x, visible)])
    kind = o.get("normaliser", "softmax")
    if kind != "softmax":
        weights[visible] = normalise_without_softmax(x[visible], kind, o)
    return weights, max(known) + math.log(total)


def appended(x, t, o, bias):
    """(B, G, S, D) with the learned bias and the zero key or value appended."""
    parts = [x]
    B, G, _, D = x.shape
    if bias in t:
        parts.append(np.broadcast_to(t[bias].reshape(1, G, 1, D), (B, G, 1, D)))
    if o.get("zero_key"):
        parts.append(np.zeros((B, G, 1, D)))
    return np.concatenate(parts, 2)


def cap(x, o, order):
    c = o.get("softcap", 0)
    return c * math.tanh(x / c) if c and o.get("softcap_order", "before-mask") == order else x


def scaled(raw, o, D, head_scale):
    scale = o.get("scale", "auto")
    if scale == "auto":
        scale = 1 / math.sqrt(D) if o.get("score", "dot") == "dot" else 1
    return cap(raw * head_scale * (1 if scale == "none" else scale), o, "before-mask")


def attend(t, o):
    """All stages by their output names."""
    q, k = transformed(t, o)
    v = clipped(t["V"], o)
    stages = {"queries": q, "keys": k, "values": v}
    P = 0
    if "past_K" in t:
        P = t["past_K"].shape[2]
        k, v = np.concatenate([t["past_K"], k], 2), np.concatenate([t["past_V"], v], 2)
    stages.update(present_K=k, present_V=v)
    (B, H, L, D), (_, G, N, _) = q.shape, k.shape  # S counts the appended keys, too
    k, v = appended(k, t, o, "bias_K"), appended(v, t, o, "bias_V")
    S = k.shape[2]
    q_segments, k_segments, q_positions, k_positions = token_positions(t, o, B, L, N, P)
    unmasked, bias = mask_terms(t, o, (B, H, L, N))
    names = ("scores", "scaled_scores", "masked_scores")
    stages.update({name: np.zeros((B, H, L, S)) for name in (*names, "weights")})
    stages.update(logsumexp=np.zeros((B, H, L)), context=np.zeros((B, H, L, v.shape[3])))
    for b, h, i in np.ndindex(B, H, L):
        g, visible = h // (H // G), np.zeros(S, bool)
        for j in range(S):
            raw = score(q[b, h, i], k[b, g, j], t, o.get("score", "dot"))
            x = scaled(raw, o, D, t["head_scale"][h] if "head_scale" in t else 1)
            numbers, visible[j] = [raw, x], q_segments[b, i] != PADDING
            if j < N:
                distance = k_positions[b, j] - q_positions[b, i]
                visible[j] = (unmasked[b, h, i, j] and q_segments[b, i] == k_segments[b, j] != PADDING and
                           in_range(o, distance))
                x += bias[b, h, i, j] + distance_bias(t, o, b, h, H, distance)
            numbers.append(cap(x, o, "after-mask") if visible[j] else -math.inf)
            for name, value in zip(names, numbers):
                stages[name][b, h, i, j] = value
        sink = t["sinks"][h] if "sinks" in t else None
        w, lse = normalise(stages["masked_scores"][b, h, i], visible, o, q_segments[b, i] == PADDING, sink)
        stages["weights"][b, h, i], stages["logsumexp"][b, h, i] = w, lse
        kept = w
        if "dropout_mask" in t:
            mask = np.broadcast_to(t["dropout_mask"], (B, H, L, S))[b, h, i]
            kept = np.where(mask, w / (1 - o["dropout_p"]), 0)
            stages.setdefault("dropped_weights", np.zeros((B, H, L, S)))[b, h, i] = kept
        gate = 1 / (1 + np.exp(-t["gate"][b, h, i])) if "gate" in t else 1
        stages["context"][b, h, i] = gate * (kept @ np.where(kept[:, None] == 0, 0, v[b, g]))
    stages["mean_weights"] = stages["weights"].mean(1)
    stages["key_weights"] = stages["weights"].sum(2)
    stages["row_max"] = stages["masked_scores"].max(3, initial=-np.inf)
    return stages
