"""Warnings about jobs that are valid but probably not what the user meant."""

import json

import numpy as np
import pytest

from support.attn import attn, json_lines

Q1, K3, V3 = [[1.0, 2.0]], [[1.0, 2], [3, 4], [5, 6]], [[1.0], [2.0], [3.0]]
QKV = {"Q": Q1, "K": K3, "V": V3}
ALIGNED = "causal: 1 query and 3 keys: the first query is aligned with the first key (top-left)"
HIDDEN = "mask: all elements are the integer 0, which hides every key"


def warnings_of(job, *flags):
    run = attn("run", "-", "--format", "json", *flags, stdin=json.dumps(job))
    assert run.returncode == 0, run.stderr.decode()
    json.loads(run.stdout)
    return run.stderr.decode()


MISSING = 'V: missing, so the keys are also the values; if this is intended, say so with "V": "K" or --v K'

WARNED = {
    "no V": ({"Q": Q1, "K": K3}, MISSING),
    "no V, several outputs": ({"Q": Q1, "K": K3, "outputs": ["weights", "values"]}, MISSING),
    "no V but past_V": ({"Q": Q1, "K": Q1, "past_K": K3, "past_V": K3}, MISSING),
    "causal": ({**QKV, "causal": True}, ALIGNED),
    "causal, more queries": ({"Q": K3, "K": Q1, "V": [[1.0]], "causal": True},
                             "causal: 3 queries and 1 key: the first query"),
    "integer mask": ({**QKV, "mask": [[0, 0, 0]]}, HIDDEN),
    "inverted mask": ({**QKV, "mask": [[1, 1, 1]], "mask_polarity": "ignore"},
                      "mask: all elements are the integer 1, which hides every key"),
    "key mask": ({**QKV, "key_mask": [0, 0, 0]}, "key_mask: all elements are the integer 0"),
}
SILENT = {
    "V": QKV,
    "V is K": {"Q": Q1, "K": K3, "V": "K"},
    "no V, weights": {"Q": Q1, "K": K3, "outputs": ["scores", "weights", "logsumexp", "entropy", "K"]},
    "embeddings": {"embeddings": K3},
    "causal square": {"Q": K3, "K": K3, "V": V3, "causal": True},
    "cache": {"Q": Q1, "K": Q1, "V": Q1, "past_K": K3, "past_V": K3, "causal": True},
    "alignment": {**QKV, "causal": True, "alignment": "top-left"},
    "alignment of causal": {**QKV, "causal": "bottom-right"},
    "convention": {**QKV, "causal": True, "convention": "torch"},
    "not causal": {**QKV, "causal": False},
    "boolean mask": {**QKV, "mask": [[False, False, False]]},
    "mask with a visible key": {**QKV, "mask": [[0, 1, 0]]},
    "mask of floats": {**QKV, "mask": [[0.0, 0.0, 0.0]]},
    "inverted mask": {**QKV, "mask": [[0, 0, 0]], "mask_polarity": "ignore"},
}


@pytest.mark.parametrize("name", WARNED)
def test_warning(name):
    job, text = WARNED[name]
    found = warnings_of(job)
    assert "warning: " in found and text in found
    assert warnings_of(job, "-q") == ""


@pytest.mark.parametrize("name", SILENT)
def test_no_warning(name):
    assert warnings_of(SILENT[name]) == ""


def test_batch_lines_stay_json():
    lines = [json.dumps(job) for job, _ in WARNED.values()]
    run = attn("batch", "-", stdin="\n".join(lines))
    assert run.returncode == 0
    assert len(json_lines(run.stdout)) == len(lines)
    assert ALIGNED in run.stderr.decode()


@pytest.mark.parametrize("destination", [["--view"], ["--view=weights.svg"], ["-o", "weights=w.npy"]], ids=str)
def test_no_warning_about_values_if_only_weights_are_shown(tmp_path, destination):
    run = attn("run", "--q", "[[1, 2]]", "--k", "[[1, 2], [3, 4]]", *destination, cwd=tmp_path)
    assert run.returncode == 0
    assert "V: missing" not in run.stderr.decode()


@pytest.mark.parametrize("command", [
    ["run", "--q", "in.npz#Q", "--k", "in.npz#K", "--v", "K"],
    ["run", "in.npz", "--v", "K"],
    ["run", "job.json"],
])
def test_v_can_be_the_keys(tmp_path, command):
    np.savez(tmp_path / "in.npz", Q=Q1, K=K3)
    (tmp_path / "K").write_text("not a tensor")
    (tmp_path / "job.json").write_text(json.dumps({"Q": "in.npz#Q", "K": "in.npz#K", "V": "K"}))
    stated = attn(*command, "--outputs", "context", "--format", "json", cwd=tmp_path)
    assert stated.returncode == 0 and stated.stderr == b""
    implied = attn("run", "in.npz", "--outputs", "context", "--format", "json", cwd=tmp_path)
    assert json.loads(stated.stdout)["context"] == json.loads(implied.stdout)["context"]
    assert json.loads(stated.stdout)["made_by"]["job"]["V"] == "K"


def test_a_file_named_k_needs_its_folder(tmp_path):
    np.save(tmp_path / "v.npy", V3)
    (tmp_path / "v.npy").rename(tmp_path / "K")
    run = attn("run", "--q", json.dumps(Q1), "--k", json.dumps(K3), "--v", "./K", "--outputs", "V", cwd=tmp_path)
    assert run.returncode == 0
    assert run.stdout.decode().endswith("[[1.]\n [2.]\n [3.]]\n")


def test_only_v_can_be_a_word(tmp_path):
    run = attn("run", "--q", "K", "--k", "[[1.0]]", cwd=tmp_path)
    assert run.returncode == 66
    assert "K: No such file" in run.stderr.decode()


def test_v_that_is_the_keys_requires_keys(tmp_path):
    run = attn("run", "-", stdin='{"embeddings": [[1, 2]], "V": "K"}')
    assert run.returncode == 65
    assert "V: requires Q" in run.stderr.decode()
