"""`attn run --model` for decoders and encoders unlike Llama, against a forward pass in NumPy."""

import math

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.checkpoints import angles, attention, causal, heads_of, layer_norm, rotate, write_model

L, H, D = 7, 4, 4
M = H * D


@pytest.fixture
def rng():
    return np.random.default_rng(19)


def random_tensors(rng, prefix, **shapes):
    """Tensors by name; '__' in a name is a '.'."""
    return {prefix + name.replace("__", "."): rng.standard_normal(shape) for name, shape in shapes.items()}


def run(folder, config, tensors, x, layer=0):
    """Weights and output of a layer."""
    write_model(folder / "model", config, tensors)
    np.save(folder / "x.npy", x)
    done = attn("run", "--model", "model", "--layer", layer, "--hidden", "x.npy", "--outputs", "weights,output",
                "-o", "out.npz", "--force", cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    with np.load(folder / "out.npz") as out:
        return out["weights"], out["output"]


def test_gpt_neox_that_rotates_more_columns_than_a_head_has(tmp_path, rng):
    write_model(tmp_path / "model", {"model_type": "gpt_neox", "num_attention_heads": H, "hidden_size": M,
                                     "num_hidden_layers": 1, "rotary_pct": 2},
                random_tensors(rng, "layers.0.", input_layernorm__weight=M, attention__dense__weight=(M, M),
                               attention__query_key_value__weight=(3 * M, M)))
    done = attn("model", "inspect", "model", cwd=tmp_path)
    assert_error(done, 65, "model/config.json: rotary_pct: expected a number > 0 and <= 1, found 2")


def close(found, expected):
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * max(1, np.abs(other).max()))


def linear(t, name, x):
    return x @ t[name + ".weight"].T + t.get(name + ".bias", 0)


EVERYWHERE = np.ones((L, L), bool)


@pytest.mark.parametrize("model_type, root, is_decoder", [
    ("bert", "bert.", False), ("bert", "", True), ("roberta", "roberta.", False), ("xlm-roberta", "", False),
    ("camembert", "roberta.", False), ("electra", "electra.", False)])
def test_bert_and_its_relatives(tmp_path, rng, model_type, root, is_decoder):
    prefix = f"{root}encoder.layer.1.attention."
    t = random_tensors(rng, prefix, **{f"{name}__{kind}": (M, M) if kind == "weight" else (M,)
                                       for name in ("self__query", "self__key", "self__value", "output__dense")
                                       for kind in ("weight", "bias")})
    x = rng.standard_normal((L, M))
    q, k, v = (heads_of(linear(t, f"{prefix}self.{name}", x), H) for name in ("query", "key", "value"))
    weights, context = attention(q, k, v, causal(L) if is_decoder else EVERYWHERE)
    config = {"model_type": model_type, "hidden_size": M, "num_attention_heads": H, "num_hidden_layers": 2,
              "is_decoder": is_decoder}
    close(run(tmp_path, config, t, x, 1), (weights, linear(t, prefix + "output.dense", context)))


def test_distilbert(tmp_path, rng):
    prefix = "distilbert.transformer.layer.0.attention."
    t = random_tensors(rng, prefix, **{f"{name}_lin__{kind}": (M, M) if kind == "weight" else (M,)
                                       for name in ("q", "k", "v", "out") for kind in ("weight", "bias")})
    x = rng.standard_normal((L, M))
    weights, context = attention(*(heads_of(linear(t, f"{prefix}{name}_lin", x), H) for name in "qkv"), EVERYWHERE)
    close(run(tmp_path, {"model_type": "distilbert", "dim": M, "n_heads": H, "n_layers": 1}, t, x),
          (weights, linear(t, prefix + "out_lin", context)))


def test_vit(tmp_path, rng):
    prefix = "vit.encoder.layer.0."
    t = random_tensors(rng, prefix, **{f"attention__{name}__{kind}": (M, M) if kind == "weight" else (M,)
                                       for name in ("attention__query", "attention__key", "attention__value",
                                                    "output__dense") for kind in ("weight", "bias")},
                       layernorm_before__weight=M, layernorm_before__bias=M)
    x = rng.standard_normal((L, M))
    normed = layer_norm(x, t[prefix + "layernorm_before.weight"], t[prefix + "layernorm_before.bias"], 0.01)
    weights, context = attention(*(heads_of(linear(t, f"{prefix}attention.attention.{name}", normed), H)
                                   for name in ("query", "key", "value")), EVERYWHERE)
    config = {"model_type": "vit", "hidden_size": M, "num_attention_heads": H, "num_hidden_layers": 1,
              "layer_norm_eps": 0.01}
    close(run(tmp_path, config, t, x), (weights, linear(t, prefix + "attention.output.dense", context)))


@pytest.mark.parametrize("layer, keys", [(0, {"local_attention": 4}), (1, {"local_attention": 4}),
                                         (3, {"local_attention": 4}), (1, {"local_attention": 7, "sliding_window": 2})])
