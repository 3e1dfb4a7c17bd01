"""`attn run --model` for Llama and its relatives, against a forward pass in NumPy."""

import json

import numpy as np
import pytest

from support.attn import attn
from support.checkpoints import angles, attention, causal, heads_of, layer_norm, rms_norm, rotate, write_model

L, M, H, G, D, LAYERS = 7, 12, 4, 2, 6, 4
CONFIG = {"hidden_size": M, "num_attention_heads": H, "num_key_value_heads": G, "head_dim": D,
          "num_hidden_layers": LAYERS, "rms_norm_eps": 1e-3, "rope_theta": 500.0}


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def layer_tensors(rng, prefix, biases=(), norms=(), norm_bias=False):
    shapes = {"q_proj": (H * D, M), "k_proj": (G * D, M), "v_proj": (G * D, M), "o_proj": (M, H * D)}
    tensors = {f"{prefix}self_attn.{name}.weight": rng.standard_normal(shape) for name, shape in shapes.items()}
    tensors |= {f"{prefix}self_attn.{name}.bias": rng.standard_normal(shapes[name][0]) for name in biases}
    tensors |= {f"{prefix}{name}.weight": rng.standard_normal(shape) for name, shape in norms}
    if norm_bias:
        tensors[f"{prefix}input_layernorm.bias"] = rng.standard_normal(M)
    return tensors


INPUT_NORM = [("input_layernorm", M)]


def run(folder, layer, x, *flags):
    """Weights and output of the layer."""
    np.save(folder / "x.npy", x)
    done = attn("run", "--model", "model", "--layer", layer, "--hidden", "x.npy", "--outputs", "weights,output",
                "-o", "out.npz", "--force", *flags, cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    with np.load(folder / "out.npz") as out:
        return out["weights"], out["output"]


def linear(t, name, x):
    return x @ t[name + ".weight"].T + t.get(name + ".bias", 0)


def projected(t, prefix, x):
    return (heads_of(linear(t, f"{prefix}self_attn.{name}_proj", x), heads)
            for name, heads in [("q", H), ("k", G), ("v", G)])


def close(found, expected):
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * max(1, np.abs(other).max()))


def test_llama(tmp_path, rng):
    tensors = {}
    for n in range(LAYERS):
        tensors |= layer_tensors(rng, f"model.layers.{n}.", norms=INPUT_NORM)
    write_model(tmp_path / "model", {"model_type": "llama", **CONFIG}, tensors)
    x = rng.standard_normal((L, M))
    for n in range(LAYERS):
        prefix = f"model.layers.{n}."
        q, k, v = projected(tensors, prefix, rms_norm(x, tensors[prefix + "input_layernorm.weight"], 1e-3))
        weights, context = attention(*(rotate(y, angles(L, D, 500)) for y in (q, k)), v, causal(L))
        close(run(tmp_path, n, x), (weights, linear(tensors, prefix + "self_attn.o_proj", context)))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("root", ["", "model.", "language_model.model."])
def test_names_and_shards(tmp_path, rng, root, shards):
    tensors = layer_tensors(rng, f"{root}layers.0.", norms=INPUT_NORM)
    write_model(tmp_path / "model", {"model_type": "llama", **CONFIG}, tensors, shards)
    x = rng.standard_normal((L, M))
    prefix = f"{root}layers.0."
    q, k, v = projected(tensors, prefix, rms_norm(x, tensors[prefix + "input_layernorm.weight"], 1e-3))
    weights, context = attention(*(rotate(y, angles(L, D, 500)) for y in (q, k)), v, causal(L))
    close(run(tmp_path, 0, x), (weights, linear(tensors, prefix + "self_attn.o_proj", context)))


def test_normed_hidden_states(tmp_path, rng):
    tensors = layer_tensors(rng, "layers.0.", norms=INPUT_NORM)
    write_model(tmp_path / "model", {"model_type": "llama", **CONFIG}, tensors)
    x = rng.standard_normal((L, M))
    normed = rms_norm(x, tensors["layers.0.input_layernorm.weight"], 1e-3)
    close(run(tmp_path, 0, normed, "--hidden-is", "normed"), run(tmp_path, 0, x, "--hidden-is", "raw"))


def test_batch_of_hidden_states(tmp_path, rng):
    tensors = layer_tensors(rng, "layers.0.", norms=INPUT_NORM)
    write_model(tmp_path / "model", {"model_type": "llama", **CONFIG}, tensors)
    x = rng.standard_normal((2, L, M))
    whole = run(tmp_path, 0, x)
    for item in 0, 1:
        close(run(tmp_path, 0, x[item]), [part[item] for part in whole])


