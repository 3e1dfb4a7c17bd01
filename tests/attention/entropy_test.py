"""The output `entropy` compared with NumPy: both paths, masks, dtypes, grouped heads."""

import json

import numpy as np
import pytest

from support.attn import attn

B, H, G, L, S, D = 2, 4, 2, 7, 40, 8


def run(tmp_path, options, dtype=np.float64, outputs=("entropy", "weights"), tensors=None):
    """The outputs of a job with random tensors; without `weights` the kernels stream all rows."""
    rng = np.random.default_rng(5)
    given = {"Q": rng.standard_normal((B, H, L, D)), "K": rng.standard_normal((B, G, S, D)),
             "V": rng.standard_normal((B, G, S, D))}
    given = {name: tensor.astype(dtype) for name, tensor in given.items()} | (tensors or {})
    np.savez(tmp_path / "in.npz", **given)
    job = {name: f"in.npz#{name}" for name in given} | options | {"outputs": list(outputs)}
    (tmp_path / "job.json").write_text(json.dumps(job))
    result = attn("run", tmp_path / "job.json", "-o", tmp_path / "out.npz", "--nan", "allow", "--force")
    assert result.returncode == 0
    return np.load(tmp_path / "out.npz")


def entropy_of(weights):
    """Plain loops over the keys of each query."""
    entropy = np.zeros(weights.shape[:3])
    for index in np.ndindex(entropy.shape):
        for w in weights[index]:
            if w != 0:
                entropy[index] -= w * np.log(w)
    return entropy


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("options", [
    {}, {"causal": True}, {"window": [3, 0]}, {"temperature": 0.5}, {"softcap": 2}, {"scale": 30},
    {"normaliser": "sparsemax"}, {"normaliser": "sigmoid"}, {"normaliser": "hardmax"}, {"rows": [2, -1]},
], ids=json.dumps)
def test_entropy_is_that_of_the_weights(tmp_path, path, options):
    out = run(tmp_path, {"path": path, **options})
    np.testing.assert_allclose(out["entropy"], entropy_of(out["weights"]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_entropy_is_logsumexp_minus_the_expected_visible_score(tmp_path, path):
    out = run(tmp_path, {"path": path, "causal": True},
              outputs=["entropy", "weights", "logsumexp", "masked_scores"])
    scores = np.where(np.isneginf(out["masked_scores"]), 0, out["masked_scores"])
    expected = out["logsumexp"] - (out["weights"] * scores).sum(-1)
    np.testing.assert_allclose(out["entropy"], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_equal_scores_have_the_logarithm_of_the_number_of_visible_keys(tmp_path, path):
    mask = np.arange(S) < 6
    out = run(tmp_path, {"path": path, "scale": 1e-300}, outputs=["entropy"], tensors={"mask": mask})
    np.testing.assert_allclose(out["entropy"], np.full((B, H, L), np.log(6)), rtol=1e-13)


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("empty_rows, expected", [("zero", 0), ("uniform", np.log(S)), ("nan", np.nan)])
def test_a_query_that_sees_no_key(tmp_path, path, empty_rows, expected):
    out = run(tmp_path, {"path": path, "empty_rows": empty_rows}, outputs=["entropy"],
              tensors={"mask": np.zeros(S, bool)})
    np.testing.assert_allclose(out["entropy"], np.full((B, H, L), expected), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_paths_agree(tmp_path, dtype):
    fused, reference = (run(tmp_path, {"path": path}, dtype, ["entropy"])["entropy"]
                        for path in ["auto", "reference"])
    assert fused.dtype == np.float32
    np.testing.assert_allclose(fused, reference, rtol=1e-5)


def test_a_plan_of_entropy_has_no_score_matrix(tmp_path):
    shape = {"normal": {"shape": [20000, 8]}}
    (tmp_path / "job.json").write_text(json.dumps({"seed": 1, "Q": shape, "K": shape, "outputs": ["entropy"]}))
    plan = json.loads(attn("run", tmp_path / "job.json", "--dry-run", "--format", "json").stdout)
    assert plan["outputs"][0]["shape"] == [20000]
    assert plan["path"] == "kernels"
    assert plan["memory"] < 20e6


def test_the_result_is_within_its_error_bound(tmp_path):
    run(tmp_path, {"causal": True}, np.float32, ["entropy"])
    compared = attn("compare", "--reference", tmp_path / "out.npz", tmp_path / "job.json")
    assert compared.returncode == 0
