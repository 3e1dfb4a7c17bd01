"""If nothing explains a context and V determines the weights, the report says which keys they miss."""

import numpy as np

from support.diagnosed import diagnosed


def jobs(seed=3):
    q, k, v = np.random.default_rng(seed).normal(size=(3, 1, 2, 24, 40)).astype("f4")
    scores = np.where(np.tri(24, dtype=bool), q @ k.swapaxes(-1, -2) / 40 ** .5, -np.inf)
    return {"Q": q, "K": k, "V": v}, np.exp(scores)


def line_of(folder, tensors, weights):
    out = weights / weights.sum(-1, keepdims=True) @ tensors["V"]
    report, _ = diagnosed(folder, tensors, {"causal": True}, "f32", out, "--diagnose")
    assert report["diagnosis"] == []
    return report["pattern"][-1]


def test_missing_keys(tmp_path):
    tensors, weights = jobs()
    weights[:, :, 12:, [3, 4, 9]] = 0
    line = line_of(tmp_path, tensors, weights)
    assert line.endswith("recovered from the values, sum to 1; they miss keys 3, 4, 9")


def test_hidden_keys_that_are_included(tmp_path):
    tensors, weights = jobs()
    weights[:, :, 7, 15] = weights[:, :, 7, 2]
    line = line_of(tmp_path, tensors, weights)
    assert line.startswith("row 7 of head ") and line.endswith("; they include hidden key 15")


def test_more_keys_than_columns_determine_nothing(tmp_path):
    q, k, v = np.random.default_rng(3).normal(size=(3, 1, 2, 24, 16)).astype("f4")
    out = np.random.default_rng(4).normal(size=(1, 2, 24, 16))
    report, _ = diagnosed(tmp_path, {"Q": q, "K": k, "V": v}, {}, "f32", out, "--diagnose")
    assert not any("recovered" in line for line in report["pattern"])