def test_qwen2_has_biases_and_windows_in_late_layers(tmp_path, rng):
    tensors = {}
    for n in range(LAYERS):
        tensors |= layer_tensors(rng, f"model.layers.{n}.", biases=["q_proj", "k_proj", "v_proj"], norms=INPUT_NORM)
    write_model(tmp_path / "model", {"model_type": "qwen2", **CONFIG, "use_sliding_window": True, "sliding_window": 3,
                                     "max_window_layers": 2}, tensors)
    x = rng.standard_normal((L, M))
    for n in 1, 2:
        prefix = f"model.layers.{n}."
        q, k, v = projected(tensors, prefix, rms_norm(x, tensors[prefix + "input_layernorm.weight"], 1e-3))
        weights, context = attention(*(rotate(y, angles(L, D, 500)) for y in (q, k)), v,
                                     causal(L, 3 if n >= 2 else None))
        close(run(tmp_path, n, x), (weights, linear(tensors, prefix + "self_attn.o_proj", context)))


def test_qwen3_normalises_queries_and_keys(tmp_path, rng):
    tensors = layer_tensors(rng, "layers.0.", norms=[*INPUT_NORM, ("self_attn.q_norm", D), ("self_attn.k_norm", D)])
    write_model(tmp_path / "model", {"model_type": "qwen3", **CONFIG}, tensors)
    x = rng.standard_normal((L, M))
    q, k, v = projected(tensors, "layers.0.", rms_norm(x, tensors["layers.0.input_layernorm.weight"], 1e-3))
    q, k = (rotate(rms_norm(y, tensors[f"layers.0.self_attn.{name}_norm.weight"], 1e-3), angles(L, D, 500))
            for y, name in [(q, "q"), (k, "k")])
    weights, context = attention(q, k, v, causal(L))
    close(run(tmp_path, 0, x), (weights, linear(tensors, "layers.0.self_attn.o_proj", context)))


@pytest.mark.parametrize("window", [None, 3])
def test_mistral_has_a_window_in_all_layers(tmp_path, rng, window):
    tensors = layer_tensors(rng, "layers.0.", norms=INPUT_NORM)
    write_model(tmp_path / "model", {"model_type": "mistral", **CONFIG, "sliding_window": window}, tensors)
    x = rng.standard_normal((L, M))
    q, k, v = projected(tensors, "layers.0.", rms_norm(x, tensors["layers.0.input_layernorm.weight"], 1e-3))
    weights, context = attention(*(rotate(y, angles(L, D, 500)) for y in (q, k)), v, causal(L, window))
    close(run(tmp_path, 0, x), (weights, linear(tensors, "layers.0.self_attn.o_proj", context)))