def test_modernbert_has_local_and_global_layers(tmp_path, rng, layer, keys):
    prefix = f"model.layers.{layer}."
    t = random_tensors(rng, prefix, attn__Wqkv__weight=(3 * M, M), attn__Wo__weight=(M, M), attn_norm__weight=M)
    x = rng.standard_normal((L, M))
    normed = layer_norm(x, t[prefix + "attn_norm.weight"], 0, 1e-5) if layer > 0 else x
    q, k, v = (heads_of(y, H) for y in np.split(linear(t, prefix + "attn.Wqkv", normed), 3, axis=1))
    is_global = layer % 3 == 0
    turned = angles(L, D, 160000 if is_global else 10000)
    i, j = np.arange(L)[:, None], np.arange(L)
    visible = EVERYWHERE if is_global else abs(i - j) <= 2
    weights, context = attention(rotate(q, turned), rotate(k, turned), v, visible)
    config = {"model_type": "modernbert", "hidden_size": M, "num_attention_heads": H, "num_hidden_layers": 4, **keys}
    close(run(tmp_path, config, t, x, layer), (weights, linear(t, prefix + "attn.Wo", context)))


@pytest.mark.parametrize("options, scale", [
    ({}, 1 / math.sqrt(D)), ({"scale_attn_by_inverse_layer_idx": True}, 1 / math.sqrt(D) / 3),
    ({"scale_attn_weights": False}, 1)])
def test_gpt2_has_fused_columns(tmp_path, rng, options, scale):
    prefix = "h.2."
    t = random_tensors(rng, prefix, attn__c_attn__weight=(M, 3 * M), attn__c_attn__bias=3 * M,
                       attn__c_proj__weight=(M, M), attn__c_proj__bias=M, ln_1__weight=M, ln_1__bias=M)
    x = rng.standard_normal((L, M))
    normed = layer_norm(x, t[prefix + "ln_1.weight"], t[prefix + "ln_1.bias"], 1e-5)
    fused = normed @ t[prefix + "attn.c_attn.weight"] + t[prefix + "attn.c_attn.bias"]
    weights, context = attention(*(heads_of(y, H) for y in np.split(fused, 3, axis=1)), causal(L), scale=scale)
    output = context @ t[prefix + "attn.c_proj.weight"] + t[prefix + "attn.c_proj.bias"]
    config = {"model_type": "gpt2", "n_embd": M, "n_head": H, "n_layer": 3, **options}
    close(run(tmp_path, config, t, x, 2), (weights, output))


@pytest.mark.parametrize("before", [True, False])
def test_opt_normalises_before_or_after(tmp_path, rng, before):
    prefix = "model.decoder.layers.0."
    t = random_tensors(rng, prefix, **{f"self_attn__{name}__{kind}": (M, M) if kind == "weight" else (M,)
                                       for name in ("q_proj", "k_proj", "v_proj", "out_proj")
                                       for kind in ("weight", "bias")},
                       self_attn_layer_norm__weight=M, self_attn_layer_norm__bias=M)
    x = rng.standard_normal((L, M))
    norm = prefix + "self_attn_layer_norm"
    normed = layer_norm(x, t[norm + ".weight"], t[norm + ".bias"], 1e-5) if before else x
    weights, context = attention(*(heads_of(linear(t, f"{prefix}self_attn.{name}_proj", normed), H) for name in "qkv"),
                                 causal(L))
    config = {"model_type": "opt", "hidden_size": M, "num_attention_heads": H, "num_hidden_layers": 1,
              "do_layer_norm_before": before}
    close(run(tmp_path, config, t, x), (weights, linear(t, prefix + "self_attn.out_proj", context)))


def fused_by_head(fused, heads=H):
    """(L, heads * 3 * D) -> queries, keys and values (heads, L, D)."""
    split = fused.reshape(L, heads, 3, -1)
    return (split[:, :, part].transpose(1, 0, 2) for part in range(3))


def test_gpt_neox_has_projections_fused_by_head(tmp_path, rng):
    prefix = "gpt_neox.layers.0."
    t = random_tensors(rng, prefix, attention__query_key_value__weight=(3 * M, M),
                       attention__query_key_value__bias=3 * M, attention__dense__weight=(M, M),
                       attention__dense__bias=M, input_layernorm__weight=M, input_layernorm__bias=M)
    x = rng.standard_normal((L, M))
    normed = layer_norm(x, t[prefix + "input_layernorm.weight"], t[prefix + "input_layernorm.bias"], 1e-5)
    q, k, v = fused_by_head(linear(t, prefix + "attention.query_key_value", normed))
    turned = angles(L, 2, 700)
    weights, context = attention(rotate(q, turned), rotate(k, turned), v, causal(L))
    config = {"model_type": "gpt_neox", "hidden_size": M, "num_attention_heads": H, "num_hidden_layers": 1,
              "rotary_pct": 0.5, "rotary_emb_base": 700, "partial_rotary_factor": 1, "rope_theta": 5}
    close(run(tmp_path, config, t, x), (weights, linear(t, prefix + "attention.dense", context)))


