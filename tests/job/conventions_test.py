"""Conventions and saved layers: each library's results, written out in NumPy as its manual defines them."""

import json

import numpy as np
import pytest

from support.attn import attn
from support.checkpoints import write_model

B, H, L, S, D = 2, 3, 4, 6, 2
E = H * D


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def normal(rng):
    return lambda *shape: rng.standard_normal(shape)


def softmax(x):
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


def masked(x, keep):
    return np.where(keep, x, -np.inf)


def run(folder, convention, tensors, options, outputs):
    """Runs a job with all tensors in one archive, in the library's layout; returns the outputs by name."""
    np.savez(folder / "in.npz", **tensors)
    flags = [f"--{key}={value}" for key, value in options.items()]
    done = attn("run", "in.npz", "--convention", convention, *flags, "--outputs", outputs, "-o", "out.npz",
                "--nan", "allow", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    with np.load(folder / "out.npz") as out:
        return dict(out)


def is_close(found, expected):
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-12, atol=1e-12,
                                                         equal_nan=True)


def split_heads(x, heads=H):
    """(B, N, heads * D) -> (B, heads, N, D)"""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def test_torch_multihead_attention(tmp_path, normal, rng):
    """torch.nn.MultiheadAttention(E, H, add_bias_kv=True, add_zero_attn=True), batch second."""
    state = {"in_proj_weight": normal(3 * E, E), "in_proj_bias": normal(3 * E),
             "bias_k": normal(1, 1, E), "bias_v": normal(1, 1, E),
             "out_proj.weight": normal(E, E), "out_proj.bias": normal(E)}
    query, key, value = normal(L, B, E), normal(S, B, E), normal(S, B, E)
    attn_mask = rng.random((B * H, L, S)) < 0.4  # True: ignored
    padding = rng.random((B, S)) < 0.3
    tensors = {**state, "embeddings": query, "memory": key, "memory_V": value, "mask": attn_mask,
               "key_mask": padding}
    out = run(tmp_path, "torch-mha", tensors, {"heads": H, "zero-key": "true"},
              "output,mean_weights,weights")

    q, k, v = (x.swapaxes(0, 1) @ w.T + b for x, w, b in zip(
        (query, key, value), np.split(state["in_proj_weight"], 3),
        np.split(state["in_proj_bias"], 3)))
    k, v = (np.concatenate([x, np.broadcast_to(b, (B, 1, E)), np.zeros((B, 1, E))], 1)
            for x, b in ((k, state["bias_k"]), (v, state["bias_v"])))
    keep = ~attn_mask.reshape(B, H, L, S) & ~padding[:, None, None]
    keep = np.concatenate([keep, np.ones((B, H, L, 2), bool)], 3)
    weights = softmax(masked(split_heads(q) @ split_heads(k).swapaxes(2, 3) / np.sqrt(D), keep))
    context = (weights @ split_heads(v)).swapaxes(1, 2).reshape(B, L, E)
    expected = context @ state["out_proj.weight"].T + state["out_proj.bias"]
    assert is_close(out["output"], expected.swapaxes(0, 1))
    assert is_close(out["mean_weights"], weights.mean(1))
    assert is_close(out["weights"], weights)


def test_torch_separate_widths(tmp_path, normal):
    """nn.MultiheadAttention with kdim and vdim. A query without visible keys is NaN, as with need_weights."""
    kdim, vdim = 5, 7
    state = {"q_proj_weight": normal(E, E), "k_proj_weight": normal(E, kdim),
             "v_proj_weight": normal(E, vdim), "out_proj.weight": normal(E, E)}
    query, key, value = normal(L, E), normal(S, kdim), normal(S, vdim)
    mask = np.zeros((L, S), bool)
    mask[1] = True
    tensors = {**state, "embeddings": query, "memory": key, "memory_V": value, "mask": mask}
    out = run(tmp_path, "torch-mha", tensors, {"heads": H}, "output")
    q, k, v = (split_heads((x @ w.T)[None]) for x, w in (
        (query, state["q_proj_weight"]), (key, state["k_proj_weight"]),
        (value, state["v_proj_weight"])))
    weights = softmax(masked(q @ k.swapaxes(2, 3) / np.sqrt(D), ~mask))
    expected = (weights @ v).swapaxes(1, 2).reshape(L, E) @ state["out_proj.weight"].T
    assert np.isnan(expected[1]).all()
    assert not np.isnan(expected[0]).any()
    assert is_close(out["output"], expected)


