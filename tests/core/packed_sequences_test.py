"""Packed sequences, batch items with lengths, and pages have the bytes of each sequence alone."""

import json
import os

import numpy as np
import pytest

from support.attn import attn

LAYOUTS = int(os.environ.get("ATTN_LAYOUTS", 20))  # how many random ones
WANTED = {"outputs": ["context", "logsumexp"]}


def run(folder, job):
    arrays = {name: x for name, x in job.items() if isinstance(x, np.ndarray)}
    np.savez(folder / "in.npz", **arrays)
    (folder / "job.json").write_text(json.dumps(job | {name: f"in.npz#{name}" for name in arrays} | WANTED))
    done = attn("run", "job.json", "-o", "out.npz", "--force", "--threads", "2", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    with np.load(folder / "out.npz") as out:
        return out["context"], out["logsumexp"]


def options_of(rng):
    return [{}, {"causal": "bottom-right"}, {"causal": "bottom-right", "window": [int(rng.integers(0, 40)), 0]},
            {"causal": "bottom-right", "softcap": 3.0}, {"alignment": "bottom-right", "mask_rule": "q >= k or k < 3"},
            {"sinks": rng.standard_normal(4).astype("f4")}][rng.integers(6)]


@pytest.mark.parametrize("seed", range(LAYOUTS))
def test_bytes_of_sequences(tmp_path, seed):
    rng = np.random.default_rng(seed)
    H, G, D = 4, int(rng.choice([1, 2, 4])), int(rng.choice([8, 16, 24]))
    count = int(rng.integers(2, 6))
    queries = np.full(count, rng.integers(1, 5)) if seed % 2 else rng.integers(1, 9, count)
    keys = rng.integers(1, 400 if seed % 3 else 20, count)  # often fewer keys than queries
    dtype = [np.float32, np.float64][rng.integers(2)]
    options = options_of(rng) | {"layout": "thd"}
    normal = lambda *shape: rng.standard_normal(shape).astype(dtype)
    q, k, v = normal(queries.sum(), H, D), normal(keys.sum(), G, D), normal(keys.sum(), G, D)
    q_at, k_at = (np.concatenate([[0], np.cumsum(x)]) for x in (queries, keys))

    alone = []
    for b in range(count):
        rows, cols = slice(q_at[b], q_at[b + 1]), slice(k_at[b], k_at[b + 1])
        alone.append(run(tmp_path, options | {"Q": q[rows], "K": k[cols], "V": v[cols]}))
    context, logsumexp = (np.concatenate(x, axis) for x, axis in zip(zip(*alone), (0, -1)))

    packed = run(tmp_path, options | {"Q": q, "K": k, "V": v, "cu_seqlens_q": q_at, "cu_seqlens_k": k_at})
    assert (packed[0] == context).all() and (packed[1] == logsumexp).all(), "packed"

    size = int(rng.choice([1, 2, 3, 7, 16, 64, 256]))
    pages = -(-keys // size)
    ids = rng.permutation(int(pages.sum()) + 3)
    pool = np.full((2, len(ids), size, G, D), np.nan, dtype)
    table = np.full((count, pages.max()), -7)
    for b in range(count):
        table[b, :pages[b]] = ids[pages[:b].sum():pages[:b + 1].sum()]
        for j in range(keys[b]):
            pool[:, table[b, j // size], j % size] = k[k_at[b] + j], v[k_at[b] + j]
    cache = {"K_pages": pool[0], "V_pages": pool[1], "block_table": table, "key_lengths": keys}
    paged = run(tmp_path, options | cache | {"Q": q, "cu_seqlens_q": q_at})
    assert (paged[0] == context).all() and (paged[1] == logsumexp).all(), "pages, packed queries"

    if (queries == queries[0]).all():
        items = q.reshape(count, queries[0], H, D)
        batch = options | {"layout": "blhd", "Q": items}
        if "alignment" not in batch and "causal" not in batch:
            batch["alignment"] = "top-left"
        full = np.full((2, count, keys.max(), G, D), np.nan, dtype)
        for b in range(count):
            full[:, b, :keys[b]] = k[k_at[b]:k_at[b + 1]], v[k_at[b]:k_at[b + 1]]
        for name, form in ("pages", cache), ("lengths", {"K": full[0], "V": full[1], "key_lengths": keys}):
            found = run(tmp_path, batch | form)
            assert (found[0].reshape(context.shape) == context).all(), name
            assert (np.moveaxis(found[1], 0, 1).reshape(logsumexp.shape) == logsumexp).all(), name
