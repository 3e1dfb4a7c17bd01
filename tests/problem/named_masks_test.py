"""chunk, sink_tokens, prefix_lengths, tree_parents and blocks, compared with the same masks built in NumPy."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, json_lines
from support.jobs import random_jobs, run_arrays

RANDOM_JOBS = random_jobs(40)


def problem(rng, B, L, S, H=2):
    shapes = dict(Q=(B, H, L, 4), K=(B, H, S, 4), V=(B, H, S, 3))
    return {name: rng.standard_normal(shape).round(3).tolist() for name, shape in shapes.items()}


def positions(L, S, alignment):
    """Those of queries (L, 1) and of keys (1, S)."""
    return np.arange(L)[:, None] + (S - L if alignment == "bottom-right" else 0), np.arange(S)[None]


def random_chunk(rng, B, L, S, alignment):
    q, k = positions(L, S, alignment)
    C = int(rng.integers(1, S + 2))
    return {"chunk": C}, np.floor_divide(q, C) == np.floor_divide(k, C)


def random_sink_tokens(rng, B, L, S, alignment):
    q, k = positions(L, S, alignment)
    N, left, right = int(rng.integers(1, S + 1)), int(rng.integers(-1, S)), int(rng.integers(-1, 3))
    if left == right == -1:
        left = 1
    left_limit = k >= q - left if left >= 0 else np.ones((L, S), bool)
    right_limit = k <= q + right if right >= 0 else np.ones((L, S), bool)
    return {"sink_tokens": N, "window": [left, right]}, (left_limit | (k < N)) & right_limit


def random_prefix(rng, B, L, S, alignment):
    q, k = positions(L, S, alignment)
    lengths = rng.integers(0, S + 1, B)
    if rng.random() < 0.3:
        return {"causal": True, "prefix_lengths": int(lengths[0])}, (k <= q) | (k < lengths[0])
    return ({"causal": True, "prefix_lengths": lengths.tolist()},
            np.stack([(k <= q) | (k < length) for length in lengths]))


def way_to_root(parents, node):
    while node >= 0:
        yield node
        node = parents[node]


def random_tree(rng, B, L, S, alignment):
    N = int(rng.integers(1, min(L, S) + 1))
    of_items = rng.random() < 0.5
    trees = [[int(rng.integers(-1, node)) for node in range(N)] for _ in range(B if of_items else 1)]
    padded = alignment == "top-left" and rng.random() < 0.5  # bottom-right would refer to the lengths
    lengths = rng.integers(N, S + 1, B) if padded else np.full(B, S)
    mask = np.zeros((B, L, S), bool)
    for b, length in enumerate(lengths):
        mask[b, :, :length - N] = True
        parents = trees[b if of_items else 0]
        for node in range(N):
            mask[b, L - N + node, [length - N + other for other in way_to_root(parents, node)]] = True
    keys = {"tree_parents": trees if of_items else trees[0]}
    return keys if (lengths == S).all() else keys | {"key_lengths": lengths.tolist()}, mask


def random_blocks(rng, B, L, S, alignment):
    M, N = (int(n) for n in rng.integers(1, 6, 2))
    shape = (-(-L // M), -(-S // N))
    blocks = rng.integers(0, 2, (B, *shape) if rng.random() < 0.5 else shape)
    whole = np.repeat(np.repeat(blocks, M, -2), N, -1)[..., :L, :S]
    return {"blocks": blocks.tolist(), "block_size": [M, N]}, whole == 1


MASKS = [random_chunk, random_sink_tokens, random_prefix, random_tree, random_blocks]


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_random_named_masks_have_the_bytes_of_masks(path):
    """One to three of them at once, sometimes with a mask rule."""
    rng = np.random.default_rng(7)
    jobs = []
    for _ in range(RANDOM_JOBS):
        B, L, S = int(rng.integers(1, 4)), int(rng.integers(1, 9)), int(rng.integers(1, 14))
        alignment = "bottom-right" if rng.random() < 0.5 else "top-left"
        job = problem(rng, B, L, S) | {"outputs": ["weights", "context", "logsumexp"], "path": path}
        named, mask = {}, np.ones((1, L, S), bool)
        for kind in rng.choice(len(MASKS), rng.integers(1, 4), replace=False):
            keys, one = MASKS[kind](rng, B, L, S, alignment)
            named |= keys
            mask = mask & one
        if set(named) & {"chunk", "window", "causal"}:
            named["alignment"] = alignment
        if rng.random() < 0.3:
            q, k = positions(L, S, named.get("alignment"))
            named["mask_rule"] = "q > k + 1 or k % 2 == 0"
            mask = mask & ((q > k + 1) | (k % 2 == 0))
        jobs.append(job | named)
        jobs.append(job | {"mask": np.broadcast_to(mask[:, None], (mask.shape[0], 1, L, S)).tolist()})
    run = attn("batch", "-", stdin="\n".join(map(json.dumps, jobs)))
    assert run.returncode == 0, run.stderr.decode()
    results = json_lines(run.stdout)
    for job, named, mask in zip(jobs[::2], results[::2], results[1::2]):
        for output in job["outputs"]:
            assert named[output] == mask[output], (output, {k: x for k, x in job.items() if k not in "QKV"})


def test_tree_of_drafts_over_pages():
    """Two sequences of 5 and 7 keys in pages of 4, of which the last 3 are drafts."""
    rng = np.random.default_rng(1)
    pool = rng.standard_normal((4, 4, 1, 2))
    table, lengths, parents = np.array([[2, 0], [3, 1]]), [5, 7], [-1, 0, 0]
    job = {"Q": rng.standard_normal((2, 1, 3, 2)).tolist(), "tree_parents": parents, "outputs": ["context"]}
    paged = job | {"KV_pages": pool[:, None].repeat(2, 1).tolist(), "block_table": table.tolist(), "key_lengths": lengths}
    run = attn("run", "-", "--format", "json", stdin=json.dumps(paged))
    assert run.returncode == 0, run.stderr.decode()
    context = json.loads(run.stdout)["context"]
    Q = np.array(job["Q"])
    for b, length in enumerate(lengths):
        K = pool[table[b]].reshape(8, 2)[:length]
        scores = Q[b, 0] @ K.T / np.sqrt(2)
        for node in range(3):
            hidden = set(range(3)) - set(way_to_root(parents, node))
            scores[node, [length - 3 + other for other in hidden]] = -np.inf
        weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        np.testing.assert_allclose(np.array(context)[b, 0], weights @ K, rtol=1e-12)


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_prefixes_of_packed_sequences(tmp_path, path):
    """One for each sequence, of 3, 1 and 5 tokens; and causality stays what other options refer to."""
    rng = np.random.default_rng(2)
    tensors = {name: rng.standard_normal((9, 2, 4)) for name in "QKV"}
    document = np.repeat([0, 1, 2], [3, 1, 5])
    position = np.concatenate([np.arange(n) for n in (3, 1, 5)])
    visible = position[None] <= np.maximum(position[:, None], np.array([2, 1, 4])[document][:, None] - 1)
    mask = visible & (document[:, None] == document)
    cu = [0, 3, 4, 9]
    packed = run_arrays(tmp_path, tensors, layout="thd", causal=True, cu_seqlens_q=cu, prefix_lengths=[2, 1, 4],
                        outputs=["context"], path=path)["context"]
    masked = run_arrays(tmp_path, tensors, layout="thd", mask=mask.tolist(), outputs=["context"], path=path)["context"]
    np.testing.assert_allclose(packed, masked, rtol=1e-12)


def test_prefixes_leave_relative_positions_causal(tmp_path):
    """relative_bias distinguishes past distances only, as without a prefix."""
    rng = np.random.default_rng(3)
    tensors = {name: rng.standard_normal((6, 4)) for name in "QKV"} | {"relative_bias": rng.standard_normal((7, 1))}
    of_none = run_arrays(tmp_path, tensors, causal=True, outputs=["weights"])["weights"]
    of_zero = run_arrays(tmp_path, tensors, causal=True, prefix_lengths=0, outputs=["weights"])["weights"]
    assert (of_none == of_zero).all()


def test_trees_of_packed_pages_are_refused(tmp_path):
    job = {"Q": np.ones((4, 1, 2)).tolist(), "layout": "thd", "KV_pages": np.ones((2, 2, 4, 1, 2)).tolist(),
           "block_table": [[0], [1]], "key_lengths": [3, 4], "cu_seqlens_q": [0, 2, 4], "tree_parents": [-1, 0]}
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65, "tree_parents: cannot be combined with")
    del job["cu_seqlens_q"]
    job["Q"] = job["Q"][:2]
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65, "tree_parents: cannot be combined with documents")


EXPRESSIONS = [
    (["--chunk", "4"], "q // 4 == k // 4"),
    (["--causal", "--window", "2,0", "--sink-tokens", "3"], "k < 3 or q - k <= 2"),
    (["--causal", "--prefix-lengths", "[2]"], "k < prefix_lengths[b] or q >= k"),
    (["--tree-parents", "[-1, 0, 0, 1, 1, 2]"], "j < S - 6 or ancestors[i, j - S + 6]"),
    (["--tree-parents", "[-1, 0]"], "j < S - 2 or i >= 4 and ancestors[i - 4, j - S + 2]"),
    (["--tree-parents", "[-1, 0]", "--key-lengths", "[7]"],
     "j < tree_start[b] or i >= 4 and ancestors[i - 4, j - tree_start[b]]"),
    (["--blocks", "[[1, 0], [1, 1]]", "--block-size", "3,4"], "blocks[i // 3, j // 4]"),
    (["--mask-rule", "q >= k or k == 1", "--chunk", "4"], "(q >= k or k == 1) and q // 4 == k // 4"),
]


@pytest.mark.parametrize("flags, expression", EXPRESSIONS)
def test_the_expression_is_printed(tmp_path, flags, expression):
    """By `attn mask` and `attn run --dry-run`."""
    drawn = attn("mask", "--shape", "6,8", *flags)
    assert drawn.returncode == 0, drawn.stderr.decode()
    assert drawn.stdout.decode().splitlines()[1] == f"mask_rule: {expression}"
    np.save(tmp_path / "q.npy", np.ones((6, 2)))
    np.save(tmp_path / "k.npy", np.ones((8, 2)))
    inputs = ["--q", "q.npy", "--k", "k.npy", "--dry-run", *flags]
    planned = attn("run", *inputs, cwd=tmp_path).stdout.decode()
    assert planned.splitlines()[-1] == f"mask_rule: {expression}"
    planned = attn("run", *inputs, "--format", "json", cwd=tmp_path).stdout
    assert json.loads(planned)["mask_rule"] == expression


ERRORS = [
    (["--chunk", "0"], 2, "--chunk: expected a whole number >= 1, found 0"),
    (["--sink-tokens", "2"], 2, "--sink-tokens: requires --window"),
    (["--prefix-lengths", "[2]"], 65, "--prefix-lengths: requires --causal"),
    (["--causal", "--prefix-lengths", "[1, 2]"], 65, "expected one whole number for each of the 1 batch items, found int64 (2,)"),
    (["--causal", "--prefix-lengths", "[-1]"], 65, "expected lengths from 0 to 8, found -1"),
    (["--causal", "--prefix-lengths", "[1.5]"], 65, "expected one whole number for each of the 1 batch items, found float64 (1,)"),
    (["--tree-parents", "[-1, 1]"], 65, "expected a parent before node 1, or -1 for a root, found 1"),
    (["--tree-parents", "[-2]"], 65, "expected a parent before node 0, or -1 for a root, found -2"),
    (["--tree-parents", "[-1, -1, -1, -1, -1, -1, -1]"], 65,
     "expected whole numbers of shape (N) or (1, N), 0 < N <= 6, the number of queries, found int64 (7,)"),
    (["--tree-parents", "[-1, 0]", "--key-lengths", "[1]"], 65, "expected at most 1 nodes, one for each key, found 2"),
    (["--tree-parents", "[-1, 0, 0, 0, 0, 0]", "--key-lengths", "[5]"], 65, "expected at most 5 nodes, one for each key, found 6"),
    (["--tree-parents", "[-1, 0]", "--query-lengths", "[4]"], 65, "--tree-parents: cannot be combined with --query-lengths"),
    (["--causal", "--prefix-lengths", "[1]", "--documents", "[0, 0, 0, 1, 1, 1]", "--key-documents", "[0, 0, 0, 1, 1, 1, 1, 1]"],
     65, "--prefix-lengths: cannot be combined with --documents"),
    (["--tree-parents", "[-1, 0]", "--cu-seqlens-q", "[0, 6]", "--cu-seqlens-k", "[0, 8]"], 65,
     "--tree-parents: cannot be combined with --cu-seqlens-q"),
    (["--blocks", "[[1]]"], 65, "--blocks: requires --block-size"),
    (["--block-size", "4,4"], 2, "--block-size: requires --blocks"),
    (["--blocks", "[[0.5]]", "--block-size", "8,8"], 65, "expected booleans of shape (1, 1), also for each batch item, for 6 queries and 8 keys, found float64"),
    (["--blocks", "[[1, 0], [1, 1]]", "--block-size", "3,3"], 65,
     "expected booleans of shape (2, 3), also for each batch item, for 6 queries and 8 keys, found int64 (2, 2)"),
    (["--chunk", "4", "--mask-rule", "q >= z"], 2, "unknown name 'z' at character 6"),
    (["--blocks", "[[1]]", "--block-size", "8,8", "--mask-rule", "blocks[0, 0]", "--mask-tables", '{"blocks": [[1]]}'], 65,
     "blocks: mask_tables has a table with the name blocks"),
]


@pytest.mark.parametrize("flags, code, message", ERRORS)
def test_errors(flags, code, message):
    assert_error(attn("mask", "--shape", "6,8", *flags), code, message)


def test_other_names_are_suggested():
    job = {"Q": [[1.0]], "K": [[1.0]], "attention_chunk": 4}
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65, "chunk")
