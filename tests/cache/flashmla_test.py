"""FlashMLA's 8-bit caches give the bytes of the numbers in them, and lists of their slots those of a gather."""

import json

import numpy as np
import pytest

from support import flashmla_caches as caches
from support.attn import attn
from support.jobs import run_jobs
from support.paged_jobs import bits
from support.stored_jobs import e4m3

FORMS = ["flashmla_v32", "flashmla_v32 4 axes", "flashmla_model1", "flashmla_model1 4 axes", "flashmla_model1 padded"]


def cache_of(form, rng, pages, size):
    """The stored pages, and their numbers (P, page size, D)."""
    x = rng.standard_normal((pages, size, 576 if "v32" in form else 512)) * np.exp2(rng.integers(-9, 9, (pages, size, 1)))
    if "v32" in form:
        stored = caches.v32(x)
        return stored[:, :, None] if "4 axes" in form else stored, caches.numbers_of_v32(stored)
    stored = caches.model1(x, "padded" in form)
    numbers = caches.numbers_of_model1(stored, size)
    shape = {"flashmla_model1": (pages, size, 584), "flashmla_model1 4 axes": (pages, size, 1, 584)}.get(form, stored.shape)
    return stored.reshape(shape), numbers


def test_the_encoder_of_this_test_rounds_to_the_nearest_code():
    codes = np.delete(np.arange(256, dtype=np.uint8), [0x7f, 0xff])
    assert np.array_equal(caches.e4m3_codes(e4m3(codes)), codes)
    assert e4m3(caches.e4m3_codes(np.array([17.0, 19.0, -0.0015, 447.0]))).tolist() == [16.0, 20.0, -2.0**-9, 448.0]


