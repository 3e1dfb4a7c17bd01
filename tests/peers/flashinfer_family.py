"""Random cases of the reference functions of FlashInfer's operators: pages, packed sequences, latent attention and lists
of slots.

Some of these functions ignore the length of the last page; their sequences fill their pages. The one that accepts
interleaved heads of keys and values counts them twice; it gets combined ones. They compute in float32
and return bfloat16: here they use the dtype of the case for both."""

import importlib
import importlib.metadata
import sys
import types

import numpy as np
import torch
from peers.cases import Case, Draw
from peers.torch_family import both, tensor

COUNT = 60
DTYPES = ["float64", "float32"]


class TorchOf:
    """torch, in which float32 and bfloat16 are another dtype."""

    def __init__(self, dtype):
        self.float32 = self.bfloat16 = getattr(torch, dtype)

    def __getattr__(self, name):
        return getattr(torch, name)


def templates():
    """flashinfer.trace.templates.attention, without the rest of flashinfer, which needs CUDA."""
    root = importlib.metadata.distribution("flashinfer-python").locate_file("flashinfer")
    for name in "flashinfer", "flashinfer.trace", "flashinfer.trace.templates":
        package = types.ModuleType(name)
        package.__path__ = [str(root / "/".join(name.split(".")[1:]))]
        sys.modules[name] = package
    return importlib.import_module("flashinfer.trace.templates.attention")


TEMPLATES = templates()


def reference(name, dtype, tensors, **options):
    """The results of a reference function; floats are converted to the dtype."""
    TEMPLATES.torch = TorchOf(dtype)
    return getattr(TEMPLATES, name)(**{key: x if x is None else tensor(x, dtype) for key, x in tensors.items()}, **options)


class Pages:
    """Pages of sequences, which may share them, and the numbers of queries."""

    def __init__(self, draw, full, queries):
        self.size = draw.pick(1, 2, 5, 16, 64)
        count = draw.choose.randint(1, 4)
        used = [draw.choose.randint(0 if full else 1, 4) for _ in range(count)]
        self.lengths = np.array([n * self.size - (0 if full else draw.choose.randint(0, self.size - 1)) for n in used], "int32")
        self.count = sum(used) + 2
        ids = draw.rng.permutation(self.count)
        if draw.chance(0.3):
            ids = draw.rng.integers(0, self.count, self.count)
        self.starts = np.cumsum([0, *used], dtype="int32")
        self.ids = ids[:sum(used)].astype("int32")
        self.queries = np.array([queries or draw.pick(1, 3, 7) for _ in range(count)], "int32")
        self.ends = np.cumsum([0, *self.queries], dtype="int32")

    def table(self):
        table = np.zeros((len(self.lengths), max(1, np.diff(self.starts).max())), "int32")
        for row, first, last in zip(table, self.starts, self.starts[1:]):
            row[:last - first] = self.ids[first:last]
        return table

    def job(self):
        last = np.where(np.diff(self.starts) > 0, self.size, 0).astype("int32")
        return {"kv_indptr": self.starts, "kv_indices": self.ids, "last_page_len": last}


def with_lse(results, lse="logsumexp"):
    context, logsumexp = results
    return {"context": context, lse: logsumexp.T}


def case(name, dtype, job, compute, convention="flashinfer"):
    return Case(name, dtype, {"convention": convention, **job}, *both(compute, dtype))


def paged():
    """Grouped heads with one query for each sequence, or with causal packed queries."""
    for seed in range(2 * COUNT):
        draw, dtype, prefill = Draw("flashinfer paged", seed), DTYPES[seed % 2], seed // 2 % 2
        pages, (G, times, D) = Pages(draw, True, None if prefill else 1), (draw.pick(1, 2), draw.pick(1, 3), draw.pick(4, 16, 20))
        q = draw.normal(int(pages.ends[-1]), G * times, D, dtype=dtype)
        k, v = (draw.normal(pages.count, pages.size, G, D, dtype=dtype) for _ in "kv")
        scale = draw.pick(0.125, 0.5, 1.0)
        job = {"Q": q, "K_pages": k, "V_pages": v, **pages.job(), "layout": "thd", "scale": scale, "outputs": ["context", "logsumexp"]}
        of_queries = {"qo_indptr": pages.ends} if prefill else {}
        if prefill:
            job |= {"cu_seqlens_q": pages.ends, "causal": True}

        def compute(d):
            return with_lse(reference(f"_gqa_paged_{'prefill' if prefill else 'decode'}_reference", d,
                                      {"q": q, "k_cache": k, "v_cache": v, "kv_indptr": pages.starts, "kv_indices": pages.ids,
                                       **of_queries}, sm_scale=scale))

        yield case(f"paged {seed}", dtype, job, compute)


def ragged():
    """Packed queries and keys, causal."""
    for seed in range(COUNT):
        draw, dtype = Draw("flashinfer ragged", seed), DTYPES[seed % 2]
        count, (G, times, D) = draw.choose.randint(1, 4), (draw.pick(1, 2), draw.pick(1, 3), draw.pick(4, 16, 20))
        of_q, of_k = (np.cumsum([0, *(draw.choose.randint(0, 30) for _ in range(count))], dtype="int32") for _ in "qk")
        q = draw.normal(int(of_q[-1]), G * times, D, dtype=dtype)
        k, v = (draw.normal(int(of_k[-1]), G, D, dtype=dtype) for _ in "kv")
        if 0 in (len(q), len(k)):
            continue
        job = {"Q": q, "K": k, "V": v, "cu_seqlens_q": of_q, "cu_seqlens_k": of_k, "layout": "thd", "causal": True, "scale": 0.3,
               "outputs": ["context", "logsumexp"]}

        def compute(d):
            return with_lse(reference("_gqa_ragged_prefill_reference", d,
                                      {"q": q, "k": k, "v": v, "qo_indptr": of_q, "kv_indptr": of_k}, sm_scale=0.3))

        yield case(f"ragged {seed}", dtype, job, compute)


