"""Keys of config.json that change attention are honoured, or refused by name. tests/peers/config_keys.py checks all
that transformers reads."""

import json

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
    ({}, causal(L)), ({"is_causal": True}, causal(L)),
    ({"is_causal": False}, EVERYWHERE), ({"is_causal": None}, EVERYWHERE),
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


@pytest.mark.parametrize("keys", [{"partial_rotary_factor": 0.5}, {"rope_parameters": {"partial_rotary_factor": 0.5}}])
def test_llama_rotates_all_columns(tmp_path, rng, keys):
    tensors, x = tensors_of(rng, LLAMA), rng.standard_normal((L, M))
    close(run(tmp_path, {"model_type": "llama", **keys}, tensors, x),
          expected(tensors, LLAMA, x, causal(L), angles(L, D)))


@pytest.mark.parametrize("model_type, keys, message", [
    ("llama", {"partial_rotary_factor": 0.5, "rope_scaling": {"rope_type": "linear", "factor": 2}},
     "partial_rotary_factor: expected 1 with rope_type 'linear' of this model_type, found 0.5"),
    ("stablelm", {}, "partial_rotary_factor: expected an even number of the 4 columns of a head (head_dim, or "
                     "hidden_size / num_attention_heads), found 0.25"),
    ("llama", {"layer_types": ["chunked_attention", "full_attention"]},
     "layer_types: 'chunked_attention' is not supported, only full_attention and sliding_attention"),
    ("mixtral", {"layer_types": ["linear_attention", "full_attention"]}, "layer_types: 'linear_attention' is not"),
    ("llama", {"layer_types": ["sliding_attention"] * 2, "sliding_window": 3},
     "layer_types: sliding_attention is not supported for this layer, which has no window"),
    ("mixtral", {"layer_types": ["full_attention"] * 2, "sliding_window": 3},
     "layer_types: full_attention is not supported for this layer, which has a window"),
    ("qwen2", {"layer_types": ["sliding_attention"] * 2, "sliding_window": 3}, "layer_types: sliding_attention is not"),
    ("llama", {"per_layer_config": {"1": {"head_dim": 8}}}, "per_layer_config: is not supported"),
    ("gemma3_text", {"rope_parameters": {"rope_theta": 50.0}},
     "rope_parameters: expected objects full_attention and sliding_attention"),
    ("gemma3_text", {"rope_parameters": {"full_attention": {}}, "rope_scaling": {"type": "linear", "factor": 2}},
     "rope_scaling: is not supported with rope_parameters"),
    ("gemma3_text", {"rope_scaling": {"type": "linear", "factor": 2}, "sliding_window_pattern": 1},
     "rope_scaling: type: is not supported without rope_type for this model_type"),
    ("gpt_oss", {"rope_scaling": {}}, "rope_parameters: expected an object here or in rope_scaling, found none"),
])
def test_rotary_positions_and_layer_types_refused_by_name(tmp_path, rng, model_type, keys, message):
    norms = {f"{LLAMA[0]}{name}": np.ones(M) for name in ("input_layernorm.bias", "self_attn.sinks")}
    norms |= {f"{LLAMA[0]}self_attn.{name}_norm.weight": np.ones(D) for name in "qk"}
    write_model(tmp_path / "model", {**SIZES, "model_type": model_type, **keys}, tensors_of(rng, LLAMA) | norms)
    done = attn("model", "inspect", "model", "--layer", 0, cwd=tmp_path)
    assert_error(done, 65, f"attn: model/config.json: {message}")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("types, windows", [
    (["sliding_attention", "full_attention"], [2, None]), (["attention", "sliding_attention"], [None, 2]),
    (None, [2, 2])])
