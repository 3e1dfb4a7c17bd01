"""`attn rollout` against NumPy: equation and residual of Abnar and Zuidema (2020), discarding as in programs
for vision transformers."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn

LAYERS, B, H, L = 4, 2, 3, 7


def random_weights(seed=0):
    w = np.random.default_rng(seed).random((LAYERS, B, H, L, L)) ** 4
    return w / w.sum(-1, keepdims=True)


def rollout_of(weights, fuse=np.mean, residual=0.5, discard=0):
    """Of weights (layers, H, L, L)."""
    joint = np.eye(weights.shape[-1])
    for layer in weights:
        w = fuse(layer, axis=0)
        flat = w.reshape(-1)
        smallest = np.argsort(flat, kind="stable")[:int(len(flat) * discard)]
        flat[smallest[smallest != 0]] = 0
        a = residual * np.eye(len(w)) + (1 - residual) * w
        joint = a / a.sum(-1, keepdims=True) @ joint
    return joint


def rollout(folder, *args):
    run = attn("rollout", *args, "-o", "out.npy", "--force", cwd=folder)
    assert run.returncode == 0, run.stderr
    return np.load(folder / "out.npy")


@pytest.mark.parametrize("heads, fuse", [("mean", np.mean), ("max", np.max), ("min", np.min)])
@pytest.mark.parametrize("residual, discard", [(0.5, 0), (0, 0), (0.9, 0), (0.5, 0.3), (0.2, 0.9), (1, 0)])
def test_rollout(tmp_path, heads, fuse, residual, discard):
    weights = random_weights()
    np.save(tmp_path / "w.npy", weights)
    found = rollout(tmp_path, "w.npy", "--heads", heads, "--residual", residual, "--discard", discard)
    for b in range(B):
        np.testing.assert_allclose(found[b], rollout_of(weights[:, b], fuse, residual, discard), rtol=1e-12, atol=1e-15)


def test_defaults_are_those_of_the_paper(tmp_path):
    weights = random_weights()[:, 0]
    np.savez(tmp_path / "w.npz", *weights)
    found = rollout(tmp_path, "w.npz")
    np.testing.assert_allclose(found, rollout_of(weights), rtol=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)


@pytest.mark.parametrize("kind", ["arrays", "folder"])
def test_layers_are_in_natural_order(tmp_path, kind):
    """arr_10 after arr_9, also if the file has them in another order."""
    weights = random_weights(1)[:3, 0].repeat(4, axis=0) ** np.arange(1, 13)[:, None, None, None]
    (tmp_path / "layers").mkdir()
    if kind == "arrays":
        np.savez(tmp_path / "layers" / "w.npz", **{f"arr_{i}": weights[i] for i in sorted(range(12), key=str)})
    else:
        for i in range(12):
            np.save(tmp_path / "layers" / f"{i}.npy", weights[i])
    np.testing.assert_allclose(rollout(tmp_path, "layers"), rollout_of(weights), rtol=1e-11)


def test_files_are_layers_in_their_order(tmp_path):
    weights = random_weights()[:, 0]
    for layer in range(LAYERS):
        np.savez(tmp_path / f"{layer}.npz", weights=weights[layer], context=np.zeros(3))
    found = rollout(tmp_path, *(f"{layer}.npz" for layer in range(LAYERS)))
    np.testing.assert_allclose(found, rollout_of(weights), rtol=1e-12)


@pytest.mark.parametrize("weights", [random_weights()[:, 0], random_weights()])
def test_json_is_an_object_with_the_name_of_the_output(tmp_path, weights):
    np.save(tmp_path / "w.npy", weights)
    written = json.loads(attn("rollout", "w.npy", "--format", "json", cwd=tmp_path).stdout)
    assert list(written) == ["rollout"]
    np.testing.assert_array_equal(written["rollout"], rollout(tmp_path, "w.npy"))


@pytest.mark.parametrize("args, code, text", [
    (["wide.npy"], 65, "wide.npy: expected weights of self-attention, (..., L, L), found (2, 3)"),
    (["a.npy", "b.npy"], 65, "b.npy: expected weights of 1 batch item and 3 tokens, as in the layers before, found (4, 4)"),
    (["heads.npy"], 65, "heads.npy: expected weights of self-attention, (..., L, L), found (2, 0, 3, 3)"),
    (["job.npz"], 65, "job.npz: has no weights, but found Q, K"),
    (["a.npy", "job.npz"], 65, "job.npz: has no weights, but found Q, K"),
    (["vector.npy"], 65, "2 to 5 axes"), (["many.npy"], 65, "a tensor without elements"),
    (["a.npy", "--residual", "1.5"], 2, "--residual: expected a number from 0 to 1, found '1.5'"),
    (["a.npy", "--discard", "x"], 2, "--discard: expected a number from 0 to 1, found 'x'"),
    (["a.npy", "--discard", "nan"], 2, "--discard: expected a number from 0 to 1, found 'nan'"),
    (["a.npy", "scores.npy"], 65, "scores.npy: not attention weights: query 1 contains -1.889"),
    (["masked.npy"], 65, "masked.npy: not attention weights: query 0 contains -inf"),
    (["none.npz"], 65, "none.npz: has no weights"),
    (["a.npy", "--discard", "-1"], 2, "--discard"), (["missing.npy"], 66, "missing.npy")])
def test_errors(tmp_path, args, code, text):
    for name, shape in {"wide": (2, 3), "a": (3, 3), "b": (4, 4), "vector": (3,), "heads": (2, 0, 3, 3)}.items():
        np.save(tmp_path / f"{name}.npy", np.ones(shape))
    scores = np.ones((2, 3, 3))
    scores[1, 1, 2] = -1.889
    np.save(tmp_path / "scores.npy", scores)
    np.save(tmp_path / "masked.npy", np.where(np.tri(3), 1, -np.inf))
    np.save(tmp_path / "many.npy", np.zeros((2**21, 0, 0)))
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "job.npz", Q=np.ones((3, 3)), K=np.ones((3, 3)))
    assert_error(attn("rollout", *args, cwd=tmp_path), code, text)
