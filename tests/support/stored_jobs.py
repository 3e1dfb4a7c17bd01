"""Random jobs with quantised queries, keys and values, and the same jobs with decoded numbers.

number = (stored - zero_point) * scale * global_scale, in the type of the computation. The codes are decoded bit
by bit, as their definitions state (OCP OFP8 and MX 1.0; arXiv:2206.02915 for the fnuz forms).
"""

import random

import numpy as np

BYTES = np.arange(256, dtype=np.uint8)


def small_float(codes, exponent_bits, fraction_bits, bias):
    """Numbers with a sign, `exponent_bits` and `fraction_bits`, without NaN and infinity."""
    codes = codes.astype(int)
    fraction = codes & (1 << fraction_bits) - 1
    exponent = codes >> fraction_bits & (1 << exponent_bits) - 1
    sign = np.where(codes >> exponent_bits + fraction_bits & 1, -1.0, 1.0)
    normal = exponent > 0
    return sign * np.ldexp((normal << fraction_bits) + fraction, np.where(normal, exponent, 1) - bias - fraction_bits)


def e4m3(codes):
    return np.where(codes & 0x7f == 0x7f, np.nan, small_float(codes, 4, 3, 7))


def e5m2(codes):
    return (codes.astype("<u2") << 8).view(np.float16).astype(float)


def fnuz(codes, *form):
    return np.where(codes == 0x80, np.nan, small_float(codes, *form))


def e8m0(codes):
    return np.where(codes == 255, np.nan, np.ldexp(1.0, codes.astype(int) - 127))


def e2m1(codes):
    """Two numbers of each byte, the first from its low half."""
    halves = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)
    return small_float(halves, 2, 1, 1)


CODES = {"e4m3": e4m3, "e5m2": e5m2, "e4m3fnuz": lambda x: fnuz(x, 4, 3, 8), "e5m2fnuz": lambda x: fnuz(x, 5, 2, 16)}
BLOCKS = {"nvfp4": 16, "mxfp4": 32}


def finite_bytes(rng, decode, shape):
    return rng.choice(BYTES[np.isfinite(decode(BYTES)) & (abs(decode(BYTES)) < 500)], shape)


