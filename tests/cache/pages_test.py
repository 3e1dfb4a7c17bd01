"""Key/value caches in pages give the bytes of the same keys and values in one piece.

Unused slots are NaN and unused table entries invalid; sequences share pages, and some have more queries than
keys. The context is also compared with NumPy.
"""

import json
import os
import re
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, attn, under_sanitizer
from support.jobs import run_jobs
from support.paged_jobs import PagedJob, bits

LAYOUTS = 60
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3}


def run_pairs(folder, seeds):
    """Runs the job with pages and the one without for each seed. Yields the random jobs with both results."""
    jobs = {seed: PagedJob(seed) for seed in seeds}
    pairs = {seed: job.jobs() for seed, job in jobs.items()}
    results = run_jobs(folder, [job for pair in pairs.values() for job in pair])
    for seed, job in jobs.items():
        yield job, pairs[seed], next(results), next(results)


def difference(job, pair, paged, whole):
    """What differs between the results, or from NumPy; "" if nothing does."""
    for name in job.options["outputs"]:
        if not np.array_equal(bits(paged[name]), bits(whole[name])):
            return f"{name} differs in {np.sum(bits(paged[name]) != bits(whole[name]))} elements"
    error = np.abs(paged["context"] - job.expected(pair[0])).max(initial=0)
    return "" if error <= TOLERANCE[job.dtype] else f"context is off by {error}"


def test_pages_give_the_bytes_of_keys_in_one_piece(tmp_path):
    differences = {job.seed: text for job, *results in run_pairs(tmp_path, range(LAYOUTS))
                   if (text := difference(job, *results))}
    assert differences == {}


# A pool of 4 pages with 2 slots, one head and 2 columns: slot s of page p is key 2 p + s.
POOL = np.arange(16, dtype="float64").reshape(4, 2, 1, 2)
CACHE = {"Q": np.ones((2, 1, 1, 2)), "K_pages": POOL, "V_pages": -POOL}
TABLE = {"block_table": [[3, 0], [1, 9]], "key_lengths": [3, 2]}
LISTS = {"kv_indptr": [0, 2, 3], "kv_indices": [3, 0, 1], "last_page_len": [1, 2]}


def as_json(job):
    return json.dumps({key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in job.items()})


def run_job(folder, job, *flags):
    (folder / "job.json").write_text(as_json(job))
    return attn("run", "job.json", *flags, cwd=folder)


@pytest.mark.parametrize("tables", [TABLE, LISTS, TABLE | LISTS], ids=["block_table", "lists", "both"])
def test_keys_and_values_are_gathered(tmp_path, tables):
    run = run_job(tmp_path, CACHE | tables, "--outputs", "K,V", "-o", "out.npz")
    assert run.returncode == 0, run.stderr.decode()
    rows = POOL.reshape(8, 2)
    expected = np.stack([rows[[6, 7, 0]], np.concatenate([rows[[2, 3]], np.zeros((1, 2))])])[:, None]
    with np.load(tmp_path / "out.npz") as found:
        assert np.array_equal(found["K"], expected)
        assert np.array_equal(found["V"], -expected)


def test_one_query_for_each_sequence(tmp_path):
    """With layout thd and without cu_seqlens_q, as decode kernels have it."""
    job = CACHE | LISTS | {"Q": np.ones((2, 1, 2)), "layout": "thd", "scale": 0}
    run = run_job(tmp_path, job, "--outputs", "context,K", "-o", "out.npz")
    assert run.returncode == 0, run.stderr.decode()
    rows = POOL.reshape(8, 2)
    with np.load(tmp_path / "out.npz") as found:
        assert np.array_equal(found["K"], rows[[6, 7, 0, 2, 3], None])
        assert np.allclose(found["context"], -np.stack([rows[[6, 7, 0]].mean(0), rows[[2, 3]].mean(0)])[:, None])


