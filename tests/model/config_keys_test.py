"""Keys of config.json that change attention are honoured, or refused by name. tests/peers/config_keys.py checks all
that transformers reads."""

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.checkpoints import angles, attention, causal, heads_of, layer_norm, rotate, write_model

L, M, H, D = 7, 16, 4, 4
SIZES = {"hidden_size": M, "num_attention_heads": H, "num_hidden_layers": 2}
EVERYWHERE = np.ones((L, L), bool)
DISTANCE = abs(np.arange(L)[:, None] - np.arange(L))

# For each family: the prefix of layer 0, the names of its projections, and other tensors that it needs.
LLAMA = ("layers.0.", [f"self_attn.{x}_proj" for x in "qkvo"], {"input_layernorm.weight": M})
BERT = ("encoder.layer.0.attention.", ["self.query", "self.key", "self.value", "output.dense"], {})
OPT = ("decoder.layers.0.self_attn", [f".{x}_proj" for x in ("q", "k", "v", "out")], {})
DISTILBERT = ("transformer.layer.0.attention.", [f"{x}_lin" for x in ("q", "k", "v", "out")], {})
VIT = ("encoder.layer.0.", [f"attention.{x}" for x in ("attention.query", "attention.key", "attention.value",
                                                       "output.dense")], {"layernorm_before.weight": M})


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def tensors_of(rng, family):
    prefix, names, others = family
    tensors = {f"{prefix}{name}.weight": rng.standard_normal((M, M)) for name in names}
    return tensors | {prefix + name: rng.standard_normal(shape) for name, shape in others.items()}


def run(folder, config, tensors, x, layer=0):
    """Weights and output of a layer whose hidden states are already normalised."""
    write_model(folder / "model", {**SIZES, **config}, tensors)
    np.save(folder / "x.npy", x)
    done = attn("run", "--model", "model", "--layer", layer, "--hidden", "x.npy", "--hidden-is", "normed",
                "--outputs", "weights,output", "-o", "out.npz", "--force", cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    with np.load(folder / "out.npz") as out:
        return out["weights"], out["output"]


def expected(tensors, family, x, visible, turned=None, **options):
    prefix, names, _ = family
    q, k, v = (heads_of(x @ tensors[f"{prefix}{name}.weight"].T, H) for name in names[:3])
    if turned is not None:
        q, k = rotate(q, turned), rotate(k, turned)
    weights, context = attention(q, k, v, visible, **options)
    return weights, context @ tensors[f"{prefix}{names[3]}.weight"].T


def close(found, wanted):
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * max(1, np.abs(other).max()))


@pytest.mark.parametrize("keys, visible", [
    ({}, causal(L)), ({"is_causal": True}, causal(L)), ({"is_causal": False}, EVERYWHERE), ({"is_causal": None}, EVERYWHERE),
    ({"model_type": "mistral", "sliding_window": 2}, causal(L, 2)),
    ({"model_type": "mistral", "sliding_window": 2, "is_causal": False}, DISTANCE <= 2),
    ({"model_type": "mistral", "sliding_window": None, "is_causal": False}, EVERYWHERE),
])
def test_is_causal_of_rotary_decoders(tmp_path, rng, keys, visible):
    tensors, x = tensors_of(rng, LLAMA), rng.standard_normal((L, M))
    close(run(tmp_path, {"model_type": "llama", "num_key_value_heads": H, **keys}, tensors, x),
          expected(tensors, LLAMA, x, visible, angles(L, D)))


@pytest.mark.parametrize("keys, visible", [
    ({"is_decoder": True}, causal(L)), ({"is_decoder": True, "is_causal": False}, EVERYWHERE),
    ({"is_causal": True}, EVERYWHERE)])
def test_is_causal_of_bert(tmp_path, rng, keys, visible):
    tensors, x = tensors_of(rng, BERT), rng.standard_normal((L, M))
    close(run(tmp_path, {"model_type": "bert", **keys}, tensors, x), expected(tensors, BERT, x, visible))


def test_opt_whose_norms_have_no_weights(tmp_path, rng):
    tensors, x = tensors_of(rng, OPT), rng.standard_normal((L, M))
    write_model(tmp_path / "model", {**SIZES, "model_type": "opt", "layer_norm_elementwise_affine": False}, tensors)
    np.save(tmp_path / "x.npy", x)
    done = attn("run", "--model", "model", "--layer", 0, "--hidden", "x.npy", "--outputs", "weights,output", "-o",
                "out.npz", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    with np.load(tmp_path / "out.npz") as out:
        close((out["weights"], out["output"]), expected(tensors, OPT, layer_norm(x, 1, 0, 1e-5), causal(L)))


@pytest.mark.parametrize("family, config, message", [
    (DISTILBERT, {"model_type": "distilbert", "is_decoder": True}, "is_decoder: true is not supported"),
    (VIT, {"model_type": "vit", "is_decoder": True}, "is_decoder: true is not supported"),
    (("h.0.", ["self_attention.query_key_value", "self_attention.dense"], {"input_layernorm.weight": M}),
     {"model_type": "bloom", "is_causal": False}, "is_causal: false is not supported"),
])
def test_refused_by_name(tmp_path, rng, family, config, message):
    write_model(tmp_path / "model", {**SIZES, **config}, tensors_of(rng, family))
    done = attn("model", "inspect", "model", "--layer", 0, cwd=tmp_path)
    assert_error(done, 65, f"attn: model/config.json: {message}")
    assert done.stderr.count(b"\n") == 1
