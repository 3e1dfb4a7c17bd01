"""The recorded meaning of the axes of results, and what `attn stats` and `attn view` make of it."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from stats.places_test import stats

L, S = 3, 4


def made_by(folder, path):
    done = attn("inspect", "--provenance", "--json", path, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_job(folder, *results, axes=(), outputs=("weights",), **job):
    """Runs a job whose Q and K have these leading axes, with random numbers."""
    rng = np.random.default_rng(3)
    blhd = job.get("layout") == "blhd"
    np.savez(folder / "in.npz", Q=rng.standard_normal((*axes[:1], L, *axes[1:], 2) if blhd else (*axes, L, 2)),
             K=rng.standard_normal((*axes[:1], S, *axes[1:], 2) if blhd else (*axes, S, 2)))
    (folder / "job.json").write_text(json.dumps({"Q": "in.npz#Q", "K": "in.npz#K", "outputs": list(outputs), **job}))
    done = attn("run", "job.json", *(word for result in results for word in ("-o", result)), cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("axes, job", [((), {}), ((2, 3), {}), ((), {"heads": 2})])
def test_axes_that_the_name_and_shape_tell_are_not_recorded(tmp_path, axes, job):
    run_job(tmp_path, "r.json", axes=axes, outputs=["scores", "weights", "context", "logsumexp"], **job)
    assert "axes" not in made_by(tmp_path, "r.json")


def test_a_batch_without_heads_is_recorded(tmp_path):
    mask = np.ones((2, L, S), int).tolist()
    run_job(tmp_path, "r.json", axes=[2], outputs=["weights", "context", "logsumexp", "Q", "mask"], mask=mask)
    assert made_by(tmp_path, "r.json")["axes"] == {"weights": ["batch", "query", "key"], "logsumexp": ["batch", "query"],
                                                   "mask": ["batch", "query", "key"]}


def test_heads_behind_queries_are_recorded(tmp_path):
    run_job(tmp_path, "r.npz", axes=[2, 3], layout="blhd", outputs=["weights", "context", "Q"])
    assert made_by(tmp_path, "r.npz")["axes"] == {"context": ["batch", "query", "head", "feature"],
                                                  "Q": ["batch", "query", "head", "feature"]}


@pytest.mark.parametrize("path", ["r.npz", "r.safetensors", "r.json"])
@pytest.mark.parametrize("outputs", [["weights"], ["weight_sum", "entropy"]])
def test_statistics_have_a_line_for_each_item_of_the_batch(tmp_path, path, outputs):
    run_job(tmp_path, path, axes=[2], outputs=outputs)
    lines, message = stats(tmp_path, path, "--by", "item")
    assert [(line["item"], line["head"]) for line in lines] == [(0, None), (1, None)]
    assert message == ""


def test_jobs_of_a_bundle_have_their_labels(tmp_path):
    lines = [{"Q": np.ones((2, 3, 1)).tolist(), "K": np.ones((2, 4, 1)).tolist(), "outputs": ["weights"]},
             {"heads": 2, "Q": np.ones((3, 2)).tolist(), "K": np.ones((4, 2)).tolist(), "outputs": ["weights"]}]
    done = attn("batch", "-", "--out-dir", "out", "--bundle", "2", "-q", cwd=tmp_path,
                stdin="".join(json.dumps(line) + "\n" for line in lines).encode())
    assert done.returncode == 0, done.stderr
    jobs = made_by(tmp_path, "out/bundle-1.npz")["jobs"]
    assert jobs["1"]["axes"] == {"weights": ["batch", "query", "key"]} and "axes" not in jobs["2"]
    found, _ = stats(tmp_path, "out/bundle-1.npz", "--by", "item")
    assert [(line["name"], line["item"], line["head"]) for line in found] == [
        ("1/weights", 0, None), ("1/weights", 1, None), ("2/weights", None, 0), ("2/weights", None, 1)]


@pytest.mark.parametrize("part, lines", [("[1]", [(None, 0), (None, 1), (None, 2)]), ("[:, 2]", [(0, None), (1, None)]),
                                         ("[:, 1/3]", [(0, 0), (1, 0)]), ("[1, 2]", [(None, None)])])
def test_a_part_keeps_the_axes_that_it_has(tmp_path, part, lines):
    run_job(tmp_path, "r.npz", axes=[2, 3])
    found, message = stats(tmp_path, f"r.npz#weights{part}", "--by", "item")
    assert [(line["item"], line["head"]) for line in found] == lines
    whole = np.load(tmp_path / "r.npz")["weights"]
    first = {"[1]": whole[1, 0], "[:, 2]": whole[0, 2], "[:, 1/3]": whole[0, 1], "[1, 2]": whole[1, 2]}[part]
    assert found[0]["entropy"] == pytest.approx(-(first * np.log(first)).sum(-1).mean())


def test_a_part_is_drawn_with_its_axes(tmp_path):
    run_job(tmp_path, "r.npz", axes=[2, 3], causal=True)
    shown = attn("view", "r.npz#weights[1]", "--head", "2", "--width", "60", cwd=tmp_path)
    whole = attn("view", "r.npz", "--batch", "1", "--head", "2", "--width", "60", cwd=tmp_path)
    assert shown.returncode == whole.returncode == 0, shown.stderr
    assert b"head 2" in shown.stdout
    assert shown.stdout.splitlines()[-5:] == whole.stdout.splitlines()[-5:]  # also the hidden keys


HOSTILE = [["layer", "layer", "query", "key"], ["query", "layer", "head", "key"], ["batch", "batch", "query", "key"],
           ["head", "head", "head", "head"], ["", "x", "query", "key"]]


@pytest.mark.parametrize("axes", HOSTILE)
@pytest.mark.parametrize("layers", [[7, 9], [1, 2, 3, 4, 5]])
@pytest.mark.parametrize("of", ["", "#x", "#x[0]", "#x[:, 1:3]", "#x[1:]", "#x[0, 0].T"])
def test_contradicting_labels_are_ignored(tmp_path, axes, layers, of):
    document = {"made_by": {"axes": {"x": axes, "arr_{layer}": axes}, "layers": layers},
                "x": np.full((2, 5, 3, 4), 0.25).tolist()}
    (tmp_path / "r.json").write_text(json.dumps(document))
    for command in (["stats", f"r.json{of}"], ["view", f"r.json{of}"], ["view", f"r.json{of}", "-o", "page.html"]):
        assert attn(*command, cwd=tmp_path).returncode == 0, command


@pytest.mark.parametrize("axes", HOSTILE)
def test_contradicting_labels_of_joined_layers_are_ignored(tmp_path, axes):
    document = {"made_by": {"axes": {"arr_{layer}": ["head", *axes]}}, "arr_0": np.full((2, 5, 3, 4), 0.25).tolist()}
    document["arr_1"] = document["arr_0"]
    (tmp_path / "r.json").write_text(json.dumps(document))
    assert attn("view", "r.json", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("part, lines", [("[0:2]", [0, 1]), ("[1:]", [0, 1]), ("[2]", [None])])
def test_layers_of_an_array_without_labels_are_numbered_from_0(tmp_path, part, lines):
    np.savez(tmp_path / "w.npz", weights=np.full((3, 1, 1, 2, 2), 0.5))
    found, _ = stats(tmp_path, f"w.npz#weights{part}")
    assert [line["layer"] for line in found] == lines


@pytest.mark.parametrize("tensor, axes", [("weights[:, :, 2]", "batch, head, key"), ("weights[1, 0].T", "key, query"),
                                          ("context", "batch, head, query, feature"), ("key_weights", "batch, head, key"),
                                          ("entropy", "batch, head, query")])
def test_statistics_of_other_axes_are_refused(tmp_path, tensor, axes):
    run_job(tmp_path, "r.npz", axes=[2, 3], outputs=["weights", "context", "key_weights", "entropy"])
    run = attn("stats", f"r.npz#{tensor}", cwd=tmp_path)
    assert_error(run, 65, f"expected queries and keys as the last axes, found axes {axes}")


def test_panels_of_queries_are_not_called_heads(tmp_path):
    run_job(tmp_path, "r.npz", axes=[2, 3], layout="blhd", outputs=["context"])
    run = attn("view", "r.npz", "--of", "context", "--batch", "1", "--width", "60", cwd=tmp_path)
    assert run.returncode == 0 and b"query 2" in run.stdout and b"head 0" not in run.stdout
    assert_error(attn("view", "r.npz", "--of", "context", "--head", "1", cwd=tmp_path), 2,
                 "--head: context (2, 3, 3, 2) has its heads in rows, which are all drawn")


def test_a_batch_is_not_selected_from_heads(tmp_path):
    run_job(tmp_path, "r.npz", axes=[2, 3])
    assert_error(attn("view", "r.npz#weights[1]", "--batch", "1", cwd=tmp_path), 2, "--batch", "has no such axis")


def test_labels_are_kept_when_the_job_is_too_long_for_a_comment(tmp_path):
    job = {"Q": np.ones((2, 14_000, 1)).tolist(), "K": np.ones((2, 2, 1)).tolist(), "rows": list(range(14_000)),
           "outputs": ["weights"]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "r.npz", cwd=tmp_path).returncode == 0
    assert "job" not in made_by(tmp_path, "r.npz")
    assert made_by(tmp_path, "r.npz")["axes"] == {"weights": ["batch", "query", "key"]}


@pytest.mark.parametrize("axes", ['["batch"]', '["batch","query",3]', '7', 'null', '{}'])
def test_labels_that_do_not_fit_are_ignored(tmp_path, axes):
    weights = json.dumps(np.full((2, 3, 4), 0.25).tolist())
    (tmp_path / "r.json").write_text(f'{{"made_by": {{"axes": {{"weights": {axes}}}, "layers": [1]}}, "weights": {weights}}}')
    found, _ = stats(tmp_path, "r.json")
    assert [(line["layer"], line["head"]) for line in found] == [(None, 0), (None, 1)]