KV = {"Q": CACHE["Q"], "KV_pages": np.zeros((4, 2, 2, 1, 2))}
ERRORS = {
    "page outside of the pool": (TABLE | {"block_table": [[3, 0], [4, 9]]},
        "block_table: expected 0 to 3, a page of the pool, for batch item 1, page 0, found 4"),
    "negative page": (LISTS | {"kv_indices": [3, -1, 1]},
        "kv_indices: expected 0 to 3, a page of the pool, for batch item 0, page 1, found -1"),
    "too many keys": (TABLE | {"key_lengths": [3, 5]},
        "key_lengths: expected at most 4 keys in 2 pages of 2 for batch item 1, found 5"),
    "negative length": (TABLE | {"key_lengths": [3, -1]},
        "key_lengths: expected at most 4 keys in 2 pages of 2 for batch item 1, found -1"),
    "lengths": (TABLE | {"key_lengths": [3]},
        "key_lengths: expected one length for each of the 2 rows of block_table, found 1"),
    "one length": (TABLE | {"key_lengths": 3},
        "key_lengths: expected whole numbers with 1 axis, found int64 ()"),
    "floats": (TABLE | {"block_table": [[3.0, 0.0], [1.0, 0.0]]},
        "block_table: expected whole numbers with 2 axes, found float64 (2, 2)"),
    "full last page": (LISTS | {"last_page_len": [3, 2]},
        "last_page_len: expected 1 to 2, the page size, for batch item 0, found 3"),
    "empty last page": (LISTS | {"last_page_len": [1, 0]},
        "last_page_len: expected 1 to 2, the page size, for batch item 1, found 0"),
    "count of last pages": (LISTS | {"last_page_len": [1]},
        "last_page_len: expected one number for each of the 2 sequences of kv_indptr, found 1"),
    "start": (LISTS | {"kv_indptr": [1, 2, 3]},
        "kv_indptr: expected non-decreasing numbers from 0 to at most 3, the length of kv_indices, found 1 to 3"),
    "order": (LISTS | {"kv_indptr": [0, 3, 2]},
        "kv_indptr: expected non-decreasing numbers from 0 to at most 3, the length of kv_indices, found decreasing numbers"),
    "end": (LISTS | {"kv_indptr": [0, 2, 4]},
        "kv_indptr: expected non-decreasing numbers from 0 to at most 3, the length of kv_indices, found 0 to 4"),
    "lengths disagree": (TABLE | LISTS | {"key_lengths": [3, 1]},
        "key_lengths: expected 2 keys by last_page_len for batch item 1, found 1"),
    "pages disagree": (TABLE | LISTS | {"block_table": [[3, 1], [1, 9]]},
        "block_table: expected page 0 of kv_indices for batch item 0, page 1, found 1"),
    "batch": (TABLE | {"Q": np.ones((3, 1, 1, 2))},
        "Q: expected a batch item for each of the 2 sequences of the page table, found (3, 1, 1, 2)"),
    "boundaries": (TABLE | {"Q": np.ones((2, 1, 2)), "layout": "thd", "cu_seqlens_q": [0, 2]},
        "cu_seqlens_q: expected 3 boundaries of the 2 sequences of the page table, found (2,)"),
    "queries": (TABLE | {"Q": np.ones((3, 1, 2)), "layout": "thd"},
        "Q: expected one query for each of the 2 sequences of the page table, or cu_seqlens_q, found (3, 1, 2)"),
    "packed heads": (TABLE | {"Q": np.ones((2, 1, 2))},
        "Q: expected 4 axes, or 3 with layout thd, found (2, 1, 2)"),
    "pool": (TABLE | {"K_pages": np.zeros((4, 2, 2))},
        "K_pages: expected (P, page size, G, D), found (4, 2, 2)"),
    "other values": (TABLE | {"V_pages": np.zeros((4, 3, 1, 2))},
        "V_pages: expected the pages, page size and heads of K_pages (4, 2, 1, 2), found (4, 3, 1, 2)"),
    "no lengths": ({"block_table": TABLE["block_table"]},
        "block_table: requires key_lengths or kv_indptr"),
    "no table": ({}, "K_pages: requires block_table, kv_indptr or index_space"),
    "no list": ({"kv_indptr": [0, 2, 3], "last_page_len": [1, 2]}, "kv_indptr: requires kv_indices"),
    "keys as well": (TABLE | {"K": np.zeros((2, 1, 3, 2))}, "K_pages: cannot be combined with K"),
    "width of keys": (TABLE | {"K_pages": np.zeros((4, 2, 1, 3)), "V_pages": np.zeros((4, 2, 1, 3))},
        "K: expected (2, *, *, 2) to match Q (2, 1, 1, 2), found (2, 1, 3, 3)"),
    "interleaved pools": (TABLE | {"page_layout": "interleaved"},
        "page_layout: 'interleaved' requires KV_pages"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error(tmp_path, case):
    change, message = ERRORS[case]
    run = run_job(tmp_path, CACHE | change)
    lines = run.stderr.decode().splitlines()
    assert (run.returncode, len(lines)) == (65, 1), run.stderr.decode()
    assert lines[0].endswith(message)


SCALE = ("expected one number, or axes (G), (P, G), (P, page size, G) or (P, page size, G, N), where N divides D, "
         "of (P, page size, G, D), which is (4, 2, 1, 2), found (3,)")


@pytest.mark.parametrize("change, message", [
    ({"block_table": [[3, 0], [4, 9]]}, "block_table: expected 0 to 3, a page of the pool, for batch item 1, page 0, found 4"),
    ({"Q": np.ones((3, 1, 1, 2))}, ERRORS["batch"][1]), ({"Q": np.ones((2, 1, 2))}, ERRORS["packed heads"][1])])
def test_errors_about_pages_and_scales_are_reported_together(tmp_path, change, message):
    run = run_job(tmp_path, CACHE | TABLE | change | {"k_scale": [1, 2, 3], "v_scale": [1, 2, 3]})
    assert run.returncode == 65
    found = [line.removeprefix("attn: job.json: ") for line in run.stderr.decode().splitlines()]
    assert sorted(found) == sorted([message, f"k_scale: {SCALE}", f"v_scale: {SCALE}"])


def test_a_bad_pool_does_not_hide_the_scales_of_the_other(tmp_path):
    run = run_job(tmp_path, CACHE | TABLE | {"K_pages": np.zeros((4, 2, 2)), "v_scale": [1, 2, 3]})
    assert [line.split(": ")[2] for line in run.stderr.decode().splitlines()] == ["K_pages", "v_scale"]


def test_a_flag_is_named_once(tmp_path):
    run = run_job(tmp_path, CACHE | TABLE, "--block-table", "[[3, 0], [4, 9]]")
    assert run.returncode == 65
    assert run.stderr.decode() == "attn: --block-table: expected 0 to 3, a page of the pool, for batch item 1, page 0, found 4\n"


@pytest.mark.parametrize("layout, shape, expected", [
    ("nhd", (4, 3, 2, 1, 2), "(P, 2, page size, G, D)"), ("hnd", (4, 1, 2, 2), "(P, 2, G, page size, D)"),
    ("interleaved", (4, 1, 3, 2, 2), "(P, 1, 2G, page size, D) or (P, page size, 2G, D)")])
def test_shape_of_combined_pools(tmp_path, layout, shape, expected):
    run = run_job(tmp_path, {"Q": CACHE["Q"], "KV_pages": np.zeros(shape), "page_layout": layout} | TABLE)
    assert run.returncode == 65
    assert run.stderr.decode().splitlines()[-1].endswith(f"KV_pages: expected {expected}, found {shape}")


@pytest.fixture(scope="module")
def large(module_path):
    """Jobs with 32 MiB of keys and values: in pages, and in one piece."""
    keys = np.zeros((8, 4096, 2, 128), "float32")
    table = np.random.default_rng(0).permutation(2048).astype("int32").reshape(8, 256)
    arrays = {"Q": keys[:, :1], "K": keys, "pages": keys.reshape(-1, 16, 2, 128), "table": table, "lengths": np.full(8, 4096)}
    for name, array in arrays.items():
        np.save(module_path / f"{name}.npy", array)
    both = {"Q": "Q.npy", "layout": "blhd", "key_lengths": "lengths.npy", "outputs": ["context"]}
    pages = {"K_pages": "pages.npy", "V_pages": "pages.npy", "block_table": "table.npy"}
    (module_path / "pages.json").write_text(json.dumps(both | pages))
    (module_path / "whole.json").write_text(json.dumps(both | {"K": "K.npy", "V": "K.npy"}))
    return module_path


def planned_mib(folder, *flags, job="pages.json"):
    run = attn("run", job, "--dry-run", *flags, cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return float(re.search(r"at most ([0-9.]+) MiB of memory", run.stdout.decode()).group(1))


def test_plan_has_no_copy_of_the_pool(large):
    assert 32 < planned_mib(large) < 34
    assert planned_mib(large, "--rotary", "half") > 3 * 32
    assert planned_mib(large, "--outputs", "context,K") > 2 * 32


def test_plan_has_no_copy_of_keys_before_heads(large):
    """The kernels read large keys and values of the layout blhd where they are."""
    assert 32 < planned_mib(large, job="whole.json") < 34
    assert planned_mib(large, "--rotary", "half", job="whole.json") > 3 * 32


@pytest.mark.skipif(under_sanitizer(), reason="the sanitizers' memory is counted")
def test_peak_memory_has_no_copy_of_the_pool(large):
    peaks = {}
    for job in "pages", "whole":
        program = subprocess.Popen([ATTN, "run", f"{job}.json", "-o", f"{job}-context.npy", "--threads", "1"], cwd=large)
        _, status, usage = os.wait4(program.pid, 0)
        assert status == 0
        peaks[job] = usage.ru_maxrss / 1024
    assert abs(peaks["pages"] - peaks["whole"]) < 4


def test_warning_of_nan_says_where_in_the_pool(tmp_path):
    """A NaN in an unused slot does not count."""
    pool = np.ones((4, 2, 1, 4))
    pool[2, 1, 0, 3] = pool[0] = np.nan
    np.save(tmp_path / "kv.npy", np.stack([pool, np.ones_like(pool)], 1))
    job = {"Q": np.ones((1, 1, 1, 4)), "KV_pages": "kv.npy", "outputs": ["context"], "block_table": [[3, 2]],
           "key_lengths": [4]}
    run = run_job(tmp_path, job)
    assert run.returncode == 0
    assert b"kv.npy: KV_pages holds 1, the first at [2, 0, 1, 0, 3]" in run.stderr


def test_warning_of_nan_in_a_file_of_keys_and_values_names_both(tmp_path):
    array = np.ones((1, 2048, 2, 64))  # large, so that it is read where it is
    array[0, 3, 1, 5] = np.nan
    np.save(tmp_path / "kv.npy", array)
    run = run_job(tmp_path, {"Q": np.ones((1, 1, 2, 64)), "K": "kv.npy", "V": "kv.npy", "layout": "blhd",
                             "outputs": ["context"]})
    assert run.returncode == 0
    for name in "KV":
        assert f"kv.npy: {name} holds 1, the first at [0, 3, 1, 5]" in run.stderr.decode()


def test_forgotten_layout_is_named(tmp_path):
    keys = {"block_table": [[0], [1]], "key_lengths": [3, 2]}
    pages = np.ones((2, 4, 2, 8)).tolist()
    run = run_job(tmp_path, {"Q": np.ones((2, 1, 4, 8)), "K_pages": pages, "V_pages": pages, **keys})
    assert run.returncode == 65
    assert run.stderr.decode().endswith("found 2; (B, L, H, D)? set layout: blhd\n")