def latent():
    """Absorbed latent attention: one query for each sequence, causal packed queries, or lists of slots."""
    for seed in range(3 * COUNT):
        draw, dtype, form = Draw("flashinfer latent", seed), DTYPES[seed % 2], ("decode", "prefill", "lists")[seed // 2 % 3]
        pages, (H, R, Dr) = Pages(draw, True, 1 if form == "decode" else None), (draw.pick(1, 4), draw.pick(8, 20), draw.pick(4, 6))
        tokens = int(pages.ends[-1])
        given = {"q_nope": draw.normal(tokens, H, R, dtype=dtype), "q_pe": draw.normal(tokens, H, Dr, dtype=dtype),
                 "ckv_cache": draw.normal(pages.count, pages.size, R, dtype=dtype),
                 "kpe_cache": draw.normal(pages.count, pages.size, Dr, dtype=dtype)}
        job = {"Q_nope": given["q_nope"], "Q_pe": given["q_pe"], "CKV_pages": given["ckv_cache"], "K_pe_pages": given["kpe_cache"],
               "layout": "thd", "scale": 0.3, "outputs": ["context", "logsumexp"]}
        if form == "lists":
            lists = draw.rng.integers(0, pages.count * pages.size, (tokens, draw.pick(1, 5, 12))).astype("int32")
            lists[draw.rng.random(lists.shape) < 0.3] = -1
            given["sparse_indices"] = lists
            job |= {"key_indices": lists, "index_space": "cache", "duplicates": "count"}
        else:
            given |= {"kv_indptr": pages.starts, "kv_indices": pages.ids}
            job |= pages.job()
        if form == "prefill":
            given["qo_indptr"] = pages.ends
            job |= {"cu_seqlens_q": pages.ends, "causal": True}
        name = {"decode": "_mla_paged_decode_reference", "prefill": "_mla_paged_prefill_reference", "lists": "_dsa_paged_reference"}[form]

        def compute(d):
            return with_lse(reference(name, d, given, sm_scale=0.3))

        yield case(f"latent {form} {seed}", dtype, job, compute)


def trtllm():
    """TensorRT-LLM's operators: pages with the lengths of sequences, and latent attention with values among the keys."""
    for seed in range(2 * COUNT):
        draw, dtype, form = Draw("flashinfer trtllm", seed), DTYPES[seed % 2], ("decode", "context", "latent", "packed latent")[seed // 2 % 4]
        packed = form in ("context", "packed latent")
        pages = Pages(draw, False, None if packed else draw.pick(1, 3))
        tokens, scales = int(pages.ends[-1]), {"bmm1_scale": 0.3, "bmm2_scale": draw.pick(1.0, 0.5)}
        job = {"layout": "thd", "cu_seqlens_q": pages.ends, "block_table": pages.table(), "key_lengths": pages.lengths,
               "scale": 0.3, "outputs": ["context"]}
        tables = {"block_tables": pages.table(), "seq_lens": pages.lengths, "workspace_buffer": None}
        if "latent" in form:
            H, R, Dr = draw.pick(1, 4), draw.pick(8, 20), draw.pick(4, 6)
            q, pool = draw.normal(tokens, H, R + Dr, dtype=dtype), draw.normal(pages.count, pages.size, R + Dr, dtype=dtype)
            job |= {"Q": q, "KV_pages": pool, "value_width": R, "o_scale": 1 / scales["bmm2_scale"]}
            name = "_trtllm_batch_decode_mla_reference"
            given = {"query": q if packed else q.reshape(len(pages.lengths), -1, H, R + Dr), "kv_cache": pool, **tables}
            options = {"qk_nope_head_dim": R, "kv_lora_rank": R, "qk_rope_head_dim": Dr, "max_seq_len": 0, **scales}
            of_queries = {"cum_seq_lens_q": pages.ends} if packed else {}
        else:
            G, times, D = draw.pick(1, 2), draw.pick(1, 3), draw.pick(4, 16)
            q = draw.normal(tokens, G * times, D, dtype=dtype)
            pool = draw.normal(pages.count, 2, G, pages.size, D, dtype=dtype)
            job |= {"Q": q, "KV_pages": pool, "page_layout": "hnd", "causal": packed, "v_scale": scales["bmm2_scale"]}
            given, options = {"query": q, "kv_cache": pool, **tables}, dict(scales)
            name = "_trtllm_batch_decode_reference"
            of_queries = {}
            if packed:
                # Its mask shows a query before the first key all keys that the first query sees.
                if (pages.queries > pages.lengths).any():
                    continue
                name, of_queries = "_trtllm_batch_context_reference", {"cum_seq_lens_q": pages.ends, "cum_seq_lens_kv": None}
                options |= {"max_q_len": 0, "max_kv_len": 0, "batch_size": len(pages.lengths)}
            else:
                options["max_seq_len"] = 0

        def compute(d):
            context = reference(name, d, given | of_queries, **options)
            return {"context": context.reshape(tokens, *context.shape[-2:])}

        yield case(f"trtllm {form} {seed}", dtype, job, compute, "trtllm")