def test_keras_mask_has_no_heads(tmp_path, normal, rng):
    """A Keras mask is (B, T, S). Where B equals H it could be taken for (H, T, S)."""
    tensors = {"embeddings": normal(H, L, E), "memory": normal(H, S, E), "mask": rng.random((H, L, S)) < 0.6}
    tensors["mask"][..., 0] = True
    found = run(tmp_path, "keras", tensors, {"heads": H}, "weights")["weights"]
    assert ((found > 0) == tensors["mask"][:, None]).all()


def test_keras_group_query_attention(tmp_path, normal, rng):
    """keras.layers.GroupQueryAttention, its weights named by their paths; a mask keeps where it is True."""
    G, M = 1, 5
    state = {"gqa/query/kernel": normal(M, H, D), "gqa/query/bias": normal(H, D),
             "gqa/key/kernel": normal(M, G, D), "gqa/key/bias": normal(G, D),
             "gqa/value/kernel": normal(M, G, D), "gqa/value/bias": normal(G, D),
             "gqa/attention_output/kernel": normal(H, D, M), "gqa/attention_output/bias": normal(M)}
    query, value = normal(B, L, M), normal(B, S, M)
    keep = rng.random((B, 1, L, S)) < 0.6
    keep[0, :, 2] = False
    tensors = {**state, "embeddings": query, "memory": value, "mask": keep}
    out = run(tmp_path, "keras", tensors, {}, "output,weights")
    w = {name[4:]: array for name, array in state.items()}
    q = np.einsum("blm,mhd->bhld", query, w["query/kernel"]) + w["query/bias"][None, :, None]
    k = np.einsum("bsm,mhd->bhsd", value, w["key/kernel"]) + w["key/bias"][None, :, None]
    v = np.einsum("bsm,mhd->bhsd", value, w["value/kernel"]) + w["value/bias"][None, :, None]
    scores = np.where(keep, q @ k.swapaxes(2, 3) / np.sqrt(D), -1e30)  # finite: uniform if all are masked
    weights = softmax(scores)
    expected = np.einsum("bhld,hdm->blm", weights @ v, w["attention_output/kernel"])
    assert is_close(out["weights"], weights)
    assert is_close(out["output"], expected + w["attention_output/bias"])


def test_gate_of_a_keras_layer(tmp_path, normal):
    """keras.layers.MultiHeadAttention(use_gate=True): context * sigmoid(gate), then attention_output."""
    M, Dv = 5, 3
    state = {"mha/query/kernel": normal(M, H, D), "mha/key/kernel": normal(M, H, D),
             "mha/gate/kernel": normal(M, H, Dv), "mha/gate/bias": normal(H, Dv),
             "mha/value/kernel": normal(M, H, Dv), "mha/attention_output/kernel": normal(H, Dv, M)}
    x = normal(B, L, M)
    out = run(tmp_path, "keras", {**state, "embeddings": x}, {}, "output")
    w = {name[4:]: array for name, array in state.items()}
    q, k, v, gate = (np.einsum("blm,mhd->bhld", x, w[f"{name}/kernel"]) for name in ("query", "key", "value", "gate"))
    context = softmax(q @ k.swapaxes(2, 3) / np.sqrt(D)) @ v / (1 + np.exp(-gate - w["gate/bias"][:, None]))
    assert is_close(out["output"], np.einsum("bhld,hdm->blm", context, w["attention_output/kernel"]))


def test_jax_dot_product_attention(tmp_path, normal):
    """(B, T, N, H). Masked scores are finite: a query without visible keys gets the mean of the values.
    Padded queries are 0."""
    q, k, v = normal(B, L, H, D), normal(B, S, H, D), normal(B, S, H, D)
    q_lengths, k_lengths = np.array([3, 4]), np.array([5, 0])
    tensors = {"Q": q, "K": k, "V": v, "query_lengths": q_lengths, "key_lengths": k_lengths}
    out = run(tmp_path, "jax", tensors, {"causal": "true", "window": "2,1"}, "context")
    i, j = np.arange(L)[:, None], np.arange(S)
    keep = (j <= i) & (j >= i - 2) & (j < k_lengths[:, None, None, None])
    x = np.einsum("blhd,bshd->bhls", q, k) / np.sqrt(D)
    expected = np.einsum("bhls,bshd->blhd", softmax(np.where(keep, x, -1e30)), v)
    expected[np.arange(L) >= q_lengths[:, None]] = 0
    assert is_close(out["context"], expected)


