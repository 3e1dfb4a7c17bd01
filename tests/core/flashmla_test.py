"""FlashMLA's 8-bit caches give the bytes of the numbers in them."""

import json

import numpy as np
import pytest

from support import flashmla_caches as caches
from support.attn import attn
from support.paged_jobs import bits, write_job
from support.stored_jobs import e4m3

FORMS = ["flashmla_v32", "flashmla_v32 4 axes", "flashmla_model1", "flashmla_model1 4 axes", "flashmla_model1 padded"]


def run_all(folder, jobs):
    for i, job in enumerate(jobs):
        (folder / "job.json").write_text(write_job(folder, f"job{i}", job))
        run = attn("run", "job.json", "-o", f"out{i}.npz", "--force", cwd=folder)
        assert run.returncode == 0, run.stderr.decode()
        with np.load(folder / f"out{i}.npz") as found:
            yield dict(found)


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
    found, expected = run_all(tmp_path, [both | pages, both | plain])
    for name in both["outputs"]:
        assert np.array_equal(bits(found[name]), bits(expected[name])), name


JOB = {"Q": np.ones((2, 1, 1, 6)).tolist(), "KV_pages": np.ones((3, 2, 6)).tolist(), "value_width": 4, "scale": 1,
       "block_table": [[0, 1], [2, 0]], "key_lengths": [3, 2]}
BYTES = {"Q": np.ones((2, 1, 1, 576)).tolist(), "k_type": "flashmla_v32", "value_width": None}
ERRORS = {
    "bytes": (BYTES | {"KV_pages": np.ones((3, 2, 576), int).tolist()},
        "KV_pages: expected (P, page size, 656) or (P, page size, 1, 656), found (3, 2, 576)"),
    "bytes of model1": (BYTES | {"k_type": "flashmla_model1", "KV_pages": np.ones((3, 1200), int).tolist()},
        "KV_pages: expected (P, page size, 584), (P, page size, 1, 584) or (P, bytes of a page), found (3, 1200)"),
    "floats": (BYTES | {"KV_pages": np.ones((3, 2, 656)).tolist()}, "KV_pages: expected uint8 elements, the codes of k_type, found float64"),
    "scale of a cache": (BYTES | {"KV_pages": np.ones((3, 2, 656), int).tolist(), "k_scale": 2.0},
        "k_type: 'flashmla_v32' cannot be combined with k_scale"),
    "width": (BYTES | {"Q": np.ones((2, 1, 1, 512)).tolist(), "KV_pages": np.ones((3, 2, 656), int).tolist()},
        "KV_pages: expected width 512 of the queries, found 576"),
    "not in pages": ({"KV_pages": None, "block_table": None, "value_width": None, "K": np.ones((2, 1, 5, 6), int).tolist(),
                      "k_type": "flashmla_v32"}, "k_type: 'flashmla_v32' requires KV_pages"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error(tmp_path, case):
    change, message = ERRORS[case]
    (tmp_path / "job.json").write_text(json.dumps({key: x for key, x in (JOB | change).items() if x is not None}))
    run = attn("run", "job.json", cwd=tmp_path)
    lines = run.stderr.decode().splitlines()
    assert (run.returncode, len(lines)) == (65, 1), run.stderr.decode()
    assert lines[0].endswith(message)
