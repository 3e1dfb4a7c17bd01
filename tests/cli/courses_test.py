"""What docs/courses.md says about the assignments, with results that NumPy computes."""

import json

import numpy as np
import pytest

from support.attn import attn


def draw(folder, name, seed, *shape):
    run = attn("random", "randn", "--generator", "torch", "--seed", seed, "--shape", ",".join(map(str, shape)),
               "-o", folder / f"{name}.npy")
    assert run.returncode == 0
    return np.load(folder / f"{name}.npy").astype(float)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def report(folder, result, *words):
    np.save(folder / "mine.npy", result.astype("f4"))
    run = attn("compare", "mine.npy", "--reference", *words, "--json", "--diagnose", cwd=folder)
    tensor = json.loads(run.stdout)["tensors"][0]
    return run.returncode, [finding["flags"] or finding["text"] for finding in tensor.get("diagnosis", [])]


class TestScaledDotProduct:
    FLAGS = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--mask", "mask.npy"]

    @pytest.fixture
    def inputs(self, tmp_path):
        q, k, v = draw(tmp_path, "q", 1, 4, 12, 64), draw(tmp_path, "k", 2, 4, 16, 64), draw(tmp_path, "v", 3, 4, 16, 64)
        mask = draw(tmp_path, "normal", 5, 4, 12, 16) > .5
        np.save(tmp_path / "mask.npy", mask)
        return tmp_path, q, k, v, mask

    def context(self, q, k, v, mask, scale=1 / 8):
        return softmax(np.where(mask, scale * q @ k.swapaxes(1, 2), -np.inf)) @ v

    def test_right(self, inputs):
        folder, *arrays = inputs
        assert report(folder, self.context(*arrays), *self.FLAGS) == (0, [])

    def test_without_scale(self, inputs):
        folder, *arrays = inputs
        assert report(folder, self.context(*arrays, scale=1), *self.FLAGS) == (1, ["--scale none"])

    def test_inverted_mask(self, inputs):
        folder, q, k, v, mask = inputs
        assert report(folder, self.context(q, k, v, ~mask), *self.FLAGS) == (1, ["--mask-polarity ignore"])


class TestMultihead:
    @pytest.fixture
    def inputs(self, tmp_path):
        x = draw(tmp_path, "x", 4, 4, 12, 64)
        weights = {f"W_{name}": np.random.default_rng(i).uniform(-1 / 8, 1 / 8, (64, 64)).astype("f4")
                   for i, name in enumerate("QKVO")}
        np.savez(tmp_path / "w.npz", **weights)
        job = {"embeddings": "x.npy", "weights_layout": "out-in", "heads": 4, "causal": True}
        (tmp_path / "job.json").write_text(json.dumps(job | {name: f"w.npz#{name}" for name in weights}))
        return tmp_path, x, weights

    @staticmethod
    def rotated(x, pairs):
        """Columns 2k and 2k + 1, or k and k + D/2."""
        D = x.shape[-1]
        angle = np.arange(x.shape[-2])[:, None] * 10000. ** (-2 * np.arange(D // 2) / D)
        first = slice(0, D, 2) if pairs == "interleaved" else slice(0, D // 2)
        second = slice(1, D, 2) if pairs == "interleaved" else slice(D // 2, D)
        a, b, out = x[..., first], x[..., second], np.empty_like(x)
        out[..., first] = a * np.cos(angle) - b * np.sin(angle)
        out[..., second] = a * np.sin(angle) + b * np.cos(angle)
        return out

    def output(self, x, weights, rotary=None, causal=True, transposed=False):
        W = {name: w if transposed else w.T for name, w in weights.items()}
        q, k, v = ((x @ W[f"W_{name}"]).reshape(4, 12, 4, 16).swapaxes(1, 2) for name in "QKV")
        if rotary:
            q, k = self.rotated(q, rotary), self.rotated(k, rotary)
        scores = q @ k.swapaxes(2, 3) / 4
        weights = softmax(np.where(np.tril(np.ones((12, 12), bool)) | (not causal), scores, -np.inf))
        return (weights @ v).swapaxes(1, 2).reshape(4, 12, 64) @ W["W_O"]

    @pytest.mark.parametrize("rotary", [None, "interleaved"])
    def test_right(self, inputs, rotary):
        folder, x, weights = inputs
        words = ["job.json", *(["--rotary", rotary] if rotary else [])]
        assert report(folder, self.output(x, weights, rotary), *words) == (0, [])

    @pytest.mark.parametrize("mistake, words, name", [
        ({"rotary": "half"}, ["--rotary", "interleaved"], "--rotary half"), ({"causal": False}, [], "without --causal"),
        ({"transposed": True}, [], "all square weights transposed, as with the other --weights-layout")])
    def test_wrong(self, inputs, mistake, words, name):
        folder, x, weights = inputs
        code, names = report(folder, self.output(x, weights, **mistake), "job.json", *words)
        assert code == 1 and names == [name]
