"""Warnings about jobs that are valid but probably not what the user meant."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, json_lines

Q1, K3, V3 = [[1.0, 2.0]], [[1.0, 2], [3, 4], [5, 6]], [[1.0], [2.0], [3.0]]
QKV = {"Q": Q1, "K": K3, "V": V3}
ALIGNED = "causal: 1 query and 3 keys: the first query is aligned with the first key (top-left)"
HIDDEN = "mask: all elements are the integer 0, which hides every key"
UPPER, LOWER = np.triu(np.ones((3, 3), bool), 1).tolist(), np.tri(3, dtype=bool).tolist()
PADDED = [[True, True, False], [True, True, False], [False, False, False]]
SQUARE = {"Q": K3, "K": K3, "V": V3}


def with_axes(*shape, **keys):
    return {name: {"randn": {"shape": shape}} for name in "QKV"} | {"seed": 1, **keys}




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
    "mask of hidden keys": ({**SQUARE, "mask": UPPER}, "mask: each query sees later keys only; if true hides a key, as in "
                            "nn.MultiheadAttention, set mask_polarity to ignore (--mask-polarity ignore)"),
    "mask of hidden keys, integers": ({**SQUARE, "mask": np.int32(UPPER).tolist()}, "each query sees later keys only"),
    "mask of hidden keys, one head of two": ({**with_axes(1, 2, 3, 4), "mask": [LOWER, UPPER]}, "sees later keys only"),
    "mask without keys for a query": ({**SQUARE, "mask": [[True, True, True], [False, False, False], [True, True, True]]},
                                      "mask: query 1 sees no key, but other queries see key 1; if true hides a key"),
    "mask of visible keys": ({**with_axes(3, 2, 4), "mask": LOWER, "convention": "torch-mha"},
                             "each query sees later keys only; if true shows a key, set mask_polarity to attend"),
    "float key mask": ({**QKV, "key_mask": [1.0, 0.0, 0.0]}, "key_mask: floats are added to the scores, so 0 and 1 hide nothing"),
    "key mask of hidden keys": ({**with_axes(2, 3, 4), "key_mask": [[False] * 3, [False, False, True]]},
                                "key_mask: hides all keys of batch item 0; if true hides a key, as in key_padding_mask, set "
                                "mask_polarity to ignore (--mask-polarity ignore)"),
    "axes": (with_axes(1, 6, 2, 3), "Q (1, 6, 2, 3): 6 heads of 2 queries; if the axes are (B, L, H, D), set layout to blhd "
             "(--layout blhd), otherwise to bhld"),
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
    "lower triangle": {**SQUARE, "mask": LOWER},
    "padding of queries and keys": {**SQUARE, "mask": PADDED},
    "polarity": {**SQUARE, "mask": UPPER, "mask_polarity": "attend"},
    "hidden keys": {**SQUARE, "mask": UPPER, "mask_polarity": "ignore"},
    "key mask": {**with_axes(2, 3, 4), "key_mask": [[True] * 3, [True, False, False]]},
    "key mask with its polarity": {**with_axes(2, 3, 4), "key_mask": [[False] * 3, [False, False, True]],
                                   "mask_polarity": "attend"},
    "rectangular mask": {**SQUARE, "Q": Q1, "mask": [[False, False, False]]},
    "layout": with_axes(1, 6, 2, 3, layout="bhld"),
    "one query": with_axes(1, 6, 1, 3),
    "more queries than heads": with_axes(1, 2, 6, 3),
    "a long past": {**with_axes(1, 6, 2, 3), "past_K": {"randn": {"shape": [1, 6, 9, 3]}},
                    "past_V": {"randn": {"shape": [1, 6, 9, 3]}}},
    "a long cache": {**with_axes(1, 6, 2, 3), "K": {"randn": {"shape": [1, 6, 9, 3]}}, "V": {"randn": {"shape": [1, 6, 9, 3]}}},
}

REFUSED = {
    "mask (B, S)": ({**with_axes(2, 3, 4), "mask": [[True, True, False]] * 2}, "a mask (B, S) of keys is a key_mask (--key-mask)"),
    "heads in axis 2": (with_axes(2, 6, 3, 4, heads=3), "(B, L, H, D)? set layout: blhd"),
    "heads in axis 1": (with_axes(2, 3, 6, 4, heads=3, layout="blhd"), "(B, H, L, D)? set layout: bhld"),
    "more keys than queries": ({**with_axes(2, 6, 3, 4), "K": {"randn": {"shape": [2, 8, 3, 4]}},
                                "V": {"randn": {"shape": [2, 8, 3, 4]}}}, "(B, L, H, D)? set layout: blhd"),
}


@pytest.mark.parametrize("name", WARNED)
def test_warning(name):
    job, text = WARNED[name]
    found = warnings_of(job)
    assert "warning: " in found and text in found
    assert warnings_of(job, "-q") == ""


@pytest.mark.parametrize("name", REFUSED)
def test_hint(name):
    job, text = REFUSED[name]
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65, text)


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
