"""A kernel in NumPy with a switch for each mistake, and random jobs for it.

Nothing here comes from attn: the formulas are those of docs/semantics.md, written as a kernel author would.
Inputs are stored in float16, bfloat16 or float32, sums are in float32, and the context is stored in the
input's dtype.
"""

import numpy as np

F32 = np.float32


def bf16(x):
    """float32 numbers rounded to bfloat16."""
    bits = np.asarray(x, F32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(F32)


def e4m3(x):
    """Numbers from 0 to 448 rounded to 8-bit floating point with 3 bits of mantissa."""
    numbers = np.array([m * 2. ** -9 for m in range(8)] + [(1 + m / 8) * 2. ** e for e in range(-6, 9) for m in range(8)])
    numbers = numbers[:-1]  # NaN
    upper = np.clip(np.searchsorted(numbers, x), 1, len(numbers) - 1)
    below, above = x - numbers[upper - 1], numbers[upper] - x
    up = (above < below) | ((above == below) & (upper % 2 == 0))
    return np.where(up, numbers[upper], numbers[upper - 1]).astype(F32)


ROUND = {"f32": lambda x: np.asarray(x, F32), "bf16": bf16,
         "f16": lambda x: np.asarray(x, np.float16).astype(F32)}


def random_job(seed, dtype, most=512, shape=None):
    """Tensors and options of a job; `options` are the keys of an attn job."""
    r = np.random.default_rng(seed)
    G = int(r.choice([1, 2, 2, 4]))
    H = G * int(r.choice([1, 2, 2, 4]))
    B = int(r.choice([1, 1, 2]))
    D = int(r.choice([32, 64]))
    L = int(40 * (most / 40) ** r.random() ** 4)  # few jobs are large: these take long
    S = L
    if shape:
        H, L, D = shape
        B, G, S = 1, H, L
    options, tensors = {}, {}
    past = 0
    kind = r.choice(["causal", "causal", "window", "mask", "plain", "decode"])
    if kind == "decode":
        past = max(1, L // 2)
        options["causal"] = True
        S = past + L
    if kind in ("causal", "window"):
        options["causal"] = True
        if r.random() < .4:
            S = L + int(r.integers(3, 40))
            options["alignment"] = "bottom-right"
    if kind == "window":
        options["window"] = [int(r.integers(4, max(6, L // 3))), 0]
    if kind == "mask":
        mask = r.random((L, S)) < .6
        mask[:, 0] = True
        tensors["mask"] = mask
    amp = float(r.choice([1, 1.5]))
    if r.random() < .3:
        options["softcap"] = float(r.choice([3, 10]))
    if r.random() < .3:
        options["scale"] = float(r.choice([.05, .2]))
    if r.random() < .3:
        tensors["sinks"] = r.normal(size=H).astype(F32) + 2
    if r.random() < .25:
        tensors["bias"] = r.normal(size=(H, L, S)).astype(F32)
    elif r.random() < .25:
        tensors["alibi_slopes"] = (2. ** (-8 * (1 + np.arange(H)) / H)).astype(F32)
    if r.random() < .35:
        options["rotary"] = {"kind": str(r.choice(["half", "interleaved"])), "base": float(r.choice([1e4, 5e5]))}
        if r.random() < .3:
            options["rotary"]["width"] = D // 2
        elif r.random() < .3:
            factors = np.float64(1 + .1 * np.arange(D // 2))
            options["rotary"] |= {"scaling": "longrope", "attention_factor": 1.3, "original_length": 4096,
                                  "short_factor": list(factors), "long_factor": list(2 * factors)}
    if r.random() < .25:
        options["qk_norm"] = "rms"
        tensors["q_norm"] = (1 + .3 * r.normal(size=D)).astype(F32)
        tensors["k_norm"] = (1 + .3 * r.normal(size=D)).astype(F32)
    if kind == "plain" and r.random() < .6:
        tensors["key_lengths"] = r.integers(max(2, S // 2), S, size=B, dtype=np.int64)
    if r.random() < .15:
        tensors["dropout_mask"] = r.random((B, H, L, S)) < .8
        options["dropout_p"] = .2
    if past:
        tensors["past_K"] = amp * r.normal(size=(B, G, past, D))
        tensors["past_V"] = r.normal(size=(B, G, past, D))
    tensors["Q"] = amp * r.normal(size=(B, H, L, D))
    tensors["K"] = amp * r.normal(size=(B, G, S - past, D))
    tensors["V"] = r.normal(size=(B, G, S - past, D))
    for name, x in tensors.items():
        if x.dtype not in (bool, np.int64):
            tensors[name] = ROUND[dtype](x)
    return tensors, options


def rotated(x, positions, rotary, pairs, sign=1, base=None):
    width = rotary.get("width", x.shape[-1])
    n = width // 2
    angles = positions[:, None] * np.asarray(base or rotary["base"], float) ** (-2 * np.arange(n) / width)
    angles = angles / rotary.get("divisors", 1)
    factor = rotary.get("attention_factor", 1)
    c, s = (factor * np.cos(angles)).astype(F32), (factor * sign * np.sin(angles)).astype(F32)
    first, second = (np.arange(n), np.arange(n) + n) if pairs == "half" else (2 * np.arange(n), 2 * np.arange(n) + 1)
    y = x.copy()
    y[..., first] = x[..., first] * c - x[..., second] * s
    y[..., second] = x[..., first] * s + x[..., second] * c
    return y


def normed(x, weight, epsilon=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + F32(epsilon)) * weight


def repeated(x, H, how):
    G = x.shape[1]
    if how == "tiled":
        return x[:, np.arange(H) % G]
    if how == "first":
        return x[:, np.zeros(H, int)]
    if how == "reversed":
        return x[:, G - 1 - np.arange(H) // (H // G)]
    return x[:, np.arange(H) // (H // G)]


@np.errstate(divide="ignore", invalid="ignore")
def forward(tensors, options, dtype, *mistakes, arithmetic="", empty="zero"):
    """The context (B, H, L, Dv) and the logsumexp (B, H, L), with these mistakes; both as stored. Queries without keys
    get zeros, or NaN."""
    t = dict(tensors)
    store = ROUND[dtype]
    is_ = mistakes.__contains__
    of = lambda changes, right: next((changes[m] for m in mistakes if m in changes), right)
    q, k, v = (t[name].astype(F32) for name in "QKV")
    B, H, L, D = q.shape
    G = k.shape[1]
    past = t["past_K"].shape[2] if "past_K" in t else 0
    i, rotary, base = np.arange(L), options.get("rotary"), None
    if is_("queries viewed as heads"):
        q = q.transpose(0, 2, 1, 3).reshape(B, H, L, D)
    viewed = lambda x: x.transpose(0, 2, 1, 3).reshape(x.shape)
    read_as_rows = lambda x: x.reshape(x.shape[0], x.shape[2], x.shape[1], D).transpose(0, 2, 1, 3)
    for how, f in ("viewed as heads", viewed), ("read as rows", read_as_rows):
        q = f(q) if is_(f"queries {how}") and f is read_as_rows else q
        k = f(k) if is_(f"keys {how}") or is_(f"keys and values {how}") else k
        v = f(v) if is_(f"values {how}") or is_(f"keys and values {how}") else v
    if is_("all viewed as heads"):
        q, k, v = (x.transpose(0, 2, 1, 3).reshape(x.shape) for x in (q, k, v))
    if options.get("qk_norm") and not is_("norm dropped"):
        ones = np.ones(D, F32)
        wq, wk = t["q_norm"], t["k_norm"]
        if is_("norm weight dropped"):
            wq = wk = ones
        if is_("norm weights swapped"):
            wq, wk = wk, wq
        if is_("norm weight + 1"):
            wq, wk = 1 + wq, 1 + wk
        if is_("norm over all heads"):
            join = lambda x: x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)
            split = lambda x, n: x.reshape(x.shape[0], x.shape[1], n, D).transpose(0, 2, 1, 3)
            q = split(normed(join(q), np.tile(wq, H)), H)
            k = split(normed(join(k), np.tile(wk, G)), G)
        else:
            q = normed(q, wq)
            if not is_("keys not normalised"):
                k = normed(k, wk)
        q, k = store(q), store(k)
    if rotary and not is_("rotary dropped"):
        pairs, sign = rotary["kind"], 1
        if "short_factor" in rotary and not is_("rotary scaling dropped"):
            rotary = dict(rotary, divisors=np.array(rotary["short_factor"]))
        if is_("rotary pairs"):
            pairs = "half" if pairs == "interleaved" else "interleaved"
        if is_("rotary base * 10"):
            base = 10 * rotary["base"]
        if is_("rotary base 1e6"):
            base = 1e6
        if is_("rotary sign"):
            sign = -1
        if is_("rotary factor dropped") or is_("rotary scaling dropped"):
            rotary = dict(rotary, attention_factor=1)
        if is_("rotary factor squared"):
            rotary = dict(rotary, attention_factor=rotary["attention_factor"] ** 2)
        if is_("rotary over all columns"):
            rotary = dict(rotary, width=D)
        at_q, at_k = past + i, past + np.arange(k.shape[2])
        if is_("rotary positions of queries + 1"):
            at_q = at_q + 1
        if is_("rotary positions without cache"):
            at_q, at_k = at_q - past, at_k - past
        if is_("rotary of keys dropped"):
            at_k = 0 * at_k
        if is_("rotary of queries dropped"):
            at_q = 0 * at_q
        times = 2 if is_("rotary twice") else 1
        for _ in range(times):
            q, k = (store(rotated(x, p, rotary, pairs, sign, base)) for x, p in ((q, at_q), (k, at_k)))
        if is_("values rotated"):
            v = store(rotated(v, at_k, rotary, pairs))
    if past:
        if is_("cache ignored"):
            past = 0
        else:
            k = np.concatenate([t["past_K"].astype(F32), k], 2)
            v = np.concatenate([t["past_V"].astype(F32), v], 2)
    S = k.shape[2]
    if is_("keys used as values"):
        v = k
    if is_("values used as keys"):
        k = v
    if is_("values of the next key"):
        v = np.roll(v, -1, 2)
    backwards = lambda x: x[:, :, ::-1]
    if is_("keys reversed") or is_("keys and values reversed"):
        k = backwards(k)
    if is_("values reversed") or is_("keys and values reversed"):
        v = backwards(v)
    if is_("queries reversed"):
        q = backwards(q)
    if is_("keys stored transposed"):
        k = k.swapaxes(-1, -2).reshape(k.shape)
    if is_("values stored transposed"):
        v = v.swapaxes(-1, -2).reshape(v.shape)
    if is_("values transposed"):
        v = v.reshape(B, G, D, S).swapaxes(-1, -2)
    if is_("pages reversed"):
        k, v = (x.reshape(B, G, S // 16, 16, D)[:, :, ::-1].reshape(x.shape) for x in (k, v))
    if is_("batch item 0 for all"):
        k, v = np.repeat(k[:1], B, 0), np.repeat(v[:1], B, 0)
    if is_("keys of batch item 0"):
        k = np.repeat(k[:1], B, 0)
    if is_("values of batch item 0"):
        v = np.repeat(v[:1], B, 0)
    if is_("queries of batch item 0"):
        q = np.repeat(q[:1], B, 0)
    how = of({"heads tiled": "tiled", "key/value head 0 for all": "first", "heads reversed": "reversed"}, "")
    k = repeated(k, H, "tiled" if is_("key heads tiled") else how)
    v = repeated(v, H, "tiled" if is_("value heads tiled") else how)
    scale = F32(options.get("scale", D ** -.5))
    scale = of({"scale missing": F32(1), "scale 1/D": F32(1 / D), "scale 1/sqrt(H D)": F32((H * D) ** -.5),
             "scale twice": scale * scale, "exp2 without log2 e": scale * F32(np.log(2)),
             "log2 e too much": scale / F32(np.log(2))}, scale)
    if is_("keys multiplied by their scale"):
        scale = scale * F32(2.6)
    s = scale * (q @ k.swapaxes(-1, -2))
    if arithmetic == "scores in 16 bits":
        s = store(scale * store(q @ k.swapaxes(-1, -2)))
    if is_("keys of each head multiplied by a scale"):
        s = s * (F32(.4) + F32(.35) * np.arange(H, dtype=F32))[:, None, None]
    cap = options.get("softcap")
    order = is_("softcap after the bias")
    if cap and not is_("softcap dropped") and not order:
        s = F32(cap) * np.tanh(s if is_("softcap not divided") else s / F32(cap))
        if is_("softcap not multiplied"):
            s = s / F32(cap)
    alignment = options.get("alignment", "top-left")
    offset = S - L if alignment == "bottom-right" else past
    if is_("other alignment"):
        offset = (S - L) + past - offset if S - L != past else offset
    if is_("causal offset 0"):
        offset = 0
    shift = of({"causal strict": -1, "causal one late": 1}, 0)
    d = i[:, None] + offset - np.arange(S)[None]
    visible = np.ones((B, H, L, S), bool)
    causal = options.get("causal")
    left = options["window"][0] if "window" in options else S // 3 if is_("window added") else None
    if left is not None and not is_("window dropped"):
        left = of({"window + 1": left + 1, "window - 1": left - 1, "window halved": left // 2}, left)
        if is_("chunks") or is_("chunks of left"):
            size = left + 1 if is_("chunks") else left
            visible &= (i[:, None] + offset) // size == np.arange(S)[None] // size
        else:
            visible &= d <= left
        if is_("first 4 keys beside the window") or is_("first 11 keys beside the window"):
            visible |= np.arange(S) < (4 if is_("first 4 keys beside the window") else 11)
        if is_("window symmetric"):
            visible &= d >= -left
            causal = False
    if is_("causal dropped"):
        causal = False
    if is_("causal added"):
        causal = True
    if causal:
        before = S - 1 - (S - 1) % 64 if is_("causal in the last 64 keys only") else 0
        if is_("causal inverted"):
            visible &= d < 0
        elif is_("causal inverted with own key"):
            visible &= d <= 0
        else:
            if is_("a third of the keys as a prefix"):
                before = S // 3
            block = (i[:, None] + offset) // 32 * 32
            if is_("causal to the end of blocks of 32"):
                before = block + 32
            if is_("blocks of 32 on the diagonal missing"):
                visible &= np.arange(S) < block
            visible &= (d + shift >= 0) | (np.arange(S) < before)
    if "mask" in t and not is_("mask dropped") and not is_("mask added as numbers"):
        mask = t["mask"].T if is_("mask transposed") else t["mask"]
        visible &= ~mask if is_("mask inverted") else mask
    if is_("mask added as numbers"):
        s = s + t["mask"].astype(F32)
    if "key_lengths" in t and not is_("key lengths ignored"):
        n = t["key_lengths"]
        n = np.minimum((n + 15) // 16 * 16, S) if is_("last page as stored") else n
        visible &= np.arange(S) < n[:, None, None, None]
    if is_("last key missing") or is_("last keys beyond a multiple of 16 missing"):
        n = t.get("key_lengths", np.full(B, S))
        n = n - 1 if is_("last key missing") else (n - 1) // 16 * 16
        visible &= np.arange(S) < n[:, None, None, None]
    if is_("first key missing"):
        visible[..., 0] = False
    if is_("masks inverted"):
        visible = ~visible
    if is_("masked scores times 0"):
        s, visible = s * visible, np.ones_like(visible)
    if "bias" in t and not is_("bias dropped"):
        bias = t["bias"].astype(F32)
        bias = of({"bias negated": -bias, "bias scaled": scale * bias, "bias of head 0": bias[:1]}, bias)
        s = s + (bias.swapaxes(-1, -2) if is_("bias transposed") else bias)
    if "alibi_slopes" in t and not is_("alibi dropped"):
        slopes = t["alibi_slopes"].astype(F32)
        slopes = of({"alibi negated": -slopes, "alibi scaled": scale * slopes,
                  "alibi from 1": slopes * F32(2 ** (8 / H))}, slopes)
        s = s - slopes[:, None, None] * np.abs(d).astype(F32)
    if order:
        s = F32(cap) * np.tanh(s / F32(cap))
    number = of({"masked scores set to 0": 0, "masked scores set to -1": -1, "masked scores set to -10": -10,
                 "masked scores set to -2.7": -2.7}, None)
    if number is not None:
        s, visible = np.where(visible, s, F32(number)), np.ones_like(visible)
    number = of({"masked scores plus -10": -10, "masked scores plus -1": -1, "masked scores plus -3.3": -3.3}, None)
    if number is not None:
        s, visible = s + np.where(visible, F32(0), F32(number)), np.ones_like(visible)
    if is_("softcap after the mask"):
        s, visible = np.where(visible, s, -F32(cap)), np.ones_like(visible)
    if is_("softmax over queries"):
        s = np.where(visible, s, -np.inf)
        m = s.max(-2, keepdims=True)
        e = np.exp(s - np.where(np.isfinite(m), m, 0))
        w = e / np.maximum(e.sum(-2, keepdims=True), F32(1e-30))
        return store(w @ v), None
    hidden = s if is_("mask after the softmax") else np.where(visible, s, F32(-np.inf))
    sink = None
    if "sinks" in t and not is_("sink dropped"):
        sink = t["sinks"].astype(F32)
        sink = of({"sink of the next head": np.roll(sink, -1), "sink twice": sink + F32(np.log(2)),
                "sink scaled": sink * scale, "sink as 2^x": sink * F32(np.log(2)),
                "sink of head 0": np.repeat(sink[:1], H)}, sink)[:, None, None]
    if is_("1 added to the denominator"):
        sink = np.zeros((1, 1, 1), F32)
    m = hidden.max(-1, keepdims=True)
    m = np.where(np.isfinite(m), m, 0)
    if sink is not None and not is_("sink not shifted"):
        m = np.maximum(m, sink)
    from_sink = any(m.endswith("rescaled from the sink") for m in mistakes)
    if from_sink or any(m.endswith("not rescaled") for m in mistakes):
        lacks = lambda what: is_(f"{what} not rescaled") or is_(f"{what} not rescaled from the sink")
        largest = np.maximum.accumulate(hidden, -1)[..., np.minimum(np.arange(S) // 32 * 32 + 31, S - 1)]
        largest = np.maximum(largest, sink) if from_sink else largest
        largest = np.where(np.isfinite(largest), largest, 0)
        early, last = np.exp(hidden - largest), np.exp(hidden - largest[..., -1:])
        of_sink = F32(0) if sink is None else np.exp(sink - largest[..., -1:])
        total = (last if lacks("context") else early).sum(-1, keepdims=True)
        total = total + (F32(1) if from_sink and not lacks("context") else of_sink)
        return store(((last if lacks("divisor") else early) / np.where(total > 0, total, 1)) @ v), None
    e = np.exp(hidden - m)
    if is_("mask after the softmax"):
        total = e.sum(-1, keepdims=True)
        e = np.where(visible, e, 0)
    else:
        total = e.sum(-1, keepdims=True)
    if is_("last page as zeros"):
        extra = -S % 16
        total = total + extra * np.exp(-m)
    if sink is not None:
        total = total + np.exp(sink if is_("sink not shifted") else sink - m)
    if arithmetic == "weights in bf16":
        e = bf16(e)
    if arithmetic in ("weights in e4m3", "weights times 448 in e4m3"):
        factor = F32(448 if "448" in arithmetic else 1)
        e = e4m3(factor * e) / factor
    if is_("weights not normalised"):
        w = e
    else:
        w = e / np.where(total > 0, total, 0 if empty == "nan" else 1)
    if is_("softmax twice") or is_("softmax twice with mask"):
        e = np.exp(w) if is_("softmax twice") else np.where(visible, np.exp(w), 0)
        w = e / np.maximum(e.sum(-1, keepdims=True), F32(1e-30))
    if dtype != "f32":
        w = store(w)
    if arithmetic == "subnormals flushed":
        w = np.where(np.abs(w) < 2.0 ** -14, 0, w)
        v = np.where(np.abs(v) < 2.0 ** -14, 0, v)
    if arithmetic == "weights in f16":
        w = ROUND["f16"](w)
    if "dropout_mask" in t and not is_("dropout ignored"):
        kept = ~t["dropout_mask"] if is_("dropout mask inverted") else t["dropout_mask"]
        w = np.where(kept, w, 0) / F32(1 if is_("dropout not divided") else 1 - options["dropout_p"])
    if arithmetic == "sums in f16":
        c = np.zeros((B, H, L, D), np.float16)
        for j in range(S):
            c = (c + (w[..., j, None] * v[:, :, None, j]).astype(np.float16)).astype(np.float16)
        return store(c), None
    if arithmetic == "tf32":
        cut = lambda x: ((np.asarray(x, F32).view(np.uint32) + 0x1000) & 0xFFFFE000).view(F32)
        w, v = cut(w), cut(v)
    context = w @ v
    if is_("sink with the value of key 0"):
        context = context + np.exp(sink - m) / total * v[:, :, :1]
    if is_("heads of the result reversed"):
        context = context[:, ::-1]
    if is_("heads of the result swapped with rows"):
        context = context.reshape(B, L, H, D).transpose(0, 2, 1, 3)
    if is_("result of the next row"):
        context = np.roll(context, -1, 2)
    if is_("result halved"):
        context = context / 2
    lse = (m + np.log(np.where(total > 0, total, 1)))[..., 0]
    return store(context), lse.astype(F32)


def keys_of(tensors):
    return sum(tensors[name].shape[2] for name in ("K", "past_K") if name in tensors)


def hides_keys(tensors, options):
    return bool(options.get("causal") or "mask" in tensors or "key_lengths" in tensors)


def is_ordered(tensors, options):
    """Whether the order of the keys matters."""
    return bool(hides_keys(tensors, options) or {"bias", "alibi_slopes", "dropout_mask"} & set(tensors))


# What each mistake needs, and the ids that name it.
MISTAKES = {
    "scale missing": (lambda t, o: True, {"scale.none"}),
    "scale 1/D": (lambda t, o: True, {"scale.1/D"}),
    "scale 1/sqrt(H D)": (lambda t, o: t["Q"].shape[1] > 1, {"scale.1/sqrt(H*D)"}),
    "scale twice": (lambda t, o: True, {"scale.twice", "scale.1/D"}),
    "exp2 without log2 e": (lambda t, o: True, {"scale.exp2"}),
    "log2 e too much": (lambda t, o: True, {"scale.log2e"}),
    "causal dropped": (lambda t, o: o.get("causal"), {"causal.dropped"}),
    "causal added": (lambda t, o: not o.get("causal"), {"causal.added"}),
    "other alignment": (lambda t, o: o.get("causal") and "past_K" not in t and t["Q"].shape[2] != t["K"].shape[2], {"causal.alignment", "causal.cache_ignored"}),
    "causal offset 0": (lambda t, o: "past_K" in t, {"causal.cache_ignored"}),
    "causal strict": (lambda t, o: o.get("causal"), {"causal.strict"}),
    "causal one late": (lambda t, o: o.get("causal"), {"causal.one_late"}),
    "mask after the softmax": (lambda t, o: o.get("causal") or "mask" in t, {"causal.after_softmax"}),
    "window dropped": (lambda t, o: "window" in o, {"window.dropped"}),
    "window + 1": (lambda t, o: "window" in o, {"window.left+1"}),
    "window - 1": (lambda t, o: "window" in o, {"window.left-1"}),
    "window symmetric": (lambda t, o: "window" in o, {"window.symmetric"}),
    "window halved": (lambda t, o: "window" in o, {"window.half"}),
    "chunks": (lambda t, o: "window" in o and "key_lengths" not in t, {"window.chunks"}),
    "chunks of left": (lambda t, o: "window" in o, {"window.chunks_of_left"}),
    "window added": (lambda t, o: o.get("causal") and "window" not in o, {"window.added"}),
    "causal in the last 64 keys only": (lambda t, o: o.get("causal") and "window" not in o and keys_of(t) > 64, {f"causal.last_{n}_keys_only" for n in (16, 32, 64, 128)}),
    "first 4 keys beside the window": (lambda t, o: "window" in o, {"window.first_keys"}),
    "first 11 keys beside the window": (lambda t, o: "window" in o, {"window.first_keys"}),
    "a third of the keys as a prefix": (lambda t, o: o.get("causal") and "window" not in o and t["Q"].shape[2] == t["K"].shape[2], {"causal.prefix"}),
    "heads tiled": (lambda t, o: 1 < t["K"].shape[1] < t["Q"].shape[1], {"heads.tiled"}),
    "key heads tiled": (lambda t, o: 1 < t["K"].shape[1] < t["Q"].shape[1], {"heads.keys_tiled"}),
    "value heads tiled": (lambda t, o: 1 < t["K"].shape[1] < t["Q"].shape[1], {"heads.values_tiled"}),
    "key/value head 0 for all": (lambda t, o: t["K"].shape[1] > 1, {"heads.first_only"}),
    "heads reversed": (lambda t, o: t["K"].shape[1] > 1, {"heads.kv_reversed"}),
    "queries viewed as heads": (lambda t, o: t["Q"].shape[1] > 1, {"heads.queries_viewed", "heads.queries_viewed_before_rotary"}),
    "all viewed as heads": (lambda t, o: t["K"].shape[1] > 1 and "past_K" not in t, {"heads.viewed", "heads.viewed_before_rotary"}),
    **{f"{name} {how}": (lambda t, o: t["K"].shape[1] > 1 and "past_K" not in t and t["K"].shape[1] != t["K"].shape[2]
                         and not {"rotary", "qk_norm"} & set(o), {f"heads.{name.replace(' and ', '_')}_{id}"})
       for name in ("keys", "values", "keys and values") for how, id in (("viewed as heads", "viewed"), ("read as rows", "as_rows"))},
    "queries read as rows": (lambda t, o: t["Q"].shape[1] > 1 and t["Q"].shape[1] != t["Q"].shape[2]
                             and not {"rotary", "qk_norm"} & set(o), {"heads.queries_as_rows"}),
    "causal to the end of blocks of 32": (lambda t, o: o.get("causal") and keys_of(t) > 32, {"causal.to_end_of_block_32"}),
    "blocks of 32 on the diagonal missing": (lambda t, o: o.get("causal") and keys_of(t) > 32, {"causal.without_own_block_32"}),
    "batch item 0 for all": (lambda t, o: t["Q"].shape[0] > 1, {"heads.batch_item_0"}),
    **{f"{name} of batch item 0": (lambda t, o: t["Q"].shape[0] > 1, {f"heads.{name}_of_batch_item_0"})
       for name in ("keys", "values", "queries")},
    "heads of the result reversed": (lambda t, o: t["Q"].shape[1] > 1, {"heads.permuted"}),
    "heads of the result swapped with rows": (lambda t, o: t["Q"].shape[1] > 1, {"output.viewed", "output.viewed_as_heads"}),
    "result of the next row": (lambda t, o: True, {"output.rows_moved"}),
    "result halved": (lambda t, o: True, {"values.factor"}),
    "rotary dropped": (lambda t, o: "rotary" in o, {"rotary.dropped"}),
    "rotary pairs": (lambda t, o: "rotary" in o, {"rotary.pairs"}),
    "rotary base * 10": (lambda t, o: "rotary" in o, {"rotary.base*10"}),
    "rotary base 1e6": (lambda t, o: "rotary" in o, {"rotary.base_1000000"}),
    "rotary sign": (lambda t, o: "rotary" in o, {"rotary.sign"}),
    "rotary factor dropped": (lambda t, o: "scaling" in o.get("rotary", {}), {"rotary.attention_factor_dropped"}),
    "rotary scaling dropped": (lambda t, o: "scaling" in o.get("rotary", {}), {"rotary.scaling_dropped"}),
    "rotary factor squared": (lambda t, o: "scaling" in o.get("rotary", {}), {"rotary.attention_factor_squared"}),
    "rotary over all columns": (lambda t, o: "width" in o.get("rotary", {}), {"rotary.all_columns"}),
    "rotary positions of queries + 1": (lambda t, o: "rotary" in o, {"rotary.queries_one_late"}),
    "rotary positions without cache": (lambda t, o: "rotary" in o and "past_K" in t, {"rotary.cache_ignored"}),
    "rotary of keys dropped": (lambda t, o: "rotary" in o, {"rotary.keys_not_rotated"}),
    "rotary of queries dropped": (lambda t, o: "rotary" in o, {"rotary.queries_not_rotated"}),
    "rotary twice": (lambda t, o: "rotary" in o, {"rotary.twice"}),
    "values rotated": (lambda t, o: "rotary" in o, {"rotary.values_rotated"}),
    "norm dropped": (lambda t, o: "qk_norm" in o, {"norm.dropped"}),
    "norm weight dropped": (lambda t, o: "qk_norm" in o, {"norm.weight_dropped"}),
    "norm weights swapped": (lambda t, o: "qk_norm" in o, {"norm.query_weight_for_keys"}),
    "norm weight + 1": (lambda t, o: "qk_norm" in o, {"norm.offset"}),
    "norm over all heads": (lambda t, o: "qk_norm" in o and t["Q"].shape[1] > 1, {"norm.axis"}),
    "keys not normalised": (lambda t, o: "qk_norm" in o, {"norm.keys_not_normalised"}),
    "softcap dropped": (lambda t, o: "softcap" in o, {"softcap.dropped"}),
    "softcap not divided": (lambda t, o: "softcap" in o, {"softcap.not_divided"}),
    "softcap not multiplied": (lambda t, o: "softcap" in o and "bias" not in t and "alibi_slopes" not in t, {"softcap.not_multiplied"}),
    "softcap after the bias": (lambda t, o: "softcap" in o and ("bias" in t or "alibi_slopes" in t), {"softcap.order"}),
    "causal inverted": (lambda t, o: o.get("causal"), {"causal.inverted"}),
    "causal inverted with own key": (lambda t, o: o.get("causal"), {"causal.inverted_with_own"}),
    "masks inverted": (lambda t, o: "window" in o or "key_lengths" in t, {"mask.all_inverted"}),
    "masked scores set to 0": (lambda t, o: hides_keys(t, o), {"mask.set_0"}),
    "masked scores times 0": (lambda t, o: hides_keys(t, o) and ("softcap" not in o), {"mask.set_0_before_bias", "mask.set_0"}),
    "masked scores set to -1": (lambda t, o: hides_keys(t, o), {"mask.set_number"}),
    "masked scores set to -10": (lambda t, o: hides_keys(t, o), {"mask.set_number", "softcap.of_hidden"}),
    "masked scores set to -2.7": (lambda t, o: hides_keys(t, o), {"mask.set_number"}),
    "masked scores plus -1": (lambda t, o: hides_keys(t, o), {"mask.added_number", "mask.added_as_numbers"}),
    "masked scores plus -10": (lambda t, o: hides_keys(t, o), {"mask.added_number"}),
    "masked scores plus -3.3": (lambda t, o: hides_keys(t, o), {"mask.added_number"}),
    "softmax twice": (lambda t, o: True, {"softmax.twice", "softmax.twice_masked"}),
    "softmax twice with mask": (lambda t, o: hides_keys(t, o), {"softmax.twice_masked"}),
    "mask inverted": (lambda t, o: "mask" in t, {"mask.inverted"}),
    "mask dropped": (lambda t, o: "mask" in t, {"mask.dropped"}),
    "mask transposed": (lambda t, o: "mask" in t, {"mask.transposed"}),
    "mask added as numbers": (lambda t, o: "mask" in t, {"mask.added_as_numbers"}),
    "key lengths ignored": (lambda t, o: "key_lengths" in t, {"mask.key_lengths_dropped"}),
    **{f"{what} not rescaled{start}": (lambda t, o, start=start: "dropout_mask" not in t and keys_of(t) > 32 and (not start or "sinks" in t),
                                       {f"softmax.{what}_not_rescaled_{'from_sink_' if start else ''}32"})
       for what in ("sums", "context", "divisor") for start in ("", " from the sink")},
    "softcap after the mask": (lambda t, o: "softcap" in o and ("mask" in t or o.get("causal")) and "bias" not in t and "alibi_slopes" not in t, {"softcap.of_hidden"}),
    "last page as stored": (lambda t, o: "key_lengths" in t and (t["key_lengths"] % 16).any(), {"cache.stored_tail_16", "cache.stored_tail_8", "mask.key_lengths_dropped"}),
    "bias dropped": (lambda t, o: "bias" in t, {"bias.dropped"}),
    "bias negated": (lambda t, o: "bias" in t, {"bias.negated"}),
    "bias scaled": (lambda t, o: "bias" in t, {"bias.scaled"}),
    "bias of head 0": (lambda t, o: "bias" in t and t["Q"].shape[1] > 1, {"bias.head_0"}),
    "bias transposed": (lambda t, o: "bias" in t and t["bias"].shape[1] == t["bias"].shape[2], {"bias.transposed"}),
    "alibi dropped": (lambda t, o: "alibi_slopes" in t, {"bias.alibi_dropped"}),
    "alibi negated": (lambda t, o: "alibi_slopes" in t, {"bias.alibi_negated"}),
    "alibi scaled": (lambda t, o: "alibi_slopes" in t, {"bias.alibi_scaled"}),
    "alibi from 1": (lambda t, o: "alibi_slopes" in t and t["Q"].shape[1] > 1, {"bias.alibi_from_1"}),
    "sink dropped": (lambda t, o: "sinks" in t, {"sink.dropped"}),
    "sink twice": (lambda t, o: "sinks" in t, {"sink.twice"}),
    "sink as 2^x": (lambda t, o: "sinks" in t, {"sink.exp2"}),
    "sink scaled": (lambda t, o: "sinks" in t, {"sink.scaled"}),
    "sink of the next head": (lambda t, o: "sinks" in t and t["Q"].shape[1] > 1, {"sink.next_head"}),
    "sink of head 0": (lambda t, o: "sinks" in t and t["Q"].shape[1] > 1, {"sink.head_0"}),
    "sink with the value of key 0": (lambda t, o: "sinks" in t and "dropout_mask" not in t, {"sink.value_of_key_0"}),
    "sink not shifted": (lambda t, o: "sinks" in t, {"sink.not_shifted"}),
    "1 added to the denominator": (lambda t, o: "sinks" not in t, {"sink.added"}),
    "keys used as values": (lambda t, o: "past_K" not in t, {"values.keys"}),
    "values used as keys": (lambda t, o: "past_K" not in t and "rotary" not in o and "qk_norm" not in o, {"values.as_keys"}),
    "values of the next key": (lambda t, o: "past_K" not in t, {"values.of_next_key"}),
    "values transposed": (lambda t, o: "past_K" not in t, {"values.transposed"}),
    "cache ignored": (lambda t, o: "past_K" in t and not {"bias", "dropout_mask", "alibi_slopes"} & set(t) and "rotary" not in o, {"cache.past_dropped"}),
    "pages reversed": (lambda t, o: "past_K" not in t and t["K"].shape[2] % 16 == 0, {"cache.reversed_pages_16"}),
    "values reversed": (lambda t, o: True, {"values.reversed"}),
    "keys reversed": (lambda t, o: is_ordered(t, o), {"values.keys_reversed"}),
    "keys and values reversed": (lambda t, o: is_ordered(t, o), {"values.both_reversed"}),
    "queries reversed": (lambda t, o: True, {"values.queries_reversed"}),
    "values stored transposed": (lambda t, o: True, {"values.read_transposed", "values.transposed"}),
    "keys stored transposed": (lambda t, o: True, {"values.keys_read_transposed", "values.keys_transposed"}),
    "first key missing": (lambda t, o: True, {"cache.first_missing"}),
    "last key missing": (lambda t, o: not o.get("causal") or t["Q"].shape[2] < 64, {"cache.last_missing"}),
    "last keys beyond a multiple of 16 missing": (lambda t, o: (n := t.get("key_lengths", np.array([sum(t[n].shape[2] for n in ("K", "past_K") if n in t)]))).min() > 16 and len(set(n % 16 == 0)) == 1, {"cache.tail_missing_16", "cache.tail_missing_8", "cache.last_missing"}),
    "last page as zeros": (lambda t, o: "key_lengths" not in t and "past_K" not in t and "sinks" not in t and 0 < t["K"].shape[2] % 16 < 15 and "alibi_slopes" not in t, {"cache.zero_tail_16", "cache.zero_tail_8"}),
    "dropout ignored": (lambda t, o: "dropout_mask" in t, {"dropout.dropped"}),
    "dropout mask inverted": (lambda t, o: "dropout_mask" in t, {"dropout.inverted"}),
    "dropout not divided": (lambda t, o: "dropout_mask" in t, {"dropout.not_divided", "values.factor"}),
    "softmax over queries": (lambda t, o: "sinks" not in t and "dropout_mask" not in t, {"softmax.over_queries"}),
    "weights not normalised": (lambda t, o: "sinks" not in t, {"softmax.not_normalised"}),
    "keys multiplied by their scale": (lambda t, o: True, {"scale.factor"}),
    "keys of each head multiplied by a scale": (lambda t, o: t["Q"].shape[1] > 1, {"scale.factor_of_each_head"}),
}
