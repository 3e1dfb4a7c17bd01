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
    ({"chunk": 16}, q // 15 == k // 15, "--chunk 15 (the job has 16)"),
    ({"chunk": 16}, q // 17 == k // 17, "--chunk 17 (the job has 16)"),
    ({"causal": True, "chunk": 16}, q >= k, "the job without --chunk (the job has 16)"),
    ({"causal": True, "window": [4, 0], "sink_tokens": 2}, (q >= k) & (q - k <= 4),
     "the job without --sink-tokens (the job has 2)"),
    ({"causal": True, "window": [4, 0], "sink_tokens": 2}, (q >= k) & ((q - k <= 3) | (k < 2)),
     "--window 3,0 (the job has 4,0)"),
    ({"causal": True, "window": [4, 0], "sink_tokens": 2}, (q >= k) & ((q - k <= 4) | (k < 3)),
     "--sink-tokens 3 (the job has 2)"),
    ({"causal": True, "prefix_lengths": 5}, (q >= k) | (k < 6), "--prefix-lengths 6 (the job has 5)"),
    ({"causal": True, "prefix_lengths": [5, 7]}, (q >= k) | (k < np.array([6, 8])[:, None, None]),
     "prefixes that are one key longer"),
    ({"causal": True, "prefix_lengths": 5}, q >= k, "the job without --prefix-lengths"),
    ({"causal": True, "prefix_lengths": 5}, (q - 1 >= k) | (k < 5), "--causal-offset -1, no query sees the key at its own position"),
    ({"tree_parents": [-1, 0, 0, 1]}, (k < 36) | (q - k >= 0), "the drafts as one sequence instead of a tree"),
    ({"blocks": [[1, 0], [1, 1]], "block_size": [20, 20]}, (q < 20) | (k >= 20), "--blocks with rows and columns swapped"),
])
def test_names_mistakes_about_masks_with_names(job, mask, line, tmp_path):
    """With the flag that the job has instead, the result passes."""
    run = report(tmp_path, mask, "--diagnose", **job)
    assert f"agrees with {line}" in run.stdout.decode(), run.stdout.decode()
    flag, _, value = line.partition(" (")[0].partition(" ")
    if flag in ("--chunk", "--window", "--sink-tokens"):
        assert attn("compare", "context.npy", "--reference", "job.json", flag, value, cwd=tmp_path).returncode == 0


def test_names_a_rule_that_is_not_applied(tmp_path):
    run = report(tmp_path, np.ones((L, L), bool), "--diagnose")
    assert f"agrees with the job without --mask-rule (the job has '{RULE}')" in run.stdout.decode()


def test_a_right_kernel_agrees(tmp_path):
    assert report(tmp_path, JOB_MASK).returncode == 0
