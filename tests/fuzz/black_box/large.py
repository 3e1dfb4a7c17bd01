"""Random runs whose inputs, results or messages take about as much memory as --max-memory allows."""

import io
import json
import random
import struct

import numpy as np

import cases
import make_corpus
from cases import MIB, Case

LIMITS = [16 * MIB, 32 * MIB, 64 * MIB]

# {file} and {other} are large inputs, {draw} a large random tensor, {out} and {picture} as in cases.py.
COMMANDS = """
run --q {file} --k {file}
run --q {file} --k {file} -o {out}
run --q {file} --k {other} --v {other} --causal -o {out}
run --q {file} --k {file} --outputs weights --format json
run --q {file} --k {file} --outputs scores --repr --threshold 99999999
run --q {file} --k {file} --path reference -o out.npz
run --q {file} --k {file} --grad-context {other} --outputs grad_Q,grad_K,delta -o {out}
run --q {file} --k {file} --grad-context {file} --outputs dq,dk --path reference -o {out}
compare {file} --reference --q {file} --k {file} --grad-context {file} --as grad_Q --causal
run --q {file} --k {file} --explain steps.{document}
run --q {file} --k {file} --explain steps.html --explain-query -1 -o {out}
run --q {file} --k {file} --view
run --q {file} --k {file} --view={picture}
run --q {file} --k {file} --mask {other}
run --q {draw} --k {draw} --seed 3 -o {out}
run --q {draw} --k {draw} --seed 3 --view={picture}
run --q {draw} --k {draw} --seed 3 --explain steps.{document}
run --embeddings {file} --wq {draw} --wk {draw} --seed 1
run --q q.json --k q.json --tokens @{file}
run {file}
run {file} -o {out}
run - -o {out}
batch {file} --out-dir results -j 2
batch {file} --out-dir results -j 2 --isolate
batch q.json --base {file} --out-dir results
batch - -j 2
batch - -j 1 --format json --out-dir results
batch --files-from {file} --out-dir results
view {file}
view {file} -o {picture}
view {file} {other} -o page.html
view {file} --tokens @{other}
inspect {file}
inspect {file} {other} --json
inspect {file} --provenance
convert {file}
convert {file} --repr --threshold 99999999
convert {file} -o {out}
convert {file} -o {out} --dtype f64
convert - -o {out}
compare {file} {file}
compare {file} {other}
compare {file} {file} --json --rtol 1e-3
compare {file} {other} --view={picture}
compare {file} --reference --q {file} --k {file}
compare {file} --reference {other}
merge {file} {other} -o {out}
stats {file}
stats {file} {other} --format csv
stats {file} --similarity
rollout {file}
rollout {file} -o {out}
random randn --shape {shape} --seed 1
random randn --shape {shape} --seed 1 -o {out}
random randint --high 9 --shape {half} --seed 1 --repeat {count}
random randn --shape {half} --seed 1 --repeat {count} -o {out}
random normal --shape {shape} --repr --threshold 99999999
random permutation --n {elements}
random choice --n {elements} --shape {half} --no-replace
random shuffle --input {file}
random choice --input {file} --shape {half}
random integers --generator default_rng --high 9 --shape {shape}
stats {row}
stats {row} --format csv -o rows.csv
stats {row} --by item
run --q one.npy --k {keys} --v {keys} --explain steps.{document}
run --q one.npy --k {keys} --v {keys} --explain steps.{document} -o {out}
run --q {keys} --k one.npy --v one.npy --explain steps.{document} --explain-query -1
batch --files-from {list} --out-dir results
batch --files-from {list} --out-dir results --dry-run
random {steps} --seed 1
random {steps} --seed 1 -o {out}
run {lengths} -o {out}
run {lengths} --outputs context
run {lengths} --view={picture}
batch {lengths} q.json --out-dir results -j 2
batch {lengths} q.json --out-dir results -j 2 --isolate
run {many}#t
run --q {many}#x --k {many}#x
convert {many}#t0
inspect {many}
model inspect .
model inspect . --json
run --model . --layer 0 --hidden one.npy
run --model . --layer all --hidden one.npy -o {out}
rollout {files} -o {out}
stats {files}
inspect {files}
svd {file}
svd {file} -o {out}
svd {file} --rank 2 -o folder/
""".strip().splitlines()


