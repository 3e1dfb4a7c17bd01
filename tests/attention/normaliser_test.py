"""Normalisers other than softmax, by the kernels and without them, compared with NumPy."""

import json

import numpy as np
import pytest

from support.attn import attn
from support.jobs import run_arrays

NAMES = ["sparsemax", "entmax15", "hardmax", "sigmoid", "top_k"]
TOP = 9
SHAPES = [(2, 3, 40, 1100, 16), (1, 2, 1, 700, 64), (1, 4, 7, 13, 8)]


def solved(weigh, x):
    """Weights by the t in [-1, 0] at which they sum to 1, by bisection; x is at most 0."""
    low, high = np.full(x.shape[:-1] + (1,), -1.0), np.zeros(x.shape[:-1] + (1,))
    for _ in range(100):
        middle = (low + high) / 2
        above = weigh(x - middle).sum(-1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return weigh(x - high)


def weights_of(name, x):
    """The weights of scores, of which -inf are hidden."""
    if name == "sigmoid":
        return 1 / (1 + np.exp(-x))
    below = x - x.max(-1, keepdims=True)
    if name == "top_k":
        order = np.argsort(-x, axis=-1, kind="stable")[..., :TOP]
        chosen = np.zeros(x.shape, bool)
        np.put_along_axis(chosen, order, True, -1)
        e = np.where(chosen, np.exp(below), 0)
        return e / e.sum(-1, keepdims=True)
    if name == "hardmax":
        return (np.arange(x.shape[-1]) == x.argmax(-1)[..., None]).astype(float)
    if name == "sparsemax":
        return solved(lambda z: np.maximum(z, 0), below)
    return solved(lambda z: np.maximum(z, 0) ** 2, below / 2)


def options_of(name):
    return {"normaliser": name, "top_k": TOP} if name == "top_k" else {"normaliser": name}


def tensors_of(shape, dtype):
    B, H, L, S, D = shape
    rng = np.random.default_rng(4)
    given = {name: rng.standard_normal((B, H, n, D)).astype(dtype) for name, n in (("Q", L), ("K", S), ("V", S))}
    return {**given, "mask": rng.random((L, S)) < 0.8, "bias": rng.standard_normal((H, L, S)).astype(dtype)}


@pytest.mark.parametrize("outputs", [["context"], ["weights", "context", "logsumexp", "entropy"]])
@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_the_formula(tmp_path, name, shape, path, outputs):
    given = tensors_of(shape, "f8")
    x = given["Q"] @ given["K"].swapaxes(2, 3) / np.sqrt(shape[-1]) + given["bias"]
    x = np.where(given["mask"], x, -np.inf)
    weights = weights_of(name, x)
    top = x.max(-1)
    logs = np.log(np.where(weights > 0, weights, 1))
    expected = {"weights": weights, "context": weights @ given["V"], "entropy": -(weights * logs).sum(-1),
                "logsumexp": top + np.log(np.exp(x - top[..., None]).sum(-1))}
    found = run_arrays(tmp_path, given, **options_of(name), path=path, outputs=outputs)
    for output in outputs:
        np.testing.assert_allclose(found[output], expected[output], rtol=1e-11, atol=1e-11, err_msg=output)


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_as_close_as_its_rounding(tmp_path, name):
    given = tensors_of(SHAPES[0], "f4")
    exact = run_arrays(tmp_path, {k: x.astype("f8") if x.dtype == "f4" else x for k, x in given.items()},
                       **options_of(name), outputs=["context"], path="reference")["context"]
    found = run_arrays(tmp_path, given, **options_of(name), outputs=["context"])["context"]
    assert found.dtype == "float32"
    size = np.abs(exact).max()
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-5 * size)


@pytest.mark.parametrize("name, expected", [("sigmoid", [1.0, "nan"]), ("sparsemax", ["nan", "nan"]),
                                            ("entmax15", ["nan", "nan"]), ("hardmax", ["nan", "nan"]), ("top_k", ["nan", "nan"])])
@pytest.mark.parametrize("path", ["auto", "reference"])
def test_nan_reaches_the_weights_that_depend_on_it(name, expected, path):
    job = {"Q": [[1.0]], "K": [[100.0], ["NaN"], [1.0]], "V": [[1.0], [2.0], [3.0]], "mask": [[1, 1, 0]],
           **options_of(name), "path": path, "outputs": "weights"}
    done = attn("run", "-", "--format", "csv", "--nan", "allow", stdin=json.dumps(job))
    assert done.stdout.decode().strip() == ",".join([*map(str, expected), "0.0"])


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("name", NAMES)
def test_query_without_keys_has_the_weights_of_empty_rows(tmp_path, name, path):
    given = {"Q": np.ones((2, 2)), "K": np.ones((2, 2)), "V": np.array([[1.0, 2.0], [3.0, 4.0]]),
             "mask": np.array([[0, 0], [1, 0]], bool)}
    one = 1 / (1 + np.exp(-np.sqrt(2))) if name == "sigmoid" else 1
    for empty, row in [("zero", [0, 0]), ("uniform", [2, 3]), ("nan", [np.nan, np.nan])]:
        found = run_arrays(tmp_path, given, **options_of(name), path=path, empty_rows=empty, outputs=["context"])
        np.testing.assert_allclose(found["context"], [row, [one, 2 * one]], rtol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_selected_rows_have_the_bytes_of_all(tmp_path, name):
    given = tensors_of(SHAPES[0], "f4")
    found = [run_arrays(tmp_path, given, **options_of(name), outputs=["context"], rows=rows)["context"]
             for rows in (list(range(40)), [3, 20])]
    assert found[0][:, :, [3, 20]].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("k, expected", [(1, [1, 0, 0, 0, 0]), (2, [.5, 0, .5, 0, 0]), (4, [.25, .25, .25, .25, 0]), (9, [.2] * 5)])
def test_top_k_chooses_the_first_of_tied_scores(tmp_path, k, expected, path):
    scores = np.array([[2.0], [1.0], [2.0], [1.0], [1.0]]) if k < 4 else np.ones((5, 1))
    found = run_arrays(tmp_path, {"Q": np.ones((1, 1)), "K": scores, "V": scores}, normaliser="top_k", top_k=k, path=path,
                       outputs=["weights"])
    np.testing.assert_allclose(found["weights"], [expected], rtol=1e-14)