class StoredJob:
    """`given` is the job with stored elements, `plain` the one with numbers."""

    def __init__(self, seed):
        self.seed = seed
        self.choose = random.Random(f"stored {seed}")
        self.rng = np.random.default_rng(self.choose.getrandbits(64))
        choose = self.choose
        self.work = choose.choice([np.float32, np.float32, np.float64])
        self.form = choose.choice(["sd", "psd", "bhld", "bhld", "blhd", "thd", "packed", "pages nhd", "pages hnd", "combined"])
        self.B = choose.choice([1, 2, 3]) if self.form not in ("sd", "thd") else 1
        self.G = choose.choice([1, 2, 3]) if self.form not in ("sd", "psd") else 1
        self.H = self.G * choose.choice([1, 2, 4]) if self.G > 1 or "d" not in self.form[-2:] else 1
        if self.form in ("sd", "psd"):
            self.H = 1
        self.L, self.S = choose.choice([1, 1, 3, 17]), choose.choice([1, 5, 33, 130, 600])
        self.size = choose.choice([1, 4, 16])
        options = {"outputs": ["context", "logsumexp"], "compute": {4: "f32", 8: "f64"}[self.work().itemsize]}
        if choose.random() < 0.4:
            options |= {"causal": "bottom-right"}
        if self.form in ("blhd", "thd"):
            options["layout"] = self.form
        if self.form == "packed":
            options |= {"heads": self.H, "kv_heads": self.G}
        self.paged = self.form.startswith(("pages", "combined"))
        self.pages = -(-self.S // self.size)
        if self.paged:
            self.ids = list(range(self.B * self.pages + 2))
            choose.shuffle(self.ids)
        types = {name: self.storage() for name in "qkv"}
        if self.form == "combined":
            types["v"] = types["k"]
        blocks = [BLOCKS.get(types[name], 4) for name in "qk"]
        self.D = choose.choice([1, 2, 3]) * max(blocks)
        self.Dv = self.D if self.form == "combined" else BLOCKS.get(types["v"], 4) * choose.choice([1, 3])
        self.given, self.plain = dict(options), dict(options)
        for name, width in zip("qkv", (self.D, self.D, self.Dv)):
            self.add(name, types[name], width)
        if self.paged:
            self.add_pages()

    def storage(self):
        return self.choose.choice(["plain", "plain", "float32", "float16", "int8", "uint8", "int32", *CODES, *BLOCKS])

    def axes(self, name):
        """The axes of a stored tensor, without columns: lengths and letters."""
        heads, tokens = (self.H, self.L) if name == "q" else (self.G, self.S)
        if self.paged and name != "q":
            form = "PGs" if self.form == "pages hnd" else "PsG"
            lengths = {"P": len(self.ids), "s": self.size, "G": heads}
        else:
            form = {"sd": "s", "psd": "Ps", "thd": "sG", "blhd": "PsG", "packed": "PsG"}.get(self.form, "PGs")
            lengths = {"P": self.B, "s": tokens, "G": heads}
        return {axis: lengths[axis] for axis in form}

    def scale_shape(self, axes, kind, width, heads_of_groups):
        """The shape of a scale and the same with all axes."""
        choose = self.choose
        if kind in BLOCKS:
            shape = [*axes.values(), width // BLOCKS[kind]]
            return shape, shape
        form = choose.choice(["one", "one", "(1)", "heads", "items and heads", "tokens", "blocks", "ones"])
        full = [1] * (len(axes) + 1)
        if form in ("one", "(1)"):
            return ([] if form == "one" else [1]), full
        if form in ("heads", "items and heads") and "G" in axes:
            letters = [x for x in "PG" if x in axes and (x == "G" or form == "items and heads")]
            if sorted(axes).index("G") >= 0 and letters == [x for x in axes if x in letters]:
                lengths = [heads_of_groups if x == "G" else axes[x] for x in letters]
                for x, n in zip(letters, lengths):
                    full[list(axes).index(x)] = n
                return lengths, full
        tokens = [n if choose.random() < 0.8 else 1 for n in axes.values()]
        if form == "blocks":
            return [*tokens, width // 2], [*tokens, width // 2]
        if form == "ones":
            return [1] * (len(axes) + 1), full
        return tokens, [*tokens, 1]

    def add(self, name, kind, width):
        rng, choose = self.rng, self.choose
        axes = self.axes(name)
        shape = [*axes.values(), width]
        key = name.upper()
        if kind == "plain":
            stored = numbers = rng.standard_normal(shape).astype(np.float32)
        elif kind in BLOCKS:
            stored = rng.integers(0, 256, [*axes.values(), width // 2], dtype=np.uint8)
            numbers = e2m1(stored)
            self.given[f"{name}_type"] = kind
        elif kind in CODES:
            stored = finite_bytes(rng, CODES[kind], shape)
            numbers = CODES[kind](stored)
            self.given[f"{name}_type"] = kind
        elif kind in ("float32", "float16"):
            stored = numbers = rng.standard_normal(shape).astype(kind)
        else:
            low = 0 if kind == "uint8" else -100
            stored = numbers = rng.integers(low, 120, shape).astype(kind)
        numbers = np.asarray(numbers, self.work)
        scaled = kind not in ("plain", *CODES) or (kind in CODES and choose.random() < 0.7)
        if scaled:
            heads = self.G if name == "q" and choose.random() < 0.3 else axes.get("G", 1)
            given, full = self.scale_shape(axes, kind, width, heads)
            if kind == "nvfp4":
                scale = finite_bytes(rng, e4m3, given)
                factors = e4m3(scale)
            elif kind == "mxfp4":
                scale = rng.integers(110, 128, given).astype(np.uint8)
                factors = e8m0(scale)
            else:
                scale = (rng.standard_normal(given) * 0.05).astype(choose.choice(["float32", "float32", "float64", "float16"]))
                scale = factors = np.asarray(scale)
            self.given[f"{name}_scale"] = scale
            factors = np.asarray(factors, float)
            if choose.random() < (0.8 if kind == "nvfp4" else 0.2):
                self.given[f"{name}_global_scale"] = np.array(0.007, np.float32)
                factors = factors * float(np.float32(0.007))
            factors = factors.reshape(full)
            factors = np.repeat(factors, [1, width // full[-1]][full[-1] > 1], axis=-1) if full[-1] > 1 else factors
            zeros = None
            if kind == "uint8":
                zeros = rng.integers(100, 130, given if choose.random() < 0.5 else [])
                self.given[f"{name}_zero_point"] = np.asarray(zeros)
                zeros = np.broadcast_to(zeros, given).reshape(full)
                zeros = np.repeat(zeros, width // full[-1], axis=-1) if full[-1] > 1 else zeros
                numbers = numbers - self.over_heads(zeros.astype(self.work), axes)
            numbers = numbers * self.over_heads(factors.astype(self.work), axes)
        assert numbers.dtype == self.work, (numbers.dtype, kind)
        self.set_tensor(self.given, name, key, stored, axes)
        self.set_tensor(self.plain, name, key, numbers, axes)

    def over_heads(self, scale, axes):
        """A scale with as many heads as the tensor, or 1."""
        if "G" not in axes:
            return scale
        at = list(axes).index("G")
        return scale if scale.shape[at] == 1 else np.repeat(scale, axes["G"] // scale.shape[at], axis=at)

    def set_tensor(self, job, name, key, tensor, axes):
        if self.paged and name != "q":
            job[f"{key}_pages"] = tensor
        elif self.form == "packed":
            job[key] = tensor.reshape(*tensor.shape[:-2], -1)
        else:
            job[key] = tensor

    def add_pages(self):
        table = np.array(self.ids[:self.B * self.pages], "int32").reshape(self.B, self.pages)
        lengths = np.array([self.choose.randint(1, self.S) for _ in range(self.B)])
        for job in (self.given, self.plain):
            job |= {"block_table": table, "key_lengths": lengths}
            if self.form == "pages hnd":
                job["page_layout"] = "hnd"
            if self.form == "combined":
                job["KV_pages"] = np.stack([job.pop("K_pages"), job.pop("V_pages")], 1)
