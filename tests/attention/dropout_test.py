"""Dropout of weights with a given mask, compared with NumPy."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.jobs import run_arrays

B, H, L, S, D, P = 2, 3, 4, 5, 6, 0.25
RNG = np.random.default_rng(19)
Q, K, V = (RNG.standard_normal((B, H, n, D)) for n in (L, S, S))
MASK = RNG.random((B, H, L, S)) < 1 - P
SCORES = Q @ K.swapaxes(2, 3) / np.sqrt(D)
WEIGHTS = np.exp(SCORES) / np.exp(SCORES).sum(3, keepdims=True)


@pytest.fixture(params=["auto", "reference"])
def run(tmp_path, request):
    """Runs a job of Q, K, V and a dropout mask, by the kernels and without them; returns its outputs by name."""
    def run(mask=MASK, p=P, outputs=("weights", "dropped_weights", "context"), dtype="f8", **options):
        tensors = {"Q": Q.astype(dtype), "K": K.astype(dtype), "V": V.astype(dtype), "dropout_mask": mask}
        return run_arrays(tmp_path, tensors, dropout_p=p, outputs=outputs, path=request.param, **options)
    return run


def assert_close(found, expected, tolerance=1e-13):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_weights_are_those_before_dropout(run):
    assert_close(run()["weights"], WEIGHTS)


def test_kept_weights_are_divided_by_the_probability_of_keeping(run):
    assert_close(run()["dropped_weights"], np.where(MASK, WEIGHTS / 0.75, 0))


def test_context_is_computed_from_the_dropped_weights(run):
    assert_close(run()["context"], np.where(MASK, WEIGHTS / 0.75, 0) @ V)


@pytest.mark.parametrize("dtype", ["bool", "i8", "u1", "f2", "f4", "f8"])
def test_dtype_of_the_mask_does_not_affect_that_of_the_result(run, dtype):
    found = run(MASK.astype(dtype), dtype="f4")["context"]
    assert found.dtype == "float32"
    assert_close(found, np.where(MASK, WEIGHTS / 0.75, 0) @ V, 1e-6)


@pytest.mark.parametrize("shape", [(S,), (L, 1), (L, S), (H, L, S), (B, 1, 1, S), (1, H, 1, S), (B * H, L, S)])
def test_mask_broadcasts_to_the_weights(run, shape):
    mask = RNG.random(shape) < 0.5
    full = mask.reshape(B, H, L, S) if shape == (B * H, L, S) else mask
    assert_close(run(mask)["dropped_weights"], np.where(full, WEIGHTS / 0.75, 0))


def test_selected_rows_keep_their_rows_of_the_mask(run):
    assert_close(run(rows=[2, -1])["dropped_weights"], np.where(MASK, WEIGHTS / 0.75, 0)[:, :, [2, 3]])


def test_mask_has_a_column_for_each_appended_key(run):
    mask = np.concatenate([MASK, np.zeros((B, H, L, 1), bool)], 3)
    weights = np.exp(SCORES) / (1 + np.exp(SCORES).sum(3, keepdims=True))
    assert_close(run(mask, zero_key=True)["context"], np.where(MASK, weights / 0.75, 0) @ V)


def test_probability_zero_divides_by_one(run):
    assert_close(run(p=0)["dropped_weights"], np.where(MASK, WEIGHTS, 0))


@pytest.mark.parametrize("outputs", [["context"], ["dropped_weights"], ["weights", "context"], ["entropy", "dropped_weights", "context"]])
@pytest.mark.parametrize("shape", [(2, 2, 130, 1100), (1, 4, 1, 1300), (1, 1, 40, 64)])
def test_many_keys(tmp_path, shape, outputs):
    """Several blocks of keys, whole rows or not, and few queries, in float32 and on all paths."""
    b, h, l, s = shape
    rng = np.random.default_rng(5)
    tensors = {"Q": rng.standard_normal((b, h, l, 16)), "K": rng.standard_normal((b, h, s, 16)),
               "V": rng.standard_normal((b, h, s, 8)), "dropout_mask": rng.random((1, h, l, s)) < 0.8}
    scores = tensors["Q"] @ tensors["K"].swapaxes(2, 3) / 4
    weights = np.exp(scores) / np.exp(scores).sum(3, keepdims=True)
    dropped = weights * tensors["dropout_mask"] / 0.8
    expected = {"weights": weights, "dropped_weights": dropped, "context": dropped @ tensors["V"],
                "entropy": -(weights * np.log(weights)).sum(3)}
    for dtype, tolerance in [("f8", 1e-13), ("f4", 1e-5)]:
        given = {name: x if x.dtype == bool else x.astype(dtype) for name, x in tensors.items()}
        found = run_arrays(tmp_path, given, dropout_p=0.2, outputs=outputs)
        for name in outputs:
            assert_close(found[name], expected[name], tolerance)


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("empty, expected", [("zero", [[0, 0], [2, 2]]), ("uniform", [[3, 1], [2, 2]]),
                                             ("nan", [[np.nan, np.nan], [2, 2]])])
def test_queries_without_keys_keep_some_of_their_weights(tmp_path, empty, expected, path):
    tensors = {"Q": np.ones((2, 2)), "K": np.ones((2, 2)), "V": np.array([[1.0, 1.0], [3.0, 1.0]]),
               "mask": np.array([[0, 0], [1, 0]], bool), "dropout_mask": np.array([[0, 1], [1, 1]], bool)}
    assert_close(run_arrays(tmp_path, tensors, dropout_p=0.5, outputs=["context"], empty_rows=empty, path=path)["context"],
                 expected)


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_dropped_query_without_keys_has_no_nan(tmp_path, path):
    tensors = {"Q": np.ones((1, 2)), "K": np.ones((2, 2)), "V": np.ones((2, 2)),
               "mask": np.zeros((1, 2), bool), "dropout_mask": np.zeros((1, 2), bool)}
    found = run_arrays(tmp_path, tensors, dropout_p=0.5, outputs=["context"], empty_rows="nan", path=path)
    assert_close(found["context"], [[0, 0]])


@pytest.mark.parametrize("path", ["auto", "reference"])
def test_nan_in_the_value_of_a_dropped_key_reaches_the_context(tmp_path, path):
    """0 times NaN is NaN, as in PyTorch. A hidden key has no effect."""
    tensors = {"Q": np.ones((2, 2)), "K": np.ones((2, 2)), "V": np.array([[1.0, np.nan], [3.0, 1.0]]),
               "mask": np.array([[1, 1], [0, 1]], bool), "dropout_mask": np.array([[0, 1], [0, 1]], bool)}
    found = run_arrays(tmp_path, tensors, dropout_p=0.5, outputs=["context"], path=path)["context"]
    assert_close(found, [[3, np.nan], [6, 2]])


def test_dropped_weight_is_zero_even_if_it_was_nan():
    job = {"Q": [[1.0]], "K": [["NaN"], [1.0]], "dropout_mask": [[0, 1]], "dropout_p": 0.5, "V": [[1.0], [2.0]],
           "outputs": "dropped_weights"}
    done = attn("run", "-", "--format", "csv", "--nan", "allow", stdin=json.dumps(job))
    assert done.stdout.decode().split() == ["0.0,nan"]


def test_mask_drawn_as_pytorch_draws_it():
    """torch.manual_seed(123); torch.nn.Dropout(0.5)(torch.ones(6, 6)), as printed in chapter 3 of Raschka's book."""
    expected = [[2, 2, 0, 2, 2, 0], [0, 0, 0, 2, 0, 2], [2, 2, 2, 2, 0, 2], [0, 2, 2, 0, 0, 2], [0, 2, 0, 2, 0, 2],
                [0, 2, 2, 2, 2, 0]]
    job = {"Q": [[1.0]] * 6, "K": [[1.0]] * 6, "normaliser": "none", "generator": "torch", "seed": 123, "dropout_p": 0.5,
           "dropout_mask": {"bernoulli": {"p": 0.5, "shape": [6, 6]}}, "outputs": "dropped_weights"}
    done = attn("run", "-", "--format", "json", stdin=json.dumps(job))
    assert json.loads(done.stdout)["dropped_weights"] == expected