def npy(dice, array):
    return make_corpus.npy(dice.choice([array, array, np.asfortranarray(array), array.astype(array.dtype.newbyteorder(">"))]))


def honest(dice, size):
    """(suffix, bytes) of an array of about `size` bytes, with at most 1500 rows."""
    dtype = dice.choice(["f8", "f8", "f4", "f2", "i4", "u1", "?"])
    rows = dice.choice([2, 60, 300, 1500])
    columns = max(1, size // rows // np.dtype(dtype).itemsize)
    if dtype not in ("f8", "f4"):
        rows, columns = min(rows, 60), min(columns, 20000)  # exact integer products take long
    array = (np.arange(rows * columns) % 251).reshape(rows, columns).astype(dtype)
    kind = dice.randrange(7)
    if kind < 2:
        return "npy", npy(dice, array)
    if kind == 2:
        return "csv", "\n".join(",".join(map(str, row)) for row in array[:, :size // rows // 4].tolist()).encode()
    if kind == 3:
        names = dice.choice([["a"], ["Q", "K"], ["Q", "K", "V"], ["logsumexp", "head_context"], ["weights"]])
        file = io.BytesIO()
        dice.choice([np.savez, np.savez_compressed])(file, **{name: array for name in names})
        return "npz", file.getvalue()
    if kind == 4:
        entry = {"dtype": "F64" if dtype == "f8" else "U8", "shape": [array.nbytes // (8 if dtype == "f8" else 1)],
                 "data_offsets": [0, array.nbytes]}
        return "safetensors", make_corpus.safetensors({"weights": entry}, array.tobytes())
    rows_of = array[:, :max(1, size // rows // 6)].tolist()
    return "json", json.dumps(rows_of if kind == 5 else {"Q": rows_of, "K": rows_of}).encode()


def hostile(dice, size):
    """(suffix, bytes) of at most `size` bytes, which take much more memory than an array of that size."""
    member = dice.choice([b"[1]", b"[]", b"{}", b'"a"', b"1", b'"\\u0041"', b"[[]]", b"true", b"null", b"[" * 60 + b"]" * 60])
    count = max(1, size // (len(member) + 1))
    items = b",".join([member] * count)
    kind = dice.randrange(9)
    if kind == 0:
        return "json", b'{"Q":[' + items + b"]}"
    if kind == 1:
        return "json", b"[" + items + b"]"
    if kind == 2:
        return "json", b"{" + b",".join(b'"%d":1' % i for i in range(size // 12)) + b"}"
    if kind == 3:
        return "csv", dice.choice([b"\n", b","]).join([b"1"] * (size // 2))
    if kind == 4:
        header = {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(size // 60)}
        return "safetensors", make_corpus.safetensors(header, b"")
    if kind == 5:
        return "npz", make_corpus.archive({f"a{i}.npy": make_corpus.npy(np.zeros(size // 8)) for i in range(3)}, 8)
    if kind == 6:
        return "npz", make_corpus.archive({f"{i}.npy": make_corpus.npy(1.0) for i in range(min(60000, size // 400))})
    if kind == 7:
        return "npz", cases.zip_of(dice, [("Q.npy", make_corpus.npy(np.zeros(9))), ("window.npy", make_corpus.npy(np.zeros(size // 16)))],
                                   b'{"tokens":[' + items[:60000] + b'"a"]}')
    text = json.dumps({"__metadata__": {"tokens": "[" + ",".join(['"a"'] * (size // 8)) + "]"},
                       "weights": {"dtype": "U8", "shape": [1, 1], "data_offsets": [0, 1]}}).encode()
    return "safetensors", struct.pack("<Q", len(text)) + text + b"\1"


def lengths_job(dice, count):
    """A job with a list of a length for each of `count` rows."""
    key = dice.choice(["documents", "cu_seqlens_q", "key_lengths", "token_ids", "rows"])
    rows = {"randn": {"shape": [count, 1, 1, 1] if key == "key_lengths" else [1, count, 1]}}
    job = {"Q": rows, "K": rows, "seed": 1, "outputs": ["context"]}
    if key == "cu_seqlens_q":
        return job | {"cu_seqlens_q": list(range(count + 1)), "cu_seqlens_k": list(range(count + 1))}
    if key in ("token_ids", "rows"):
        job |= {"Q": {"randn": {"shape": [1, 4, 1]}}, "outputs": ["weights"]}
    return job | {key: [1] * count if key == "key_lengths" else list(range(count))}


def model(dice, layers):
    """config.json and model.safetensors of `layers` small layers."""
    config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": layers,
              "rms_norm_eps": 1e-5}
    if dice.random() < 0.5:
        config["layer_types"] = ["full_attention"] * layers
    if dice.random() < 0.3:
        config["rope_scaling"] = {"rope_type": "longrope", "long_factor": [1.5] * layers * 9, "short_factor": [1.5] * 2,
                                  "original_max_position_embeddings": 4096}
    header, end = [], 0
    for i in range(layers):
        for name, shape, size in [(f"self_attn.{m}_proj", [8, 8], 256) for m in "qkvo"] + [("input_layernorm", [8], 32)]:
            header.append(f'"model.layers.{i}.{name}.weight":{{"dtype":"F32","shape":{shape},"data_offsets":[{end},{end + size}]}}')
            end += size
    text = ("{" + ",".join(header) + "}").encode()
    return {"config.json": json.dumps(config).encode(),
            "model.safetensors": struct.pack("<Q", len(text)) + text + bytes(end)}


def many_parts(dice, word, count):
    """(name, bytes) of a file of many small parts: of the word that stands for it in a command."""
    if word == "row":
        return "row.npy", make_corpus.npy(np.zeros((1, 1, 1, count), "f4"))
    if word == "keys":
        return "keys.npy", make_corpus.npy(np.zeros((count, 1), "f4"))
    if word == "list":
        return "list", b"".join(b"no%d.json\n" % i for i in range(count))
    if word == "steps":
        steps = [{"randn": {"shape": [1]}, "to": [f"n{i}"]} for i in range(count // 10 + 1)]
        return "steps.json", json.dumps(steps).encode()
    if word == "lengths":
        return "lengths.json", json.dumps(lengths_job(dice, count // 4 + 1)).encode()
    header = {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(count // 20 + 1)}
    return "many.safetensors", make_corpus.safetensors(header, b"")


def make_case(seed):
    dice = random.Random(seed)
    limit = dice.choice(LIMITS)
    files = {"q.json": b'{"Q":[[1,2],[3,4]],"K":[[1,0],[2,1]]}'}
    size = int(limit * dice.choice([0.02, 0.1, 0.25, 0.45, 0.6, 0.9, 1.2]))
    elements = size // 8

    def new_file(name):
        suffix, data = honest(dice, size) if dice.random() < 0.6 else hostile(dice, size)
        files[f"{name}.{suffix}"] = data
        return f"{name}.{suffix}"

    rows = dice.choice([1, 40, 300, 1000])
    words = {"out": "out." + dice.choice(cases.TENSOR_SUFFIXES), "picture": "picture." + dice.choice(["svg", "pdf", "png", "html"]),
             "document": dice.choice(["md", "html", "tex", "txt"]), "elements": str(elements),
             "shape": f"{rows},{max(1, elements // rows)}", "half": str(elements // 4), "count": str(dice.choice([2, 5, 50])),
             "draw": json.dumps({"randn": {"shape": [rows, max(1, elements // rows // 3)]}})}
    template = dice.choice(COMMANDS).replace("{files}", "one.npy " * dice.choice([2, 300, 12000]))
    for name in ("file", "other"):
        if "{" + name + "}" in template:
            words[name] = new_file(name)
    for name in ("row", "keys", "list", "steps", "lengths", "many"):
        if "{" + name + "}" in template:
            words[name], data = many_parts(dice, name, max(1, size // dice.choice([2, 10, 40])))
            files[words[name]] = data
    if "one.npy" in template:
        files["one.npy"] = make_corpus.npy(np.full((1, 8 if "--model" in template else 1), 0.5))
    if " . " in template + " ":
        files |= model(dice, size // dice.choice([1000, 4000, 20000]) + 1)
    args = [word if word == "-" else word.format(**words) for word in template.split()]
    stdin = b""
    if "-" in args:
        suffix, stdin = honest(dice, size) if dice.random() < 0.5 else hostile(dice, size)
        if args[0] == "batch" and suffix == "json" and dice.random() < 0.5:
            stdin = b"\n".join([stdin[:size // 8]] * 8 + [files["q.json"]] * 50)
    args[1:1] = ["--max-memory", str(limit)]
    return Case(args, files, stdin, {}, limit)