@pytest.mark.parametrize("model_type, keys, window", [
    ("mistral", {}, 4096), ("mistral", {"sliding_window": None}, None), ("mixtral", {}, None), ("phi3", {}, None),
    ("qwen2", {}, None), ("qwen2", {"use_sliding_window": True}, 4096),
    ("qwen2", {"use_sliding_window": True, "sliding_window": None}, None),
    ("gemma2", {}, 4096), ("gemma2", {"sliding_window": None}, None), ("gemma3_text", {}, 4096),
    ("gpt_oss", {"rope_scaling": {"rope_type": "default"}}, 128),
])
def test_window_without_sliding_window_in_the_configuration(tmp_path, rng, model_type, keys, window):
    """The defaults are those of transformers 5: configuration_*.py."""
    norms = [*INPUT_NORM, ("self_attn.q_norm", D), ("self_attn.k_norm", D)]
    tensors = layer_tensors(rng, "layers.0.", norms=norms) | {
        "layers.0.self_attn.sinks": rng.standard_normal(H),
        "layers.0.self_attn.qkv_proj.weight": rng.standard_normal(((H + 2 * G) * D, M))}
    write_model(tmp_path / "model", {"model_type": model_type, **CONFIG, "max_window_layers": 0, **keys}, tensors)
    done = attn("model", "inspect", "model", "--layer", 0, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"].get("window") == (window and [window - 1, 0])


def test_phi3_has_fused_projections_and_partial_rotation(tmp_path, rng):
    separate = layer_tensors(rng, "layers.0.", norms=INPUT_NORM)
    tensors = {name: y for name, y in separate.items() if "_proj" not in name or "o_proj" in name}
    tensors["layers.0.self_attn.qkv_proj.weight"] = np.concatenate(
        [separate[f"layers.0.self_attn.{x}_proj.weight"] for x in "qkv"])
    write_model(tmp_path / "model", {"model_type": "phi3", **CONFIG, "partial_rotary_factor": 0.67}, tensors)
    x = rng.standard_normal((L, M))
    q, k, v = projected(separate, "layers.0.", rms_norm(x, tensors["layers.0.input_layernorm.weight"], 1e-3))
    weights, context = attention(*(rotate(y, angles(L, 4, 500)) for y in (q, k)), v, causal(L))
    close(run(tmp_path, 0, x), (weights, linear(tensors, "layers.0.self_attn.o_proj", context)))


def test_stablelm_has_layer_norm_and_rotates_a_quarter(tmp_path, rng):
    config = {key: value for key, value in CONFIG.items() if key != "rms_norm_eps"} | {"head_dim": None}
    config |= {"hidden_size": H * 8, "layer_norm_eps": 0.01}
    wide = {f"layers.0.self_attn.{name}_proj.weight": rng.standard_normal(shape) for name, shape in
            [("q", (H * 8, H * 8)), ("k", (G * 8, H * 8)), ("v", (G * 8, H * 8)), ("o", (H * 8, H * 8))]}
    wide |= {f"layers.0.input_layernorm.{name}": rng.standard_normal(H * 8) for name in ("weight", "bias")}
    write_model(tmp_path / "model", {"model_type": "stablelm", **config}, wide)
    x = rng.standard_normal((L, H * 8))
    normed = layer_norm(x, wide["layers.0.input_layernorm.weight"], wide["layers.0.input_layernorm.bias"], 0.01)
    q, k, v = projected(wide, "layers.0.", normed)
    weights, context = attention(*(rotate(y, angles(L, 2, 500)) for y in (q, k)), v, causal(L))
    close(run(tmp_path, 0, x), (weights, linear(wide, "layers.0.self_attn.o_proj", context)))


def test_olmo2_normalises_all_heads_together(tmp_path, rng):
    tensors = layer_tensors(rng, "layers.0.", norms=[("self_attn.q_norm", H * D), ("self_attn.k_norm", G * D)])
    write_model(tmp_path / "model", {"model_type": "olmo2", **CONFIG}, tensors)
    x = rng.standard_normal((L, M))
    q, k = (rotate(heads_of(rms_norm(linear(tensors, f"layers.0.self_attn.{name}_proj", x),
                                     tensors[f"layers.0.self_attn.{name}_norm.weight"], 1e-3), heads), angles(L, D, 500))
            for name, heads in [("q", H), ("k", G)])
    v = heads_of(linear(tensors, "layers.0.self_attn.v_proj", x), G)
    weights, context = attention(q, k, v, causal(L))
    close(run(tmp_path, 0, x), (weights, linear(tensors, "layers.0.self_attn.o_proj", context)))


def test_cohere_rotates_adjacent_columns(tmp_path, rng):
    tensors = layer_tensors(rng, "layers.0.", norms=[*INPUT_NORM, ("self_attn.q_norm", (H, D)),
                                                     ("self_attn.k_norm", (G, D))])
    write_model(tmp_path / "model", {"model_type": "cohere", **CONFIG, "use_qk_norm": True, "layer_norm_eps": 0.01},
                tensors)
    x = rng.standard_normal((L, M))
    q, k, v = projected(tensors, "layers.0.", layer_norm(x, tensors["layers.0.input_layernorm.weight"], 0, 0.01))
    q, k = (rotate(layer_norm(y, tensors[f"layers.0.self_attn.{name}_norm.weight"][:, None], 0, 0.01),
                   angles(L, D, 500), interleaved=True) for y, name in [(q, "q"), (k, "k")])
    weights, context = attention(q, k, v, causal(L))
    close(run(tmp_path, 0, x), (weights, linear(tensors, "layers.0.self_attn.o_proj", context)))


def test_gemma2_has_softcap_scale_and_alternating_windows(tmp_path, rng):
    tensors = {}
    for n in 0, 1:
        tensors |= layer_tensors(rng, f"model.layers.{n}.", norms=INPUT_NORM)
    write_model(tmp_path / "model", {"model_type": "gemma2", **CONFIG, "query_pre_attn_scalar": 9, "sliding_window": 3,
                                     "attn_logit_softcapping": 2.0}, tensors)
    x = rng.standard_normal((L, M))
    for n in 0, 1:
        prefix = f"model.layers.{n}."
        q, k, v = projected(tensors, prefix, rms_norm(x, 1 + tensors[prefix + "input_layernorm.weight"], 1e-3))
        weights, context = attention(*(rotate(y, angles(L, D, 500)) for y in (q, k)), v,
                                     causal(L, 3 if n == 0 else None), scale=1 / 3, softcap=2)
        close(run(tmp_path, n, x), (weights, linear(tensors, prefix + "self_attn.o_proj", context)))


@pytest.mark.parametrize("names", ["of transformers 4", "of transformers 5"])
def test_gemma3_has_two_kinds_of_rotation(tmp_path, rng, names):
    tensors, norms = {}, [*INPUT_NORM, ("self_attn.q_norm", D), ("self_attn.k_norm", D)]
    for n in 0, 1:
        tensors |= layer_tensors(rng, f"language_model.model.layers.{n}.", norms=norms)
    config = {**CONFIG, "query_pre_attn_scalar": 9, "sliding_window": 3}
    if names == "of transformers 4":
        config |= {"sliding_window_pattern": 2, "rope_local_base_freq": 30.0,
                   "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    else:
        del config["rope_theta"]
        config |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0}}}
    write_model(tmp_path / "model", {"model_type": "gemma3", "text_config": config}, tensors)
    x = rng.standard_normal((L, M))
    for n, turned in [(0, angles(L, D, 30)), (1, angles(L, D, 500) / 8)]:
        prefix = f"language_model.model.layers.{n}."
        q, k, v = projected(tensors, prefix, rms_norm(x, 1 + tensors[prefix + "input_layernorm.weight"], 1e-3))
        q, k = (rotate(rms_norm(y, 1 + tensors[f"{prefix}self_attn.{name}_norm.weight"], 1e-3), turned)
                for y, name in [(q, "q"), (k, "k")])
        weights, context = attention(q, k, v, causal(L, 3 if n == 0 else None), scale=1 / 3)
        close(run(tmp_path, n, x), (weights, linear(tensors, prefix + "self_attn.o_proj", context)))


