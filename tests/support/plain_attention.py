"""Attention in plain loops over batch, head, query and key: what every option is held to.

`attend(t, o)` takes 4-D tensors (B, heads, length, width) and options by their names in a job, and
gives every stage. It shares nothing with attn but the words.
"""

import math

import numpy as np

NEVER = -1  # the document of padding


def documents(t, name, cu_name, B, N, length_name):
    """(B, N): the document of each query or key, NEVER for padding."""
    rows = np.zeros((B, N), int)
    if name in t:
        rows[:] = t[name]
    if cu_name in t:
        for d in range(len(t[cu_name]) - 1):
            rows[:, t[cu_name][d]:t[cu_name][d + 1]] = d
    if length_name in t:
        for b in range(B):
            rows[b, np.resize(t[length_name], B)[b]:] = NEVER
    return rows


def places(t, o, B, L, S, P):
    """Documents and places of queries and keys, the offset added to the queries'."""
    shared = dict(t)
    if "documents" in t:
        shared.setdefault("key_documents", t["documents"])
    if "cu_seqlens_q" in t:
        shared.setdefault("cu_seqlens_k", t["cu_seqlens_q"])
    of_q = documents(t, "documents", "cu_seqlens_q", B, L, "query_lengths")
    of_k = documents(shared, "key_documents", "cu_seqlens_k", B, S, "key_lengths")
    place_q, place_k = np.zeros((B, L), int), np.zeros((B, S), int)
    for b in range(B):
        for i in range(L):
            same = [d == of_q[b, i] for d in of_k[b]]
            offset = sum(same[:P])
            if o.get("causal") == "bottom-right" or o.get("alignment") == "bottom-right":
                offset = sum(same) - sum(of_q[b] == of_q[b, i])
            place_q[b, i] = sum(of_q[b, :i] == of_q[b, i]) + offset
        for j in range(S):
            place_k[b, j] = sum(of_k[b, :j] == of_k[b, j])
    return of_q, of_k, place_q, place_k


def allowed(o, distance):
    """Causality and the window, of a key so far ahead of a query's place."""
    left, right = o.get("window", [-1, -1])
    return not ((o.get("causal") and distance > 0) or (left >= 0 and distance < -left) or
                (right >= 0 and distance > right))


def mask_terms(t, o, shape):
    """What the mask lets be seen, and what it adds."""
    seen, bias = np.ones(shape, bool), np.zeros(shape)
    if "mask" in t:
        mask = np.broadcast_to(t["mask"], shape)
        if mask.dtype == bool:
            seen = mask if o.get("mask_polarity") != "ignore" else ~mask
        else:
            seen, bias = mask != -np.inf, np.where(mask == -np.inf, 0, mask)
    return seen, bias


def normalise_qk(x, weight, o):
    """qk_norm of (B, heads, N, D)."""
    kind, out = o.get("qk_norm", "none"), x.copy()
    for row in np.ndindex(x.shape[:3]):
        squares = math.fsum(x[row] ** 2)
        if kind == "rms":
            out[row] = x[row] / math.sqrt(squares / x.shape[3] + o.get("qk_norm_epsilon", 1e-6))
        elif kind == "l2":
            out[row] = x[row] / max(math.sqrt(squares), o.get("qk_norm_epsilon", 1e-12))
        if weight is not None:
            out[row] *= weight
    return out


