"""Random key/value caches in pages, and the same keys and values in one piece."""

import random

import numpy as np

PAGE_SIZES = [1, 2, 3, 7, 16, 17, 32, 48, 64, 100, 128, 192, 256]


def bits(x):
    """The elements of a float array as integers, in which NaNs with the same bits are equal."""
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


class PagedJob:
    """Sequences whose keys are in pages of a pool: `tensors` and `options` of the job with pages, and
    of the job with the gathered K and V. Slots without a key are NaN, sequences may share pages, and
    the rest of the tables is invalid."""

    def __init__(self, seed, softcap=True):
        self.seed = seed
        self.choose = random.Random(f"pages {seed}")
        self.rng = np.random.default_rng(self.choose.getrandbits(64))
        choose = self.choose
        self.size = choose.choice(PAGE_SIZES)
        self.G, self.D, self.Dv = choose.choice([1, 2, 3]), choose.choice([1, 4, 8, 20, 32]), choose.choice([1, 4, 16, 20])
        self.H = self.G * choose.choice([1, 2, 4])
        self.dtype = choose.choice(["float32", "float32", "float64", "float16"])
        self.packed = choose.random() < 0.5
        count = choose.randint(1, 5)
        most = choose.choice([8, 60, 300, 600])
        self.lengths = [choose.choice([0, 1, self.size, choose.randint(1, most), choose.randint(1, most)]) for _ in range(count)]
        self.queries = [choose.choice([1, 2, 5, 12, 17]) for _ in range(count)]
        if not self.packed:
            self.queries = [self.queries[0]] * count
        self.options = {"outputs": ["context", "logsumexp", *choose.choice([[], [], ["weights"]])]}
        if choose.random() < 0.6:
            self.options["causal"] = True
        if choose.random() < 0.2:
            self.options["window"] = [choose.choice([0, 5, 100]), -1]
        if choose.random() < 0.2 and softcap:
            self.options["softcap"] = 2.0
        self.fill_pages()
        self.form = choose.choice(["nhd", "hnd", "combined nhd", "combined hnd", "interleaved", "interleaved nhd"])
        if "combined" in self.form or "interleaved" in self.form:
            self.Dv = self.D
        self.K, self.V = self.pool(self.D), self.pool(self.Dv)

    def fill_pages(self):
        """Gives each sequence its pages; some begin with pages of an earlier one, as for a shared prompt."""
        self.spare = self.choose.randint(1, 3)
        ids = list(range(sum(-(-n // self.size) for n in self.lengths) + self.spare))
        self.choose.shuffle(ids)
        if self.choose.random() < 0.2:
            ids.sort()
        self.count, self.pages = len(ids), []
        for n in self.lengths:
            used = -(-n // self.size)
            first = self.choose.choice([p for p in self.pages if p] or [[]]) if self.choose.random() < 0.4 else []
            shared = first[:min(len(first), used, self.choose.randint(0, 4))]
            self.pages.append(shared + [ids.pop() for _ in range(used - len(shared))])

    def pool(self, width):
        """(P, page size, G, width): numbers in slots with a key, otherwise NaN."""
        pool = np.full((self.count, self.size, self.G, width), np.nan, self.dtype)
        for pages, n in zip(self.pages, self.lengths):
            for i, page in enumerate(pages):
                filled = min(self.size, n - i * self.size)
                if np.isnan(pool[page, :filled]).any():
                    pool[page, :filled] = self.rng.standard_normal((filled, self.G, width))
        return pool

    def rows(self, pool):
        """The keys or values of each sequence, (n, G, width)."""
        return [pool[pages].reshape(-1, *pool.shape[2:])[:n] for pages, n in zip(self.pages, self.lengths)]

    def pools(self):
        K, V = self.K, self.V
        if self.form == "nhd":
            return {"K_pages": K, "V_pages": V}
        if self.form == "hnd":
            return {"K_pages": K.transpose(0, 2, 1, 3), "V_pages": V.transpose(0, 2, 1, 3), "page_layout": "hnd"}
        if self.form == "combined nhd":
            return {"KV_pages": np.stack([K, V], 1)}
        if self.form == "combined hnd":
            return {"KV_pages": np.stack([K, V], 1).transpose(0, 1, 3, 2, 4), "page_layout": "hnd"}
        both = np.stack([K, V], 3).reshape(*K.shape[:2], 2 * self.G, self.D)  # heads K, V, K, V, ...
        if self.form == "interleaved nhd":
            return {"KV_pages": both, "page_layout": "interleaved"}
        return {"KV_pages": both.transpose(0, 2, 1, 3)[:, None], "page_layout": "interleaved"}

    def tables(self):
        count = len(self.lengths)
        table = np.full((count, max(map(len, self.pages)) + self.choose.randint(0, 2)), self.choose.choice([-1, 10**6]), "int32")
        for b, pages in enumerate(self.pages):
            table[b, :len(pages)] = pages
        block_table = {"block_table": table, "key_lengths": np.array(self.lengths, "int32")}
        last = [n - (len(pages) - 1) * self.size if pages else 0 for n, pages in zip(self.lengths, self.pages)]
        indptr = {"kv_indptr": np.cumsum([0, *map(len, self.pages)], dtype="int32"),
                  "kv_indices": np.array([p for pages in self.pages for p in pages] + [-7] * self.choose.randint(0, 2), "int32"),
                  "last_page_len": np.array(last, "int32")}
        return self.choose.choice([block_table, indptr, indptr, block_table | indptr])

    def jobs(self):
        """The job with pages, and the one without, as keys with arrays and JSON values."""
        bottom = {"alignment": "bottom-right"} if "causal" in self.options or "window" in self.options else {}
        paged = {**self.options, **self.pools(), **self.tables()}
        whole = {**self.options, **bottom}
        if self.packed:
            T = sum(self.queries)
            Q = self.rng.standard_normal((T, self.H, self.D)).astype(self.dtype)
            K, V = (np.concatenate(self.rows(pool)) for pool in (self.K, self.V))
            ends = np.cumsum([0, *self.queries], dtype="int32")
            whole |= {"K": K, "V": V, "cu_seqlens_k": np.cumsum([0, *self.lengths], dtype="int32")}
            both = {"Q": Q, "cu_seqlens_q": ends, "layout": "thd"}
            return paged | both, whole | both
        B, L = len(self.lengths), self.queries[0]
        Q = self.rng.standard_normal((B, L, self.H, self.D)).astype(self.dtype)
        K, V = (np.zeros((B, max(self.lengths), self.G, pool.shape[3]), self.dtype) for pool in (self.K, self.V))
        for to, pool in ((K, self.K), (V, self.V)):
            for b, rows in enumerate(self.rows(pool)):
                to[b, :len(rows)] = rows
        whole |= {"key_lengths": np.array(self.lengths)}
        if self.choose.random() < 0.5:
            both = {"Q": Q, "layout": "blhd"}
        else:
            Q, K, V = (x.transpose(0, 2, 1, 3) for x in (Q, K, V))
            both = {"Q": Q}
        return paged | both, whole | both | {"K": K, "V": V}

    def sequences(self, job):
        """Q (n, H, D), K (S, G, D) and V (S, G, Dv) of each sequence of one of the jobs."""
        Q = job["Q"] if job.get("layout") else job["Q"].transpose(0, 2, 1, 3)
        items = np.split(Q, np.cumsum(self.queries)[:-1]) if self.packed else Q
        return zip(items, self.rows(self.K), self.rows(self.V))

    def joined(self, job, contexts):
        """Contexts (n, H, Dv) in the layout of the job."""
        if self.packed:
            return np.concatenate(contexts)
        return np.stack(contexts) if job.get("layout") else np.stack(contexts).transpose(0, 2, 1, 3)

    def hidden(self, n, S):
        """(n, S): the keys that causality and the window hide."""
        distance = np.arange(S) - (np.arange(n) + S - n)[:, None]
        hidden = np.zeros(distance.shape, bool)
        if "causal" in self.options:
            hidden |= distance > 0
        if "window" in self.options:
            hidden |= distance < -self.options["window"][0]
        return hidden

    def expected(self, job):
        """The context of one of the jobs, from matrix products in float64."""
        return self.joined(job, [self.context_of(*(x.astype("float64") for x in qkv)) for qkv in self.sequences(job)])

    def context_of(self, q, k, v):
        k, v = (x.repeat(self.H // self.G, axis=1) for x in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(self.D)
        if "softcap" in self.options:
            scores = self.options["softcap"] * np.tanh(scores / self.options["softcap"])
        weights = np.where(self.hidden(len(q), len(k)), 0, np.exp(scores - scores.max(initial=0)))
        total = weights.sum(-1, keepdims=True)
        return np.einsum("hij,jhd->ihd", weights / np.where(total == 0, 1, total), v)
