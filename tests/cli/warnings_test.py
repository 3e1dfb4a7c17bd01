"""Warnings about jobs that are valid but probably not what the user meant."""

import json

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


WARNED = {
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
