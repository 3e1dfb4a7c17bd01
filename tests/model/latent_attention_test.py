"""`attn run --model` for DeepSeek-V2 and V3 (multi-head latent attention), against a forward pass in NumPy that follows
section 2.1 of arXiv:2405.04434."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.checkpoints import angles, attention, causal, heads_of, rms_norm, rotate, write_model

L, M, H, P, R, DV, C, RANK = 7, 12, 4, 6, 4, 5, 8, 10
CONFIG = {"model_type": "deepseek_v3", "hidden_size": M, "num_attention_heads": H, "num_key_value_heads": H,
          "num_hidden_layers": 2, "rms_norm_eps": 1e-3, "rope_theta": 500.0, "q_lora_rank": RANK, "kv_lora_rank": C,
          "qk_nope_head_dim": P, "qk_rope_head_dim": R, "v_head_dim": DV, "max_position_embeddings": 64}
SHAPES = {"input_layernorm.weight": (M,), "self_attn.q_a_proj.weight": (RANK, M),
          "self_attn.q_a_layernorm.weight": (RANK,), "self_attn.q_b_proj.weight": (H * (P + R), RANK),
          "self_attn.kv_a_proj_with_mqa.weight": (C + R, M), "self_attn.kv_a_layernorm.weight": (C,),
          "self_attn.kv_b_proj.weight": (H * (P + DV), C), "self_attn.o_proj.weight": (M, H * DV)}
BIASES = {"self_attn.q_a_proj.bias": (RANK,), "self_attn.kv_a_proj_with_mqa.bias": (C + R,),
          "self_attn.o_proj.bias": (M,)}
DIRECT = {"self_attn.q_proj.weight": (H * (P + R), M)}


def draw(shapes, seed=3):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def expected(t, x, turned=None, scale=None, interleaved=True, norm=True):
    """Weights and output of the layer with tensors t for x (L, M)."""
    t = {name.removeprefix("self_attn."): y for name, y in t.items()}
    turned = angles(len(x), R, 500) if turned is None else turned
    if norm:
        x = rms_norm(x, t["input_layernorm.weight"], 1e-3)
    q = x @ t["q_proj.weight"].T if "q_proj.weight" in t else \
        rms_norm(x @ t["q_a_proj.weight"].T + t.get("q_a_proj.bias", 0), t["q_a_layernorm.weight"], 1e-6) \
        @ t["q_b_proj.weight"].T
    q = heads_of(q, H)
    down = x @ t["kv_a_proj_with_mqa.weight"].T + t.get("kv_a_proj_with_mqa.bias", 0)
    kv = heads_of(rms_norm(down[:, :C], t["kv_a_layernorm.weight"], 1e-6) @ t["kv_b_proj.weight"].T, H)
    q_rotated = rotate(q[:, :, P:], turned, interleaved)
    k_rotated = np.repeat(rotate(down[None, :, C:], turned, interleaved), H, 0)
    weights, context = attention(np.concatenate([q[:, :, :P], q_rotated], -1),
                                 np.concatenate([kv[:, :, :P], k_rotated], -1), kv[:, :, P:], causal(len(x)), scale)
    return weights, context @ t["o_proj.weight"].T + t.get("o_proj.bias", 0)


def folder_of(tmp_path, t, **keys):
    config = {key: value for key, value in (CONFIG | keys).items() if value != "absent"}
    write_model(tmp_path / "model", config, {f"model.layers.{n}.{name}": y for n in (0, 1) for name, y in t.items()})
    return tmp_path


def run(folder, x, *flags, layer=0):
    np.save(folder / "x.npy", x)
    done = attn("run", "--model", "model", "--layer", layer, "--hidden", "x.npy", "--outputs", "weights,output", "-o",
                "out.npz", "--force", *flags, cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    with np.load(folder / "out.npz") as out:
        return out["weights"], out["output"]


def close(found, right):
    for one, other in zip(found, right):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * max(1, np.abs(other).max()))


X = np.random.default_rng(8).standard_normal((L, M))
TENSORS = draw(SHAPES)


@pytest.mark.parametrize("model_type", ["deepseek_v2", "deepseek_v3"])
def test_latent_attention(tmp_path, model_type):
    close(run(folder_of(tmp_path, TENSORS, model_type=model_type), X, layer=1), expected(TENSORS, X))


def test_rank_of_queries_has_a_default(tmp_path):
    close(run(folder_of(tmp_path, TENSORS, q_lora_rank="absent"), X), expected(TENSORS, X))


def test_rope_interleave_that_is_null_is_false(tmp_path):
    close(run(folder_of(tmp_path, TENSORS, rope_interleave=None), X), expected(TENSORS, X, interleaved=False))


def test_queries_without_a_latent_vector(tmp_path):
    t = draw({name: shape for name, shape in SHAPES.items() if ".q_" not in name} | DIRECT)
    close(run(folder_of(tmp_path, t, q_lora_rank=None), X), expected(t, X))


def test_biases(tmp_path):
    t = draw(SHAPES | BIASES)
    close(run(folder_of(tmp_path, t, attention_bias=True), X), expected(t, X))


def test_rotary_columns_a_half_apart(tmp_path):
    close(run(folder_of(tmp_path, TENSORS, rope_interleave=False), X), expected(TENSORS, X, interleaved=False))


def test_normed_hidden_states(tmp_path):
    close(run(folder_of(tmp_path, TENSORS), X, "--hidden-is", "normed"), expected(TENSORS, X, norm=False))


def test_batch_and_rows(tmp_path):
    folder = folder_of(tmp_path, TENSORS)
    x = np.stack([X, X[::-1], 2 * X, -X])
    weights, output = run(folder, x, "--rows", "-1")
    for b in range(4):
        right = expected(TENSORS, x[b])
        close((weights[b], output[b]), (right[0][:, -1:], right[1][-1:]))


def test_all_layers(tmp_path):
    folder = folder_of(tmp_path, TENSORS)
    weights, output = run(folder, np.stack([X, 2 * X]), layer="all")
    for n in 0, 1:
        close((weights[n, 0], output[n, 0]), expected(TENSORS, (n + 1) * X))


def test_yarn_scales_the_scores(tmp_path):
    """DeepSeek-V3: the scale times (0.1 mscale_all_dim log(factor) + 1)^2; a length of 4 leaves no pair unscaled."""
    scaling = {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 0.02, "beta_slow": 0.01,
               "original_max_position_embeddings": 4}
    magnitude = 0.1 * np.log(4) + 1
    done = run(folder_of(tmp_path, TENSORS, rope_scaling=scaling), X)
    close(done, expected(TENSORS, X, scale=magnitude ** 2 / np.sqrt(P + R)))


def test_dtype_is_float32_without_float64(tmp_path):
    t = {name: y.astype("float32") for name, y in TENSORS.items()}
    weights, output = run(folder_of(tmp_path, t), X.astype("float32"))
    assert (weights.dtype, output.dtype) == (np.float32, np.float32)
    right = expected({name: y.astype(float) for name, y in t.items()}, X.astype("float32").astype(float))
    np.testing.assert_allclose(weights, right[0], atol=1e-5)


def test_explicit_job(tmp_path):
    """Q, K and V as outputs, and the other keys of --dry-run, are the same job."""
    folder = folder_of(tmp_path, TENSORS)
    weights, output = run(folder, X)
    flags = ["--model", "model", "--layer", 0, "--hidden", "x.npy"]
    job = json.loads(attn("run", *flags, "--dry-run", "--format", "json", cwd=folder).stdout)["job"]
    assert job["Q"] == "numbers of shape (7, 40), computed by input_layernorm, q_a_proj, q_a_layernorm, q_b_proj"
    assert job["V"] == ("numbers of shape (7, 20), computed by input_layernorm, kv_a_proj_with_mqa, kv_a_layernorm, "
                        "kv_b_proj")
    assert attn("run", *flags, "--outputs", "Q,K,V", "-o", "qkv.npz", cwd=folder).returncode == 0
    job |= {name: f"qkv.npz#{name}" for name in "QKV"} | {"outputs": ["weights", "output"]}
    (folder / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "same.npz", cwd=folder).returncode == 0
    with np.load(folder / "same.npz") as same:
        assert np.array_equal(same["weights"], weights) and np.array_equal(same["output"], output)


def test_inspect(tmp_path):
    folder = folder_of(tmp_path, TENSORS)
    done = attn("model", "inspect", "model", cwd=folder)
    assert done.returncode == 0
    assert b"layers 0, 1:\n" in done.stdout
    for line in (b"  rotary.width    4\n", b"  Q               computed by input_layernorm, q_a_proj, "):
        assert line in done.stdout, done.stdout


def test_compare_with_the_reference(tmp_path):
    folder = folder_of(tmp_path, {name: y.astype("float32") for name, y in TENSORS.items()})
    run(folder, X.astype("float32"))
    (folder / "job.json").write_text(json.dumps({"model": "model", "layer": 0, "hidden": "x.npy"}))
    done = attn("compare", "--reference", "out.npz", "job.json", cwd=folder)
    assert done.returncode == 0, done.stdout


def test_batch_of_jobs(tmp_path):
    folder = folder_of(tmp_path, TENSORS)
    weights, _ = run(folder, X)
    job = {"model": "model", "layer": 0, "hidden": "x.npy", "outputs": ["weights"]}
    done = attn("batch", "-", cwd=folder, stdin=json.dumps(job))
    assert done.returncode == 0, done.stderr
    close([np.array(json.loads(done.stdout)["weights"])], [weights])


@pytest.mark.parametrize("name", ["q_a_layernorm.weight", "q_b_proj.weight", "kv_b_proj.weight", "kv_a_layernorm.weight"])
def test_tensor_of_another_shape(tmp_path, name):
    folder = folder_of(tmp_path, TENSORS | {f"self_attn.{name}": np.zeros(3)})
    np.save(folder / "x.npy", X)
    done = attn("run", "--model", "model", "--layer", 0, "--hidden", "x.npy", cwd=folder)
    assert_error(done, 65, f"model/model.safetensors: model.layers.0.self_attn.{name}: expected shape (", "found (3,)")


@pytest.mark.parametrize("keys, shapes, message", [
    ({"kv_lora_rank": "absent"}, {}, "model/config.json: kv_lora_rank: expected a whole number"),
    ({"v_head_dim": 2 ** 40}, {}, "model/config.json: v_head_dim: expected a whole number from 1 to 1000000000"),
    ({}, {"self_attn.kv_b_proj.weight": None}, "has no tensor 'model.layers.0.self_attn.kv_b_proj.weight'"),
    ({}, {"self_attn.kv_a_proj_with_mqa.weight": (C + R,)},
     f"model.layers.0.self_attn.kv_a_proj_with_mqa.weight: expected a matrix, found ({C + R},)"),
    ({}, {"self_attn.q_a_proj.weight": (RANK,)},
     f"model.layers.0.self_attn.q_a_proj.weight: expected a matrix, found ({RANK},)"),
])
def test_models_that_do_not_fit(tmp_path, keys, shapes, message):
    kept = {name: shapes.get(name, shape) for name, shape in SHAPES.items()}
    folder = folder_of(tmp_path, draw({name: shape for name, shape in kept.items() if shape}), **keys)
    np.save(folder / "x.npy", X)
    done = attn("run", "--model", "model", "--layer", 0, "--hidden", "x.npy", cwd=folder)
    assert_error(done, 65, message)
    assert done.stderr.count(b"\n") == 1
    assert_error(attn("model", "inspect", "model", cwd=folder), 65, message)


@pytest.mark.parametrize("shape, message", [
    ((L, M + 1), "--hidden: expected hidden states of width 12, as the layers of model/model.safetensors"),
    ((M,), "--hidden: expected hidden states (L, M) or (B, L, M), found (12,)"),
    ((1, 1, L, M), "--hidden: expected hidden states (L, M) or (B, L, M), found (1, 1, 7, 12)"),
])
def test_hidden_states_of_another_shape(tmp_path, shape, message):
    folder = folder_of(tmp_path, TENSORS)
    np.save(folder / "x.npy", np.zeros(shape))
    assert_error(attn("run", "--model", "model", "--layer", 0, "--hidden", "x.npy", cwd=folder), 65, message)


def test_a_batch_of_as_many_sequences_as_layers(tmp_path):
    folder = folder_of(tmp_path, TENSORS)
    np.save(folder / "x.npy", np.stack([X, 2 * X]))
    done = attn("run", "--model", "model", "--layer", 0, "--hidden", "x.npy", "-o", "out.npz", cwd=folder)
    assert done.returncode == 0
    assert b"warning: --hidden: (2, 7, 12) is a batch of 2 sequences" in done.stderr


def test_job_from_saved_queries_keys_and_values(tmp_path):
    folder = folder_of(tmp_path, TENSORS)
    np.save(folder / "x.npy", X)
    flags = ["run", "--model", "model", "--layer", 1, "--hidden", "x.npy"]
    assert attn(*flags, "--outputs", "Q,K,V", "-o", "qkv.npz", cwd=folder).returncode == 0
    job = {"Q": "qkv.npz#Q", "K": "qkv.npz#K", "V": "qkv.npz#V", "heads": H, "causal": True,
           "rotary": {"kind": "interleaved", "width": R, "base": 500.0},
           "weights_layout": "out-in", "W_O": "model/model.safetensors#model.layers.1.self_attn.o_proj.weight"}
    printed = json.loads(attn(*flags, "--dry-run", "--format", "json", cwd=folder).stdout)["job"]
    assert {key: printed[key] for key in printed if key not in "QKV"} == {key: job[key] for key in job if key not in "QKV"}
    (folder / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "--outputs", "weights,output", "-o", "out.npz", cwd=folder).returncode == 0
    with np.load(folder / "out.npz") as out:
        close((out["weights"], out["output"]), expected(TENSORS, X))


def test_memory_is_limited(tmp_path):
    folder = folder_of(tmp_path, TENSORS)
    np.save(folder / "x.npy", np.zeros((20000, M)))
    done = attn("run", "--model", "model", "--layer", 0, "--hidden", "x.npy", "--rows", "0", "--max-memory", "16M",
                cwd=folder)
    assert_error(done, 65, "takes more than 16777216 bytes of memory")
