"""Honest input files, and the flags of each command from the help texts: what cases.py changes."""

import io
import json
import pathlib
import re
import tempfile

import numpy as np

import make_corpus
from support.attn import attn
from support.checkpoints import write_model

COMMANDS = ["run", "batch", "examples", "view", "inspect", "convert", "compare", "merge", "stats", "rollout",
            "random", "svd", "conventions", "completions", "man", "schema"]


def flags_of(command):
    """[flag, metavariable or "", words of its description] for each flag of the help text."""
    flags = []
    for line in attn(command, "--help").stdout.decode().splitlines():
        found = re.match(r"^ {2,6}(?:(-\w), |    )(--[a-z][\w-]*)(?:, (--[\w-]+))?(?:(?: |\[=)([A-Z\[][^ ]*))?", line)
        if found:
            for flag in found.group(1, 2, 3):
                if flag:
                    flags.append([flag, (found.group(4) or "").strip("[]"), []])
        if flags and not line.startswith(" " * 50):
            flags[-1][2] += re.findall(r"[a-z][\w-]+", line[27:])
    return [flag for flag in flags if flag[0] not in ("-h", "--help")]


def arrays():
    random = np.random.default_rng(1)
    for name, shape in {"q": (4, 6), "k": (5, 6), "v": (5, 3), "x": (4, 3), "w": (3, 6), "batch": (2, 2, 3, 4)}.items():
        yield name, random.standard_normal(shape)
    yield "half", random.standard_normal((3, 4)).astype("f2")
    yield "long", random.integers(-9, 9, (4, 4))
    yield "mask", random.random((4, 5)) < 0.7
    yield "nan", np.array([[np.nan, np.inf], [-np.inf, -0.0]])


def write_results(folder):
    """Results of attn, as inputs of the commands that read results."""
    (folder / "tokens.json").write_text(json.dumps({**make_corpus.QKV, "tokens": ["a"], "causal": True}))
    for suffix in ("npz", "json", "safetensors"):
        attn("run", "tokens.json", "-o", f"result.{suffix}", cwd=folder)
    random = np.random.default_rng(3)
    np.savez(folder / "loss.npz", **{name: random.standard_normal((1, 2, 4, 3)) for name in ("Q", "K", "V", "grad_context")})
    attn("run", "loss.npz", "--causal", "--outputs", "grad_Q,grad_K,grad_V,delta", "-o", "gradients.npz", cwd=folder)
    for part, keys in enumerate(("[[1,2],[3,4]]", "[[0.5,-1]]"), 1):
        attn("run", "--q", "[[1,0],[0,1]]", "--k", keys, "--outputs", "logsumexp,head_context,weights",
             "-o", f"part{part}.npz", cwd=folder)
    attn("batch", "tokens.json", "--out-dir", "done", "-q", cwd=folder)
    (folder / "done" / "manifest.ndjson").rename(folder / "manifest.ndjson")
    for file in (folder / "done").iterdir():
        file.unlink()
    (folder / "done").rmdir()


def torch_file():
    """What torch.save writes: a zip archive of a pickle and raw data."""
    return make_corpus.archive({"archive/data.pkl": b"\x80\x02}q\x00.", "archive/data/0": bytes(16),
                                "archive/version": b"3\n"})


def write_layers(folder):
    """A model of two layers and their hidden states."""
    draw = np.random.default_rng(5).standard_normal
    tensors = {f"layers.{n}.self_attn.{name}_proj.weight": draw((4, 4)) for n in (0, 1) for name in "qkvo"}
    tensors |= {f"layers.{n}.input_layernorm.weight": draw(4) for n in (0, 1)}
    write_model(folder, {"model_type": "llama", "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 2},
                tensors)
    np.save(folder / "hidden.npy", draw((2, 3, 4)))
    job = {"model": ".", "layer": "all", "hidden": "hidden.npy", "outputs": ["weights"]}
    (folder / "layers.job.json").write_text(json.dumps(job))


def write_files(folder):
    folder.mkdir(parents=True)
    write_layers(folder)
    for name, array in arrays():
        np.save(folder / f"{name}.npy", array)
        (folder / f"{name}.json").write_text(json.dumps(array.tolist()).replace("NaN", '"NaN"')
                                             .replace("-Infinity", '"-Infinity"').replace(" Infinity", ' "Infinity"'))
        if array.ndim == 2:
            np.savetxt(folder / f"{name}.csv", array, delimiter=",")
    named = {name.upper(): array for name, array in arrays() if name in "qkv"}
    np.savez(folder / "job.npz", **named)
    np.savez_compressed(folder / "packed.npz", **named)
    for kind, seeds in [("npy", make_corpus.npy_seeds), ("npz", make_corpus.npz_seeds),
                        ("safetensors", make_corpus.safetensors_seeds), ("json", make_corpus.json_seeds),
                        ("csv", make_corpus.csv_seeds), ("job.json", make_corpus.job_seeds),
                        ("ndjson", make_corpus.ndjson_seeds)]:
        for name, data in seeds():
            (folder / f"{kind.split('.')[0]}-{name}.{kind}").write_bytes(data)
    text = io.StringIO()
    for number, job in enumerate(make_corpus.jobs()):
        text.write(make_corpus.compact(job) + "\n" if number < 4 else "")
    (folder / "lines.ndjson").write_text(text.getvalue())
    (folder / "layer.npz").write_bytes(dict(make_corpus.any_file_seeds())["layer.npz"])
    (folder / "model.pt").write_bytes(torch_file())
    (folder / "names.txt").write_text("tokens.json\njob.npz\n")
    write_results(folder)


def files():
    """{name: bytes}"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "files"
        write_files(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def flags():
    """{command: [[flag, metavariable, words of the description]...]}"""
    found = {command: flags_of(command) for command in COMMANDS}
    assert all(len(found[command]) > 10 for command in ("run", "batch", "view", "convert"))
    return found
