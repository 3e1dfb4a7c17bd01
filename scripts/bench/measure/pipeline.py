"""Times attn run at size, as scripts/bench/pipeline describes."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
ATTN = ROOT / "build" / "release" / "attn"
WIDTH = 64
# The layers are those of Llama 3 8B.
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_attention_heads": 32,
          "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "vocab_size": 32000,
          "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "max_position_embeddings": 8192,
          "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
TOKENS_OF_LAYER = 512


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def write_new(path, data):
    with open(path, "xb") as file:
        file.write(data)


def pipeline(folder, heads, tokens, rounds):
    sys.path.insert(0, str(ROOT / "python"))
    os.environ.setdefault("ATTN_LIBRARY", str(ROOT / "build" / "release" / "libattn.so.0"))
    import attn

    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal((heads, tokens, WIDTH), dtype="f4") for name in "QKV"}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    command = [ATTN, "run", "-q", "-o", f"context={folder}/context.npy",
               *(word for name in "QKV" for word in (f"--{name.lower()}", folder / f"{name}.npy"))]
    buffer = bytearray(arrays["Q"].nbytes + 4096)

    def read():
        for name in "QKV":
            with open(folder / f"{name}.npy", "rb", buffering=0) as file:
                file.readinto(buffer)

    def compute():
        attn.run(**{name: array[None] for name, array in arrays.items()}, outputs=["context"])

    parts = {"`attn run`": lambda: subprocess.run(command, check=True), "reading": read, "computation": compute,
             "writing": lambda: write_new(folder / "copy.npy", arrays["Q"].data)}
    times = {name: [] for name in parts}
    for _ in range(rounds):
        for name, part in parts.items():
            times[name].append(seconds(part))
        for written in "context.npy", "copy.npy":
            (folder / written).unlink()
    whole, *others = times.values()
    ratios = [run / sum(parts) for run, *parts in zip(whole, *others)]
    print(f"{heads} heads of {tokens:,} tokens, D = {WIDTH}, float32, {os.cpu_count()} processors, medians of {rounds}:\n")
    print("| part | seconds |\n| --- | ---: |")
    for name, values in times.items():
        print(f"| {name} | {statistics.median(values):.2f} |")
    print(f"| `attn run` / sum of the parts | {statistics.median(ratios):.3f} |\n", flush=True)


def layer_tensors(layer):
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    groups = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    shapes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (groups, hidden),
              "self_attn.v_proj": (groups, hidden), "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden),
              "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,),
              "post_attention_layernorm": (hidden,)}
    return {f"model.layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def bfloat16(values):
    """The bits of numbers, rounded towards 0."""
    return (values.astype("f4").view("u4") >> 16).astype("u2")


def write_checkpoint(folder, gigabytes):
    """Returns the number of layers. A file has one layer, and the others are copies of its numbers."""
    tensors = layer_tensors(0)
    size = 2 * sum(int(np.prod(shape)) for shape in tensors.values())
    layers = max(2, int(gigabytes * 1e9 / size))
    rng = np.random.default_rng(2)
    data = {}
    for name, shape in tensors.items():
        values = rng.standard_normal(shape, dtype="f4") / 64 if len(shape) == 2 else np.ones(shape, "f4")
        data[name.split(".", 3)[3]] = bfloat16(values)
    weight_map = {}

    def write(file, named):
        header, at = {}, 0
        for name, array in named.items():
            header[name] = {"dtype": "BF16", "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
            at += array.nbytes
            weight_map[name] = file
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for array in named.values():
                out.write(array.data)

    for layer in range(layers):
        write(f"layer-{layer}.safetensors",
              {name: data[name.split(".", 3)[3]] for name in layer_tensors(layer)})
    write("rest.safetensors", {"model.embed_tokens.weight": np.zeros((CONFIG["vocab_size"], CONFIG["hidden_size"]), "u2"),
                               "model.norm.weight": bfloat16(np.ones(CONFIG["hidden_size"]))})
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return layers


TRANSFORMERS = """
import sys, time
start = time.perf_counter()
import numpy as np, torch
from transformers import AutoModel
folder, layers = sys.argv[1], int(sys.argv[2])
model = AutoModel.from_pretrained(folder, dtype=torch.bfloat16)
hidden = torch.from_numpy(np.load(folder + "/hidden.npy"))[None].to(torch.bfloat16)
with torch.no_grad():
    for layer in range(layers):
        block = model.layers[layer]
        positions = model.rotary_emb(hidden, torch.arange(hidden.shape[1])[None])
        output = block.self_attn(block.input_layernorm(hidden), position_embeddings=positions, attention_mask=None)[0]
        np.save(f"{folder}/theirs-{layer}.npy", output.float().numpy())
"""


def check(folder):
    """Both computed the same layer; theirs is rounded to bfloat16."""
    ours, theirs = np.load(folder / "ours-0.npy"), np.load(folder / "theirs-0.npy")[0]
    np.testing.assert_allclose(ours, theirs, atol=0.05 * np.abs(ours).max())


def checkpoint(folder, gigabytes, rounds):
    layers = write_checkpoint(folder, gigabytes)
    np.save(folder / "hidden.npy",
            np.random.default_rng(3).standard_normal((TOKENS_OF_LAYER, CONFIG["hidden_size"]), dtype="f4"))

    def attn(count):
        subprocess.run([ATTN, "run", "-q", "--model", folder, "--layer", f"0:{count}" if count > 1 else "0",
                        "--hidden", folder / "hidden{layer}.npy" if count > 1 else folder / "hidden.npy", "-o",
                        f"output={folder}/ours-{{layer}}.npy"], check=True)

    def transformers(count):
        subprocess.run([sys.executable, "-W", "ignore", "-c", TRANSFORMERS, folder, str(count)], check=True,
                       stderr=subprocess.DEVNULL)

    for layer in range(layers):
        os.link(folder / "hidden.npy", folder / f"hidden{layer}.npy")
    programs = {"attn, float32": attn, "transformers, bfloat16": transformers}
    firsts, others = ({name: [] for name in programs} for _ in range(2))
    for program in programs.values():  # fills the page cache
        program(layers)
    check(folder)


    def timed(program, count):
        for written in [*folder.glob("ours-*"), *folder.glob("theirs-*")]:
            written.unlink()
        return seconds(lambda: program(count))

    for _ in range(rounds):
        for name, program in programs.items():
            firsts[name].append(timed(program, 1))
            others[name].append((timed(program, layers) - firsts[name][-1]) / (layers - 1))
    print(f"{gigabytes:g} GB of {layers} layers, {TOKENS_OF_LAYER} tokens, medians of {rounds}:\n")
    print("| program | first layer | each further layer |\n| --- | ---: | ---: |")
    for name in programs:
        print(f"| {name} | {statistics.median(firsts[name]):.2f} s | {statistics.median(others[name]):.3f} s |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        pipeline(pathlib.Path(name), arguments.heads, arguments.tokens, arguments.rounds)
    with tempfile.TemporaryDirectory() as name:
        checkpoint(pathlib.Path(name), arguments.gigabytes, arguments.rounds)


main()
