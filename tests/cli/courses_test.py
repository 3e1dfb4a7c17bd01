"""What docs/courses.md says about the assignments, with results that NumPy computes.

The hashes of the inputs are those of PyTorch 2.13.
"""

import hashlib
import re

import numpy as np
import pytest

from docs_test import console_steps, read
from support.attn import ROOT, attn

ITEMS, TOKENS, HEADS, WIDTH = 4, 12, 4, 16
COLUMNS = HEADS * WIDTH
PAGE = read(ROOT / "docs" / "courses.md")
FIXTURES = {  # the seed, the shape, and SHA-256 of torch.randn
    "q": (1, (4, 12, 64), "48d3bdaa04da7d0cacd76a7247f1f3576bebbac34e86205e5386f5521335cb01"),
    "k": (2, (4, 16, 64), "f0812e5affb968d9c44588311c59e572a8670e41404a68dd330bb2a70fd81c37"),
    "v": (3, (4, 16, 64), "f0b2fc629520730257223174c967e1bb14ffc24e9c88e1c1b18ea7e781d67517"),
    "in_embeddings": (4, (4, 12, 64), "8201c6496ecfa0934c456a4a513f84acfa375ce1fb493ed9da85a554d239da23"),
    "mask": (5, (4, 12, 16), "f2233a04737af8512c36363707dac3faddee1500767c272534bd8c2d3d379598"),
}
QKV_FLAGS = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--mask", "mask.npy"]
OUTPUT_FLAGS = ["--w-o", "layer.npz#o_proj_weight"]
ROTARY_FLAGS = ["--rotary", "interleaved"]
RIGHT, UNNAMED = "right", "nothing"


def draw(folder, name):
    """A fixture of the course, as float32."""
    seed, shape, _ = FIXTURES[name]
    run = attn("random", "randn", "--generator", "torch", "--seed", seed, "--shape", ",".join(map(str, shape)),
               "-o", f"{name}.npy", cwd=folder)
    assert run.returncode == 0
    return np.load(folder / f"{name}.npy")


def listed(mistake):
    """What the page's table says that the result agrees with."""
    return re.search(rf"^\| {re.escape(mistake)} \| `?([^`|]*)`? \|$", PAGE, re.MULTILINE)[1]


def verdict(folder, result, *words):
    """What the report says that the result agrees with, without what the job has instead."""
    np.save(folder / "mine.npy", result.astype("f4"))
    run = attn("compare", "mine.npy", "--reference", *words, "--diagnose", cwd=folder)
    text = run.stdout.decode()
    if run.returncode == 0:
        assert "within the error bound of f32" in text
        return RIGHT
    assert run.returncode == 1
    if "\n  no known mistake explains it" in text:
        return UNNAMED
    [named] = re.findall(r"^  agrees with (.*?)(?: \(the job has [^)]*\)+)?$", text, re.MULTILINE)
    return named


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_are_those_of_torch(tmp_path, name):
    drawn, (_, shape, digest) = draw(tmp_path, name), FIXTURES[name]
    assert (drawn.shape, drawn.dtype) == (shape, np.float32)
    assert hashlib.sha256(drawn.tobytes()).hexdigest() == digest


class TestScaledDotProductAttention:
    @pytest.fixture
    def inputs(self, tmp_path):
        q, k, v = (draw(tmp_path, name).astype(float) for name in "qkv")
        mask = draw(tmp_path, "mask") > .5
        np.save(tmp_path / "mask.npy", mask)
        return q, k, v, mask

    @staticmethod
    def context(q, k, v, mask, scale=COLUMNS ** -.5):
        return softmax(np.where(mask, scale * q @ k.swapaxes(1, 2), -np.inf)) @ v

    def test_right(self, tmp_path, inputs):
        assert verdict(tmp_path, self.context(*inputs), *QKV_FLAGS) == RIGHT

    @pytest.mark.parametrize("mistake, changed", [
        ("has no scale", lambda mask: {"scale": 1}),
        ("hides the keys where the mask is True", lambda mask: {"mask": ~mask}),
        ("ignores the mask", lambda mask: {"mask": True})])
    def test_mistake_is_named(self, tmp_path, inputs, mistake, changed):
        arguments = dict(zip(("q", "k", "v", "mask"), inputs)) | changed(inputs[-1])
        assert verdict(tmp_path, self.context(**arguments), *QKV_FLAGS) == listed(mistake)


