"""`attn run --model --stack` for T5, BART and Whisper, against a forward pass in NumPy."""

import math

import numpy as np
import pytest

from support.attn import assert_error, attn, json_lines
from support.checkpoints import attention, causal, heads_of, layer_norm, rms_norm, write_model

L, S, H, M, D = 6, 5, 2, 8, 3
T5 = {"model_type": "t5", "num_heads": H, "d_kv": D, "num_layers": 2, "num_decoder_layers": 1,
      "layer_norm_epsilon": 0.01, "relative_attention_max_distance": 5}
WHISPER = {"encoder_attention_heads": H, "decoder_attention_heads": 4, "encoder_layers": 2, "decoder_layers": 1}


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def run(folder, stack, x, *flags, layer=0):
    np.save(folder / "x.npy", x)
    done = attn("run", "--model", "model", "--layer", layer, "--stack", stack, "--hidden", "x.npy", "--outputs",
                "weights,output", "-o", "out.npz", "--force", *flags, cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    with np.load(folder / "out.npz") as out:
        return out["weights"], out["output"]


def close(found, expected):
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * max(1, np.abs(other).max()))


def bucket(distance, both, buckets=8, max_distance=5):
    """T5's bucket of key position minus query position (Raffel et al. 2020), with plain arithmetic."""
    first = 0
    if both:
        buckets //= 2
        first, distance = (buckets if distance > 0 else 0), abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    return first + min(buckets - 1, exact + int(math.log(distance / exact) / math.log(max_distance / exact)
                                                * (buckets - exact)))


@pytest.fixture
def t5(tmp_path, rng):
    tensors = {}
    for stack, n, layer, block in [("encoder", 0, 0, "SelfAttention"), ("encoder", 1, 0, "SelfAttention"),
                                   ("decoder", 0, 0, "SelfAttention"), ("decoder", 0, 1, "EncDecAttention")]:
        prefix = f"{stack}.block.{n}.layer.{layer}."
        tensors |= {f"{prefix}{block}.{x}.weight": rng.standard_normal((H * D, M)) for x in "qkv"}
        tensors[f"{prefix}{block}.o.weight"] = rng.standard_normal((M, H * D))
        tensors[prefix + "layer_norm.weight"] = rng.standard_normal(M)
    for stack in "encoder", "decoder":
        name = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        tensors[name] = rng.standard_normal((8, H))
    write_model(tmp_path / "model", T5, tensors)
    return tensors


def t5_layer(t, prefix, block, x, source, visible, bias):
    normed = rms_norm(x, t[prefix + "layer_norm.weight"], 0.01)
    q = heads_of(normed @ t[f"{prefix}{block}.q.weight"].T, H)
    k, v = (heads_of((normed if source is None else source) @ t[f"{prefix}{block}.{name}.weight"].T, H)
            for name in "kv")
    weights, context = attention(q, k, v, visible, scale=1, bias=bias)
    return weights, context @ t[f"{prefix}{block}.o.weight"].T