@pytest.mark.parametrize("options, mask", [
    ({"causal": "true"}, lambda distance: distance <= 0),
    ({"window": "1,0"}, lambda distance: (distance >= -1) & (distance <= 0)),
    ({}, lambda distance: True),
], ids=["causal", "window", "all keys"])
def test_flash_attention(tmp_path, normal, options, mask):
    """(B, L, H, D). Causality, window and ALiBi align at the bottom right. A query without visible keys
    is 0."""
    q, k, v = normal(B, S, H, D), normal(B, L, H, D), normal(B, L, H, D)  # S > L: more queries than keys
    slopes = np.array([0.5, 0.25, 1])
    tensors = {"Q": q, "K": k, "V": v, "alibi_slopes": slopes}
    distance = np.arange(L) - np.arange(S)[:, None] - (L - S)
    x = np.einsum("blhd,bshd->bhls", q, k) / np.sqrt(D)
    x = 5 * np.tanh(x / 5) - slopes[:, None, None] * abs(distance)
    out = run(tmp_path, "flash", tensors, {**options, "softcap": 5}, "context")
    weights = softmax(masked(x, mask(distance)))
    expected = np.einsum("bhls,bshd->blhd", np.nan_to_num(weights), v)
    assert is_close(out["context"], expected)


@pytest.mark.parametrize("case", ["causal", "short boolean mask", "short additive mask", "mask of one column",
                                  "causal with lengths"])
def test_onnx_attention(tmp_path, normal, rng, case):
    """A mask of fewer columns hides the other keys. With lengths, causality aligns at the last key of each
    batch item."""
    q, k, v = normal(B, H, L, D), normal(B, H, S, D), normal(B, H, S, D)
    lengths, short = np.array([5, 2]), rng.random((L, 4)) < 0.7
    i, j = np.arange(L)[:, None], np.arange(S)
    x = q @ k.swapaxes(2, 3) / np.sqrt(D)
    wide = np.pad(short, ((0, 0), (0, S - 4)))
    tensors, options, keep = {
        "causal": ({}, {"causal": "true"}, j <= i),
        "short boolean mask": ({"mask": short}, {}, wide),
        "short additive mask": ({"mask": np.where(short, 0.0, -np.inf)}, {}, wide),
        "mask of one column": ({"mask": np.zeros((L, 1))}, {}, np.broadcast_to(j == 0, (L, S))),
        "causal with lengths":
            ({"key_lengths": lengths}, {"causal": "true"},
             (j <= i + lengths[:, None, None, None] - L) & (j < lengths[:, None, None, None])),
    }[case]
    out = run(tmp_path, "onnx", {"Q": q, "K": k, "V": v, **tensors}, options, "weights")
    weights = np.nan_to_num(softmax(masked(x, keep)))
    assert is_close(out["weights"], np.broadcast_to(weights, x.shape))


def jax_job(**keys):
    rng = np.random.default_rng(7)
    return {"Q": rng.standard_normal((1, 2, 3, 4)).tolist(), "K": rng.standard_normal((1, 3, 2, 4)).tolist(),
            "convention": "jax", "layout": "bhld", "outputs": ["weights"], **keys}


def test_option_overrides_the_convention():
    """The layout bhld overrides blhd of jax."""
    job = jax_job()
    job["K"] = job["Q"]
    run = attn("run", "-", "--format", "json", stdin=json.dumps(job))
    assert np.shape(json.loads(run.stdout)["weights"]) == (1, 2, 3, 3)


@pytest.mark.parametrize("keys, message", [
    ({"convention": "jaxx"}, "did you mean 'jax'?"),
    ({"convention": "torch-mha", "batch_axis": "second"}, "batch_axis: requires inputs with 3 axes"),
    ({"short_mask": "hide", "mask": [[0.5, 1, 1, 1]]}, "mask: expected"),
], ids=["unknown convention", "batch axis", "mask"])
def test_job_is_refused(keys, message):
    run = attn("run", "-", stdin=json.dumps(jax_job(**keys)))
    assert run.returncode == 65
    assert message in run.stderr.decode()


def test_saved_weight_of_the_wrong_shape_is_refused(tmp_path):
    np.savez(tmp_path / "bad.npz", in_proj_weight=np.ones((4, 3)), embeddings=np.ones((2, 3)))
    run = attn("run", "bad.npz", cwd=tmp_path)
    assert run.returncode == 65
    assert b"bad.npz: in_proj_weight: expected 2 axes" in run.stderr