def frequencies(rotary, r):
    """How far each pair of columns turns from one place to the next."""
    base, scaling, factor = rotary.get("base", 10000), rotary.get("scaling"), rotary.get("factor", 1)
    length = rotary.get("original_length", 0)
    if scaling == "ntk":
        base *= factor ** (r / (r - 2))
    turns = [base ** (-2 * k / r) for k in range(r // 2)]
    if scaling == "linear":
        turns = [f / factor for f in turns]
    if scaling == "llama3":
        low, high = rotary.get("low_frequency_factor", 1), rotary.get("high_frequency_factor", 4)
        for k, f in enumerate(turns):
            wavelength = 2 * math.pi / f
            if wavelength > length / low:
                turns[k] = f / factor
            elif wavelength >= length / high:
                smooth = (length / wavelength - low) / (high - low)
                turns[k] = (1 - smooth) * f / factor + smooth * f
    if scaling == "yarn":
        def border(rotations):
            return r * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low = max(math.floor(border(rotary.get("beta_fast", 32))), 0)
        high = min(math.ceil(border(rotary.get("beta_slow", 1))), r - 1)
        for k, f in enumerate(turns):
            ramp = min(max((k - low) / ((high - low) or 0.001), 0), 1)
            turns[k] = f / factor * ramp + f * (1 - ramp)
    return turns


def rotate(x, t, o, places):
    """Rotary positions of (B, heads, N, D) at places (B, N)."""
    rotary = o.get("rotary")
    if not rotary:
        return x
    r = rotary.get("width", x.shape[3])
    if "cos" in t:
        r = 2 * t["cos"].shape[-1]
    else:
        turns = frequencies(rotary, r)
    length = 1
    if rotary.get("scaling") == "yarn":
        length = rotary.get("attention_factor", 0.1 * math.log(rotary.get("factor", 1)) + 1)
    out = x.copy()
    for b, h, i in np.ndindex(x.shape[:3]):
        for k in range(r // 2):
            first, second = (k, k + r // 2) if rotary["kind"] == "half" else (2 * k, 2 * k + 1)
            if "cos" not in t:
                angle = places[b, i] * turns[k]
                cos, sin = length * math.cos(angle), length * math.sin(angle)
            elif t["cos"].ndim == 3:
                cos, sin = (np.broadcast_to(t[name], (len(x), *t[name].shape[1:]))[b, i, k]
                            for name in ("cos", "sin"))
            else:
                cos, sin = t["cos"][places[b, i], k], t["sin"][places[b, i], k]
            p, q = x[b, h, i, first], x[b, h, i, second]
            out[b, h, i, first], out[b, h, i, second] = p * cos - q * sin, p * sin + q * cos
    return out


def turned(t, o):
    """Queries and new keys as they meet."""
    q, k = t["Q"], t["K"]
    P = t["past_K"].shape[2] if "past_K" in t else 0
    of_q = np.broadcast_to(t.get("position_ids", P + np.arange(q.shape[2])),
                           (len(q), q.shape[2]))
    shared = t.get("position_ids") if k.shape[2] == q.shape[2] else None
    counted = P + np.arange(k.shape[2]) if shared is None else shared
    of_k = np.broadcast_to(t.get("key_position_ids", counted), (len(k), k.shape[2]))
    if o.get("qk_norm", "none") != "none":
        q, k = normalise_qk(q, t.get("q_norm"), o), normalise_qk(k, t.get("k_norm"), o)
    return rotate(q, t, o, of_q), rotate(k, t, o, of_k)


def score(q, k, t, kind):
    """One number of one query and one key."""
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


def slopes(H):
    """ALiBi's, as its paper lists them."""
    def of_power(n):
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]

    n = 2 ** int(math.log2(H))
    return of_power(n) + of_power(2 * n)[0::2][:H - n]


def bucket(ahead, count, both, most):
    """T5's: near distances one each, far ones on a logarithmic scale up to `most`."""
    first = 0
    if both:
        count //= 2
        first = count if ahead > 0 else 0
        ahead = abs(ahead)
    else:
        ahead = max(-ahead, 0)
    exact = count // 2
    if ahead < exact:
        return first + ahead
    wide = math.log(ahead / exact) / math.log(most / exact) * (count - exact)
    return first + min(exact + int(wide + 1e-6), count - 1)


def distance_bias(t, o, b, h, H, distance):
    total = 0
    if o.get("alibi") or "alibi_slopes" in t:
        m = np.array(t.get("alibi_slopes", slopes(H)))
        m = m[b, h] if m.ndim == 2 else m[h]
        total -= m * abs(distance)
    if "relative_bias" in t:
        relative = o.get("relative", {})
        both = {"both": True, "past": False}.get(relative.get("direction"), not o.get("causal"))
        table = t["relative_bias"]
        total += table[bucket(distance, len(table), both, relative.get("max_distance", 128)), h]
    return total


def simplex(x, power):
    """max(x - t, 0)^power with t, found by bisection, that makes the sum 1."""
    low, high = max(x) - 1, max(x)
    for _ in range(200):
        t = (low + high) / 2
        if sum(np.maximum(x - t, 0) ** power) > 1:
            low = t
        else:
            high = t
    return np.maximum(x - high, 0) ** power


def weigh(x, kind, o):
    """Weights of visible scores by a normaliser that is not softmax."""
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


def normalise(x, seen, o, padding, sink):
    """Weights of one query and their logsumexp."""
    x = x / o.get("temperature", 1)
    if not seen.any() and (padding or sink is None):
        empty = {"zero": 0, "uniform": 1 / max(len(x), 1), "nan": math.nan}
        return np.full(len(x), 0 if padding else empty[o.get("empty_rows", "zero")]), -math.inf
    known = list(x[seen]) + ([] if sink is None else [sink])
    total = math.fsum(math.exp(v - max(known)) for v in known)
    weights = np.array([math.exp(v - max(known)) / total if s else 0 for v, s in zip(x, seen)])
    kind = o.get("normaliser", "softmax")
    if kind != "softmax":
        weights[seen] = weigh(x[seen], kind, o)
    return weights, max(known) + math.log(total)


def appended(x, t, o, bias):
    """(B, G, S, D) with the keys or values that every query sees behind it."""
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


def scaled(raw, o, D):
    scale = o.get("scale", "auto")
    if scale == "auto":
        scale = 1 / math.sqrt(D) if o.get("score", "dot") == "dot" else 1
    return cap(raw * (1 if scale == "none" else scale), o, "before-mask")


def attend(t, o):
    """Every stage, by the names of attn's outputs."""
    q, k = turned(t, o)
    v = t["V"]
    stages = {"queries": q, "keys": k, "values": v}
    P = 0
    if "past_K" in t:
        P = t["past_K"].shape[2]
        k, v = np.concatenate([t["past_K"], k], 2), np.concatenate([t["past_V"], v], 2)
    stages.update(present_K=k, present_V=v)
    (B, H, L, D), (_, G, own, _) = q.shape, k.shape
    k, v = appended(k, t, o, "bias_K"), appended(v, t, o, "bias_V")
    S = k.shape[2]
    of_q, of_k, place_q, place_k = places(t, o, B, L, own, P)
    masked_in, bias = mask_terms(t, o, (B, H, L, own))
    names = ("scores", "scaled_scores", "masked_scores")
    stages.update({name: np.zeros((B, H, L, S)) for name in (*names, "weights")})
    stages.update(logsumexp=np.zeros((B, H, L)), context=np.zeros((B, H, L, v.shape[3])))
    for b, h, i in np.ndindex(B, H, L):
        g, seen = h // (H // G), np.zeros(S, bool)
        for j in range(S):
            raw = score(q[b, h, i], k[b, g, j], t, o.get("score", "dot"))
            x = scaled(raw, o, D)
            numbers, seen[j] = [raw, x], of_q[b, i] != NEVER
            if j < own:
                distance = place_k[b, j] - place_q[b, i]
                seen[j] = (masked_in[b, h, i, j] and of_q[b, i] == of_k[b, j] != NEVER and
                           allowed(o, distance))
                x += bias[b, h, i, j] + distance_bias(t, o, b, h, H, distance)
            numbers.append(cap(x, o, "after-mask") if seen[j] else -math.inf)
            for name, value in zip(names, numbers):
                stages[name][b, h, i, j] = value
        sink = t["sinks"][h] if "sinks" in t else None
        w, lse = normalise(stages["masked_scores"][b, h, i], seen, o, of_q[b, i] == NEVER, sink)
        stages["weights"][b, h, i], stages["logsumexp"][b, h, i] = w, lse
        stages["context"][b, h, i] = w @ np.where(w[:, None] == 0, 0, v[b, g])
    stages["mean_weights"] = stages["weights"].mean(1)
    stages["key_weights"] = stages["weights"].sum(2)
    stages["row_max"] = stages["masked_scores"].max(3, initial=-np.inf)
    return stages
