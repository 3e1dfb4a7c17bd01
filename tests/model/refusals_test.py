"""Models that `attn run --model` refuses, and errors in model folders: one clear line each."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak, json_lines, under_sanitizer
from support.checkpoints import write_model
from support.safetensors_file import build, entry

L, M, H, D = 4, 8, 2, 4
CONFIG = {"model_type": "llama", "hidden_size": M, "num_attention_heads": H, "num_hidden_layers": 2}


def tensors(dtype="float64"):
    rng = np.random.default_rng(2)
    names = {f"self_attn.{x}_proj.weight": (M, M) for x in "qkvo"} | {"input_layernorm.weight": (M,)}
    return {f"model.layers.{n}.{name}": rng.standard_normal(shape).astype(dtype)
            for n in (0, 1) for name, shape in names.items()}


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "model", CONFIG, tensors())
    np.save(tmp_path / "x.npy", np.random.default_rng(3).standard_normal((L, M)))
    return tmp_path


def run(folder, *flags, model="model", layer=0):
    return attn("run", "--model", model, "--layer", layer, "--hidden", "x.npy", "--outputs", "weights", *flags,
                cwd=folder)


def change(folder, **keys):
    config = {key: value for key, value in (CONFIG | keys).items() if value != "absent"}
    (folder / "model" / "config.json").write_text(json.dumps(config))


def assert_refused(done, code, *texts):
    assert_error(done, code, *texts)
    assert done.stderr.count(b"\n") == 1


def test_model_with_slash_and_default_outputs(folder):
    done = attn("run", "--model", "model/", "--layer", 0, "--hidden", "x.npy", "-o", "out.npz", cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")
    with np.load(folder / "out.npz") as out:
        assert sorted(out) == ["context", "output", "scores", "weights"]


@pytest.mark.parametrize("given, inside", [("model/config.json", False), ("config.json", True)])
def test_config_file_in_place_of_its_folder(folder, given, inside):
    (folder / "x.npy").rename(folder / "model" / "x.npy")
    cwd, hidden, name = (folder / "model", "x.npy", ".") if inside else (folder, "model/x.npy", "model")
    flags = ["--layer", 0, "--hidden", hidden]
    expected = attn("run", "--model", name, *flags, cwd=cwd)
    done = attn("run", "--model", given, *flags, cwd=cwd)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", expected.stdout)
    expected = attn("model", "inspect", name, cwd=cwd)
    done = attn("model", "inspect", given, cwd=cwd)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", expected.stdout)


def test_another_file_in_place_of_the_folder(folder):
    assert_refused(attn("model", "inspect", "model/model.safetensors", cwd=folder), 65,
                   "attn: model/model.safetensors: expected the folder of a model, found a file; give model\n")
    assert_refused(run(folder, model="x.npy"), 65, "attn: x.npy: expected the folder of a model, found a file\n")


def test_unknown_model_type_is_refused_by_name(folder):
    change(folder, model_type="rwkv")
    assert_refused(run(folder), 65, "model/config.json: model_type: 'rwkv' is not supported; write the job by hand",
                   "model/model.safetensors#NAME")


@pytest.mark.parametrize("keys, message", [
    ({"model_type": "absent"}, "model/config.json: model_type: expected the name of an architecture, found none"),
    ({"model_type": 3}, "model/config.json: model_type: expected a string, found an integer"),
    ({"num_attention_heads": "absent"}, "num_attention_heads: expected a whole number, found none"),
    ({"num_attention_heads": 0}, "num_attention_heads: expected a whole number from 1 to 1000000000, found 0"),
    ({"num_attention_heads": 1.5}, "num_attention_heads: expected a whole number from 1 to 1000000000, found 1.5"),
    ({"num_attention_heads": None, "n_head": 2}, "num_attention_heads: expected a whole number, found none"),
    ({"partial_rotary_factor": 1e300}, "config.json: partial_rotary_factor: expected a number > 0 and <= 1, found "),
    ({"rope_parameters": {"partial_rotary_factor": -1}}, "rope_parameters: partial_rotary_factor: expected a number"),
    ({"num_attention_heads": "two"}, "num_attention_heads: expected a finite number, found a string"),
    ({"num_attention_heads": 1e300}, "num_attention_heads: expected a whole number from 1"),
    ({"num_hidden_layers": "absent"}, "num_hidden_layers: expected a whole number, found none"),
    ({"rope_scaling": {"rope_type": "wave", "factor": 2}}, "rope_scaling: rope_type: 'wave' is not supported"),
    ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling: factor: expected a finite number, found none"),
    ({"rope_scaling": [2]}, "rope_scaling: expected an object, found"),
    ({"rope_scaling": {"mrope_section": [1, 2], "rope_type": "default"}}, "mrope_section: is not supported"),
    ({"model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm: true is not supported"),
    ({"model_type": "gemma", "use_bidirectional_attention": True}, "use_bidirectional_attention: true is not supp"),
    ({"model_type": "gpt_oss"}, "rope_parameters: expected an object here or in rope_scaling, found none"),
    ({"model_type": "gemma2", "layer_types": ["linear_attention"] * 2}, "'linear_attention' is not supported"),
    ({"model_type": "gemma2", "layer_types": []}, ""),
])
def test_configuration_that_no_job_expresses(folder, keys, message):
    change(folder, **keys)
    done = run(folder)
    if not message:
        assert done.returncode == 0
    else:
        assert_refused(done, 65, "model/config.json: ", message)


def test_layer_types_for_fewer_layers(folder):
    change(folder, model_type="qwen2", layer_types=["full_attention"])
    assert_refused(run(folder, layer=1), 65, "layer_types: has entries for only 1 layer")


@pytest.mark.parametrize("layer", [0, 1])
def test_first_layer_with_a_window_may_be_any_number(folder, layer):
    change(folder, model_type="qwen2", use_sliding_window=True, sliding_window=1, max_window_layers=1e300)
    done = run(folder, "--dry-run", layer=layer)
    assert done.returncode == 0
    assert b'"window"' not in done.stdout


def test_memory_requires_a_model_with_stacks(folder):
    assert_refused(run(folder, "--memory", "x.npy"), 2, "--model: --memory requires --stack cross")


def test_memory_in_a_job_file_requires_a_model_with_stacks(folder):
    (folder / "job.json").write_text(json.dumps(job_of(folder, memory="x.npy")))
    assert_refused(attn("run", "job.json", cwd=folder), 65, "model: memory requires stack cross")


def test_largest_number_of_a_layer(folder):
    assert_refused(run(folder, layer=2 ** 63 - 1), 65,
                   "the model has 2 layers, from 0 to 1; found layer 9223372036854775807")


def test_layer_beyond_the_last(folder):
    assert_refused(run(folder, layer=2), 65, "the model has 2 layers, from 0 to 1; found layer 2")


def test_config_that_is_no_object(folder):
    (folder / "model" / "config.json").write_text("[1]")
    assert_refused(run(folder), 65, "model/config.json: expected an object, found")


@pytest.mark.parametrize("missing, message", [
    ("config.json", "model/config.json: "),
    ("model.safetensors", "model: has no model.safetensors and no model.safetensors.index.json"),
])
def test_missing_file(folder, missing, message):
    (folder / "model" / missing).unlink()
    assert_refused(run(folder), 66, message)


def test_checkpoint_of_pickles_has_a_hint(folder):
    (folder / "model" / "model.safetensors").rename(folder / "model" / "pytorch_model.bin")
    assert_refused(run(folder), 66, "save the model with save_pretrained()")


def test_missing_tensor(folder):
    given = tensors()
    del given["model.layers.0.self_attn.v_proj.weight"]
    write_model(folder / "model", CONFIG, given)
    assert_refused(run(folder), 65, "model/model.safetensors: has no tensor 'model.layers.0.self_attn.v_proj.weight'")


def test_names_of_another_architecture(folder):
    write_model(folder / "model", CONFIG, {"blocks.0.q": np.ones((M, M))})
    assert_refused(run(folder), 65, "has no tensor 'model.layers.0.self_attn.q_proj.weight', "
                                    "which model_type 'llama' requires")


def test_missing_shard_names_the_index(folder):
    (folder / "model" / "model.safetensors").unlink()
    write_model(folder / "model", CONFIG, tensors(), shards=2)
    (folder / "model" / "model-00001-of-00002.safetensors").unlink()
    assert_refused(run(folder), 66, "model/model.safetensors.index.json: model/model-00001-of-00002.safetensors: ")


def write_quantised(folder, method, suffix, dtype, shape):
    """A checkpoint whose projections are stored in this form."""
    names = {name.removesuffix("weight") + suffix: (dtype, shape) for name in tensors() if "proj" in name}
    names |= {name: ("F64", [M]) for name in tensors() if "norm" in name}
    data, header = b"", {}
    for name, (kind, axes) in names.items():
        size = int(np.prod(axes)) * {"U8": 1, "I8": 1, "F8_E4M3": 1, "I32": 4, "F64": 8}[kind]
        header[name] = entry(len(data), len(data) + size, kind, axes)
        data += bytes(size)
    (folder / "model" / "model.safetensors").write_bytes(build(header, data))
    change(folder, quantization_config={"quant_method": method} if method else "absent")


@pytest.mark.parametrize("method, suffix, dtype, shape, form", [
    ("bitsandbytes", "weight", "U8", [M * M // 2, 1], "bitsandbytes, U8"),
    ("bitsandbytes", "weight", "I8", [M, M], "bitsandbytes, I8"),
    ("", "weight", "U8", [M * M // 2, 1], "U8"),
    ("fp8", "weight", "F8_E4M3", [M, M], "fp8, F8_E4M3"),
    ("gptq", "qweight", "I32", [1, M], "gptq, stored as qweight"),
    ("awq", "qweight", "I32", [M, 1], "awq, stored as qweight"),
    ("compressed-tensors", "weight_packed", "I32", [M, 1], "compressed-tensors, stored as weight_packed"),
    ("hqq", "W_q", "U8", [M * M // 2, 1], "hqq, stored as W_q"),
])
def test_quantised_weights_are_refused(folder, method, suffix, dtype, shape, form):
    write_quantised(folder, method, suffix, dtype, shape)
    line = (f"attn: model/model.safetensors: model.layers.0.self_attn.q_proj.weight: is quantised ({form}); "
            "dequantise the checkpoint to float16, bfloat16 or float32 first\n")
    for done in run(folder), attn("model", "inspect", "model", cwd=folder):
        assert (done.returncode, done.stderr.decode()) == (65, line)


def test_plain_weights_of_a_checkpoint_with_other_quantised_tensors(folder):
    expected = run(folder)
    change(folder, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["self_attn"]})
    done = run(folder)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", expected.stdout)


@pytest.mark.parametrize("flags, message", [
    (["--model", "model", "--hidden", "x.npy"], "--model: requires --layer"),
    (["--model", "model", "--layer", "0"], 
     "--model: requires --hidden; the input of the layer, such as hidden_states[N] of transformers; docs/models.md shows how "
     "to get it\n"),
    (["--model", "model", "--layer", "0", "--hidden", "x.npy", "--embeddings", "x.npy"],
     "--model: cannot be combined with --embeddings; give --hidden"),
    (["--model", "model", "--layer", "0", "--hidden", "x.npy", "--q", "x.npy", "--k", "x.npy"],
     "--model: cannot be combined with --q; give --hidden"),
    (["--model", "model", "--layer", "-1", "--hidden", "x.npy"], "--layer: expected all, or numbers and ranges such as 0,3 or 0:4, found -1"),
])
def test_flags_that_do_not_fit(folder, flags, message):
    done = attn("run", *flags, cwd=folder)
    assert message in done.stderr.decode()
    assert done.returncode in (2, 65)


@pytest.mark.parametrize("flags, message", [
    (["--layer", "3"], "--layer: requires --model"),
    (["--layer", "3", "--hidden", "x.npy"], "--layer: requires --model"),
    (["--layer", "all", "--hidden", "h{layer}.npy", "-o", "w{layer}.npy"], "--layer: requires --model"),
    (["--layer", "0", "--embeddings", "x.npy"], "--layer: requires --model"),
    (["--hidden", "x.npy"], "--hidden: requires --model"),
    (["--hidden", "x.npy", "--embeddings", "x.npy"], "--hidden: requires --model"),
])
def test_flags_without_a_model(folder, flags, message):
    done = attn("run", *flags, cwd=folder)
    assert (done.returncode, done.stderr.decode()) == (2, f"attn: {message}\n")


def test_keys_without_a_model(folder):
    (folder / "job.json").write_text('{"layer": 3, "hidden": "x.npy"}')
    done = attn("run", "job.json", cwd=folder)
    assert (done.returncode, done.stderr) == (65, b"attn: job.json: layer: requires model\n")


# Jobs and batches.


def job_of(folder, **keys):
    return {"model": "model", "layer": 1, "hidden": "x.npy", "outputs": ["weights"], **keys}


def test_paths_of_a_job_are_relative_to_its_folder(folder):
    expected = attn("run", "--model", "model", "--layer", 1, "--hidden", "x.npy", "--outputs", "weights", cwd=folder)
    (folder / "job.json").write_text(json.dumps(job_of(folder)))
    done = attn("run", folder / "job.json", cwd="/")
    assert done.returncode == 0
    assert done.stdout == expected.stdout


def test_flags_replace_keys_of_the_model(folder):
    done = run(folder, "--causal=false", "--format", "json")
    weights = np.array(json.loads(done.stdout)["weights"])
    assert (weights > 0).all()


def test_batch_runs_layers(folder):
    for n in 0, 1:
        (folder / f"{n}.json").write_text(json.dumps(job_of(folder, layer=n)))
    done = attn("batch", "0.json", "1.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    for line, n in zip(json_lines(done.stdout), (0, 1)):
        alone = attn("run", f"{n}.json", "--format", "json", cwd=folder)
        assert line["weights"] == json.loads(alone.stdout)["weights"]


def test_isolated_batch_reads_the_model(folder):
    (folder / "job.json").write_text(json.dumps(job_of(folder)))
    done = attn("batch", "job.json", "--isolate", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json_lines(done.stdout)[0]["weights"] == json.loads(run(folder, "--format", "json",
                                                                   layer=1).stdout)["weights"]


def test_resumed_batch_computes_again_if_the_weights_changed(folder):
    (folder / "job.json").write_text(json.dumps(job_of(folder)))
    batch = ["batch", "job.json", "--out-dir", "out", "--resume"]
    assert attn(*batch, cwd=folder).returncode == 0
    assert b"1 skipped" in attn(*batch, cwd=folder).stderr
    write_model(folder / "model", CONFIG, {name: 2 * array for name, array in tensors().items()})
    assert b"model/model.safetensors changed" in attn(*batch, cwd=folder).stderr


def test_batch_with_a_model_for_all_lines(folder):
    lines = "".join(json.dumps({"hidden": "x.npy", "layer": n}) + "\n" for n in (0, 1))
    done = attn("batch", "-", "--model", "model", "--outputs", "weights", stdin=lines, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(json_lines(done.stdout)) == 2


def test_result_is_compared_with_its_job(folder):
    (folder / "job.json").write_text(json.dumps(job_of(folder)))
    assert attn("run", "job.json", "-o", "out.npz", cwd=folder).returncode == 0
    assert attn("compare", "--reference", "out.npz", "job.json", cwd=folder).returncode == 0


# The explicit job.


def test_dry_run_prints_a_job_that_computes_the_same(folder):
    plan = run(folder, "--dry-run", "--format", "json")
    job = json.loads(plan.stdout)["job"]
    assert "model" not in job and job["embeddings"] == "x.npy"
    assert job["W_Q"] == "model/model.safetensors#model.layers.0.self_attn.q_proj.weight"
    (folder / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", cwd=folder).stdout == run(folder).stdout


def test_dry_run_as_text_ends_with_the_job(folder):
    text = run(folder, "--dry-run").stdout.decode()
    assert json.loads(text.split("job:\n")[1])["heads"] == H


def test_dry_run_of_an_explicit_job_prints_no_job(folder):
    done = attn("run", "--q", "x.npy", "--k", "x.npy", "--dry-run", cwd=folder)
    assert b"job:" not in done.stdout


def test_results_record_the_explicit_job(folder):
    assert run(folder, "-o", "out.json").returncode == 0
    made_by = json.loads((folder / "out.json").read_text())["made_by"]
    assert made_by["job"]["W_O"] == "model/model.safetensors#model.layers.0.self_attn.o_proj.weight"
    assert sorted(made_by["inputs"]) == ["model/config.json", "model/model.safetensors", "x.npy"]


def test_inspect_groups_layers(folder):
    lines = attn("model", "inspect", "model", cwd=folder).stdout.decode().splitlines()
    assert lines[:4] == ["model_type  llama", "tensors     model/model.safetensors", "layers      2", "layers 0, 1:"]
    assert any(line.split() == ["W_Q", "model.layers.#.self_attn.q_proj.weight"] for line in lines)


def test_inspect_as_json(folder):
    done = attn("model", "inspect", "model", "--json", cwd=folder)
    assert [line["layer"] for line in json_lines(done.stdout)] == [0, 1]


def test_inspect_refuses_the_largest_number_of_a_layer(folder):
    done = attn("model", "inspect", "model", "--layer", 2 ** 63 - 1, cwd=folder)
    assert_refused(done, 65, "the model has 2 layers, from 0 to 1; found layer 9223372036854775807")


def test_inspect_reads_the_configuration_once(folder):
    layers = 40
    tensors_of_all = {name.replace("layers.0.", f"layers.{n}."): array for n in range(layers)
                      for name, array in tensors().items() if "layers.0." in name}
    config = CONFIG | {"num_hidden_layers": layers, "id2label": {str(n): "label" for n in range(2000)}}
    write_model(folder / "model", config, tensors_of_all)
    done = attn("model", "inspect", "model", "--max-memory", "5MiB", cwd=folder)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers need more memory")
def test_inspect_of_more_layers_than_the_checkpoint_has(folder):
    change(folder, num_hidden_layers=100_000_000)
    done, peak = attn_and_peak("model", "inspect", "model", cwd=folder)
    assert_refused(done, 65, "has no tensor 'model.layers.2.self_attn.q_proj.weight'")
    assert peak < 200 << 20


def test_model_without_a_subcommand(folder):
    assert_refused(attn("model", cwd=folder), 2, "expected a subcommand: inspect")


# A large checkpoint.


@pytest.mark.skipif(under_sanitizer(), reason="sanitizers need more memory")
def test_layer_of_a_large_checkpoint_needs_little_memory(tmp_path):
    """8 GB with the widths of Qwen3-4B, in sparse files. All weights are 0: a query attends to all keys alike."""
    width, heads, kv_heads, head_width, inner, layers, per_shard = 2560, 32, 8, 128, 9728, 40, 5
    shapes = {"self_attn.q_proj": (heads * head_width, width), "self_attn.k_proj": (kv_heads * head_width, width),
              "self_attn.v_proj": (kv_heads * head_width, width), "self_attn.o_proj": (width, heads * head_width),
              "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner),
              "input_layernorm": (width,)}
    (tmp_path / "model").mkdir()
    weight_map, total = {}, 0
    for first in range(0, layers, per_shard):
        header, size, name = {}, 0, f"model-{first}.safetensors"
        for n in range(first, first + per_shard):
            for key, shape in shapes.items():
                end = size + 2 * int(np.prod(shape))
                header[f"model.layers.{n}.{key}.weight"] = entry(size, end, "BF16", list(shape))
                size = end
        text = json.dumps(header)
        start = build(text + " " * (-len(text) % 8), b"")
        with open(tmp_path / "model" / name, "wb") as shard:
            shard.write(start)
            try:
                shard.truncate(len(start) + size)
            except OSError:
                pytest.skip("the file system has no sparse files of this size")
        weight_map |= {key: name for key in header}
        total += size
    assert total > 8e9
    config = {"model_type": "llama", "hidden_size": width, "num_attention_heads": heads, "head_dim": head_width,
              "num_key_value_heads": kv_heads, "num_hidden_layers": layers}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    np.save(tmp_path / "x.npy", np.ones((16, width), np.float32))
    done, peak = attn_and_peak("run", "--model", "model", "--layer", 7, "--hidden", "x.npy", "--outputs",
                               "weights,output", "-o", "out.npz", "--threads", "2", "--max-memory", "1G", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert peak < 200e6
    with np.load(tmp_path / "out.npz") as out:
        np.testing.assert_allclose(out["weights"][:, -1], 1 / 16, rtol=1e-6)
    done, peak = attn_and_peak("model", "inspect", "model", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert peak < 100e6


@pytest.mark.parametrize("keys, message", [
    ({"hidden_size": 16}, "hidden_size: is 16, but model.layers.0.self_attn.q_proj.weight is (8, 8)"),
    ({"head_dim": 8}, "head_dim: is 8, but model.layers.0.self_attn.q_proj.weight is (8, 8), for 2 heads"),
    ({"head_dim": 10 ** 9}, "head_dim: is 1000000000, but model.layers.0.self_attn.q_proj.weight is (8, 8)"),
])
def test_widths_that_the_weights_do_not_have(folder, keys, message):
    change(folder, **keys)
    assert_refused(run(folder), 65, "model/config.json: " + message)


@pytest.mark.parametrize("shape", [(L, M + 1), (2, L, M - 1)])
def test_hidden_states_of_another_width(folder, shape):
    np.save(folder / "x.npy", np.ones(shape))
    found = "(" + ", ".join(map(str, shape)) + ")"
    assert_refused(run(folder), 65, f"--hidden: expected hidden states of width {M}, as the layers of "
                                    f"model/model.safetensors, found {found}")


def test_hidden_states_of_another_width_in_a_batch(folder):
    np.save(folder / "x.npy", np.ones((L, M + 1)))
    (folder / "job.json").write_text(json.dumps(job_of(folder)))
    done = attn("batch", "job.json", "--out-dir", "out", cwd=folder)
    assert done.returncode == 3
    assert f"hidden: expected hidden states of width {M}" in done.stderr.decode()


def test_flag_of_hidden_states():
    assert_error(attn("run", "--model", "model", "--layer", "0", "--hidden-states", "x.npy"), 2,
                 "did you mean '--hidden' for a layer of --model")


@pytest.mark.parametrize("model_type, words", [("llama", "root mean square"), ("stablelm", "standard deviation")])
def test_explanation_has_the_norm_in_front_of_the_attention(folder, model_type, words):
    change(folder, model_type=model_type, partial_rotary_factor=1)
    done = run(folder, "--explain", "-")
    assert done.returncode == 0
    assert "Normalised inputs" in done.stdout.decode()
    assert words in " ".join(done.stdout.decode().split())
    assert "Normalised inputs" not in run(folder, "--explain", "-", "--hidden-is", "normed").stdout.decode()


# Shapes, which attn model inspect checks as attn run does.


@pytest.mark.parametrize("name, shape", [("k_proj.weight", (M, M + 1)), ("v_proj.weight", (M - 1, M)),
                                         ("o_proj.weight", (M, M + 2)), ("q_proj.bias", (M + 1,)),
                                         ("o_proj.bias", (3,)), ("q_proj.weight", (M,)),
                                         ("q_proj.weight", (M + 1, M))])
def test_inspect_refuses_shapes_as_run_does(folder, name, shape):
    write_model(folder / "model", CONFIG, tensors() | {f"model.layers.1.self_attn.{name}": np.ones(shape)})
    refused = attn("run", "--model", "model", "--layer", 1, "--hidden", "x.npy", "-o", "out.npz", cwd=folder)
    done = attn("model", "inspect", "model", cwd=folder)
    assert_refused(refused, 65, f"self_attn.{name}")
    assert_refused(done, 65, f"self_attn.{name}")
    assert done.stderr.replace(b"(1, 8)", b"(4, 8)") == refused.stderr
    assert attn("model", "inspect", "model", "--layer", 0, cwd=folder).returncode == 0


LLAMA = "layers.0.self_attn."
HEADS = ", for 2 heads of width 4 (config.json), found "


@pytest.mark.parametrize("keys, changes, message", [
    ({}, {"q_proj": (6, 8)}, "q_proj.weight: expected shape (8, 8)" + HEADS + "(6, 8)"),
    ({}, {"q_proj": (12, 8)}, "q_proj.weight: expected shape (8, 8)" + HEADS + "(12, 8)"),
    ({}, {"q_proj": (10, 8), "k_proj": (10, 8), "v_proj": (10, 8), "o_proj": (8, 10)},
     "q_proj.weight: expected shape (8, 8)" + HEADS + "(10, 8)"),
    ({}, {"k_proj": (4, 8)}, "k_proj.weight: expected shape (8, 8)" + HEADS + "(4, 8)"),
    ({"num_key_value_heads": 1}, {}, "k_proj.weight: expected shape (4, 8), for 2 heads and 1 key/value head of width "
                                     "4 (config.json), found (8, 8)"),
    ({}, {"v_proj": (8, 6)}, "v_proj.weight: expected shape (8, 8)" + HEADS + "(8, 6)"),
    ({"head_dim": 2}, {"q_proj": (4, 8), "k_proj": (4, 8), "v_proj": (4, 8), "o_proj": (4, 8)},
     "o_proj.weight: expected shape (8, 4), for 2 heads of width 2 (head_dim of config.json), found (4, 8)"),
])
def test_tensor_of_another_shape_than_the_configuration_requires(folder, keys, changes, message):
    """Not a tensor that fits the configuration, nor a key of jobs."""
    wrong = {f"model.{LLAMA}{name}.weight": np.ones(shape) for name, shape in changes.items()}
    write_model(folder / "model", CONFIG | keys, tensors() | wrong)
    for done in run(folder), attn("model", "inspect", "model", cwd=folder):
        assert (done.returncode, done.stderr.decode()) == (
            65, f"attn: model/model.safetensors: model.{LLAMA}{message}\n")


@pytest.mark.parametrize("model_type, names, q, output, message", [
    ("phi3", ("model.layers.0.self_attn.qkv_proj", "model.layers.0.self_attn.o_proj"), (40, M), (M, M),
     "model.layers.0.self_attn.qkv_proj.weight: expected shape (24, 8)" + HEADS + "(40, 8)"),
    ("gpt2", ("transformer.h.0.attn.c_attn", "transformer.h.0.attn.c_proj"), (M, 27), (M, M),
     "transformer.h.0.attn.c_attn.weight: expected shape (8, 24)" + HEADS + "(8, 27)"),
    ("gpt2", ("transformer.h.0.attn.c_attn", "transformer.h.0.attn.c_proj"), (M, 24), (6, M),
     "transformer.h.0.attn.c_proj.weight: expected shape (8, 8)" + HEADS + "(6, 8)"),
])
def test_fused_tensor_of_another_shape_than_the_configuration_requires(folder, model_type, names, q, output, message):
    norm = "transformer.h.0.ln_1" if model_type == "gpt2" else "model.layers.0.input_layernorm"
    write_model(folder / "model", CONFIG | {"model_type": model_type}, {
        f"{names[0]}.weight": np.ones(q), f"{names[1]}.weight": np.ones(output), f"{norm}.weight": np.ones(M)})
    for done in run(folder), attn("model", "inspect", "model", "--layer", 0, cwd=folder):
        assert (done.returncode, done.stderr.decode()) == (65, f"attn: model/model.safetensors: {message}\n")


def test_flags_replace_the_heads_of_a_wrong_configuration(folder):
    change(folder, num_key_value_heads=1)
    assert run(folder).returncode == 65
    assert run(folder, "--kv-heads", "2").returncode == 0
