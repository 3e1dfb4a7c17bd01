"""input_norm and norm_offset against NumPy. Each test runs on both paths."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

L, M, D = 5, 6, 4
RNG = np.random.default_rng(5)
X, WEIGHT, BIAS, W = RNG.standard_normal((L, M)) * 3, RNG.standard_normal(M), RNG.standard_normal(M), \
    RNG.standard_normal((M, D))


def rms(x, epsilon=1e-6):
    return x / np.sqrt(np.mean(x ** 2, -1, keepdims=True) + epsilon)


def layer(x, epsilon=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)


def run(keys, dtype="f8", outputs=("inputs",)):
    job = {"embeddings": X.astype(dtype).tolist(), "outputs": list(outputs), **keys}
    job = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in job.items()}
    done = attn("run", "-", "--format", "json", stdin=json.dumps(job))
    assert (done.returncode, done.stderr) == (0, b"")
    return {name: np.array(json.loads(done.stdout)[name]) for name in outputs}


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("keys, expected", [
    ({"input_norm": "rms"}, rms(X)),
    ({"input_norm": "layer"}, layer(X)),
    ({"input_norm": "rms", "input_norm_epsilon": 0.5}, rms(X, 0.5)),
    ({"input_norm": "layer", "input_norm_epsilon": 0.5}, layer(X, 0.5)),
    ({"input_norm": "rms", "input_norm_weight": WEIGHT}, rms(X) * WEIGHT),
    ({"input_norm": "rms", "input_norm_weight": WEIGHT, "norm_offset": 1}, rms(X) * (1 + WEIGHT)),
    ({"input_norm": "layer", "input_norm_weight": WEIGHT, "input_norm_bias": BIAS}, layer(X) * WEIGHT + BIAS),
    ({"input_norm": "layer", "input_norm_weight": WEIGHT, "input_norm_bias": BIAS, "norm_offset": -2},
     layer(X) * (WEIGHT - 2) + BIAS),
    ({"input_norm": "rms", "position": {"embedding_scale": 3}}, rms(3 * X)),
])
def test_input_norm(path, keys, expected):
    np.testing.assert_allclose(run({**keys, "path": path})["inputs"], expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_queries_keys_and_values_come_from_normalised_embeddings(path):
    job = {"input_norm": "rms", "input_norm_weight": WEIGHT, "W_Q": W, "W_K": 2 * W, "W_V": 3 * W, "path": path}
    found = run(job, outputs=["queries", "keys", "values", "scores"])
    normed = rms(X) * WEIGHT
    for name, factor in [("queries", 1), ("keys", 2), ("values", 3)]:
        np.testing.assert_allclose(found[name], factor * normed @ W, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found["scores"], 2 * normed @ W @ W.T @ normed.T, rtol=1e-11, atol=1e-12)


def test_memory_is_not_normalised():
    found = run({"input_norm": "rms", "memory": 5 * X}, outputs=["queries", "keys"])
    np.testing.assert_allclose(found["queries"], rms(X), rtol=1e-13)
    np.testing.assert_allclose(found["keys"], 5 * X, rtol=1e-15)


def test_rows_are_normalised_alike():
    np.testing.assert_allclose(run({"input_norm": "layer", "rows": [3, 1]})["inputs"], layer(X)[[3, 1]], rtol=1e-13)


def test_integers_are_normalised_as_floats():
    found = attn("run", "-", "--format", "json", stdin=json.dumps(
        {"embeddings": [[1, 2], [3, 4]], "input_norm": "rms", "outputs": "inputs"}))
    np.testing.assert_allclose(json.loads(found.stdout)["inputs"], rms(np.array([[1, 2], [3, 4]])), rtol=1e-13)


def test_offset_of_query_and_key_norms():
    norm = RNG.standard_normal(M)
    found = run({"qk_norm": "rms", "q_norm": norm, "k_norm": 2 * norm, "norm_offset": 1}, outputs=["queries", "keys"])
    np.testing.assert_allclose(found["queries"], rms(X) * (1 + norm), rtol=1e-13)
    np.testing.assert_allclose(found["keys"], rms(X) * (1 + 2 * norm), rtol=1e-13)


def test_float32_result_is_within_its_bound(tmp_path):
    """A float32 result agrees with the float64 reference within compare's bound; a changed one does not."""
    job = {"embeddings": "x.npy", "input_norm": "rms", "input_norm_weight": "w.npy", "norm_offset": 1,
           "W_Q": "p.npy", "W_K": "p.npy", "outputs": ["weights"]}
    for name, array in [("x", X), ("w", WEIGHT), ("p", W)]:
        np.save(tmp_path / f"{name}.npy", array.astype("f4"))
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "out.npz", cwd=tmp_path).returncode == 0
    compare = ["compare", "--reference", "out.npz", "job.json"]
    assert attn(*compare, cwd=tmp_path).returncode == 0
    np.savez(tmp_path / "out.npz", weights=(np.load(tmp_path / "out.npz")["weights"] * 1.001).astype("f4"))
    assert attn(*compare, cwd=tmp_path).returncode == 1


@pytest.mark.parametrize("keys, message", [
    ({"input_norm_weight": [1] * M}, "input_norm_weight: requires input_norm rms or layer"),
    ({"input_norm": "rms", "input_norm_bias": [1] * M}, "input_norm_bias: requires input_norm layer"),
    ({"input_norm": "rms", "input_norm_weight": [1, 2]}, "input_norm_weight: expected (6,)"),
    ({"input_norm": "l2"}, "input_norm"), ({"norm_offset": 1}, "norm_offset: requires input_norm_weight"),
])
def test_refusals(keys, message):
    assert_error(attn("run", "-", stdin=json.dumps({"embeddings": X.tolist(), **keys})), 65, message)


def test_input_norm_requires_embeddings():
    done = attn("run", "-", stdin=json.dumps({"Q": [[1, 2]], "K": [[1, 2]], "input_norm": "rms"}))
    assert_error(done, 65, "input_norm: requires embeddings")
