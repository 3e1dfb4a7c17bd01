"""compare --diagnose names the condition of a mask rule that a kernel lacks, or that is off by one. The kernels are NumPy."""

import json

import numpy as np
import pytest

from support.attn import attn

L = 40
q, k = np.arange(L)[:, None], np.arange(L)
document = np.repeat([0, 1, 2], [11, 9, 20])
RULE = "q >= k and (q - k < 8 or k < 3) and doc[q] == doc[k]"
JOB_MASK = (q >= k) & ((q - k < 8) | (k < 3)) & (document[:, None] == document)


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((2, L, 8)).astype(np.float32) for name in "QKV"}


def kernel(mask, Q, K, V):
    scores = np.where(mask, Q.astype(float) @ K.astype(float).swapaxes(1, 2) / np.sqrt(8), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ V).astype(np.float32)


def report(folder, mask, *flags, **rule):
    arrays = inputs(int(mask.sum()))
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "context.npy", kernel(mask, **arrays))
    (folder / "job.json").write_text(json.dumps({
        **{name: f"{name}.npy" for name in "QKV"}, **(rule or {"mask_rule": RULE, "mask_tables": {"doc": document.tolist()}})}))
    return attn("compare", "context.npy", "--reference", "job.json", *flags, cwd=folder)


@pytest.mark.parametrize("mask, rule", [
    ((q >= k) & ((q - k < 7) | (k < 3)) & (document[:, None] == document), RULE.replace("8", "7")),
    ((q >= k) & ((q - k < 9) | (k < 3)) & (document[:, None] == document), RULE.replace("8", "9")),
    ((q >= k) & ((q - k < 8) | (k < 2)) & (document[:, None] == document), RULE.replace("k < 3", "k < 2")),
    ((q >= k) & ((q - k < 8) | (k < 3)), RULE.replace(" and doc[q] == doc[k]", "")),
    ((q >= k) & (q - k < 8) & (document[:, None] == document), "q >= k and q - k < 8 and doc[q] == doc[k]"),
])
def test_names_the_condition(mask, rule, tmp_path):
    mask = mask.astype(bool)
    run = report(tmp_path, mask, "--diagnose")
    assert run.returncode == 1
    lines = run.stdout.decode().splitlines()
    found = [line.strip() for line in lines if "agrees with --mask-rule" in line]
    assert any(f"agrees with --mask-rule '{rule}' (the job has '{RULE}')" in line for line in found), lines
    flags = ["--mask-rule", rule]
    assert attn("compare", "context.npy", "--reference", "job.json", *flags, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("job, mask, line", [
    ({"causal": True, "chunk": 16}, (q >= k) & (q // 15 == k // 15), "--mask-rule 'q // 15 == k // 15'"),
    ({"causal": True, "chunk": 16}, q >= k, "the job without --mask-rule"),
    ({"causal": True, "window": [4, 0], "sink_tokens": 2}, (q >= k) & (q - k <= 4),
     "--mask-rule 'q - k <= 4 and k - q <= 0'"),
    ({"causal": True, "window": [4, 0], "sink_tokens": 2}, (q >= k) & ((q - k <= 3) | (k < 2)),
     "--mask-rule 'k < 2 or q - k <= 3 and k - q <= 0'"),
    ({"causal": True, "prefix_lengths": 5}, (q >= k) | (k < 6), "--mask-rule 'k < 6 or q >= k'"),
])
def test_names_mistakes_about_masks_with_names(job, mask, line, tmp_path):
    run = report(tmp_path, mask, "--diagnose", **job)
    assert f"agrees with {line} (the job has '" in run.stdout.decode(), run.stdout.decode()


def test_names_a_rule_that_is_not_applied(tmp_path):
    run = report(tmp_path, np.ones((L, L), bool), "--diagnose")
    assert f"agrees with the job without --mask-rule (the job has '{RULE}')" in run.stdout.decode()


def test_a_right_kernel_agrees(tmp_path):
    assert report(tmp_path, JOB_MASK).returncode == 0