def test_layer_types_of_mistral(tmp_path, rng, types, windows):
    tensors, x = tensors_of(rng, LLAMA), rng.standard_normal((L, M))
    tensors |= {name.replace("layers.0", "layers.1"): each for name, each in tensors.items()}
    config = {"model_type": "mistral", "layer_types": types, "sliding_window": 2}
    for layer, window in enumerate(windows):
        close(run(tmp_path, config, tensors, x, layer), expected(tensors, LLAMA, x, causal(L, window), angles(L, D)))


def test_empty_rope_scaling_is_none(tmp_path, rng):
    tensors, x = tensors_of(rng, LLAMA), rng.standard_normal((L, M))
    config = {"model_type": "llama", "rope_scaling": {}, "rope_parameters": {"rope_theta": 50.0}}
    close(run(tmp_path, config, tensors, x), expected(tensors, LLAMA, x, causal(L), angles(L, D, 50)))


@pytest.mark.parametrize("rope, truncate", [({}, None), ({"truncate": None}, False), ({"truncate": False}, False)])
def test_flag_that_is_null_is_false(tmp_path, rng, rope, truncate):
    write_model(tmp_path / "model", {**SIZES, "model_type": "llama", "max_position_embeddings": 64, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, **rope}}, tensors_of(rng, LLAMA))
    done = attn("model", "inspect", "model", "--layer", 0, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["job"]["rotary"].get("truncate") == truncate


@pytest.mark.parametrize("keys, message", [
    ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type: 'yarn' is not supported for this model_type"),
    ({"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}, "original_max_position_embeddings: expected a whole"),
])
def test_scalings_of_phi3(tmp_path, rng, keys, message):
    family = ("layers.0.", ["self_attn.o_proj"], {"input_layernorm.weight": M, "self_attn.qkv_proj.weight": (3 * M, M)})
    write_model(tmp_path / "model", {**SIZES, "model_type": "phi3", **keys}, tensors_of(rng, family))
    assert_error(attn("model", "inspect", "model", "--layer", 0, cwd=tmp_path), 65, f"model/config.json: {message}")


@pytest.mark.parametrize("family, model_type", [(BERT, "bert"), (OPT, "opt")])
def test_key_value_heads_of_models_that_do_not_group_heads(tmp_path, rng, family, model_type):
    tensors, x = tensors_of(rng, family), rng.standard_normal((L, M))
    config = {"model_type": model_type, "num_key_value_heads": 1, "do_layer_norm_before": False}
    close(run(tmp_path, config, tensors, x),
          expected(tensors, family, x, EVERYWHERE if model_type == "bert" else causal(L)))


@pytest.mark.parametrize("keys", [{"n_embed": M}, {"n_embed": M, "hidden_size": 8}, {"hidden_size": M, "n_embd": 8}])
def test_names_of_the_width(tmp_path, rng, keys):
    family = ("h.0.", [], {"self_attention.query_key_value.weight": (3 * M, M), "self_attention.dense.weight": (M, M),
                           "input_layernorm.weight": M})
    config = {key: value for key, value in SIZES.items() if key != "hidden_size"} | {"model_type": "bloom", **keys}
    write_model(tmp_path / "model", config, tensors_of(rng, family))
    assert attn("model", "inspect", "model", "--layer", 0, cwd=tmp_path).returncode == 0
    write_model(tmp_path / "model", config | {"n_embed": 8}, tensors_of(rng, family))
    assert_error(attn("model", "inspect", "model", cwd=tmp_path), 65, "config.json: n_embed: is 8, but ")


def test_head_dim_that_does_not_fit_fused_projections(tmp_path, rng):
    family = ("h.0.attn.", [], {"c_attn.weight": (M, 3 * M), "c_proj.weight": (M, M)})
    write_model(tmp_path / "model", {**SIZES, "model_type": "gpt2", "head_dim": 2},
                tensors_of(rng, family) | {"h.0.ln_1.weight": np.ones(M)})
    assert_error(attn("model", "inspect", "model", "--layer", 0, cwd=tmp_path), 65,
                 "h.0.attn.c_attn.weight: expected shape (16, 24), for 4 heads of width 2 (head_dim of config.json)")


@pytest.mark.parametrize("keys, bases", [
    ({"rope_theta": 50.0}, [10000, 50]),
    ({"rope_theta": 50.0, "rope_local_base_freq": 60.0, "rope_scaling": {"rope_theta": 70}}, [60, 70]),
    ({"rope_parameters": {"full_attention": {"rope_theta": 70}}, "rope_local_base_freq": 60}, [60, 70]),
    ({"rope_parameters": {}}, [10000, 1e6]),
])
def test_bases_of_gemma3(tmp_path, rng, keys, bases):
    tensors = tensors_of(rng, LLAMA) | {f"layers.0.self_attn.{name}_norm.weight": np.ones(D) for name in "qk"}
    tensors |= {name.replace("layers.0", "layers.1"): each for name, each in tensors.items()}
    config = {**SIZES, "model_type": "gemma3_text", "sliding_window_pattern": 2, **keys}
    write_model(tmp_path / "model", config, tensors)
    for layer in 0, 1:
        done = attn("model", "inspect", "model", "--layer", layer, "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["job"]["rotary"] == {"kind": "half", "base": bases[layer]}


def encoder_decoder(config, widths=(M, M)):
    """Zeros of two layers in the encoder and the decoder; widths of all heads together in each."""
    is_t5, tensors = config["model_type"] == "t5", {}
    layers = [("encoder", 0, "SelfAttention", "self_attn"), ("decoder", 0, "SelfAttention", "self_attn"),
              ("decoder", 1, "EncDecAttention", "encoder_attn")]
    for stack, layer, t5_block, block in layers:
        width = widths[stack == "decoder"]
        for n in range(2):
            if is_t5:
                prefix, names, last = f"{stack}.block.{n}.layer.{layer}.{t5_block}.", "qkv", "o"
                tensors[f"{stack}.block.{n}.layer.{layer}.layer_norm.weight"] = np.ones(M)
            else:
                prefix, names, last = f"{stack}.layers.{n}.{block}.", ["q_proj", "k_proj", "v_proj"], "out_proj"
                tensors |= {f"{prefix[:-1]}_layer_norm.{x}": np.ones(M) for x in ("weight", "bias")}
            tensors |= {f"{prefix}{name}.weight": np.zeros((width, M)) for name in names}
            tensors[f"{prefix}{last}.weight"] = np.zeros((M, width))
        if is_t5:
            heads = config.get("num_attention_heads", H)
            tensors[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = np.zeros((8, heads))
    return tensors


T5 = {"model_type": "t5", "num_heads": H, "num_layers": 2, "d_kv": D}
BART = {"model_type": "bart", "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": H,
        "decoder_attention_heads": H}
WHISPER = BART | {"model_type": "whisper"}


@pytest.mark.parametrize("config, keys, heads, layers", [
    (T5, {}, (H, H), (2, 2)), (BART, {}, (H, H), (2, 2)),
    (T5, {"num_attention_heads": 2}, (2, 2), (2, 2)),
    (T5, {"head_dim": 2}, (H, H), (2, 2)),
    (T5, {"num_decoder_layers": 1}, (H, H), (2, 1)),
    (T5, {"num_hidden_layers": 1}, (H, H), (1, 2)),
    (BART, {"num_attention_heads": 2}, (2, H), (2, 2)),
    (BART, {"num_hidden_layers": 1}, (H, H), (1, 2)),
    (WHISPER, {"num_attention_heads": 2}, (2, H), (2, 2)),
    (WHISPER, {"num_key_value_heads": 2}, (2, H), (2, 2)),
    (WHISPER, {"num_key_value_heads": 2, "num_attention_heads": 2}, (2, H), (2, 2)),
])
def test_names_that_architectures_share_replace_others(tmp_path, config, keys, heads, layers):
    config = config | keys
    width = heads[0] * config.get("head_dim", D) if config["model_type"] == "t5" else M
    write_model(tmp_path / "model", config, encoder_decoder(config, (width, width)))
    done = attn("model", "inspect", "model", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    found = [(line["stack"], line["layer"], line["job"]["heads"]) for line in map(json.loads, done.stdout.splitlines())]
    assert found == [(stack, n, heads[side]) for side, stack in ((0, "encoder"), (1, "decoder"), (1, "cross"))
                     for n in range(layers[side])]


ABSENT = object()


@pytest.mark.parametrize("config, keys, stack, message", [
    (T5, {"num_layers": ABSENT}, "encoder", "num_layers: expected a whole number, found none"),
    (T5, {"num_layers": ABSENT}, "decoder", "num_layers: expected a whole number, found none"),
    (T5, {"num_layers": ABSENT, "num_hidden_layers": 2}, "decoder", "num_layers: expected a whole number, found none"),
    (T5, {"num_heads": ABSENT}, "encoder", "num_heads: expected a whole number, found none"),
    (T5, {"relative_attention_num_buckets": 16}, "encoder",
     "relative_attention_num_buckets: is 16, but encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight "
     "is (8, 4)"),
    (T5, {"relative_attention_max_distance": 4}, "decoder", "relative_attention_max_distance: expected more than 4, "
     "with 8 buckets (relative_attention_num_buckets), found 4"),
    (T5, {"relative_attention_max_distance": 2}, "encoder", "relative_attention_max_distance: expected more than 2, "
     "with 8 buckets (relative_attention_num_buckets), found 2"),
    (BART, {"encoder_layers": ABSENT}, "encoder", "encoder_layers: expected a whole number, found none"),
    (BART, {"decoder_layers": ABSENT}, "decoder", "decoder_layers: expected a whole number, found none"),
    (BART, {"head_dim": 8}, "encoder", "head_dim: is 8, but encoder.layers.0.self_attn.q_proj.weight is (16, 16), for "
                                       "4 heads"),
    (BART, {"head_dim": 8, "decoder_attention_heads": 8}, "decoder",
     "head_dim: is 8, but decoder.layers.0.self_attn.q_proj.weight is (16, 16), for 8 heads"),
    (WHISPER, {"num_key_value_heads": 2, "num_attention_heads": 4}, "encoder",
     "num_key_value_heads: differs from num_attention_heads"),
])
def test_encoders_with_decoders_refuse_by_name(tmp_path, config, keys, stack, message):
    config = {key: value for key, value in (config | keys).items() if value is not ABSENT}
    write_model(tmp_path / "model", config, encoder_decoder(config))
    np.save(tmp_path / "x.npy", np.ones((2, M)))
    done = attn("run", "--model", "model", "--layer", 0, "--stack", stack, "--hidden", "x.npy", cwd=tmp_path)
    assert_error(done, 65, f"attn: model/config.json: {message}")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("model_type, keys, key", [
    ("gpt2", {"hidden_size": M, "n_layer": 1}, "n_head"), ("bloom", {"hidden_size": M, "n_layer": 1}, "n_head"),
    ("mpt", {"d_model": M, "n_layers": 1}, "n_heads"),
])
def test_missing_numbers_of_heads_by_name(tmp_path, rng, model_type, keys, key):
    tensors = {"h.0.attn.c_attn.weight": (M, 3 * M), "h.0.ln_1.weight": M,
               "h.0.self_attention.query_key_value.weight": (3 * M, M), "h.0.input_layernorm.weight": M,
               "blocks.0.attn.Wqkv.weight": (3 * M, M), "blocks.0.norm_1.weight": M}
    write_model(tmp_path / "model", {"model_type": model_type, **keys},
                {name: np.zeros(shape) for name, shape in tensors.items()})
    assert_error(attn("model", "inspect", "model", "--layer", 0, cwd=tmp_path), 65,
                 f"attn: model/config.json: {key}: expected a whole number, found none")
