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


def softmax(x, seen, o, padding):
    """Weights of one query and their logsumexp."""
    if not seen.any():
        empty = {"zero": 0, "uniform": 1 / max(len(x), 1), "nan": math.nan}
        return np.full(len(x), 0 if padding else empty[o.get("empty_rows", "zero")]), -math.inf
    top = max(x[seen])
    e = np.array([math.exp(v - top) if s else 0 for v, s in zip(x, seen)])
    return e / e.sum(), top + math.log(e.sum())


def attend(t, o):
    q, k, v = t["Q"], t["K"], t["V"]
    if "past_K" in t:
        k, v = np.concatenate([t["past_K"], k], 2), np.concatenate([t["past_V"], v], 2)
    stages = {"queries": q, "keys": t["K"], "values": t["V"], "present_K": k, "present_V": v}
    (B, H, L, D), (_, G, S, _) = q.shape, k.shape
    of_q, of_k, place_q, place_k = places(t, o, B, L, S, S - t["K"].shape[2])
    seen, bias = mask_terms(t, o, (B, H, L, S))
    seen = seen.copy()
    names = ("scores", "scaled_scores", "masked_scores", "weights")
    stages.update({name: np.zeros((B, H, L, S)) for name in names})
    stages.update(logsumexp=np.zeros((B, H, L)), context=np.zeros((B, H, L, v.shape[3])))
    for b in range(B):
        for h in range(H):
            g = h // (H // G)
            for i in range(L):
                for j in range(S):
                    raw = math.fsum(q[b, h, i] * k[b, g, j])
                    scaled = raw / math.sqrt(D)
                    seen[b, h, i, j] &= (of_q[b, i] == of_k[b, j] != NEVER and
                                         allowed(o, place_k[b, j] - place_q[b, i]))
                    masked = scaled + bias[b, h, i, j] if seen[b, h, i, j] else -math.inf
                    for name, value in zip(names, (raw, scaled, masked)):
                        stages[name][b, h, i, j] = value
                w, lse = softmax(stages["masked_scores"][b, h, i], seen[b, h, i], o,
                                 of_q[b, i] == NEVER)
                stages["weights"][b, h, i], stages["logsumexp"][b, h, i] = w, lse
                if S:
                    stages["context"][b, h, i] = w @ np.where(w[:, None] == 0, 0, v[b, g])
    return stages
