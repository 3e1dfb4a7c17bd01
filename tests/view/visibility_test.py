"""Results record which keys each query sees, so that pictures of stored weights hatch the others."""

import json

import numpy as np
import pytest

from support.attn import attn

SUFFIXES = ["npz", "safetensors", "json"]


def job_of(L, S=None, heads=1, items=1, **keys):
    """All scores are 0, so a key has a positive weight if and only if its query sees it."""
    S = L if S is None else S
    return {"Q": np.zeros((items, heads, L, 1)).tolist(), "K": np.zeros((items, heads, S, 1)).tolist(),
            "layout": "bhld", "outputs": ["weights"], **keys}


def rounded(seed, *shape):
    return (np.random.default_rng(seed).random(shape) < 0.6).tolist()


JOBS = {
    "causal": job_of(6, causal=True),
    "causal bottom-right": job_of(3, 7, causal="bottom-right"),
    "causal top-left, more queries": job_of(7, 3, causal="top-left"),
    "window": job_of(9, causal=True, window=[2, 0]),
    "window of both sides": job_of(9, window=[1, 2]),
    "lengths of keys": job_of(4, items=3, key_lengths=[4, 2, 0]),
    "lengths of queries": job_of(4, items=2, key_lengths=[4, 2], query_lengths=[4, 3]),
    "documents": job_of(6, documents=[0, 0, 0, 1, 1, -1], causal=True),
    "interleaved documents": job_of(6, documents=[0, 1, 0, 1, 1, 0], causal=True),
    "documents of items": job_of(4, items=2, documents=[[0, 0, 1, 1], [0, 1, 1, 1]]),
    "boolean mask": job_of(5, mask=rounded(1, 5, 5)),
    "mask of heads": job_of(5, heads=2, mask=rounded(2, 2, 5, 5)),
    "mask of heads and items": job_of(5, heads=2, items=3, mask=rounded(3, 3, 2, 5, 5), causal=True),
    "mask of items": job_of(5, heads=2, items=3, mask=rounded(4, 3, 1, 5, 5)),
    "inverted mask": job_of(5, mask=rounded(5, 5, 5), mask_polarity="ignore"),
    "additive mask": job_of(2, 3, mask=np.array([[0, -np.inf, 0], [-np.inf, 0, 0]])),
    "key mask": job_of(4, items=2, key_mask=[[True, False, True, True], [True, True, False, False]]),
    "bias": job_of(2, 3, bias=np.array([[0, -np.inf, 0], [-np.inf, 0, 0]])),
    "rows": job_of(6, causal=True, rows=[4, 1, 2, 3]),
    "rows of a mask": job_of(5, mask=rounded(6, 5, 5), rows=[4, 0]),
    "cache": job_of(2, 2, causal=True, past_K=np.zeros((1, 1, 3, 1)).tolist(), past_V=np.zeros((1, 1, 3, 1)).tolist()),
    "appended key": job_of(4, causal=True, zero_key=True),
    "one query": job_of(1, 4, key_mask=[True, False, False, True]),
    "a query without keys": job_of(3, mask=[[True] * 3, [False] * 3, [True, False, True]]),
}
ALL_VISIBLE = {
    "no mask": job_of(3),
    "mask of ones": job_of(3, mask=[[1] * 3] * 3),
    "long lengths": job_of(3, key_lengths=[3]),
}


def run(folder, job, *args):
    job = dict(job)
    for key, value in job.items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{key}.npy", value)
            job[key] = f"{key}.npy"
    (folder / "job.json").write_text(json.dumps(job))
    result = attn("run", "job.json", *args, "-q", cwd=folder)
    assert result.returncode == 0, result.stderr
    return result


def made_by(folder, file):
    printed = attn("inspect", file, "--provenance", cwd=folder)
    assert printed.returncode == 0, printed.stderr
    return json.loads(printed.stdout)


def matrix_of(numbers, L, S):
    """The array of a matrix in `visible`, as docs/formats.md defines it."""
    visible, numbers, row = np.zeros((L, S), bool), iter(numbers), 0
    for count in numbers:
        ranges = [[next(numbers) for _ in range(4)] for _ in range(next(numbers))]
        for i in range(count):
            for begin, end, begin_step, end_step in ranges:
                visible[row, begin + i * begin_step:end + i * end_step] = True
            row += 1
    assert row == L
    return visible


