"""scripts/dev/convert-llm-viz, with a random model in the format of llm-viz. The stages are those of minGPT, in NumPy."""

import base64
import json
import subprocess
import sys

import numpy as np
import pytest

from support.attn import ROOT, attn

B, H, L, D = 2, 3, 5, 4
M = H * D


def entry(array):
    data = np.ascontiguousarray(array, "<f4").tobytes()
    return {"shape": list(array.shape), "dtype": "torch.float32", "data": base64.b64encode(data).decode()}


def random_model(rng):
    shapes = {"ln_1.weight": M, "ln_1.bias": M, "attn.c_attn.weight": (3 * M, M), "attn.c_attn.bias": 3 * M,
              "attn.c_proj.weight": (M, M), "attn.c_proj.bias": M}
    return {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


def stages_of(model, x):
    """CausalSelfAttention.forward() of minGPT after LayerNorm."""
    w = {name: array.astype("f8") for name, array in model.items()}
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * w["ln_1.weight"] + w["ln_1.bias"]
    qkv = normed @ w["attn.c_attn.weight"].T + w["attn.c_attn.bias"]
    q, k, v = (part.reshape(B, L, H, D).transpose(0, 2, 1, 3) for part in np.split(qkv, 3, 2))
    att = np.where(np.tri(L, dtype=bool), q @ k.swapaxes(2, 3) / np.sqrt(D), -np.inf)
    weights = np.exp(att - att.max(3, keepdims=True))
    weights /= weights.sum(3, keepdims=True)
    y = (weights @ v).transpose(0, 2, 1, 3).reshape(B, L, M)
    return {"x": x, "q": q, "k": k, "v": v, "att": att, "attSm": weights, "y": y,
            "yProj": y @ w["attn.c_proj.weight"].T + w["attn.c_proj.bias"]}


@pytest.fixture
def files(tmp_path):
    """Writes a random model and its stages; returns the function that converts them."""
    rng = np.random.default_rng(3)
    model = random_model(rng)
    stages = stages_of(model, rng.standard_normal((B, L, M)).astype("f4").astype("f8"))
    config = {"config": {"n_head": H}}
    entries = {f"transformer.h.0.{name}": entry(array) for name, array in model.items()}
    (tmp_path / "model.json").write_text(json.dumps({**config, **entries}))
    (tmp_path / "partials.json").write_text(json.dumps({name: entry(array) for name, array in stages.items()}))

    def convert():
        return subprocess.run([sys.executable, ROOT / "scripts/dev/convert-llm-viz", "model.json", "partials.json", "out"],
                              cwd=tmp_path, capture_output=True, check=False)
    return convert


def compared(folder):
    """The comparison of the layer with the published stages."""
    assert attn("run", "job.json", "-o", "result.npz", cwd=folder).returncode == 0
    return attn("compare", "result.npz", "published.npz", "--atol", "1e-5", cwd=folder)


def change(path, name, edit):
    entries = json.loads(path.read_text())
    edit(entries[name])
    path.write_text(json.dumps(entries))


def test_converted_layer_gives_the_published_stages(files, tmp_path):
    assert files().returncode == 0
    run = compared(tmp_path / "out")
    assert (run.returncode, run.stderr) == (0, b"")


def test_all_published_stages_are_compared(files, tmp_path):
    files()
    assert {*np.load(tmp_path / "out/published.npz")} == {"queries", "keys", "values", "masked_scores", "weights",
                                                         "context", "output"}


@pytest.mark.parametrize("name", ["attn.c_attn.weight", "attn.c_attn.bias", "ln_1.bias", "attn.c_proj.weight"])
def test_changed_weights_are_noticed(files, tmp_path, name):
    change(tmp_path / "model.json", f"transformer.h.0.{name}",
           lambda tensor: tensor.update(data=tensor["data"].replace("P", "Q").replace("v", "u")))
    files()
    assert compared(tmp_path / "out").returncode == 1


@pytest.mark.parametrize("file, name, edit, message", [
    ("model.json", "transformer.h.0.ln_1.bias", {"shape": [M + 1]}, "ln_1.bias: expected float32 [13]"),
    ("partials.json", "q", {"dtype": "torch.float64"}, "q: expected float32"),
])
def test_other_tensors_are_refused(files, tmp_path, file, name, edit, message):
    change(tmp_path / file, name, lambda tensor: tensor.update(edit))
    run = files()
    assert run.returncode == 1
    assert message in run.stderr.decode()
    assert not (tmp_path / "out").exists()