@pytest.mark.parametrize("form", FORMS)
def test_caches_give_the_bytes_of_their_numbers(tmp_path, form):
    rng = np.random.default_rng(FORMS.index(form))
    size, lengths = 5, [12, 0, 7]
    stored, numbers = cache_of(form, rng, 6, size)
    used = np.zeros((6, size), bool)
    table = np.array([[4, 0, 2], [9, 9, 9], [5, 1, 9]])
    K = np.zeros((3, max(lengths), numbers.shape[-1]), "f4")
    for b, n in enumerate(lengths):
        for j in range(n):
            used[table[b, j // size], j % size] = True
            K[b, j] = numbers[table[b, j // size], j % size]
    if "model1" not in form:
        stored[~used] = 255  # NaN in all parts
    q = rng.standard_normal((3, 4, 2, K.shape[-1])).astype("f4")
    both = {"Q": q, "layout": "blhd", "scale": 1e-3, "causal": "bottom-right", "outputs": ["K", "V", "context", "logsumexp"]}
    pages = {"KV_pages": stored, "k_type": form.split()[0], "block_table": table, "key_lengths": lengths}
    plain = {"K": K[:, :, None], "V": K[:, :, None, :512], "key_lengths": lengths}
    found, expected = run_jobs(tmp_path, [both | pages, both | plain])
    for name in both["outputs"]:
        assert np.array_equal(bits(found[name]), bits(expected[name])), name


def gathered(q, rows, lists, scale, sinks):
    """The context and the logsumexp without sinks of queries (B, L, H, D) that gather rows (slots, D)."""
    B, L, H, _ = q.shape
    context, lse = np.zeros((B, L, H, 512)), np.full((B, H, L), np.inf)
    for b, l in np.ndindex(B, L):
        k = rows[lists[b, l][lists[b, l] >= 0]].astype(float)
        if len(k) == 0:
            continue
        scores = scale * q[b, l].astype(float) @ k.T
        lse[b, :, l] = np.logaddexp.reduce(scores, -1)
        context[b, l] = np.exp(scores - np.logaddexp(lse[b, :, l], sinks)[:, None]) @ k[:, :512]
    return context, lse


@pytest.mark.parametrize("form", ["flashmla_v32 4 axes", "flashmla_model1 padded"])
@pytest.mark.parametrize("cut", [False, True])
def test_sparse_decoding(tmp_path, form, cut):
    """Lists of slots, some of them twice, without a table of pages."""
    rng = np.random.default_rng(5)
    stored, numbers = cache_of(form, rng, 7, 6)
    rows = numbers.reshape(42, -1)
    lists = rng.integers(-1, 42, (3, 2, 9)).astype("i4")
    lists[1, 0] = -1
    q, sinks = rng.standard_normal((3, 2, 4, rows.shape[-1])).astype("f4"), rng.standard_normal(4).astype("f4")
    job = {"Q": q, "KV_pages": stored, "k_type": form.split()[0], "key_indices": lists, "index_space": "cache", "sinks": sinks,
           "scale": 2e-3, "duplicates": "count", "convention": "flashmla", "outputs": ["context", "logsumexp"]}
    if cut:
        lengths = np.array([[3], [9], [0]])
        job["index_counts"] = lengths
        lists = np.where(np.arange(9) < lengths[..., None], lists, -1)
    found, = run_jobs(tmp_path, [job])
    context, lse = gathered(q, rows, lists, 2e-3, sinks)
    assert np.allclose(found["context"], context, rtol=2e-5, atol=2e-5 * np.abs(rows).max())
    assert np.allclose(found["logsumexp"], lse, rtol=1e-5, atol=1e-5)


def test_lists_of_slots_with_a_table(tmp_path):
    """They are the lists of keys of each sequence, with positions: causal masks apply."""
    rng = np.random.default_rng(6)
    pool, table, lengths = rng.standard_normal((6, 4, 1, 8)), np.array([[5, 0, 2], [3, 5, 9]]), [10, 6]
    of_keys = np.stack([np.stack([rng.permutation(n)[:5] for _ in range(3)]) for n in lengths])
    of_keys[:, :, 4] = -1
    slots = np.where(of_keys < 0, -1, np.stack([t[k // 4] * 4 + k % 4 for t, k in zip(table, of_keys)]))
    both = {"Q": rng.standard_normal((2, 2, 3, 8)), "K_pages": pool, "V_pages": pool, "block_table": table, "key_lengths": lengths,
            "causal": True, "outputs": ["context", "weights"]}
    found, expected = run_jobs(tmp_path, [both | {"key_indices": slots, "index_space": "cache"}, both | {"key_indices": of_keys}])
    for name in both["outputs"]:
        assert np.array_equal(bits(found[name]), bits(expected[name])), name
    packed = {"Q": rng.standard_normal((6, 2, 8)), "layout": "thd", "cu_seqlens_q": np.array([0, 3, 6], "i4")}
    found, expected = run_jobs(tmp_path, [both | packed | {"key_indices": slots.reshape(6, 5), "index_space": "cache"},
                                         both | packed | {"key_indices": of_keys.reshape(6, 5)}])
    for name in both["outputs"]:
        assert np.array_equal(bits(found[name]), bits(expected[name])), name


def test_packed_queries_with_lists_of_slots(tmp_path):
    """As FlashInfer's dsa_paged: lists (tokens, n), which no sequence of pages explains."""
    rng = np.random.default_rng(8)
    ckv, pe = rng.standard_normal((5, 4, 16)), rng.standard_normal((5, 4, 4))
    q, lists = rng.standard_normal((7, 3, 20)), np.stack([rng.permutation(20)[:6] for _ in range(7)])
    lists[2, 3:] = -1
    found, = run_jobs(tmp_path, [{"Q_nope": q[..., :16], "Q_pe": q[..., 16:], "CKV_pages": ckv, "K_pe_pages": pe, "layout": "thd",
                                 "key_indices": lists, "index_space": "cache", "scale": 0.3, "outputs": ["context"]}])
    rows = np.concatenate([ckv, pe], -1).reshape(20, 20)
    for token in range(7):
        k = rows[lists[token][lists[token] >= 0]]
        scores = 0.3 * q[token] @ k.T
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        assert np.allclose(found["context"][token], weights / weights.sum(-1, keepdims=True) @ k[:, :16], rtol=1e-12, atol=1e-13)


def test_lists_of_lengths(tmp_path):
    rng = np.random.default_rng(9)
    q, lists = rng.standard_normal((2, 3, 4)), np.stack([[rng.permutation(8)[:4] for _ in range(3)] for _ in range(2)])
    both = {"Q": q, "K": rng.standard_normal((2, 8, 4)), "outputs": ["weights"]}
    for given, lengths in [([4, 0, 2], [[4, 0, 2]] * 2), ([[1, 2, 3], [0, 4, 1]], [[1, 2, 3], [0, 4, 1]]), ([[3], [1]], [[3], [1]])]:
        cut = np.where(np.arange(4) < np.array(lengths)[..., None], lists, -1)
        found, expected = run_jobs(tmp_path, [both | {"key_indices": lists, "index_counts": given}, both | {"key_indices": cut}])
        assert np.array_equal(found["weights"], expected["weights"]), given
    shared = np.where(np.arange(4) < np.array([[3], [1]])[..., None], lists[0], -1)
    found, expected = run_jobs(tmp_path, [both | {"key_indices": lists[0], "index_counts": [[3], [1]]}, both | {"key_indices": shared}])
    assert np.array_equal(found["weights"], expected["weights"])


SPARSE = {"Q": np.ones((2, 1, 1, 6)).tolist(), "KV_pages": np.ones((3, 2, 6)).tolist(), "value_width": 4, "scale": 1,
          "key_indices": [[[0, 5]], [[1, -1]]], "index_space": "cache"}
TABLE = {"block_table": [[0, 1], [2, 0]], "key_lengths": [3, 2], "key_indices": [[[0, 2]], [[5, -1]]]}
BYTES = {"Q": np.ones((2, 1, 1, 576)).tolist(), "k_type": "flashmla_v32", "value_width": None}
ERRORS = {
    "slot": ({"key_indices": [[[0, 6]], [[1, -1]]]}, "key_indices: expected one of the 6 slots of the pool, or -1 for none, found 6"),
    "other sequence": (TABLE | {"key_indices": [[[0, 4]], [[5, -1]]]},
        "key_indices: expected slots with keys of the query's sequence, or -1 for none, for batch item 0, query 0, found 4"),
    "beyond the sequence": (TABLE | {"key_indices": [[[0, 3]], [[5, -1]]]},
        "key_indices: expected slots with keys of the query's sequence, or -1 for none, for batch item 0, query 0, found 3"),
    "shape": ({"key_indices": [[[0, 1], [0, 1]]]},
        "key_indices: expected whole numbers of shape (1, n), (2, 1, n), or with heads as the second of four axes, found (1, 2, 2)"),
    "twice": ({"key_indices": [[[3, 3]], [[1, -1]]]},
        "key_indices: expected each slot once, unless duplicates is once or count, for batch item 0, query 0, found slot 3 twice"),
    "causal": ({"causal": True}, "causal: requires block_table or kv_indptr with index_space cache"),
    "lengths": ({"key_lengths": [3, 2]}, "key_lengths: requires block_table or kv_indptr with index_space cache"),
    "no lists": ({"key_indices": None}, "index_space: requires key_indices"),
    "blocks": ({"index_block": 2}, "index_space: cannot be combined with index_block"),
    "too long": ({"index_counts": [[3], [1]]}, "index_counts: expected 0 to 2, the length of lists, found 3"),
    "shape of lists and lengths": ({"key_indices": [[[0, 1]]] * 3, "index_counts": [[1], [1]]},
        "key_indices: expected whole numbers of shape (1, n), (2, 1, n), or with heads as the second of four axes, found (3, 1, 2)"),
    "shape of lengths": ({"index_counts": [[1, 2]]}, "index_counts: expected shape (1,), (2, 1) or (2, 1), found (1, 2)"),
    "bytes": (BYTES | {"KV_pages": np.ones((3, 2, 576), int).tolist()},
        "KV_pages: expected (P, page size, 656) or (P, page size, 1, 656), found (3, 2, 576)"),
    "bytes of model1": (BYTES | {"k_type": "flashmla_model1", "KV_pages": np.ones((3, 1200), int).tolist()},
        "KV_pages: expected (P, page size, 584), (P, page size, 1, 584) or (P, bytes of a page), found (3, 1200)"),
    "floats": (BYTES | {"KV_pages": np.ones((3, 2, 656)).tolist()}, "KV_pages: expected uint8 elements, the codes of k_type, found float64"),
    "scale of a cache": (BYTES | {"KV_pages": np.ones((3, 2, 656), int).tolist(), "k_scale": 2.0},
        "k_type: 'flashmla_v32' cannot be combined with k_scale"),
    "width": (BYTES | {"Q": np.ones((2, 1, 1, 512)).tolist(), "KV_pages": np.ones((3, 2, 656), int).tolist()},
        "KV_pages: expected width 512 of the queries, found 576"),
    "not in pages": ({"KV_pages": None, "index_space": None, "value_width": None, "K": np.ones((2, 1, 5, 6), int).tolist(),
                      "k_type": "flashmla_v32"}, "k_type: 'flashmla_v32' requires KV_pages"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error(tmp_path, case):
    change, message = ERRORS[case]
    (tmp_path / "job.json").write_text(json.dumps({key: x for key, x in (SPARSE | change).items() if x is not None}))
    run = attn("run", "job.json", cwd=tmp_path)
    lines = run.stderr.decode().splitlines()
    assert (run.returncode, len(lines)) == (65, 1), run.stderr.decode()
    assert lines[0].endswith(message)