@pytest.fixture
def layer():
    """Arrays of an nn.MultiheadAttention of width 4."""
    rng = np.random.default_rng(3)
    return {"in_proj_weight": rng.standard_normal((12, 4)), "in_proj_bias": rng.standard_normal(12),
            "out_proj.weight": rng.standard_normal((4, 4)), "out_proj.bias": rng.standard_normal(4)}


def test_saved_torch_layer_requires_the_number_of_heads(tmp_path, layer):
    np.savez(tmp_path / "layer.npz", embeddings=np.ones((3, 4)), **layer)
    run = attn("run", "layer.npz", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr == (b"attn: layer.npz: the weights of nn.MultiheadAttention do not state the number of heads; "
                          b"give heads (--heads)\n")


def test_names_of_a_saved_layer_may_have_a_path(tmp_path, layer):
    x = np.random.default_rng(4).standard_normal((3, 4))
    np.savez(tmp_path / "layer.npz", embeddings=x, **layer)
    np.savez(tmp_path / "model.npz", embeddings=x, **{f"encoder.self_attn.{k}": v for k, v in layer.items()})
    results = [attn("run", file, "--heads", "2", "--outputs", "output", cwd=tmp_path).stdout
               for file in ("layer.npz", "model.npz")]
    assert results[0].startswith(b"output (3, 4)")
    assert results[0] == results[1]


def test_several_saved_layers_are_refused(tmp_path, layer):
    np.savez(tmp_path / "model.npz", embeddings=np.ones((3, 4)),
             **{f"layers.{n}.{k}": v for n in (0, 1) for k, v in layer.items()})
    run = attn("run", "model.npz", "--heads", "2", cwd=tmp_path)
    assert run.returncode == 65
    assert (b"model.npz: contains several attention layers: layers.0., layers.1.; select one, as "
            b"model.npz#layers.0.\n") in run.stderr


def test_many_saved_layers_are_counted(tmp_path, layer):
    np.savez(tmp_path / "model.npz", **{f"layers.{n:02}.{k}": v for n in range(30) for k, v in layer.items()})
    run = attn("run", "model.npz", "--heads", "2", cwd=tmp_path)
    assert run.returncode == 65
    assert b"model.npz: contains 30 attention layers; select one, as model.npz#layers.00.\n" in run.stderr


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_prefix_selects_one_of_several_saved_layers(tmp_path, layer, suffix):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(3, 4))
    np.savez(tmp_path / "layer.npz", **layer)
    np.savez(tmp_path / "model.npz", **{f"layers.{n}.{k}": v * (1 + n) for n in (0, 1) for k, v in layer.items()},
             other=np.ones(3))
    if suffix == "safetensors":
        assert attn("convert", "model.npz", "-o", "model.safetensors", cwd=tmp_path).returncode == 0
    flags = ["--heads", "2", "--embeddings", "x.npy", "--outputs", "output"]
    expected, found = (attn("run", file, *flags, cwd=tmp_path) for file in ("layer.npz", f"model.{suffix}#layers.0."))
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout == expected.stdout


def test_prefix_selects_arrays_named_like_keys(tmp_path):
    np.savez(tmp_path / "jobs.npz", **{"a.Q": np.eye(2), "a.K": np.eye(2), "b.Q": np.ones((2, 2))})
    run = attn("run", "jobs.npz#a.", "--outputs", "scores", "--format", "json", cwd=tmp_path)
    assert json.loads(run.stdout)["scores"] == [[1, 0], [0, 1]]


def test_prefix_that_no_name_has(tmp_path, layer):
    np.savez(tmp_path / "model.npz", **{f"layers.0.{k}": v for k, v in layer.items()})
    run = attn("run", "model.npz#layers.1.", "--heads", "2", cwd=tmp_path)
    assert run.returncode == 65
    assert b"model.npz: has no tensor whose name starts with 'layers.1.'; its tensors: layers.0.in_proj" in run.stderr


def test_joined_weights_are_not_one_projection(tmp_path, layer):
    np.savez(tmp_path / "layer.npz", **layer)
    run = attn("run", "--wq", "layer.npz#in_proj_weight", "--embeddings", "[[1, 2, 3, 4]]", cwd=tmp_path)
    assert run.returncode == 65
    assert b"--w-q: in_proj_weight holds W_Q, W_K and W_V of nn.MultiheadAttention; give the file as the " \
           b"job: attn run layer.npz --heads H" in run.stderr