def test_flags_give_mask_and_probability(tmp_path):
    for name, array in [("q", Q), ("k", K), ("v", V), ("mask", MASK)]:
        np.save(tmp_path / f"{name}.npy", array)
    done = attn("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--dropout-mask", "mask.npy", "--dropout-p", P,
                "--outputs", "context", "-o", "out.npz", cwd=tmp_path)
    assert done.returncode == 0
    assert_close(np.load(tmp_path / "out.npz")["context"], np.where(MASK, WEIGHTS / 0.75, 0) @ V)


def test_dropped_weights_require_a_mask():
    done = attn("run", "-", stdin=json.dumps({"Q": [[1.0]], "K": [[1.0]], "outputs": "dropped_weights"}))
    assert_error(done, 65, "'dropped_weights' requires dropout_mask")


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("output", ["dropped_weights", "context"])
def test_rounded_result_is_within_its_bound(run, tmp_path, dtype, output):
    """A result in float32 or float16 agrees with the float64 reference; without the factor it does not."""
    found = run(dtype=dtype, outputs=[output])[output]
    compare = ["compare", "--reference", "out.npz", "job.json"]
    assert attn(*compare, cwd=tmp_path).returncode == 0
    np.savez(tmp_path / "out.npz", **{output: (found * 0.75).astype(dtype)})
    assert attn(*compare, cwd=tmp_path).returncode == 1


def test_explanation_divides_the_kept_weights(tmp_path):
    job = {"Q": [[1.0]], "K": [[1.0], [2.0]], "V": [[1.0], [2.0]], "dropout_mask": [[1, 0]], "dropout_p": 0.2}
    done = attn("run", "-", "--explain", "e.md", stdin=json.dumps(job), cwd=tmp_path)
    assert done.returncode == 0
    # softmax([1, 2]) = 0.268941, 0.731059
    assert r"\frac{0.268941}{0.8} = 0.336177" in (tmp_path / "e.md").read_text()
