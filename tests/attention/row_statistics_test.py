"""Statistics of each query's weights, as outputs of a job, compared with NumPy: both paths, masks, dtypes,
grouped heads. detect_head's definitions are those of TransformerLens."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

B, H, G, L, S, D = 2, 4, 2, 9, 9, 8
OF_TOKENS = ["duplicate_token_weight", "induction_weight"]
STATISTICS = ["weight_sum", "entropy", "effective_keys", "keys_95", "distance", "first_key_weight",
              "previous_token_weight", *OF_TOKENS]
TOKENS = np.array([[5, 7, 5, 5, 7, 2, 5, 7, 2], [1, 1, 2, 3, 1, 2, 3, 3, 1]])


def run(tmp_path, options, dtype=np.float64, outputs=(*STATISTICS, "weights"), tensors=None):
    """The outputs of a job with random tensors; without `weights` the kernels stream all rows."""
    rng = np.random.default_rng(5)
    given = {"Q": 3 * rng.standard_normal((B, H, L, D)), "K": rng.standard_normal((B, G, S, D)),
             "V": rng.standard_normal((B, G, S, D))}
    given = {name: tensor.astype(dtype) for name, tensor in given.items()} | {"token_ids": TOKENS} | (tensors or {})
    np.savez(tmp_path / "in.npz", **given)
    job = {name: f"in.npz#{name}" for name in given} | options | {"outputs": list(outputs)}
    (tmp_path / "job.json").write_text(json.dumps(job))
    result = attn("run", tmp_path / "job.json", "-o", tmp_path / "out.npz", "--nan", "allow", "--force")
    assert result.returncode == 0, result.stderr
    return np.load(tmp_path / "out.npz")


def statistics_of(weights, tokens, own=None):
    """From weights (B, H, L, S), in plain loops; query i is at key own[b, i]."""
    found = {name: np.zeros(weights.shape[:3]) for name in STATISTICS}
    for b, h, i in np.ndindex(weights.shape[:3]):
        w, at = weights[b, h, i], i if own is None else own[b, i]
        logs = np.log(np.where(w > 0, w, 1))
        falling = np.cumsum(np.sort(w)[::-1])
        values = {
            "weight_sum": w.sum(),
            "entropy": -(w * logs).sum(),
            "effective_keys": np.exp(-(w * logs).sum()) if w.any() else 0,
            "keys_95": np.searchsorted(falling, 0.949999 * w.sum()) + 1 if w.any() else 0,
            "distance": (w * np.abs(at - np.arange(len(w)))).sum(),
            "first_key_weight": w[0],
            "previous_token_weight": w[at - 1] if at > 0 else 0,
            "duplicate_token_weight": sum(w[j] for j in range(at) if tokens[b, j] == tokens[b, at]),
            "induction_weight": sum(w[j] for j in range(1, at + 1) if tokens[b, j - 1] == tokens[b, at]),
        }
        for name, value in values.items():
            found[name][b, h, i] = value
    return found


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("options", [
    {}, {"causal": True}, {"window": [3, 0]}, {"temperature": 0.5}, {"softcap": 2}, {"scale": 30},
    {"normaliser": "sparsemax"}, {"normaliser": "sigmoid"}, {"normaliser": "hardmax"}, {"scale": 1e-300},
    {"normaliser": "top_k", "top_k": 3, "causal": True}], ids=json.dumps)
def test_statistics_are_those_of_the_weights(tmp_path, path, options):
    out = run(tmp_path, {"path": path, **options})
    for name, expected in statistics_of(out["weights"], TOKENS).items():
        np.testing.assert_allclose(out[name], expected, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_the_rows_of_some_queries(tmp_path, path):
    out = run(tmp_path, {"path": path, "rows": [2, -1], "causal": True})
    own = np.array([[2, L - 1]] * B)
    for name, expected in statistics_of(out["weights"], TOKENS, own).items():
        np.testing.assert_allclose(out[name], expected, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("rows", [list(range(L)), [2, L - 1]])
def test_a_query_after_a_cache_is_at_the_key_of_its_position(tmp_path, rows):
    rng = np.random.default_rng(3)
    past = {"past_K": rng.standard_normal((B, G, 4, D)), "past_V": rng.standard_normal((B, G, 4, D))}
    tokens = rng.integers(0, 3, (B, S + 4))
    out = run(tmp_path, {"causal": True, "rows": rows}, tensors={**past, "token_ids": tokens})
    own = np.array([np.array(rows) + 4] * B)
    for name, expected in statistics_of(out["weights"], tokens, own).items():
        np.testing.assert_allclose(out[name], expected, rtol=1e-12, atol=1e-13, err_msg=name)


def test_the_first_key_is_that_of_the_query_s_document(tmp_path):
    documents = [0, 0, 0, 0, 4, 4, 4, 4, 4]
    out = run(tmp_path, {"causal": True, "documents": documents})
    expected = np.concatenate([out["weights"][:, :, :4, 0], out["weights"][:, :, 4:, 4]], axis=2)
    np.testing.assert_array_equal(out["first_key_weight"], expected)
    assert (out["previous_token_weight"][:, :, 4] == 0).all()


def test_induction_does_not_cross_documents(tmp_path):
    documents = [0, 0, 0, 0, 4, 4, 4, 4, 4]
    out = run(tmp_path, {"documents": documents}, tensors={"token_ids": np.full(S, 7)})
    expected = np.stack([out["weights"][:, :, i, (1 if i < 4 else 5):i + 1].sum(-1) for i in range(L)], axis=2)
    np.testing.assert_allclose(out["induction_weight"], expected, rtol=1e-12)


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("name", STATISTICS)
def test_a_query_that_sees_no_key_has_zeros(tmp_path, path, name):
    out = run(tmp_path, {"path": path}, outputs=[name], tensors={"mask": np.zeros(S, bool)})
    assert (out[name] == 0).all()


def test_sinks_take_their_share_of_the_weight_sum(tmp_path):
    out = run(tmp_path, {"sinks": [0.5, 1, 1.5, 2]})
    assert (out["weight_sum"] < 1).all()
    np.testing.assert_allclose(out["weight_sum"], out["weights"].sum(-1), rtol=1e-14)


@pytest.mark.parametrize("count, keys", [(20, 19), (40, 38), (41, 39), (1, 1), (2, 2), (10, 10), (100, 95)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_95_percent_of_equal_weights_is_not_decided_by_rounding(tmp_path, count, keys, dtype):
    np.savez(tmp_path / "in.npz", Q=np.zeros((3, 2), dtype), K=np.zeros((count, 2), dtype))
    result = attn("run", tmp_path / "in.npz", "--outputs", "keys_95", "--format", "json")
    assert json.loads(result.stdout)["keys_95"] == [keys] * 3


@pytest.mark.parametrize("seed", range(5))
def test_95_percent_of_long_rows(tmp_path, seed):
    rng = np.random.default_rng(seed)
    np.savez(tmp_path / "in.npz", Q=rng.integers(-3, 3, (4, 3)).astype(float), K=rng.integers(-3, 3, (2000, 3)) / 4)
    assert attn("run", tmp_path / "in.npz", "--outputs", "keys_95,weights", "-o", tmp_path / "o.npz").returncode == 0
    out = np.load(tmp_path / "o.npz")
    sums = np.cumsum(np.sort(out["weights"])[:, ::-1], axis=1)
    np.testing.assert_array_equal(out["keys_95"], (sums < 0.949999).sum(1) + 1)


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
@pytest.mark.parametrize("count, keys", [(1003, 953), (70000, 66500)])
def test_counts_of_16_bit_inputs_are_float32(tmp_path, dtype, count, keys):
    """float16 has 11 bits and ends at 65504, bfloat16 has 8."""
    job = {"Q": np.zeros((1, 1)), "K": np.zeros((count, 1))}
    np.savez(tmp_path / "f.npz", **{name: x.astype("f2") for name, x in job.items()})
    path = "f.npz"
    if dtype == "bfloat16":
        path = "b.safetensors"
        assert attn("convert", "f.npz", "--dtype", "bf16", "-o", path, cwd=tmp_path).returncode == 0
    result = attn("run", path, "--outputs", "keys_95,effective_keys,distance", "-o", "o.npz", "--causal=bottom-right",
                  cwd=tmp_path)
    assert result.returncode == 0 and result.stderr == b""
    with np.load(tmp_path / "o.npz") as out:
        assert all(out[name].dtype == np.float32 for name in ("keys_95", "effective_keys", "distance"))
        assert out["keys_95"] == keys
        np.testing.assert_allclose([out["effective_keys"][0], out["distance"][0]], [count, (count - 1) / 2], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", [name for name in STATISTICS if name != "keys_95"])
def test_the_paths_agree(tmp_path, name, dtype):
    fused, reference = (run(tmp_path, {"path": path, "causal": True}, dtype, [name])[name]
                        for path in ["auto", "reference"])
    assert fused.dtype == np.float32
    np.testing.assert_allclose(fused, reference, rtol=2e-5, atol=2e-5)


def test_a_plan_of_statistics_has_no_score_matrix(tmp_path):
    shape = {"normal": {"shape": [131072, 4]}}
    job = {"seed": 1, "Q": shape, "K": shape, "causal": True, "outputs": STATISTICS[:-2]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    plan = json.loads(attn("run", tmp_path / "job.json", "--dry-run", "--format", "json").stdout)
    assert plan["path"] == "kernels"
    assert plan["memory"] < 100e6


@pytest.mark.parametrize("name", OF_TOKENS)
def test_statistics_of_tokens_require_token_ids(name):
    run = attn("run", "--q", "[[1,2]]", "--k", "[[1,2]]", "--outputs", name)
    assert_error(run, 2, f"'{name}' requires token_ids")


@pytest.mark.parametrize("ids, found", [("[1,2,3]", "(3,)"), ("[1.5,2]", "float64"), ("[[1,2],[3,4]]", "(2, 2)")])
def test_token_ids_are_whole_numbers_for_each_key(ids, found):
    run = attn("run", "--q", "[[1,2]]", "--k", "[[1,2],[3,4]]", "--token-ids", ids, "--outputs", "induction_weight")
    assert_error(run, 65, "--token-ids: expected whole numbers", found)
