"""`attn run --model DIR --layer all`: several layers at once, compared with a forward pass of each in NumPy."""

import io
import json
import re

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak, json_lines, under_sanitizer
from support.checkpoints import angles, attention, causal, heads_of, rms_norm, rotate, write_model, write_tensors

B, L, M, H, G, D, LAYERS = 2, 7, 12, 4, 2, 6, 4
CONFIG = {"model_type": "mistral", "hidden_size": M, "num_attention_heads": H, "num_key_value_heads": G, "head_dim": D,
          "num_hidden_layers": LAYERS, "rms_norm_eps": 1e-3, "rope_theta": 500.0, "sliding_window": 3}
RNG = np.random.default_rng(4)
HIDDEN = RNG.standard_normal((LAYERS + 1, B, L, M))


def layer_tensors(n, D=D):
    shapes = {"self_attn.q_proj": (H * D, M), "self_attn.k_proj": (G * D, M), "self_attn.v_proj": (G * D, M),
              "self_attn.o_proj": (M, H * D), "input_layernorm": (M,)}
    return {f"model.layers.{n}.{name}.weight": RNG.standard_normal(shape) for name, shape in shapes.items()}


TENSORS = {name: array for n in range(LAYERS) for name, array in layer_tensors(n).items()}


def expected(n, x):
    """Weights (H, L, L) and output (L, M) of a layer for x (L, M)."""
    t = {name.removeprefix(f"model.layers.{n}.").removesuffix(".weight"): y for name, y in TENSORS.items()
         if f".{n}." in name}
    x = rms_norm(x, t["input_layernorm"], 1e-3)
    q, k, v = (heads_of(x @ t[f"self_attn.{name}_proj"].T, heads) for name, heads in [("q", H), ("k", G), ("v", G)])
    weights, context = attention(rotate(q, angles(L, D, 500)), rotate(k, angles(L, D, 500)), v, causal(L, 3))
    return weights, context @ t["self_attn.o_proj"].T


WEIGHTS, OUTPUT = (np.array([[expected(n, HIDDEN[n, b])[part] for b in range(B)] for n in range(LAYERS)])
                   for part in (0, 1))


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "model", CONFIG, TENSORS)
    np.save(tmp_path / "h.npy", HIDDEN)
    return tmp_path


def run(folder, *flags, layer="all", hidden="h.npy"):
    return attn("run", "--model", "model", "--layer", layer, "--hidden", hidden, *flags, cwd=folder)


def weights(folder, *flags, **keys):
    done = run(folder, "--outputs", "weights", "-o", "w.npy", "--force", *flags, **keys)
    assert (done.returncode, done.stderr) == (0, b"")
    return np.load(folder / "w.npy")


def close(found, right):
    assert found.shape == right.shape
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-12 * max(1, np.abs(right).max()))


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "json"])
def test_outputs_have_an_axis_of_layers(folder, suffix):
    done = run(folder, "--outputs", "weights,output,entropy", "-o", f"out.{suffix}")
    assert (done.returncode, done.stderr) == (0, b"")
    attn("convert", f"out.{suffix}", "-o", "same.npz", cwd=folder)
    with np.load(folder / "same.npz") as out:
        close(out["weights"], WEIGHTS)
        close(out["output"], OUTPUT)
        close(out["entropy"], -np.sum(WEIGHTS * np.log(np.where(WEIGHTS > 0, WEIGHTS, 1)), -1))


@pytest.mark.parametrize("hidden", [HIDDEN, HIDDEN[:-1]], ids=["states after the last layer", "layers only"])
def test_hidden_states_of_all_layers(folder, hidden):
    np.save(folder / "h.npy", hidden)
    close(weights(folder), WEIGHTS)


def test_result_has_a_batch_axis_even_if_the_hidden_states_have_none(folder):
    np.save(folder / "h.npy", HIDDEN[:, 1])
    close(weights(folder), WEIGHTS[:, 1:])


