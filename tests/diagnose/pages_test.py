"""`attn compare --diagnose` names mistakes about the pages of a cache."""

import json

import numpy as np
import pytest

from support.attn import attn

HEADS, GROUPS, WIDTH, SIZE, PAGES = 4, 2, 16, 8, 14
LENGTHS = [19, 10, 25]
TABLE = [[5, 2, 9, 11], [0, 13, 7, 3], [4, 8, 1, 6]]
RNG = np.random.default_rng(5)
Q = RNG.standard_normal((len(LENGTHS), 1, HEADS, WIDTH), "f4")
K, V = RNG.standard_normal((2, PAGES, SIZE, GROUPS, WIDTH), "f4")


def context(lengths=LENGTHS, table=TABLE, scales=None, zeros=(0, 0, 0)):
    """What a kernel computes that reads this cache, with a scale for each page of the table, or 1, and then keys of zeros."""
    out = np.empty(Q.shape, "f4")
    for b, (length, pages) in enumerate(zip(lengths, table)):
        of_keys = 1 if scales is None else np.repeat(scales[b], SIZE)[:length, None, None]
        k, v = (pool[pages].reshape(-1, GROUPS, WIDTH)[:length].repeat(HEADS // GROUPS, 1) for pool in (K, V))
        scores = np.einsum("hd,khd->hk", Q[b, 0], k * of_keys) / WIDTH**0.5
        scores = np.pad(scores, ((0, 0), (0, zeros[b])))
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights = (weights / weights.sum(1, keepdims=True))[:, :length]
        out[b, 0] = np.einsum("hk,khd->hd", weights, v * of_keys)
    return out


MISTAKES = [
    ("one key too many of each sequence, as stored in its pages", {"lengths": [20, 11, 26]}),
    ("the last page of 8 keys read to its end, as stored", {"lengths": [24, 16, 32]}),
    ("one page of 8 keys too many, as the table has it", {"lengths": [32, 24, 32]}),
    ("the last page of 8 keys left out unless it is full", {"lengths": [16, 8, 24]}),
    ("the length of sequence 0 for all", {"lengths": [19] * 3}),
    ("the pages of sequence 0 for all", {"table": [TABLE[0]] * 3}),
    ("the pages of the next sequence", {"table": TABLE[1:] + TABLE[:1]}),
    ("block_table ignored: pages in the order of the pool", {"table": np.arange(12).reshape(3, 4)}),
    ("the pages of each sequence in reverse order", {"table": [[9, 2, 5], [13, 0], [6, 1, 8, 4]]}),
]
TABLES = {
    "block_table": {"block_table": TABLE, "key_lengths": LENGTHS},
    # Behind the pages of a sequence are those of the next.
    "kv_indices": {"kv_indptr": [0, 3, 5, 9], "kv_indices": [5, 2, 9, 0, 13, 4, 8, 1, 6], "last_page_len": [3, 2, 1]},
}
OF_BOTH = [0, 1, 3, 4, 5, 6, 8]
BEHIND = {4: {"table": [[5, 2, 9], [0, 13, 4], [4, 8, 1]]}, 5: {"table": [[5, 2, 9, 0]] * 3},
          6: {"table": [[0, 13, 4], [4, 8], [5, 2, 9, 0]]}}


def diagnosed(folder, result, table, layout="blhd", **keys):
    np.savez(folder / "result.npz", context=result)
    np.save(folder / "q.npy", Q if layout == "blhd" else Q[:, 0])
    np.save(folder / "k.npy", K)
    np.save(folder / "v.npy", V)
    job = {"Q": "q.npy", "K_pages": "k.npy", "V_pages": "v.npy", "layout": layout} | TABLES[table] | keys
    (folder / "job.json").write_text(json.dumps(job))
    run = attn("compare", "result.npz", "--reference", "job.json", "--diagnose", cwd=folder)
    return run.returncode, run.stdout.decode()


@pytest.mark.parametrize("table, number", [("block_table", number) for number in range(len(MISTAKES))] +
                         [("kv_indices", number) for number in OF_BOTH])
def test_mistakes_are_named(tmp_path, table, number):
    claim, changes = MISTAKES[number]
    if table == "kv_indices":
        changes = changes | BEHIND.get(number, {})
    code, report = diagnosed(tmp_path, context(**changes), table)
    assert code == 1
    assert f"agrees with {claim}" in report.splitlines()[1], report


LENGTH_FLAGS = {"block_table": "--key-lengths", "kv_indices": "--last-page-len"}
OF_LENGTHS = [
    ("one key less than {}", {"lengths": [18, 9, 24]}),
    ("one key more than {}, read as zeros", {"zeros": [1, 1, 0]}),
    ("the last page of 8 keys read to its end as zeros", {"zeros": [5, 6, 0]}),
    ("zeros as keys up to the length of the longest sequence", {"zeros": [6, 15, 0]}),
]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("claim, changes", OF_LENGTHS)
def test_lengths_are_named_by_the_keys_of_the_job(tmp_path, table, claim, changes):
    code, report = diagnosed(tmp_path, context(**changes), table)
    assert code == 1
    assert f"agrees with {claim.format(LENGTH_FLAGS[table])}\n" in report, report


@pytest.mark.parametrize("layout", ["blhd", "thd"])
def test_flags_that_the_job_lacks_are_not_named(tmp_path, layout):
    diagnosed(tmp_path, context() if layout == "blhd" else context()[:, 0], "kv_indices", layout)
    run = attn("sensitivity", "job.json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert b"--key-lengths" not in run.stdout and b"--cu-seqlens" not in run.stdout
    assert (b"each query sees the keys of all sequences" in run.stdout) == (layout == "thd")


FULL = {"block_table": {"key_lengths": [19, 16, 25]}, "kv_indices": {"last_page_len": [3, 8, 1]}}


@pytest.mark.parametrize("table", FULL)
def test_a_key_too_many_within_the_last_page(tmp_path, table):
    """Sequence 1 fills its last page, and a kernel that reads to the end of a page finds no key more there."""
    code, report = diagnosed(tmp_path, context(lengths=[20, 16, 26]), table, **FULL[table])
    assert code == 1
    assert "agrees with one key too many of each sequence whose last page is not full, as stored" in report.splitlines()[1]


def page_mistakes(folder):
    run = attn("sensitivity", "job.json", "--json", cwd=folder)
    assert run.returncode == 0, run.stderr
    return {mistake["id"] for mistake in json.loads(run.stdout)["mistakes"] if mistake["id"].startswith("pages.")}


@pytest.mark.parametrize("behind, has_more", [(-1, False), (3, True)])
def test_another_page_is_a_mistake_only_if_there_is_one(tmp_path, behind, has_more):
    table = [[5, 2, 9, behind], [0, 13, -1, -1], [4, 8, 1, 6]]
    diagnosed(tmp_path, context(), "block_table", block_table=table)
    assert ("pages.page_more" in page_mistakes(tmp_path)) == has_more
    assert "pages.slot_more" not in page_mistakes(tmp_path)  # as pages.key_more if no page is full


def test_packed_queries(tmp_path):
    claim, changes = MISTAKES[1]
    code, report = diagnosed(tmp_path, context(**changes)[:, 0], "block_table", "thd")
    assert code == 1
    assert f"agrees with {claim}" in report.splitlines()[1], report


def test_scales_of_other_pages(tmp_path):
    scales = 0.5 + RNG.random((PAGES, 1), "f4")
    keys = {"k_scale": scales.tolist(), "v_scale": scales.tolist()}
    code, report = diagnosed(tmp_path, context(scales=scales[:, 0][np.array(TABLE)]), "block_table", **keys)
    assert code == 0, report
    by_place = [scales[:4, 0]] * 3
    code, report = diagnosed(tmp_path, context(scales=by_place), "block_table", **keys)
    assert code == 1
    assert "agrees with scale i of the pool for page i of each sequence" in report.splitlines()[1], report


PLACE = "slot 19 of the pages of sequence 0, behind its last key, holds NaN in"


def test_results_that_are_nan_alone(tmp_path):
    keys = K.copy()
    keys[9, 3] = np.nan  # slot 19 of sequence 0
    np.save(tmp_path / "nan.npy", keys)
    code, report = diagnosed(tmp_path, np.full_like(Q, np.nan), "block_table", K_pages="nan.npy")
    assert code == 1
    assert f"{PLACE} K: a kernel that reads it returns NaN, also with a weight of 0\n" in report


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name, where, claim", [
    # One column of one head: 0 times NaN in the column of two query heads.
    ("V_pages", (0, 0, slice(0, 2), 5), f"weights of 0 times values behind the last key ({PLACE} V)"),
    ("K_pages", (0, 0, slice(0, 2)), f"-inf added to scores behind the last key ({PLACE} K)")])
def test_nan_behind_the_last_key(tmp_path, table, name, where, claim):
    pool = {"K_pages": K, "V_pages": V}[name].copy()
    pool[9, 3, 0, 5] = np.nan
    result = context()
    result[where] = np.nan
    np.save(tmp_path / "nan.npy", pool)
    code, report = diagnosed(tmp_path, result, table, **{name: "nan.npy"})
    assert code == 1
    assert f"agrees with {claim}\n" in report, report


def test_a_sequence_longer_than_the_pool(tmp_path):
    """Sequences may repeat pages."""
    rng = np.random.default_rng(8)
    np.savez(tmp_path / "in.npz", Q=rng.standard_normal((1, 1, 2, 8)), K=rng.integers(-9, 9, (2, 16, 2, 8), "i1"),
             V=rng.standard_normal((2, 16, 2, 8)), result=rng.standard_normal((1, 1, 2, 8)))
    job = {"Q": "in.npz#Q", "K_pages": "in.npz#K", "V_pages": "in.npz#V", "k_scale": [[[[0.5]]], [[[2]]]], "layout": "blhd",
           "block_table": [[1, 0, 0]], "key_lengths": [48]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    run = attn("compare", "in.npz#result", "--reference", "job.json", "--diagnose", cwd=tmp_path)
    assert run.returncode == 1, run.stderr


def test_a_right_result_agrees(tmp_path):
    assert diagnosed(tmp_path, context(), "kv_indices")[0] == 0


def test_sensitivity_has_the_mistakes(tmp_path):
    diagnosed(tmp_path, context(), "block_table")
    run = attn("sensitivity", "job.json", "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    found = {mistake["id"]: mistake["text"] for mistake in json.loads(run.stdout)["mistakes"]}
    assert set(found.values()) >= {claim for claim, _ in MISTAKES}
