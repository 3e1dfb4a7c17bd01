"""What `attn stats`, `attn rollout` and pages do with the recorded positions of queries."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from view.page_test import Numbers

BY_PLACE = ["distance", "first_key_weight", "previous_token_weight"]


def stats(folder, *args):
    """The lines of `attn stats` as objects, and what it wrote to stderr."""
    run = attn("stats", *args, "--format", "ndjson", cwd=folder)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()], run.stderr.decode()


def run_job(folder, name, **job):
    """Runs a job in which all visible keys have the same weight, and returns its weights."""
    L, S = job.pop("L"), job.pop("S")
    axes = (job.pop("B"),) if "B" in job else ()
    job |= {"Q": np.zeros((*axes, L, 1)).tolist(), "K": np.zeros((*axes, S, 1)).tolist(), "outputs": ["weights"]}
    (folder / "job.json").write_text(json.dumps(job))
    run = attn("run", "job.json", "-o", name, "-o", "weights=w.npy", "--force", cwd=folder)
    assert run.returncode == 0, run.stderr
    return np.load(folder / "w.npy")


PADDED = {"B": 2, "L": 3, "S": 5, "key_lengths": [5, 2], "causal": "bottom-right"}  # own keys 2 3 4 and -1 0 1


@pytest.fixture
def padded(tmp_path):
    return run_job(tmp_path, "r.npz", **PADDED)


def test_a_named_tensor_has_the_positions_of_its_file(tmp_path, padded):
    assert stats(tmp_path, "r.npz#weights")[0] == [line | {"file": "r.npz#weights"} for line in stats(tmp_path, "r.npz")[0]]


@pytest.mark.parametrize("of", [[], ["--batch", "1"], ["--batch", "1,0"]])
def test_pages_place_the_queries_of_each_item(tmp_path, padded, of):
    assert attn("view", "r.npz", *of, "-o", "page.html", cwd=tmp_path).returncode == 0
    found = Numbers((tmp_path / "page.html").read_text())
    distance = [np.abs(np.array([[2], [3], [4]]) - np.arange(5)), np.abs(np.array([[-1], [0], [1]]) - np.arange(5))]
    expected = [(w * d).sum() / w.sum() for w, d in zip(padded, distance)]
    items = [0, 1] if not of else [int(item) for item in of[1].split(",")]
    np.testing.assert_allclose(found.statistic("distance")[0], [expected[item] for item in items], rtol=1e-5)


def test_a_page_of_a_run_has_its_positions(tmp_path):
    job = {"Q": [[0]] * 4, "K": [[0]] * 4, "documents": [0, 1, 0, 1], "causal": True}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "--view=page.html", cwd=tmp_path).returncode == 0
    found = Numbers((tmp_path / "page.html").read_text())
    assert found.statistic("distance")[0] == [pytest.approx(2 / 4)]  # queries 2 and 3 have 1/2 at a distance of 2
    assert found.statistic("first")[0] == [pytest.approx(3 / 4)]


INTERLEAVED = {"L": 9000, "S": 8, "documents": [0, 1] * 4500, "key_documents": [0, 1] * 4}


def test_positions_beyond_the_comment_of_an_archive_are_unknown(tmp_path):
    w = run_job(tmp_path, "r.npz", **INTERLEAVED)
    [line], message = stats(tmp_path, "r.npz")
    assert message == ("attn: warning: r.npz: weights: the positions of the queries are not known; "
                       "statistics that need them are left out\n")
    assert [line[name] for name in BY_PLACE] == [None] * 3
    assert line["effective_keys"] == pytest.approx(4)
    run = attn("view", "r.npz", "-o", "page.html", cwd=tmp_path)
    assert run.returncode == 0 and b"positions of the queries are not known" in run.stderr
    assert Numbers((tmp_path / "page.html").read_text()).statistic("distance")[0] == pytest.approx([np.nan], nan_ok=True)
    run_job(tmp_path, "r.safetensors", **INTERLEAVED)
    [line], message = stats(tmp_path, "r.safetensors")
    assert message == ""
    first = w[np.arange(9000), INTERLEAVED["documents"]]
    assert line["first_key_weight"] == pytest.approx(first.sum() / w.sum())


BAD = [None, 3, {}, {"runs": []}, {"runs": [[3, 0, 0], [3, 0, 0]]}, {"runs": [[2, 0, 0]]}, {"runs": [[3, 0]]},
       {"runs": [[4, 0, 0]]}, {"runs": [[-1, 0, 0, 4, 0, 0]]}, {"runs": [[3, 0, 4]]}, {"runs": [[3, 0, -2]]},
       {"runs": [[3, 10 ** 16, 0]]}, {"runs": [[3, 0, 0]], "keys": 5}, {"runs": [[3, 0, 0]], "keys": -1},
       {"runs": [[0, 0, 0, 3, 0, 0]]}, {"runs": ["3"]}, {"runs": [[3.0, 0, 0]]}, {"queries": 3, "first_own_key": 1}]


@pytest.mark.parametrize("positions", BAD, ids=json.dumps)
def test_positions_of_other_tensors_are_not_used(tmp_path, positions):
    result = {"made_by": {"job": {}, "positions": positions}, "weights": [[0.25] * 4] * 3}
    (tmp_path / "r.json").write_text(json.dumps(result))
    [line], message = stats(tmp_path, "r.json")
    assert "positions of the queries are not known" in message
    assert [line[name] for name in BY_PLACE] == [None] * 3


def test_token_ids_of_results_with_appended_keys(tmp_path):
    ids = [1, 1, 1]
    w = run_job(tmp_path, "r.npz", L=3, S=3, zero_key=True, causal=True, token_ids=ids)
    np.save(tmp_path / "ids.npy", ids)
    [line], _ = stats(tmp_path, "r.npz", "--token-ids", "ids.npy")
    assert line["duplicate_token_weight"] == pytest.approx((w[1, 0] + w[2, :2].sum()) / 3)


@pytest.mark.parametrize("job, found", [
    ({"L": 3, "S": 3, "rows": [0, 2, 1]}, "query 1 at key 2"),
    ({"L": 3, "S": 3, "causal": True, "causal_offset": 1}, "query 0 at key 1"),
    ({"L": 3, "S": 2, "zero_key": True}, "1 appended key"),
    ({"B": 2, "L": 3, "S": 3, "causal": "bottom-right", "key_lengths": [3, 2]}, "query 0 at key -1"),
], ids=["rows", "offset", "appended", "lengths"])
def test_rollout_refuses_other_positions(tmp_path, job, found):
    run_job(tmp_path, "r.npz", **job)
    assert_error(attn("rollout", "r.npz", cwd=tmp_path), 65,
                 f"r.npz: weights: expected all queries of self-attention in order, found {found}")


def test_rollout_accepts_documents_and_padding(tmp_path):
    job = {"B": 2, "L": 4, "S": 4, "causal": True, "documents": [0, 1, 0, 1], "key_lengths": [4, 3], "query_lengths": [4, 3]}
    run_job(tmp_path, "r.npz", **job)
    assert attn("rollout", "r.npz", cwd=tmp_path).returncode == 0


def test_a_part_with_all_rows_and_columns_has_the_positions_of_its_tensor(tmp_path, padded):
    heads = {"Q": np.zeros((2, 3, 1)).tolist(), "K": np.zeros((2, 5, 1)).tolist(), "causal": "bottom-right"}
    (tmp_path / "heads.json").write_text(json.dumps(heads))
    assert attn("run", "heads.json", "-o", "h.npz", cwd=tmp_path).returncode == 0
    whole, _ = stats(tmp_path, "h.npz#weights", "--by", "item")
    [line], message = stats(tmp_path, "h.npz#weights[1]")
    assert message == ""
    assert [line[name] for name in BY_PLACE] == [whole[1][name] for name in BY_PLACE]


@pytest.mark.parametrize("part", ["[:, 1:]", "[0, :, 1:]", "[0, 0/3]"])
def test_the_positions_of_other_parts_are_unknown(tmp_path, padded, part):
    [line], message = stats(tmp_path, f"r.npz#weights{part}")
    assert "the positions of the queries are not known" in message
    assert [line[name] for name in BY_PLACE] == [None] * 3


def test_a_folder_of_outputs_has_one_file_of_weights(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({"Q": [[1, 0]] * 2, "K": [[0, 1]] * 2, "V": [[1], [2]]}))
    assert attn("run", "job.json", "-o", "out/", "--outputs", "scores,weights,context", cwd=tmp_path).returncode == 0
    lines, _ = stats(tmp_path, "out")
    assert [line["file"] for line in lines] == ["out/weights.npy"]
    (tmp_path / "out/weights.npy").unlink()
    assert_error(attn("stats", "out", cwd=tmp_path), 66, "out: has no")
    assert len(stats(tmp_path, "out/context.npy")[0]) == 1  # named by the user