@pytest.mark.parametrize("hidden, files", [
    ("h.{layer}.npy", {f"h.{n}.npy": HIDDEN[n] for n in range(LAYERS)}),
    ("{layer}/h{layer}.npy#[0:2]", {f"{n}/h{n}.npy": HIDDEN[n] for n in range(LAYERS)}),
    ("all.npz#arr_{layer}", {"all.npz": HIDDEN}),
    ("whole.npz#h", {"whole.npz": {"h": HIDDEN, "other": np.zeros(3)}}),
    ("h.npy#[0:4]", {"h.npy": HIDDEN}),
])
def test_names_of_hidden_states(folder, hidden, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if name.endswith(".npy"):
            np.save(folder / name, content)
        elif isinstance(content, dict):
            np.savez_compressed(folder / name, **content)
        else:
            np.savez(folder / name, *content)
    close(weights(folder, hidden=hidden), WEIGHTS)


@pytest.mark.parametrize("layer, numbers", [("0,2", [0, 2]), ("3,1", [3, 1]), ("0:2,3", [0, 1, 3]), ("[2]", [2]),
                                            ("1:2", [1])])
def test_some_layers(folder, layer, numbers):
    close(weights(folder, layer=layer), WEIGHTS[numbers])


@pytest.mark.parametrize("layer", ["all", [1, 3]])
def test_key_of_a_job(folder, layer):
    job = {"model": "model", "layer": layer, "hidden": "h.npy", "outputs": ["weights"]}
    (folder / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "out.npy", cwd=folder).returncode == 0
    close(np.load(folder / "out.npy"), WEIGHTS if layer == "all" else WEIGHTS[layer])


def test_key_that_names_no_layers(folder):
    (folder / "job.json").write_text(json.dumps({"model": "model", "layer": "0-3", "hidden": "h.npy"}))
    assert_error(attn("run", "job.json", cwd=folder), 65,
                 "job.json: layer: expected a whole number >= 0, a list of them or \"all\", found '0-3'")


def test_inline_hidden_states(folder):
    job = {"model": "model", "layer": "all", "hidden": HIDDEN.tolist(), "outputs": ["weights"]}
    (folder / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "out.npy", cwd=folder).returncode == 0
    close(np.load(folder / "out.npy"), WEIGHTS)


def test_hidden_states_from_standard_input(folder):
    done = attn("run", "--model", "model", "--layer", "all", "--hidden", "-", "--outputs", "weights", "-o", "out.npy",
                cwd=folder, stdin=(folder / "h.npy").read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    close(np.load(folder / "out.npy"), WEIGHTS)


@pytest.mark.parametrize("items", [LAYERS, LAYERS + 1])
def test_a_batch_of_as_many_sequences_as_layers(folder, items):
    np.save(folder / "h.npy", np.resize(HIDDEN[:, 0], (items, L, M)))
    done = run(folder, "--outputs", "weights", "-o", "w.npy", layer=1)
    assert done.returncode == 0
    assert done.stderr.decode() == (
        f"attn: warning: --hidden: ({items}, 7, 12) is a batch of {items} sequences; if these are the hidden states of "
        "all layers, select one layer: 'h.npy#[1]'\n")


def test_all_commands_warn_of_a_batch_of_as_many_sequences_as_layers(folder):
    np.save(folder / "h.npy", HIDDEN[:-1, 0])
    warning = (b"hidden: (4, 7, 12) is a batch of 4 sequences; if these are the hidden states of all layers, select "
               b"one layer: 'h.npy#[1]'")
    job = {"model": "model", "layer": 1, "hidden": "h.npy", "outputs": ["weights"]}
    (folder / "job.json").write_text(json.dumps(job))
    for command in (["run", "job.json", "-o", "w.npz"], ["batch", "job.json", "--out-dir", "out"],
                    ["batch", "job.json", "--isolate", "--out-dir", "isolated"],
                    ["compare", "--reference", "w.npz", "job.json"]):
        done = attn(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert (done.stdout + done.stderr).count(warning) == 1, command


def test_no_warning_of_a_file_for_each_layer(folder):
    for n in range(LAYERS):
        np.save(folder / f"h{n}.npy", np.resize(HIDDEN[n, 0], (LAYERS, L, M)))
    assert run(folder, "--outputs", "weights", "-o", "w.npy", hidden="h{layer}.npy").stderr == b""


def test_selected_layer_of_hidden_states_of_all_layers(folder):
    np.save(folder / "h.npy", HIDDEN[:, 0])
    done = run(folder, "--outputs", "weights", "-o", "w.npy", layer=1, hidden="h.npy#[1]")
    assert (done.returncode, done.stderr) == (0, b"")
    close(np.load(folder / "w.npy"), WEIGHTS[1, 0])


@pytest.mark.parametrize("items", [1, LAYERS - 1, LAYERS + 2])
def test_a_batch_of_another_number_of_sequences(folder, items):
    np.save(folder / "h.npy", np.resize(HIDDEN[:, 0], (items, L, M)))
    assert run(folder, "--outputs", "weights", "-o", "w.npy", layer=1).stderr == b""


@pytest.mark.parametrize("shape, hint", [((M,), ""), ((3, 2, 7, M), ""),
                                         ((LAYERS, 2, 7, M), "; select one layer: 'h.npy#[1]'")])
def test_hidden_states_of_one_layer_with_other_axes(folder, shape, hint):
    np.save(folder / "h.npy", np.zeros(shape))
    found = np.zeros(shape).shape
    assert_error(run(folder, "--outputs", "weights", layer=1), 65,
                 f"--hidden: expected hidden states (L, M) or (B, L, M), found {found}{hint}\n")


def test_files_for_each_layer_have_the_bytes_of_single_layers(folder):
    assert run(folder, "-o", "out.{layer}.npz", "-o", "weights=w{layer}.npy").returncode == 0
    for n in range(LAYERS):
        np.save(folder / "one.npy", HIDDEN[n])
        done = run(folder, "--outputs", "scores,weights,context,output", "-o", "one.npz", "--force", layer=n,
                   hidden="one.npy")
        assert done.returncode == 0, done.stderr
        with np.load(folder / "one.npz") as one, np.load(folder / f"out.{n}.npz") as out:
            assert sorted(one) == sorted(out)
            assert all(np.array_equal(one[name], out[name]) for name in one)
            assert np.array_equal(np.load(folder / f"w{n}.npy"), one["weights"])


@pytest.mark.parametrize("hidden, one", [("all.npz#arr_{layer}", "all.npz#arr_{n}"), ("h.npy", "h.npy#[{n}]"),
                                         ("h{layer}.npy", "h{n}.npy"), ("job.npz#h", "job.npz#h[{n}]"),
                                         ("h.safetensors#h{layer}", "h.safetensors#h{n}")])
def test_files_for_each_layer_have_the_provenance_of_single_layers(folder, hidden, one):
    np.savez(folder / "all.npz", *HIDDEN)
    np.savez(folder / "job.npz", h=HIDDEN)
    write_tensors(folder / "h.safetensors", {f"h{n}": HIDDEN[n] for n in range(LAYERS)})
    for n in range(LAYERS):
        np.save(folder / f"h{n}.npy", HIDDEN[n])
    assert run(folder, "-o", "out.{layer}.npz", hidden=hidden).returncode == 0
    for n in range(LAYERS):
        done = run(folder, "-o", "one.npz", "--force", layer=n, hidden=one.replace("{n}", str(n)))
        assert done.returncode == 0, done.stderr
        assert (folder / f"out.{n}.npz").read_bytes() == (folder / "one.npz").read_bytes()


def test_layer_stands_for_the_number_of_a_single_layer(folder):
    np.save(folder / "h2.npy", HIDDEN[2])
    assert run(folder, "-o", "weights=w{layer}.npy", layer=2, hidden="h{layer}.npy").returncode == 0
    close(np.load(folder / "w2.npy"), WEIGHTS[2])


def test_result_flows_into_stats(folder):
    """Entropy of each layer and head."""
    weights(folder)
    lines = json_lines(attn("stats", "w.npy", "--format", "ndjson", cwd=folder).stdout)
    assert [(line["layer"], line["head"]) for line in lines] == [(n, h) for n in range(LAYERS) for h in range(H)]
    entropies = -np.sum(WEIGHTS * np.log(np.where(WEIGHTS > 0, WEIGHTS, 1)), -1).mean((1, 3))
    np.testing.assert_allclose([line["entropy"] for line in lines], entropies.ravel(), rtol=1e-10)


@pytest.mark.parametrize("outputs", ["weights", "entropy,weight_sum"])
def test_stats_number_layers_as_the_model(folder, outputs):
    assert run(folder, "--outputs", outputs, "-o", "some.npz", layer="3,1").returncode == 0
    lines = json_lines(attn("stats", "some.npz", "--format", "ndjson", cwd=folder).stdout)
    assert [line["layer"] for line in lines] == [1] * H + [3] * H
    entropies = -np.sum(WEIGHTS * np.log(np.where(WEIGHTS > 0, WEIGHTS, 1)), -1).mean((1, 3))
    np.testing.assert_allclose([line["entropy"] for line in lines], entropies[[1, 3]].ravel(), rtol=1e-10)


def test_mean_weights_have_layers_and_batch_items_but_no_heads(folder):
    """In stats and rollout, as the means of the weights."""
    assert run(folder, "--outputs", "mean_weights", "-o", "means.npz", layer="1,3").returncode == 0
    means = WEIGHTS[[1, 3]].mean(2)
    lines = json_lines(attn("stats", "means.npz", "--by", "item", "--format", "ndjson", cwd=folder).stdout)
    assert [(line["layer"], line["item"], line["head"]) for line in lines] == [
        (n, b, None) for n in (1, 3) for b in range(B)]
    entropies = -np.sum(means * np.log(np.where(means > 0, means, 1)), -1).mean(2)
    np.testing.assert_allclose([line["entropy"] for line in lines], entropies.ravel(), rtol=1e-10)
    assert attn("rollout", "means.npz", "-o", "r.npy", cwd=folder).returncode == 0
    shares = (means + np.eye(L)) / 2
    np.testing.assert_allclose(np.load(folder / "r.npy"), shares[1] @ shares[0], rtol=1e-10)


def test_rollout_refuses_layers_in_another_order(folder):
    assert run(folder, "--outputs", "weights", "-o", "some.npz", layer="3,1").returncode == 0
    done = attn("rollout", "some.npz", cwd=folder)
    assert_error(done, 65, "some.npz: weights: expected layers in ascending order, found 1 after 3")


def test_rollout_of_one_layer_keeps_batch_items_apart(folder):
    assert run(folder, "--outputs", "mean_weights", "-o", "means.npz", layer="2", hidden="h.npy#[2]").returncode == 0
    assert attn("rollout", "means.npz", "-o", "r.npy", cwd=folder).returncode == 0
    np.testing.assert_allclose(np.load(folder / "r.npy"), (WEIGHTS[2].mean(1) + np.eye(L)) / 2, rtol=1e-10)


def test_similarity_numbers_layers_as_the_model(folder):
    assert run(folder, "--outputs", "weights", "-o", "some.npz", layer="3,1").returncode == 0
    lines = json_lines(attn("stats", "some.npz", "--similarity", "--format", "ndjson", cwd=folder).stdout)
    assert {line["layer"] for line in lines} == {1, 3}


def test_result_flows_into_rollout(folder):
    weights(folder)
    assert attn("rollout", "w.npy", "-o", "r.npy", cwd=folder).returncode == 0
    for b in range(B):
        joint = np.eye(L)
        for n in range(LAYERS):
            joint = (WEIGHTS[n, b].mean(0) + np.eye(L)) / 2 @ joint
        np.testing.assert_allclose(np.load(folder / "r.npy")[b], joint, rtol=1e-12, atol=1e-15)


def test_result_flows_into_view(folder):
    assert run(folder, "-o", "out.npz").returncode == 0
    done = attn("view", "out.npz", "-o", "page.html", cwd=folder)
    assert (done.returncode, b"[4, 2, 4, 7, 7]" in done.stderr or (folder / "page.html").exists()) == (0, True)
    assert attn("view", "out.npz", "--layer", "3", "--batch", "1", "--head", "2", cwd=folder).returncode == 0


def test_drawing_of_one_layer_names_model_and_layer(folder):
    np.save(folder / "h3.npy", HIDDEN[3, 0])
    for model in "model", "./model/":
        done = attn("run", "--model", model, "--layer", "3", "--hidden", "h3.npy", "--view", cwd=folder)
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, b"weights, model, layer 3")
        done = attn("run", "--model", model, "--layer", "3", "--hidden", "h3.npy", "--view=layer.html", "--force", cwd=folder)
        assert done.returncode == 0
        assert '"groups":["layer 3"]' in (folder / "layer.html").read_text()


@pytest.fixture
def some(folder):
    """Results of layers 3 and 1, in this order."""
    assert run(folder, "-o", "some.npz", "--outputs", "weights,entropy,context,output", layer="3,1").returncode == 0
    return folder


@pytest.mark.parametrize("suffix", [".npz", ".json", ".safetensors"])
@pytest.mark.parametrize("layers, numbers, warns", [("0,1", "2,3", True), ("0:2", "1,0", True),
                                                    ("0:2", "0,1", False), ("all", "0:4", False), ("all", "3,2,1,0", True)])
def test_comparison_of_other_layers_causes_a_warning(folder, layers, numbers, warns, suffix):
    names = ["a" + suffix, "b" + suffix]
    for name, layer in zip(names, [layers, numbers]):
        assert run(folder, "-o", name, "--outputs", "weights,entropy", "--force", layer=layer).returncode == 0
    listed = [{"all": "0, 1, 2, 3", "0:2": "0, 1"}.get(typed, typed.replace(",", ", ")) for typed in [layers, numbers]]
    warning = (f"attn: warning: {names[0]} has layers {listed[0]}, but {names[1]} has layers {listed[1]}; "
               "they are compared in this order\n").encode() if warns else b""
    compared = attn("compare", *names, cwd=folder)
    assert (compared.returncode, compared.stderr) == (int(warns), warning)
    assert attn("compare", *(name + "#weights" for name in names), cwd=folder).stderr.count(b"warning") == warns
    drawn = attn("view", *names, "-o", "both.html", "--force", cwd=folder)
    assert drawn.returncode == 0
    assert drawn.stderr.startswith(warning + b"attn: page: ")


def test_only_drawn_layers_are_compared_by_their_numbers(folder):
    for name, layer in [("a.npz", "1,3"), ("b.npz", "3,2")]:
        assert run(folder, "-o", name, layer=layer).returncode == 0
    drawn = attn("view", "a.npz", "b.npz", "--layer", "3", "-o", "both.html", cwd=folder)
    assert (drawn.returncode, b"warning" in drawn.stderr) == (0, False)


def test_layers_without_numbers_cause_no_warning(folder):
    for name, layer in [("a.npz", "0,1"), ("b.npz", "2,3")]:
        assert run(folder, "-o", name, "--outputs", "weights", layer=layer).returncode == 0
    np.save(folder / "b.npy", np.load(folder / "b.npz")["weights"])
    assert attn("compare", "a.npz", "b.npy", cwd=folder).stderr == b""


def view(folder, *flags):
    done = attn("view", "some.npz", *flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_view_numbers_layers_as_the_model(some):
    text = view(some)
    assert re.findall(r"layer \d", text) == ["layer 3", "layer 3", "layer 1", "layer 1"]  # two batch items
    view(some, "-o", "some.svg")
    svg = (some / "some.svg").read_text()
    assert "layer 3, batch 0" in svg and "layer 1, batch 1" in svg and "layer 0" not in svg
    view(some, "-o", "some.html")
    page = (some / "some.html").read_text()
    assert '"groups":["layer 3, batch 0","layer 3, batch 1","layer 1, batch 0","layer 1, batch 1"]' in page


@pytest.mark.parametrize("typed, layers", [("3", [3]), ("1", [1]), ("-1", [1]), ("-2", [3]), ("1,3", [1, 3]),
                                           ("2:4", [3]), (":3", [1]), (":", [3, 1]), ("0:-1", []), (":-2", [1])])
def test_view_selects_layers_by_their_numbers(some, typed, layers):
    flags = ["--layer", typed, "--batch", "0", "--head", "0", "--width", "400"]
    if not layers:
        assert_error(attn("view", "some.npz", *flags, cwd=some), 2, f"--layer {typed}: selects nothing to draw")
        return
    text = view(some, *flags)
    assert [int(n) for n in re.findall(r"layer (\d)", text)] == layers


@pytest.mark.parametrize("name", ["weights", "output"])
def test_view_of_a_layer_draws_its_numbers(some, name):
    """Two numbers of the fifth row."""
    for n in 3, 1:
        drawn = view(some, "--of", name, "--layer", str(n), "--batch", "1", "--rows", "4", "--cols", "3,4")
        right = WEIGHTS[n, 1, 0] if name == "weights" else OUTPUT[n, 1]
        shown = next(line for line in drawn.splitlines() if re.match(r"\s*4 ", line)).split()[1:3]
        np.testing.assert_allclose([float(text) for text in shown], right[4, 3:5], rtol=0.3)


@pytest.mark.parametrize("typed", ["0", "2", "-3"])
def test_view_of_a_layer_that_the_file_lacks(some, typed):
    assert_error(attn("view", "some.npz", "--layer", typed, cwd=some), 2, "expected 3, 1, or -2 to -1\n")


@pytest.mark.parametrize("name, titles", [
    ("entropy", ["layer 3, batch 0", "layer 3, batch 1", "layer 1, batch 0", "layer 1, batch 1"]),
    ("output", ["layer 3, batch 0", "layer 3, batch 1", "layer 1, batch 0", "layer 1, batch 1"]),
    ("context", ["layer 3, batch 0", "layer 3, batch 1", "layer 1, batch 0", "layer 1, batch 1"]),
])
def test_view_calls_layers_layers_in_all_outputs(some, name, titles):
    view(some, "--of", name, "-o", "of.svg")
    svg = (some / "of.svg").read_text()
    assert "head " not in svg
    for title in titles:
        layer, item = title.split(", ")
        assert title in svg or (layer in svg and item in svg)
    assert "layer 1, batch 1" in view(some, "--of", name, "--layer", "1", "--batch", "1")
    assert_error(attn("view", "some.npz", "--of", name, "--head", "0", cwd=some), 2, "--head: ",
                 "has its heads in rows" if name == "entropy" else "has no such axis")


def test_view_of_one_joined_layer_names_it(folder):
    assert run(folder, "-o", "some.npz", "--outputs", "weights", layer="[2]").returncode == 0
    assert "weights, layer 2, batch 1, head 3" in view(folder, "--batch", "1", "--head", "3").replace("  ", " ")


def test_provenance_has_the_job_and_the_inputs_of_all_layers(folder):
    write_model(folder / "sharded", CONFIG, TENSORS, shards=9)
    (folder / "model").rename(folder / "unused")
    (folder / "sharded").rename(folder / "model")
    assert run(folder, "--outputs", "weights", "-o", "out.json").returncode == 0
    made_by = json.loads((folder / "out.json").read_text())["made_by"]
    assert made_by["job"] == {"model": "model", "layer": "all", "hidden": "h.npy", "outputs": ["weights"]}
    files = {path.name for path in (folder / "model").iterdir()}
    assert set(made_by["inputs"]) == {"h.npy", *(f"model/{name}" for name in files)}


def test_dry_run_prints_the_job_of_each_layer(folder):
    done = run(folder, "--outputs", "weights", "--dry-run", "--format", "json")
    layers = json.loads(done.stdout)["layers"]
    assert [layer["layer"] for layer in layers] == list(range(LAYERS))
    for n, layer in enumerate(layers):
        (folder / "one.json").write_text(json.dumps(layer["job"]))
        assert attn("run", "one.json", "-o", "one.npy", "--force", cwd=folder).returncode == 0
        close(np.load(folder / "one.npy"), WEIGHTS[n])


def test_dry_run_as_text(folder):
    done = run(folder, "--outputs", "weights", "-o", "w.npy", "--dry-run")
    assert done.returncode == 0
    assert b"all layers:\nweights (4, 2, 4, 7, 7) float64: 12.2 KiB, " in done.stdout
    assert b"written during computation" in done.stdout
    assert not (folder / "w.npy").exists()


def test_dry_run_states_the_shapes_and_the_memory_of_all_layers(folder):
    """Without files, the weights of all layers, 4 x 2 x 4 x 7 x 7 doubles, are kept."""
    plan = json.loads(run(folder, "--outputs", "weights", "--dry-run", "--format", "json").stdout)
    weights_of_all = {"name": "weights", "shape": [4, 2, 4, 7, 7], "dtype": "float64", "bytes": WEIGHTS.nbytes}
    assert {key: plan["outputs"][0][key] for key in weights_of_all} == weights_of_all
    assert plan["memory"] == max(layer["memory"] for layer in plan["layers"])
    assert plan["flops"] == sum(layer["flops"] for layer in plan["layers"])
    one = json.loads(run(folder, "--outputs", "weights", "--dry-run", "--format", "json", layer=0,
                         hidden="h.npy#[0]").stdout)
    assert plan["memory"] >= one["memory"] + WEIGHTS.nbytes


def test_warnings_name_the_layer(folder):
    hidden = HIDDEN.copy()
    hidden[2, 0, 3, 1] = np.nan
    np.save(folder / "h.npy", hidden)
    done = run(folder, "--outputs", "weights", "-o", "w.npy")
    assert done.returncode == 0
    assert b"warning: layer 2: weights: " in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_warning_about_all_layers_is_printed_once(folder):
    done = run(folder, "--outputs", "weights", "-o", "w.npy", "--tokens", "a,b")
    assert done.returncode == 0
    assert done.stderr.startswith(b"attn: warning: tokens: expected as many as the 7 queries")
    assert done.stderr.count(b"\n") == 1
    assert batch(folder, "--tokens", "a,b", "--out-dir", "out").stderr.count(b"tokens: expected") == 1


def test_existing_files_are_found_before_anything_is_computed(folder):
    (folder / "w3.npy").write_bytes(b"")
    assert_error(run(folder, "--outputs", "weights", "-o", "w{layer}.npy"), 73, "w3.npy: already exists")
    assert [path.name for path in folder.glob("w*")] == ["w3.npy"]


def test_no_clobber_skips_layers_with_a_file(folder):
    (folder / "w3.npy").write_bytes(b"3")
    (folder / "c1.npy").write_bytes(b"1")
    flags = ["-o", "weights=w{layer}.npy", "-o", "context=c{layer}.npy", "--no-clobber"]
    done = run(folder, *flags)
    assert (done.returncode, done.stderr) == (0, b"attn: layers 1, 3: skipped, as an output file exists\n")
    assert sorted(path.name for path in folder.glob("[wc]*.npy")) == [
        "c0.npy", "c1.npy", "c2.npy", "w0.npy", "w2.npy", "w3.npy"]
    assert ((folder / "w3.npy").read_bytes(), (folder / "c1.npy").read_bytes()) == (b"3", b"1")
    close(np.load(folder / "w2.npy"), WEIGHTS[2])
    done = run(folder, *flags)
    assert (done.returncode, done.stderr) == (0, b"attn: layers 0, 1, 2, 3: skipped, as an output file exists\n")


def test_no_clobber_skips_all_layers_with_one_file(folder):
    (folder / "w.npy").write_bytes(b"")
    done = run(folder, "--outputs", "weights", "-o", "w.npy", "--no-clobber")
    assert (done.returncode, done.stderr) == (0, b"attn: w.npy: already exists; --force replaces it; nothing was done\n")


@pytest.mark.parametrize("layer", ["all", "0"])
@pytest.mark.parametrize("target", ["w{Layer}.npy", "w{layer}.{head}.npy", "weights=w{head}.npy"])
def test_unknown_placeholder(folder, layer, target):
    word = "{Layer}" if "{Layer}" in target else "{head}"
    hidden = "h.npy" if layer == "all" else "h.npy#[0]"
    done = run(folder, "--outputs", "weights", "-o", target, layer=layer, hidden=hidden)
    assert_error(done, 2, f": unknown placeholder {word}; the only one is {{layer}}, the number of the layer\n")
    assert done.stderr.count(b"\n") == 1
    assert list(folder.glob("w*")) == []


def test_braces_that_are_no_placeholder(folder):
    """A name with other braces, and one of a job without a model."""
    assert run(folder, "--outputs", "weights", "-o", "w{1-a}.npy").returncode == 0
    done = attn("run", "--q", "h.npy#[0]", "--k", "h.npy#[0]", "--outputs", "weights", "-o", "w{Layer}.npy", cwd=folder)
    assert done.returncode == 0
    assert sorted(path.name for path in folder.glob("w*")) == ["w{1-a}.npy", "w{Layer}.npy"]


def test_binary_standard_output(folder):
    done = run(folder, "--outputs", "weights", "--format", "npy")
    close(np.load(io.BytesIO(done.stdout)), WEIGHTS)


def test_different_shapes_cannot_be_joined(folder):
    config = {key: value for key, value in CONFIG.items() if key != "head_dim"}
    write_model(folder / "model", config, {**TENSORS, **layer_tensors(2, D=4)})
    assert_error(run(folder, "--outputs", "queries", "-o", "q.npy"), 65,
                 "layer 2: queries: expected float64 (2, 4, 7, 6) as in layer 0, found float64 (2, 4, 7, 4)",
                 "write a file for each layer: -o 'out.{layer}.npz'")
    assert run(folder, "--outputs", "queries", "-o", "q{layer}.npy").returncode == 0
    assert [np.load(folder / f"q{n}.npy").shape for n in (1, 2)] == [(2, 4, 7, 6), (2, 4, 7, 4)]


def test_nothing_is_written_if_a_layer_fails(folder):
    tensors = {name: array for name, array in TENSORS.items() if "3.self_attn.o_proj" not in name}
    write_model(folder / "model", CONFIG, tensors)
    for target in "out.npz", "out.{layer}.npz":
        assert_error(run(folder, "-o", target), 65, "layer 3", "has no tensor 'model.layers.3.self_attn.o_proj.weight'")
    assert [path.name for path in folder.glob("out*")] == []


@pytest.mark.parametrize("shape", [(3, 2, 7, 12), (6, 2, 7, 12), (4, 12), (1, 4, 2, 7, 12)])
def test_wrong_axis_of_layers(folder, shape):
    np.save(folder / "h.npy", np.zeros(shape))
    assert_error(run(folder, "--outputs", "weights"), 65,
                 "--hidden: expected hidden states of all 4 layers, (4, L, M) or (4, B, L, M), or a name with {layer} "
                 "for one file per layer, found (" + ", ".join(map(str, shape)) + ")")


@pytest.mark.parametrize("flags, code, message", [
    (["--layer", "0,4"], 65, "model/config.json: the model has 4 layers, from 0 to 3; found layer 4"),
    (["--layer", "1,1"], 2, "--layer: layer 1 is given twice"),
    (["--layer", "[]"], 2, "--layer: expected one layer or more, found none"),
    *((["--layer", text], 2, f"--layer: expected all, or numbers and ranges such as 0,3 or 0:4, found '{text}'")
      for text in ["some", "0-3", "2:", ":2", "0..3", "1,"]),
    (["--layer", "0,-1"], 2, "--layer: expected all, or numbers and ranges such as 0,3 or 0:4, found [0,-1]"),
    (["-o", "a.{layer}.npz", "-o", "weights=w.npy"], 2, "expected {layer} in the names of all results or of none"),
    (["-o", "a.{layer}.npz", "-o", "-"], 2, "expected {layer} in the names of all results or of none"),
    (["-o", "weights={layer}.npy", "-o", "context={layer}.npy"], 2, "two outputs write to the same file"),
    (["--outputs", "weigths"], 2, "attn: --outputs: unknown output 'weigths' (did you mean 'weights'?)\n"),
    (["--view"], 2, "--view and --explain require one layer"),
    (["--hidden", "missing.{layer}.npy"], 66, "missing.0.npy"),
    (["-o", "h.npy", "--outputs", "weights", "--force"], 73, "h.npy: is an input"),
    (["-o", "{layer}.npz", "--hidden", "h.{layer}.npz"], 66, "layer 0: --hidden: h.0.npz"),
])
def test_errors(folder, flags, code, message):
    given = {"--layer": "all", "--hidden": "h.npy"} | dict(zip(flags[::2], flags[1::2]))
    flags = [word for flag in given if flag not in flags for word in (flag, given[flag])] + flags
    assert_error(attn("run", "--model", "model", *flags, cwd=folder), code, message)


def test_other_commands_take_one_layer(folder):
    job = {"model": "model", "layer": "all", "hidden": "h.npy"}
    (folder / "job.json").write_text(json.dumps(job))
    weights(folder)
    assert_error(attn("compare", "--reference", "w.npy", "job.json", cwd=folder), 65,
                 "only attn run and attn batch accept several layers in layer; give one number")


def test_text_shows_all_layers(folder):
    done = run(folder, "--outputs", "entropy", "--precision", "3")
    assert done.returncode == 0
    assert done.stdout.startswith(b"entropy (4, 2, 4, 7):")


def test_hidden_states_of_an_archive_are_in_memory_one_layer_at_a_time(tmp_path):
    """Those of all 16 layers are 34 MB."""
    width, layers, tokens = 512, 16, 512
    shapes = {f"self_attn.{name}_proj": (width, width) for name in "qkvo"} | {"input_layernorm": (width,)}
    tensors = {f"layers.{n}.{name}.weight": np.full(shape, 0.001, np.float32) for n in range(layers)
               for name, shape in shapes.items()}
    write_model(tmp_path / "model", {"model_type": "llama", "hidden_size": width, "num_attention_heads": 1,
                                     "num_hidden_layers": layers}, tensors)
    np.savez_compressed(tmp_path / "h.npz", *np.ones((layers, tokens, width)))
    done = attn("run", "--model", "model", "--layer", "all", "--hidden", "h.npz#arr_{layer}", "--outputs", "row_max",
                "-o", "r.npy", "--max-memory", "40M", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_several_layers_take_the_memory_of_one(tmp_path):
    """Weights of 8 layers of 2 heads x 1024 x 1024 in float64 are 134 MB; those of the model are 16 times 2 MB."""
    if under_sanitizer():
        pytest.skip("takes more memory")
    width, layers, tokens = 512, 8, 1024
    shapes = {f"self_attn.{name}_proj": (width, width) for name in "qkvo"} | {"input_layernorm": (width,)}
    tensors = {f"layers.{n}.{name}.weight": np.full(shape, 0.001) for n in range(layers)
               for name, shape in shapes.items()}
    write_model(tmp_path / "model", {"model_type": "llama", "hidden_size": width, "num_attention_heads": 2,
                                     "num_hidden_layers": layers}, tensors)
    np.save(tmp_path / "h.npy", np.ones((layers, tokens, width)))
    done, peak = attn_and_peak("run", "--model", "model", "--layer", "all", "--hidden", "h.npy", "--outputs", "weights",
                               "-o", "w.npy", "--max-memory", "100M", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert np.load(tmp_path / "w.npy", mmap_mode="r").shape == (layers, 1, 2, tokens, tokens)
    assert peak < 120e6


def batch(folder, *flags, layer="all"):
    job = {"model": "../model", "layer": layer, "hidden": "../h.npy", "outputs": ["weights", "output"]}
    (folder / "jobs").mkdir(exist_ok=True)
    (folder / "jobs" / "a.json").write_text(json.dumps(job))
    return attn("batch", "jobs", *flags, cwd=folder)


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "json"])
def test_batch(folder, suffix):
    done = batch(folder, "--out-dir", "out", "--format", suffix)
    assert done.returncode == 0, done.stderr
    attn("convert", f"out/a.{suffix}", "-o", "same.npz", cwd=folder)
    with np.load(folder / "same.npz") as out:
        close(out["weights"], WEIGHTS)
        close(out["output"], OUTPUT)


def test_batch_with_processes(folder):
    assert batch(folder, "--out-dir", "out", "--isolate").returncode == 0
    with np.load(folder / "out" / "a.npz") as out:
        close(out["weights"], WEIGHTS)


def test_batch_to_standard_output(folder):
    done = batch(folder, layer=[2, 0])
    assert done.returncode == 0
    line = json.loads(done.stdout)
    close(np.array(line["weights"]), WEIGHTS[[2, 0]])
    assert line["made_by"]["job"]["layer"] == [2, 0]


def test_batch_in_bundles(folder):
    assert batch(folder, "--out-dir", "out", "--bundle", "4").returncode == 0
    with np.load(folder / "out" / "bundle-1.npz") as out:
        close(out["a/weights"], WEIGHTS)


def test_batch_computes_again_if_a_layer_changes(folder):
    write_model(folder / "model", CONFIG, TENSORS, shards=9)
    (folder / "model" / "model.safetensors").unlink()
    flags = ["--out-dir", "out", "--manifest", "m.ndjson", "--resume"]
    assert b"1 done" in batch(folder, *flags).stderr
    assert b"1 skipped" in batch(folder, *flags).stderr
    write_model(folder / "model", CONFIG, {**TENSORS, **layer_tensors(3)}, shards=9)
    assert b"1 done" in batch(folder, *flags).stderr


def test_dry_run_of_a_batch(folder):
    plan = json.loads(batch(folder, "--dry-run").stdout)
    assert [output["shape"] for output in plan["outputs"]] == [[4, 2, 4, 7, 7], [4, 2, 7, 12]]


def test_batch_refuses_layers_that_cannot_be_joined(folder):
    config = {key: value for key, value in CONFIG.items() if key != "head_dim"}
    tensors = {name: np.concatenate([y, y], 0) if "o_proj" in name and ".1." in name else y
               for name, y in TENSORS.items()}
    write_model(folder / "model", config, tensors)
    done = batch(folder, "--out-dir", "out")
    assert_error(done, 3, "jobs/a.json: layer 1: output: expected float64 (2, 7, 12) as in layer 0, "
                 "found float64 (2, 7, 24)")
    assert not (folder / "out" / "a.npz").exists()


def test_batch_skips_an_existing_result_before_it_computes(folder):
    """With --no-clobber: the layers have NaN, which would be an error."""
    np.save(folder / "h.npy", np.full((LAYERS, B, L, M), np.nan))
    (folder / "out").mkdir()
    (folder / "out" / "a.npz").write_bytes(b"kept")
    done = batch(folder, "--out-dir", "out", "--no-clobber", "--nan", "refuse")
    assert (done.returncode, b"1 skipped" in done.stderr) == (0, True), done.stderr
    assert (folder / "out" / "a.npz").read_bytes() == b"kept"


def test_an_error_of_shapes_names_the_layer(folder):
    np.save(folder / "mask.npy", np.ones((L + 1, L), bool))
    done = run(folder, "--mask", "mask.npy", layer="2,3")
    assert_error(done, 65, "attn: ", "layer 2: ", "mask", f"({L + 1}, {L})")


def test_batch_with_too_little_memory(folder):
    np.save(folder / "h.npy", np.zeros((LAYERS, 1, 600, M)))
    done = batch(folder, "--out-dir", "out", "--max-memory", "40M")
    assert_error(done, 3, "jobs/a.json: needs", " for tensors of layer 0, ", " for outputs of all layers; ")


@pytest.mark.parametrize("flags, parts", [
    (["-o", "w.json"], [" for tensors of layer 0, ", " for outputs of all layers, ", " for output text; "]),
    (["-o", "w.npy", "--path", "reference"], [" for tensors of layer 0, "]),
    (["-o", "w{layer}.npy", "--path", "reference"], [" for tensors of layer 0, "]),
])
def test_too_little_memory(folder, flags, parts):
    for n in range(LAYERS):
        np.save(folder / f"h{n}.npy", np.zeros((600, M)))
    done = run(folder, "--outputs", "weights", "--max-memory", "1M", *flags, hidden="h{layer}.npy")
    assert_error(done, 65, "attn: needs ", *parts)
    assert b"more than the limit of 1.0 MiB" in done.stderr


def test_hidden_states_of_all_layers_count_towards_max_memory(folder):
    """20,000 tokens in one file of all layers, and in a file for each layer: three layers of 1.92 MB more."""
    hidden = np.zeros((LAYERS, 1, 20000, M))
    np.savez(folder / "all.npz", h=hidden)
    for n in range(LAYERS):
        np.savez(folder / f"{n}.npz", h=hidden[n])
    together, apart = (json.loads(run(folder, "--outputs", "entropy", "--rows", "0", "--dry-run", "--format", "json",
                                      hidden=name).stdout)["layers"][0]["memory"] for name in ("all.npz#h", "{layer}.npz#h"))
    assert together - apart > 3 * 1_920_000