def rotated(x, *, halves=False):
    """The last axis, as pairs of columns, by position * 10000^(-2k / width)."""
    pairs = np.arange(x.shape[-1] // 2)
    angles = np.arange(TOKENS)[:, None] * 10000.0 ** (-2 * pairs / x.shape[-1])
    first, second = (pairs, pairs + len(pairs)) if halves else (2 * pairs, 2 * pairs + 1)
    turned = np.empty_like(x)
    turned[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    turned[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return turned


def split(x, how):
    """(B, L, H·D) as (B, H, L, D), or as a mistake reads it."""
    if how == "viewed":
        return x.reshape(ITEMS, HEADS, TOKENS, WIDTH)
    if how == "interleaved":
        return x.reshape(ITEMS, TOKENS, WIDTH, HEADS).transpose(0, 3, 1, 2)
    return x.reshape(ITEMS, TOKENS, HEADS, WIDTH).transpose(0, 2, 1, 3)


def layer(x, weights, *, scale=WIDTH ** -.5, causal=True, transposed=True, heads="right", joined="right", rotary=None):
    """Multi-head self-attention, or the joined heads for three weights."""
    wq, wk, wv, *wo = (w.T if transposed else w for w in weights)
    q, k, v = x @ wq, x @ wk, x @ wv
    if rotary == "all columns":
        q, k = rotated(q), rotated(k)
    q, k, v = (split(projected, heads) for projected in (q, k, v))
    if rotary in ("right", "halves", "values"):
        q, k = (rotated(part, halves=rotary == "halves") for part in (q, k))
        v = rotated(v) if rotary == "values" else v
    scores = scale * q @ k.swapaxes(2, 3)
    context = softmax(np.where(np.tri(TOKENS, dtype=bool), scores, -np.inf) if causal else scores) @ v
    context = (context if joined == "viewed" else context.transpose(0, 2, 1, 3)).reshape(ITEMS, TOKENS, COLUMNS)
    return context @ wo[0] if wo else context


class TestMultiheadSelfAttention:
    @pytest.fixture
    def tensors(self, tmp_path):
        """Those of the page, with its layer.json."""
        for name in "weights.json", "layer.json":
            (tmp_path / name).write_text(dict(console_steps(PAGE))[f"cat {name}"])
        assert attn("random", "weights.json", "--generator", "torch", "--seed", 4, "-o", "layer.npz",
                    cwd=tmp_path).returncode == 0
        return np.load(tmp_path / "layer.npz")

    @staticmethod
    def result(tensors, *, with_output=True, **changed):
        weights = [tensors[f"{letter}_proj_weight"].astype(float) for letter in ("qkvo" if with_output else "qkv")]
        return layer(tensors["in_features"].astype(float), weights, **changed)

    def verdict(self, folder, tensors, *, with_output=True, **changed):
        flags = [*(OUTPUT_FLAGS if with_output else []), *(ROTARY_FLAGS if "rotary" in changed else [])]
        return verdict(folder, self.result(tensors, with_output=with_output, **changed), "layer.json", *flags)

    def test_embeddings_are_those_of_the_course(self, tmp_path, tensors):
        assert np.array_equal(tensors["in_features"], draw(tmp_path, "in_embeddings"))

    @pytest.mark.parametrize("with_output", [True, False])
    @pytest.mark.parametrize("changed", [{}, {"rotary": "right"}])
    def test_right(self, tmp_path, tensors, with_output, changed):
        assert self.verdict(tmp_path, tensors, with_output=with_output, **changed) == RIGHT

    @pytest.mark.parametrize("with_output", [True, False])
    @pytest.mark.parametrize("mistake, changed", [
        ("has no scale", {"scale": 1}),
        ("scales by 1/sqrt(d_model)", {"scale": COLUMNS ** -.5}),
        ("has no causal mask", {"causal": False}),
        ("multiplies by weights that are not transposed", {"transposed": False}),
        ("splits columns as (D, H)", {"heads": "interleaved"}),
        ("rotates column k with k + D/2", {"rotary": "halves"}),
        ("also rotates values", {"rotary": "values"})])
    def test_mistake_is_named(self, tmp_path, tensors, mistake, changed, with_output):
        assert self.verdict(tmp_path, tensors, with_output=with_output, **changed) == listed(mistake)

    @pytest.mark.parametrize("mistake, changed", [
        ("reads (B, L, H·D) as (B, H, L, D) and back", {"heads": "viewed", "joined": "viewed"}),
        ("joins the heads of (B, H, L, Dv) without transposing", {"joined": "viewed"})])
    def test_reshaping_is_named(self, tmp_path, tensors, mistake, changed):
        assert self.verdict(tmp_path, tensors, **changed) == listed(mistake)

    def test_rotation_of_all_columns_is_not_named(self, tmp_path, tensors):
        assert listed("rotates all 64 columns, before they are split into heads") == UNNAMED
        assert self.verdict(tmp_path, tensors, rotary="all columns") == UNNAMED

    def test_stored_result(self, tmp_path, tensors):
        """The rule and tolerance are those of numpy.testing.assert_allclose in the course's tests."""
        right = self.result(tensors).astype("f4")
        np.savez(tmp_path / "snapshot.npz", array=right)
        flags = re.search(r"^ {4}attn compare mha.npy \S+#array (.*)$", PAGE, re.MULTILINE)[1].split()
        assert flags == ["--rtol", "1e-4", "--atol", "1e-6"]
        allowed = 1e-6 + 1e-4 * np.abs(right.astype(float))
        for share, code in (.99, 0), (1.01, 1):
            np.save(tmp_path / "mha.npy", (right + share * allowed).astype("f4"))
            assert attn("compare", "mha.npy", "snapshot.npz#array", *flags, cwd=tmp_path).returncode == code
