"""The reference path computes some queries at a time: the numbers are those of all queries, in little memory."""

import json

import numpy as np
import pytest

from support.attn import attn, attn_and_peak, under_sanitizer

B, H, G, L, S, D = 1, 4, 2, 1100, 2000, 4  # 8000 scores for each query: 512 queries at a time
RNG = np.random.default_rng(12)


def logistic(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def problem(module_path):
    arrays = {"Q": RNG.standard_normal((B, H, L, D)), "K": RNG.standard_normal((B, G, S, D)),
              "V": RNG.standard_normal((B, G, S, D)), "gate": RNG.standard_normal((B, H, L, D)),
              "mask": RNG.random((L, S)) < 0.8, "bias": RNG.standard_normal((H, L, S)),
              "dropout_mask": RNG.random((L, S)) < 0.9, "W_O": RNG.standard_normal((H * D, 5))}
    np.savez(module_path / "in.npz", **arrays)
    scores = arrays["Q"] @ np.repeat(arrays["K"], H // G, 1).swapaxes(2, 3)
    masked = np.where(arrays["mask"], scores / np.sqrt(D) + arrays["bias"], -np.inf)
    weights = np.exp(masked - masked.max(-1, keepdims=True))
    sums = weights.sum(-1)
    weights /= sums[..., None]
    logsumexp = np.log(sums) + masked.max(-1)
    entropy = -np.sum(np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0), -1)
    dropped = weights * arrays["dropout_mask"] / (1 - 0.125)
    context = dropped @ np.repeat(arrays["V"], H // G, 1) * logistic(arrays["gate"])
    joined = context.swapaxes(1, 2).reshape(B, L, H * D)
    return module_path, {"scores": scores, "masked_scores": masked, "weights": weights,
                         "logsumexp": logsumexp / np.log(2), "entropy": entropy,
                         "mean_weights": weights.mean(1), "context": context,
                         "output": joined @ arrays["W_O"]}


def computed(folder, names, *flags):
    run = attn("run", "in.npz", "--path", "reference", "--dropout-p", "0.125", "--lse-base", "2", "--outputs", ",".join(names), *flags,
               "-o", "out.npz", "--force", cwd=folder)
    assert run.returncode == 0, run.stderr
    with np.load(folder / "out.npz") as result:
        return {name: result[name] for name in names}


def test_all_outputs_are_those_of_the_formula(problem):
    folder, expected = problem
    found = computed(folder, list(expected))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-11, atol=1e-11, err_msg=name)


@pytest.mark.long
def test_outputs_alone_have_the_same_bytes(problem):
    folder, expected = problem
    together = computed(folder, list(expected))
    for name in ["logsumexp", "mean_weights", "context", "output"]:
        assert computed(folder, [name])[name].tobytes() == together[name].tobytes(), name


@pytest.mark.long
def test_rows_have_the_bytes_of_all_queries(problem):
    """Products are computed in blocks of 256 queries, which parts do not divide."""
    folder, _ = problem
    names = ["weights", "logsumexp", "mean_weights"]
    whole, rows = computed(folder, names), computed(folder, names, "--rows", "512:1024")
    for name in names:
        axis = 1 if name == "mean_weights" else 2
        assert rows[name].tobytes() == whole[name].take(range(512, 1024), axis).tobytes(), name


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers take memory")
def test_memory_is_that_of_the_plan_and_not_of_all_scores(module_path):
    """8 heads of 2048 x 2048 scores are 268 MB."""
    np.savez(module_path / "large.npz", **{name: RNG.standard_normal((1, 8, 2048, 16)) for name in "QKV"})
    args = ["run", "large.npz", "--path", "reference", "--outputs", "context"]
    plan = json.loads(attn(*args, "--dry-run", "--format", "json", cwd=module_path).stdout)
    assert plan["path"] == "reference"
    assert plan["memory"] < 260e6
    run, peak = attn_and_peak(*args, "-o", "context.npy", "--force", cwd=module_path)
    assert run.returncode == 0, run.stderr
    assert peak < plan["memory"] + 32e6
