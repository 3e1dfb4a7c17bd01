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
    words = {"out": "out." + dice.choice(cases.TENSOR_SUFFIXES), "picture": "picture." + dice.choice(["svg", "png", "html"]),
             "document": dice.choice(["md", "html", "tex", "txt"]), "elements": str(elements),
             "shape": f"{rows},{max(1, elements // rows)}", "half": str(elements // 4), "count": str(dice.choice([2, 5, 50])),
             "draw": json.dumps({"randn": {"shape": [rows, max(1, elements // rows // 3)]}})}
    template = dice.choice(COMMANDS)
    for name in ("file", "other"):
        if "{" + name + "}" in template:
            words[name] = new_file(name)
    args = [word if word == "-" else word.format(**words) for word in template.split()]
    stdin = b""
    if "-" in args:
        suffix, stdin = honest(dice, size) if dice.random() < 0.5 else hostile(dice, size)
        if args[0] == "batch" and suffix == "json" and dice.random() < 0.5:
            stdin = b"\n".join([stdin[:size // 8]] * 8 + [files["q.json"]] * 50)
    args[1:1] = ["--max-memory", str(limit)]
    return Case(args, files, stdin, {}, limit)