@pytest.mark.parametrize("kind", ["multi-query", "by head", "new"])
def test_falcon_has_three_kinds_of_fusion(tmp_path, rng, kind):
    prefix = "transformer.h.0."
    G = {"multi-query": 1, "by head": H, "new": 2}[kind]
    norm = "ln_attn" if kind == "new" else "input_layernorm"
    t = random_tensors(rng, prefix, self_attention__query_key_value__weight=((H + 2 * G) * D, M),
                       self_attention__dense__weight=(M, M), **{f"{norm}__weight": M, f"{norm}__bias": M})
    x = rng.standard_normal((L, M))
    normed = layer_norm(x, t[f"{prefix}{norm}.weight"], t[f"{prefix}{norm}.bias"], 1e-5)
    fused = linear(t, prefix + "self_attention.query_key_value", normed).reshape(L, G, H // G + 2, D)
    q = fused[:, :, :-2].reshape(L, H, D).transpose(1, 0, 2)
    k, v = fused[:, :, -2].transpose(1, 0, 2), fused[:, :, -1].transpose(1, 0, 2)
    weights, context = attention(rotate(q, angles(L, D)), rotate(k, angles(L, D)), v, causal(L))
    config = {"model_type": "falcon", "hidden_size": M, "num_attention_heads": H, "num_hidden_layers": 1,
              "multi_query": kind == "multi-query", "new_decoder_architecture": kind == "new",
              "num_kv_heads": G if kind == "new" else None}
    close(run(tmp_path, config, t, x), (weights, linear(t, prefix + "self_attention.dense", context)))


def slopes(heads):
    """ALiBi's, for a power of two (Press et al. 2022)."""
    return 2.0 ** (-8 / heads * np.arange(1, heads + 1))


ALIBI = slopes(H)[:, None, None] * (np.arange(L) - np.arange(L)[:, None])


def test_bloom_has_alibi(tmp_path, rng):
    prefix = "transformer.h.0."
    t = random_tensors(rng, prefix, self_attention__query_key_value__weight=(3 * M, M),
                       self_attention__query_key_value__bias=3 * M, self_attention__dense__weight=(M, M),
                       self_attention__dense__bias=M, input_layernorm__weight=M, input_layernorm__bias=M)
    x = rng.standard_normal((L, M))
    normed = layer_norm(x, t[prefix + "input_layernorm.weight"], t[prefix + "input_layernorm.bias"], 1e-5)
    weights, context = attention(*fused_by_head(linear(t, prefix + "self_attention.query_key_value", normed)),
                                 causal(L), bias=ALIBI)
    config = {"model_type": "bloom", "hidden_size": M, "n_head": H, "n_layer": 1}
    close(run(tmp_path, config, t, x), (weights, linear(t, prefix + "self_attention.dense", context)))


def test_mpt_has_alibi_and_clips(tmp_path, rng):
    prefix = "transformer.blocks.0."
    t = random_tensors(rng, prefix, attn__Wqkv__weight=(3 * M, M), attn__out_proj__weight=(M, M), norm_1__weight=M)
    x = rng.standard_normal((L, M))
    fused = np.clip(linear(t, prefix + "attn.Wqkv", layer_norm(x, t[prefix + "norm_1.weight"], 0, 1e-5)), -2, 2)
    weights, context = attention(*(heads_of(y, H) for y in np.split(fused, 3, axis=1)), causal(L), scale=0.3,
                                 bias=ALIBI)
    config = {"model_type": "mpt", "d_model": M, "n_heads": H, "n_layers": 1,
              "attn_config": {"clip_qkv": 2.0, "softmax_scale": 0.3, "alibi": True}}
    close(run(tmp_path, config, t, x), (weights, linear(t, prefix + "attn.out_proj", context)))


@pytest.mark.parametrize("config, message", [
    ({"model_type": "bert", "position_embedding_type": "relative_key"}, "position_embedding_type: only absolute"),
    ({"model_type": "falcon", "alibi": True}, "alibi: true is not supported"),
    ({"model_type": "mpt", "attn_config": {"alibi": False}}, "attn_config: alibi: false is not supported"),
    ({"model_type": "mpt", "attn_config": {"alibi_bias_max": 16}}, "attn_config: alibi_bias_max: only 8"),
    ({"model_type": "mpt", "attn_config": {"qk_ln": True}}, "attn_config: qk_ln: true is not supported"),
])
def test_options_that_no_job_expresses(tmp_path, config, message):
    names = ["encoder.layer.0.attention.self.query", "h.0.self_attention.query_key_value", "blocks.0.attn.Wqkv"]
    others = ["encoder.layer.0.attention.self.key", "encoder.layer.0.attention.self.value",
              "encoder.layer.0.attention.output.dense", "h.0.self_attention.dense", "blocks.0.attn.out_proj",
              "h.0.input_layernorm", "blocks.0.norm_1"]
    write_model(tmp_path / "model", {"num_attention_heads": 2, "hidden_size": 4, "num_hidden_layers": 1, **config},
                {f"{name}.weight": np.ones((4, 4)) for name in names + others})
    np.save(tmp_path / "x.npy", np.ones((2, 4)))
    done = attn("run", "--model", "model", "--layer", "0", "--hidden", "x.npy", cwd=tmp_path)
    assert_error(done, 65, "model/config.json: ", message)
    assert done.stderr.count(b"\n") == 1