def test_gpt_oss_has_sinks_and_alternating_windows(tmp_path, rng):
    tensors = {}
    for n in 0, 1:
        tensors |= layer_tensors(rng, f"model.layers.{n}.", biases=["q_proj", "k_proj", "v_proj", "o_proj"],
                                 norms=INPUT_NORM)
        tensors[f"model.layers.{n}.self_attn.sinks"] = rng.standard_normal(H)
    write_model(tmp_path / "model", {"model_type": "gpt_oss", **CONFIG, "sliding_window": 3,
                                     "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, tensors)
    x = rng.standard_normal((L, M))
    for n in 0, 1:
        prefix = f"model.layers.{n}."
        q, k, v = projected(tensors, prefix, rms_norm(x, tensors[prefix + "input_layernorm.weight"], 1e-3))
        weights, context = attention(*(rotate(y, angles(L, D, 500) / 4) for y in (q, k)), v,
                                     causal(L, 3 if n == 0 else None), sinks=tensors[prefix + "self_attn.sinks"])
        close(run(tmp_path, n, x), (weights, linear(tensors, prefix + "self_attn.o_proj", context)))


@pytest.mark.parametrize("scaling, keys", [
    ({"rope_type": "default"}, {}),
    ({"type": "linear", "factor": 4.0}, {"scaling": "linear", "factor": 4.0}),
    ({"rope_type": "dynamic", "factor": 2.0}, {"scaling": "dynamic-ntk", "original_length": 64, "factor": 2.0}),
    ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 32},
     {"scaling": "llama3", "original_length": 32, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0,
      "factor": 8.0}),
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": False, "beta_fast": 8.0},
     {"scaling": "yarn", "factor": 4.0, "original_length": 16, "beta_fast": 8.0, "truncate": False}),
    ({"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.5},
     {"scaling": "yarn", "factor": 4.0, "original_length": 64,
      "attention_factor": (0.1 * np.log(4) + 1) / (0.05 * np.log(4) + 1)}),
    ({"rope_type": "yarn", "factor": 0.5},  # transformers: no magnitude of factors below 1
     {"scaling": "yarn", "factor": 0.5, "original_length": 64, "attention_factor": 1.0}),
    ({"type": "su", "short_factor": [1.0, 2.0, 3.0], "long_factor": [4.0, 5.0, 6.0],
      "original_max_position_embeddings": 16},
     {"scaling": "longrope", "factor": 4.0, "original_length": 16, "short_factor": [1.0, 2.0, 3.0],
      "long_factor": [4.0, 5.0, 6.0]}),
])
def test_rotary_scaling(tmp_path, rng, scaling, keys):
    """The keys of the job; tests of rotary.* check what they compute."""
    write_model(tmp_path / "model", {"model_type": "llama", **CONFIG, "max_position_embeddings": 64,
                                     "rope_scaling": scaling}, layer_tensors(rng, "layers.0.", norms=INPUT_NORM))
    done = attn("model", "inspect", "model", "--layer", "0", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]["rotary"] == {"kind": "half", "base": 500.0, **keys}