def test_arrays_that_are_not_keys_get_one_line(tmp_path):
    np.savez(tmp_path / "linear.npz", **{f"{name}.weight": np.ones((2, 2)) for name in "abcde"})
    run = attn("run", "linear.npz", cwd=tmp_path)
    assert run.returncode == 65
    assert run.stderr == (b"attn: linear.npz: 5 arrays are not job keys: a.weight, "
                          b"b.weight, c.weight, ...; pass each with the flag of its input\n")


@pytest.mark.parametrize("arrays, example", [
    ({"embeddings.position_ids": np.arange(6)[None], "layer.0.attention.self.query.weight": np.eye(8)},
     ", such as --wq m.npz#layer.0.attention.self.query.weight"),
    ({"a.table": np.eye(8), "blocks.0.attn.k_proj.weight": np.eye(8)}, ", such as --wk m.npz#blocks.0.attn.k_proj.weight"),
    ({"a.table": np.eye(8), "0/value/w": np.eye(8)}, ", such as --wv m.npz#0/value/w"),
    ({"a.table": np.eye(8), "query.weight": np.eye(8, dtype=np.int64)}, ""),  # integers
    ({"a.table": np.eye(8), "query.weight": np.ones(8)}, ""),  # no matrix
    ({"a.table": np.eye(8), "query_key_value.weight": np.eye(8)}, ""),  # three projections in one
])
def test_example_for_arrays_is_a_projection(tmp_path, arrays, example):
    np.savez(tmp_path / "m.npz", **arrays)
    run = attn("run", "m.npz", cwd=tmp_path)
    assert run.returncode == 65
    assert run.stderr.decode().endswith("pass each with the flag of its input" + example + "\n")


@pytest.mark.parametrize("name, array, written", [
    ("position_ids", np.arange(6)[None], "the flag of its input"), ("tokens.x", np.eye(2), "--q m.npz#tokens.x"),
    ("h.0.value.weight", np.eye(2), "--wv m.npz#h.0.value.weight"), ("norm.weight", np.ones(2), "the flag of its input")])
def test_example_for_one_array_of_another_name(tmp_path, name, array, written):
    np.savez(tmp_path / "m.npz", **{f"a.{name}": array})
    run = attn("run", "m.npz", cwd=tmp_path)
    assert run.returncode == 65
    assert run.stderr.decode().endswith(
        f"to use an array of another name, write {written.replace('#', '#a.')}\n")


@pytest.mark.parametrize("given, folder", [("model/model.safetensors", "model"), ("model.safetensors", "."),
                                           ("model.safetensors#layers.", ".")])
def test_arrays_of_a_model(tmp_path, given, folder):
    write_model(tmp_path / "model", {}, {f"layers.0.{name}.weight": np.ones((2, 2)) for name in "abc"})
    run = attn("run", given, cwd=tmp_path / "model" if folder == "." else tmp_path)
    assert run.returncode == 65
    assert run.stderr.endswith(b"; config.json is in the same folder: to compute a layer of the model, give --model "
                               + folder.encode() + b" --layer N --hidden FILE\n")
    assert run.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", ["jobs.ndjson", "jobs.jsonl"])
def test_lines_of_jobs_are_for_batch(tmp_path, name):
    (tmp_path / name).write_text('{"Q": [[1]]}\n{"Q": [[2]]}\n')
    run = attn("run", name, cwd=tmp_path)
    assert run.returncode == 65
    assert run.stderr.endswith(f"; for one job per line: attn batch - < {name}\n".encode())


def test_id_in_a_job_has_a_hint(tmp_path):
    (tmp_path / "job.json").write_text('{"id": 3, "Q": [[1]]}')
    run = attn("run", "job.json", cwd=tmp_path)
    assert run.stderr == b"attn: job.json: unknown key 'id'; only lines read by attn batch have an id\n"


def test_torch_mha_requires_the_number_of_heads():
    job = {"convention": "torch-mha", "embeddings": [[1.0, 2]]}
    run = attn("run", "-", stdin=json.dumps(job))
    assert run.returncode == 65
    assert b"convention: 'torch-mha' requires the number of heads" in run.stderr
    assert attn("run", "-", stdin=json.dumps({**job, "heads": 1})).returncode == 0


@pytest.mark.parametrize("name", ["attn", "onnx", "torch", "torch-mha", "jax", "keras", "flash"])
def test_table_lists_convention(name):
    assert f"\n{name} " in attn("conventions").stdout.decode()