@pytest.mark.parametrize("stack, layer", [("encoder", 0), ("encoder", 1), ("decoder", 0)])
def test_t5_has_the_bias_of_its_first_layer(tmp_path, rng, t5, stack, layer):
    x = rng.standard_normal((L, M))
    table = t5[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    both = stack == "encoder"
    bias = np.array([[table[bucket(j - i, both)] for j in range(L)] for i in range(L)]).transpose(2, 0, 1)
    visible = np.ones((L, L), bool) if both else causal(L)
    expected = t5_layer(t5, f"{stack}.block.{layer}.layer.0.", "SelfAttention", x, None, visible, bias)
    close(run(tmp_path, stack, x, layer=layer), expected)


def test_t5_attends_to_the_encoder(tmp_path, rng, t5):
    x, memory = rng.standard_normal((L, M)), rng.standard_normal((S, M))
    np.save(tmp_path / "memory.npy", memory)
    expected = t5_layer(t5, "decoder.block.0.layer.1.", "EncDecAttention", x, memory, np.ones((L, S), bool), 0)
    close(run(tmp_path, "cross", x, "--memory", "memory.npy"), expected)


@pytest.mark.parametrize("model_type", ["bart", "whisper"])
@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_bart_and_whisper(tmp_path, rng, model_type, stack):
    side, block = ("encoder" if stack == "encoder" else "decoder"), "encoder_attn" if stack == "cross" else "self_attn"
    prefix, heads = f"model.{side}.layers.0.", H if stack == "encoder" else 4
    t = {f"{prefix}{block}.{x}_proj.weight": rng.standard_normal((M, M)) for x in ("q", "k", "v", "out")}
    t |= {f"{prefix}{block}.{x}_proj.bias": rng.standard_normal(M) for x in ("q", "v", "out")}
    t |= {f"{prefix}{block}_layer_norm.{x}": rng.standard_normal(M) for x in ("weight", "bias")}
    write_model(tmp_path / "model", {"model_type": model_type, **WHISPER}, t)
    x, memory = rng.standard_normal((L, M)), rng.standard_normal((S, M))
    np.save(tmp_path / "memory.npy", memory)
    norm = f"{prefix}{block}_layer_norm"
    normed = layer_norm(x, t[norm + ".weight"], t[norm + ".bias"], 1e-5) if model_type == "whisper" else x

    def linear(name, y):
        return y @ t[f"{prefix}{block}.{name}_proj.weight"].T + t.get(f"{prefix}{block}.{name}_proj.bias", 0)

    source = memory if stack == "cross" else normed
    visible = causal(L) if stack == "decoder" else np.ones((L, len(source)), bool)
    weights, context = attention(heads_of(linear("q", normed), heads), heads_of(linear("k", source), heads),
                                 heads_of(linear("v", source), heads), visible)
    flags = ["--memory", "memory.npy"] if stack == "cross" else []
    close(run(tmp_path, stack, x, *flags), (weights, linear("out", context)))


@pytest.mark.parametrize("flags, message", [
    ([], "model/config.json: the model has several stacks of layers; give stack encoder, decoder or cross"),
    (["--stack", "cross"], "--model: --stack cross requires --memory, the output of the encoder"),
    (["--stack", "decoder", "--memory", "x.npy"], "--model: --memory requires --stack cross"),
    (["--stack", "decoder", "--layer", "1"], "the model has 1 layer, from 0 to 0; found layer 1"),
    (["--stack", "decodr"], "--stack: "),
])
def test_stack_that_does_not_fit(tmp_path, t5, flags, message):
    np.save(tmp_path / "x.npy", np.ones((L, M)))
    layer = [] if "--layer" in flags else ["--layer", "0"]
    done = attn("run", "--model", "model", *layer, "--hidden", "x.npy", *flags, cwd=tmp_path)
    assert_error(done, 2 if "--model" in message or "--stack: " in message else 65, message)
    assert done.stderr.count(b"\n") == 1


def test_stack_of_a_model_with_one_stack(tmp_path):
    write_model(tmp_path / "model", {"model_type": "llama", "num_attention_heads": 1, "num_hidden_layers": 1},
                {"x": np.ones(1)})
    np.save(tmp_path / "x.npy", np.ones((L, M)))
    done = attn("run", "--model", "model", "--layer", "0", "--stack", "encoder", "--hidden", "x.npy", cwd=tmp_path)
    assert_error(done, 65, "model/config.json: the model has only one stack of layers; remove stack")


def test_stack_requires_a_model():
    done = attn("run", "--embeddings", "[[1, 2]]", "--stack", "encoder")
    assert_error(done, 2, "--stack: requires --model")


def test_inspect_lists_all_stacks(tmp_path, t5):
    done = attn("model", "inspect", "model", cwd=tmp_path)
    lines = done.stdout.decode().splitlines()
    assert lines[2:5] == ["layers      2 (encoder)", "layers      1 (decoder)", "layers      1 (cross)"]
    assert [line for line in lines if line.endswith(":")] == ["encoder layers 0, 1:", "decoder layer 0:",
                                                              "cross layer 0:"]


def test_inspect_as_json_names_the_stack(tmp_path, t5):
    done = attn("model", "inspect", "model", "--json", cwd=tmp_path)
    assert [(line["stack"], line["layer"]) for line in json_lines(done.stdout)] == [
        ("encoder", 0), ("encoder", 1), ("decoder", 0), ("cross", 0)]