def recorded(folder, file, shape):
    """The member `visible`, for each head of each batch item."""
    B, H, L, S = shape
    matrices = [matrix_of(numbers, L, S) for numbers in made_by(folder, file)["visible"]]
    assert len(matrices) in (1, B, B * H)
    each = B * H // len(matrices)
    return np.array([matrices[i // each] for i in range(B * H)]).reshape(shape)


@pytest.mark.parametrize("name", JOBS)
def test_recorded_keys_are_those_with_weights(tmp_path, name):
    run(tmp_path, JOBS[name], "-o", "r.npz")
    weights = np.load(tmp_path / "r.npz")["weights"]
    np.testing.assert_array_equal(recorded(tmp_path, "r.npz", weights.shape), weights > 0)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", JOBS)
def test_a_picture_of_a_result_is_that_of_the_run(tmp_path, name, suffix):
    run(tmp_path, JOBS[name], "--view=run.svg")
    run(tmp_path, JOBS[name], "-o", f"r.{suffix}")
    assert attn("view", f"r.{suffix}", "-o", "file.svg", cwd=tmp_path).returncode == 0
    assert (tmp_path / "file.svg").read_bytes() == (tmp_path / "run.svg").read_bytes()


@pytest.mark.parametrize("name", ALL_VISIBLE)
def test_nothing_is_recorded_if_every_key_is_visible(tmp_path, name):
    run(tmp_path, ALL_VISIBLE[name], "-o", "r.npz")
    assert "visible" not in made_by(tmp_path, "r.npz")


@pytest.mark.parametrize("outputs", [["context"], ["weights", "masked_scores"], ["logsumexp"]], ids=str)
def test_nothing_is_recorded_if_no_output_needs_it(tmp_path, outputs):
    run(tmp_path, {**job_of(4, causal=True), "outputs": outputs}, "-o", "r.npz")
    assert "visible" not in made_by(tmp_path, "r.npz")


def test_weights_that_round_to_0_are_values(tmp_path):
    """Key 1 of query 0 is hidden; the weight of key 0 of query 1 is 0, but visible."""
    job = {"Q": [[1.0], [1000.0]], "K": [[0.0], [1000.0]], "causal": True, "outputs": ["weights"]}
    run(tmp_path, job, "-o", "r.npz")
    weights = np.load(tmp_path / "r.npz")["weights"]
    assert weights.tolist() == [[1, 0], [0, 1]]
    text = attn("view", "r.npz", "--color", "never", cwd=tmp_path).stdout.decode()
    rows = [line.split() for line in text.splitlines() if line[:1] in ("0", "1")]
    assert rows[:2] == [["0", "1", 8 * "\u2571"], ["1", "0", "1"]]
    assert recorded(tmp_path, "r.npz", (1, 1, 2, 2)).tolist() == [[[[True, False], [True, True]]]]


def test_a_long_causal_result_takes_few_bytes(tmp_path):
    rows = {"randn": {"shape": [3000, 1]}}
    job = {"Q": rows, "K": rows, "seed": 1, "causal": True, "outputs": ["weights"]}
    run(tmp_path, job, "-o", "r.npz")
    assert made_by(tmp_path, "r.npz")["visible"] == [[3000, 1, 0, 1, 0, 1]]


def test_visible_keys_that_do_not_fit_are_left_out(tmp_path):
    """An archive comment has at most 65,535 bytes. Tokens come first."""
    mask = (np.arange(400 * 400) % 2 == 0).reshape(400, 400)
    np.save(tmp_path / "mask.npy", mask ^ (np.random.default_rng(1).random(mask.shape) < 0.3))
    job = {"Q": np.zeros((400, 1)).tolist(), "K": np.zeros((400, 1)).tolist(), "outputs": ["weights"],
           "mask": "mask.npy", "tokens": [f"t{i}" for i in range(400)]}
    for suffix in SUFFIXES:
        run(tmp_path, job, "-o", f"r.{suffix}")
        assert "visible" not in made_by(tmp_path, f"r.{suffix}")
    assert b"t399" in attn("view", "r.npz", "--rows", "399", cwd=tmp_path).stdout


@pytest.mark.parametrize("visible", [
    None, 1, "all", {}, [], [1], [[]], [[1]], [[2, 1, 0, 9, 0, 0]], [[2, 1, 1, 1, 0, 0]], [[2, 1, 0, 2, 0, 1]], [[3, 0]],
    [[2, 2, 0, 2, 0, 0, 1, 2, 0, 0]], [[1, 1, 0, 1, 0, 0]], [[2, 1, 0, 1, 0, 2]], [[2, 1, -1, 1, 0, 0]], [[2, 99999999, 0]],
    [[2, 0]] * 3, [[2, 0.5]], [[4611686018427387904, 0]],
], ids=str)
def test_what_a_file_says_is_checked(tmp_path, visible):
    """Files with other values are drawn as those without the member."""
    weights = [[1.0, 0.0], [0.5, 0.5]]
    plain = {"schema": "attn/1", "made_by": {"schema": "attn/1", "job": {}}, "weights": weights}
    (tmp_path / "plain.json").write_text(json.dumps(plain))
    (tmp_path / "r.json").write_text(json.dumps({**plain, "made_by": {**plain["made_by"], "visible": visible}}))
    pictures = []
    for name in ("plain", "r"):
        assert attn("view", f"{name}.json", "-o", f"{name}.svg", cwd=tmp_path).returncode == 0
        pictures.append((tmp_path / f"{name}.svg").read_bytes())
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("flags", [["--view"], ["--view=w.html"], ["--view=w.png"], ["--explain", "w.txt"]], ids=str)
def test_a_result_is_the_same_with_a_picture(tmp_path, flags, suffix):
    job = {**job_of(6, causal=True), "V": np.zeros((1, 1, 6, 1)).tolist(), "outputs": ["weights", "context"]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    for name, more in ("alone", []), ("drawn", flags):
        assert attn("run", "job.json", "-o", f"{name}.{suffix}", *more, cwd=tmp_path).returncode == 0
    assert (tmp_path / f"drawn.{suffix}").read_bytes() == (tmp_path / f"alone.{suffix}").read_bytes()
    assert made_by(tmp_path, f"drawn.{suffix}")["visible"] == [[6, 1, 0, 1, 0, 1]]
