"""Weights as torch.nn.Linear saves them, (out, in): y = x W^T (torch.nn.Linear's documentation)."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.safetensors_file import build, entry

L, M, H, G, D, OUT = 5, 10, 4, 2, 3, 7
RNG = np.random.default_rng(3)
X = RNG.standard_normal((L, M))
LAYER = {"q_proj.weight": RNG.standard_normal((H * D, M)), "k_proj.weight": RNG.standard_normal((G * D, M)),
         "v_proj.weight": RNG.standard_normal((G * D, M)), "o_proj.weight": RNG.standard_normal((OUT, H * D))}
FLAGS = [x for w, name in zip("qkvo", LAYER) for x in (f"--w-{w}", f"layer.npz#{name}")]


def expected_output():
    q, k, v = (X @ LAYER[f"{name}_proj.weight"].T for name in "qkv")
    heads = []
    for h in range(H):
        g = h // (H // G)
        scores = q[:, h * D:(h + 1) * D] @ k[:, g * D:(g + 1) * D].T / np.sqrt(D)
        e = np.exp(scores - scores.max(1, keepdims=True))
        heads.append(e / e.sum(1, keepdims=True) @ v[:, g * D:(g + 1) * D])
    return np.concatenate(heads, 1) @ LAYER["o_proj.weight"].T


def run(folder, *flags, layer=LAYER):
    np.savez(folder / "layer.npz", **layer)
    np.save(folder / "x.npy", X)
    return attn("run", "--embeddings", "x.npy", "--heads", H, "--kv-heads", G, *flags, "--outputs", "output", "-o",
                "out.npy", cwd=folder)


@pytest.mark.parametrize("flags", [["--weights-layout", "out-in"], ["--convention", "torch"],
                                   ["--convention", "torch-mha"],
                                   ["--convention", "keras", "--weights-layout=out-in"]], ids=" ".join)
def test_weights_are_transposed(tmp_path, flags):
    done = run(tmp_path, *FLAGS, *flags)
    assert (done.returncode, done.stderr) == (0, b"")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected_output(), rtol=1e-12)


@pytest.mark.parametrize("convention", ["torch", "torch-mha"])
def test_explicit_layout_overrides_the_convention(tmp_path, convention):
    done = run(tmp_path, *FLAGS, "--convention", convention, "--weights-layout", "in-out",
               layer={name: W.T for name, W in LAYER.items()})
    assert (done.returncode, done.stderr) == (0, b"")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected_output(), rtol=1e-12)


def test_layout_of_inline_and_random_weights():
    W = [[1, 2], [3, 5]]
    job = {"embeddings": [[1, 10]], "W_Q": W, "weights_layout": "out-in", "seed": 0,
           "W_K": {"randint": {"high": 9, "shape": [2, 2]}}, "outputs": ["queries", "keys", "W_Q", "W_K"]}
    done = attn("run", "-", "--format", "json", stdin=json.dumps(job))
    drawn = np.random.RandomState(0).randint(9, size=(2, 2))
    found = json.loads(done.stdout)
    assert found["queries"] == [[21, 53]]
    assert found["keys"] == (np.array([[1, 10]]) @ drawn.T).tolist()
    assert found["W_Q"] == np.transpose(W).tolist()


@pytest.mark.parametrize("which", ["q", "k", "v", "o"])
def test_hint_if_the_transpose_fits(tmp_path, which):
    """All weights but one are (in, out)."""
    layer = {name: W if name[0] == which else W.T for name, W in LAYER.items()}
    done = run(tmp_path, *FLAGS, layer=layer)
    assert_error(done, 65, f"W_{which.upper()}: expected",
                 "(out, in) weights, as torch saves them? add weights_layout: out-in")
    assert done.stderr.count(b"weights_layout") == 1


def test_no_hint_if_the_transpose_does_not_fit(tmp_path):
    done = run(tmp_path, "--w-q", "layer.npz#a", layer={"a": np.ones((M + 1, M + 2))})
    assert_error(done, 65, "W_Q: expected")
    assert b"weights_layout" not in done.stderr


def test_message_shows_the_transpose(tmp_path):
    done = run(tmp_path, *FLAGS, "--weights-layout", "out-in", layer={name: W.T for name, W in LAYER.items()})
    assert_error(done, 65, "W_Q: expected (10, *) to match embeddings (5, 10), found (12, 10), transposed by "
                 "weights_layout out-in; (in, out) weights? set weights_layout: in-out")


def square(folder, name, *flags):
    """A job whose W_Q is square, under this name in a .safetensors file."""
    data = np.ones((M, M)).tobytes()
    (folder / "m.safetensors").write_bytes(build({name: entry(0, len(data), shape=[M, M])}, data))
    np.save(folder / "x.npy", X)
    done = attn("run", "--embeddings", "x.npy", "--w-q", f"m.safetensors#{name}", *flags, "-o", "out.npz", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode()


def test_warning_of_square_weights(tmp_path):
    text = square(tmp_path, "layers.0.q_proj.weight")
    assert "m.safetensors#layers.0.q_proj.weight: W_Q: a square matrix, used as (in, out)" in text


@pytest.mark.parametrize("name, flags", [
    ("wq", []), ("a.weight", ["--weights-layout=out-in"]), ("a.weight", ["--weights-layout=in-out"]),
    ("a.weight", ["--convention=torch"]), ("a.weight", ["-q"])])
def test_no_warning(tmp_path, name, flags):
    assert square(tmp_path, name, *flags) == ""


def test_saved_layer_keeps_its_layout(tmp_path):
    """torch.nn.MultiheadAttention's state_dict: in_proj_weight (3E, E), y = x W^T."""
    state = {"in_proj_weight": RNG.standard_normal((3 * M, M)), "out_proj.weight": RNG.standard_normal((M, M))}
    q, k, v = (X @ W.T for W in np.split(state["in_proj_weight"], 3))
    e = np.exp(q @ k.T / np.sqrt(M))
    expected = e / e.sum(1, keepdims=True) @ v @ state["out_proj.weight"].T
    np.savez(tmp_path / "mha.npz", embeddings=X, **state)
    for flags in [], ["--convention=torch-mha"], ["--weights-layout=out-in"], ["--weights-layout=in-out"]:
        done = attn("run", "mha.npz", "--heads=1", *flags, "--outputs", "output", "-o", "out.npy", "--force", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
        found = np.load(tmp_path / "out.npy")
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-12)


def test_layout_without_weights_is_refused():
    job = {"Q": [[1, 2]], "K": [[1, 2]], "weights_layout": "out-in"}
    assert_error(attn("run", "-", stdin=json.dumps(job)), 65, "weights_layout: requires W_Q, W_K, W_V, W_O or W_gate")
