#!/usr/bin/env python3
"""Writes seeds for the fuzz targets: small inputs of each kind, from which libFuzzer starts.

    tests/fuzz/make_corpus.py FOLDER

writes FOLDER/TARGET/NAME, and FOLDER/words.dict with the keys, words and flags in the source. Seeds are
written with Python and NumPy, not with attn, so they look like the files of other programs.
"""

import io
import json
import pathlib
import re
import struct
import sys
import zipfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]


def npy(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version=version)
    return file.getvalue()


def npy_of_header(text, data=b"", version=(1, 0)):
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text.encode("utf-8") + data


def npy_seeds():
    small = np.arange(6).reshape(2, 3)
    for dtype in "f8 f4 f2 i1 i2 i4 i8 u1 u2 u4 u8".split():
        yield dtype, npy(small.astype("<" + dtype))
        yield dtype + "-big", npy(small.astype(">" + dtype))
    yield "bool", npy(small % 2 == 0)
    yield "fortran", npy(np.asfortranarray(small.astype("f8")))
    yield "scalar", npy(1.5)
    yield "empty", npy(np.zeros((0, 5)))
    yield "four-axes", npy(np.zeros((1, 2, 1, 2), "f4"))
    yield "version-2", npy(small, (2, 0))
    yield "version-3", npy(small, (3, 0))
    yield "object", npy_of_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n")
    yield "structured", npy_of_header(
        "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", b"\0" * 8)
    yield "double-quotes", npy_of_header(
        '{"shape": (1L,), "fortran_order": False, "descr": "<f8"}\n', b"\0" * 8)
    yield "huge", npy_of_header(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387905, 4), }\n", b"\0" * 24)


class Stream:
    """A file that cannot seek: sizes and checksums follow the data, in descriptors."""

    def __init__(self, file):
        self.write, self.flush = file.write, file.flush


def archive(members, compression=zipfile.ZIP_STORED, comment=b"", streamed=False):
    file = io.BytesIO()
    with zipfile.ZipFile(Stream(file) if streamed else file, "w", compression) as zipped:
        zipped.comment = comment
        for name, data in members.items():
            zipped.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, compression)
    return file.getvalue()


def npz_seeds():
    q, k = npy(np.eye(2)), npy(np.arange(4, dtype="f4"))
    both = {"Q.npy": q, "K.npy": k}
    yield "stored", archive(both)
    yield "deflated", archive(both, zipfile.ZIP_DEFLATED)
    yield "comment", archive(both, comment=b'{"schema": "attn/1", "tokens": ["a", "b"]}')
    yield "other-members", archive({"Q.npy": q, "readme.txt": b"text", "folder/": b""})
    yield "same-key", archive({"Q": q, "Q.npy": q})
    yield "streamed", archive(both, zipfile.ZIP_DEFLATED, streamed=True)
    yield "zeros", archive({"a.npy": npy(np.zeros(20000, "u1"))}, zipfile.ZIP_DEFLATED)
    yield "tokens", archive({"Q.npy": q, "tokens.npy": npy(np.array(["a", "\u732b"]))})
    yield "bytes", archive({"tokens.npy": npy(np.array([b"a", b"bc"])), "Q.npy": q}, zipfile.ZIP_DEFLATED)
    yield "empty", archive({})
    yield "lzma", archive({"Q.npy": q}, zipfile.ZIP_LZMA)


def safetensors(entries, data, metadata=None):
    header = dict(entries) if metadata is None else {"__metadata__": metadata, **entries}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds():
    sizes = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
             "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8,
             "F8_E8M0": 8, "C64": 64, "F4": 4}
    for name, bits in sizes.items():
        entry = {"dtype": name, "shape": [2, 2], "data_offsets": [0, bits // 2]}
        yield name, safetensors({"Q": entry}, bytes(i % 2 for i in range(bits // 2)))
    two = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
           "b": {"dtype": "F32", "shape": [], "data_offsets": [4, 8]},
           "c": {"dtype": "F32", "shape": [0, 3], "data_offsets": [8, 8]}}
    yield "two", safetensors(two, struct.pack("<ff", 1, 2), {"format": "pt", "made_by": "{}"})
    yield "none", safetensors({}, b"")


def json_seeds():
    texts = ["[[1, 2], [3, 4]]", "[1.5, -2e-3, 0.1]", "[true, false]", "[18446744073709551615, 1]",
             '[[1, "NaN"], ["-Infinity", 0]]', "[[]]", "[]", "3", '{"a": [1], "b": {"c": null}}',
             '"\\u00e9\\ud83d\\ude00\\n"', "[[[[0]]], [[[1]]]]", "[1, 2.5, \"x\", []]", "1e308",
             "\ufeff[1]", "[9007199254740993, 1.0]", "[5e-324, 2.2250738585072014e-308]"]
    for number, text in enumerate(texts):
        yield str(number), text.encode()


def csv_seeds():
    texts = ["1,2\n3,4\n", "1.5,-2e3\nnan,inf\n", "a,b\r\n1,2\r\n", ",x,y\nr,1,2\ns,3,4\n",
             '"1","2"\n"3", 4 \n', '"a ""quoted""\nname",b\n1,2\n', "18446744073709551615,0",
             "\ufeff1;2\n", "-Infinity,NaN", "1\n\n\n", "0x10,1\n"]
    for number, text in enumerate(texts):
        yield str(number), text.encode()


# Small jobs: in a shorter input, more mutations change the meaning.
TENSORS = {"embeddings": [[1], [2]], "W_Q": [[1, 0]], "W_K": [[0, 1]], "W_V": [[3]]}
QKV = {"Q": [[1, 0]], "K": [[0, 1], [1, 1]], "V": [[2], [0.5]]}


def compact(job):
    return json.dumps(job, separators=(",", ":"))


def jobs():
    yield TENSORS
    yield QKV
    for options in [{"heads": 2}, {"causal": True}, {"causal": "bottom-right", "window": [1, 0]},
                    {"scale": 0.5}, {"scale": "none", "softcap": 30}, {"mask": [[True, False]]},
                    {"mask": [[0, -1e9]]}, {"softmax": {"axis": "all"}}, {"rows": [0]},
                    {"outputs": ["scores", "weights", "logsumexp"]}, {"convention": "onnx"},
                    {"compute": "f32", "tokens": ["I"]}, {"score": "cosine"}, {"alibi": True},
                    {"empty_rows": "nan", "window": [0, 0]}]:
        yield {**QKV, **options}
    yield {**TENSORS, "position": {"kind": "sinusoidal", "base": 100}, "seed": 1,
           "W_Q": {"randint": {"low": 0, "high": 3, "shape": [3, 2]}}}
    shape = {"shape": [1, 2]}
    for first in range(0, len(DRAWS), 3):
        yield {**QKV, "seed": 1, **dict(zip("QKV", DRAWS[first:first + 3]))}
    yield {"seed": [1, 2], "generator": "default_rng", "Q": {"random": shape},
           "K": {"integers": {"high": 5, **shape}}, "V": {"uniform": {"low": -1, "high": 1, **shape}}}
    yield {"seed": 1, "generator": "torch", "embeddings": [[1, 2, 3], [4, 5, 6]], "draws": [
        {"Linear": {"in_features": 3, "out_features": 6}, "to": ["W_Q", "W_K", "W_V"]}, {"seed": 2},
        {"randperm": {"n": 4}}, {"kaiming_normal": {"shape": [2, 3], "mode": "fan_out"}, "to": "W_O"}]}
    yield {"seed": 1, "generator": "torch", "heads": 1, "draws": [
        {"MultiheadAttention": {"embed_dim": 3, "kdim": 3}},
        {"Embedding": {"num_embeddings": 5, "embedding_dim": 3, "indices": [0, 4]}, "to": "embeddings"}]}
    yield {"seed": 1, "generator": "jax-original", "draws": [
        {"normal": {"key": "split(3)[2] fold_in(7)", "shape": [3, 2, 2]}, "to": ["Q", "K", "V"]}]}
    yield {"seed": 1, "generator": "python", "draws": [
        {"shuffle": {"n": 5}}, {"sample": {"n": 9, "k": 6}}, {"choices": {"values": [1, 2], "weights": [1, 3]}},
        {"gauss": {"sigma": 0.1, "shape": [3, 2, 2]}, "to": ["Q", "K", "V"]}]}
    yield {"Q": "input#Q", "K": "input", "V": "input"}


DRAWS = [{"rand": {"shape": [1, 2]}}, {"randn": {"shape": [2, 2]}},
         {"normal": {"loc": 1, "scale": 2, "shape": [2, 2]}},
         {"uniform": {"low": 0, "high": 2, "shape": [2, 2]}}, {"permutation": {"values": [[1, 2]]}},
         {"choice": {"n": 5, "shape": [2, 2], "replace": False}},
         {"choice": {"values": [1, 2], "shape": [2, 2], "p": [0.25, 0.75]}},
         {"shuffle": {"values": [[1, 2]]}}, {"standard_normal": {"shape": [2, 2]}}]


def job_seeds():
    for number, job in enumerate(jobs()):
        yield str(number), compact(job).encode()


def ndjson_seeds():
    lines = [compact(job) for job in jobs()]
    for number, line in enumerate(lines):
        yield str(number), (line + "\n").encode()
    yield "three", "\n".join(["", lines[1], "\r", '{"no": 1}', lines[2]]).encode()


def tensor_file_seeds():
    for seeds in [npy_seeds, npz_seeds, safetensors_seeds, csv_seeds]:
        for name, data in seeds():
            yield f"{seeds.__name__[:-6]}-{name}", data


def convert_seeds():
    yield from tensor_file_seeds()
    for name, data in json_seeds():
        yield f"json-{name}", data
    yield "json-names", b'{"a": [[1, 2.5]], "b c": [true], "tokens": ["x"], "made_by": {}}'


def any_file_seeds():
    yield from ((f"job-{name}", data) for name, data in job_seeds())
    yield from tensor_file_seeds()
    arrays = {f"{name}.npy": npy(np.array(rows, "f4")) for name, rows in QKV.items()}
    yield "job.npz", archive({**arrays, "heads.npy": npy(2), "causal.npy": npy(True)})
    torch = {f"in_proj_{part}.npy": npy(np.ones(shape, "f4"))
             for part, shape in [("weight", (6, 2)), ("bias", (6,))]}
    yield "layer.npz", archive({"embeddings.npy": npy(np.eye(2, dtype="f4")), **torch})


def command_lines():
    qkv = ["--q", "[[1,0]]", "--k", "[[1,2]]", "--v", "[[3]]"]
    yield ["run"] + qkv
    for more in (["--causal"], ["--causal=bottom-right", "--window", "1,0"], ["--scale", "0.5"],
                 ["--heads", "2", "--kv-heads", "1"], ["--outputs", "scores,weights"],
                 ["-o", "weights=w.npy", "-o", "out.npz"], ["--format", "json"], ["--repr"],
                 ["--softcap", "30", "--rows", "0"], ["--max-memory", "1.5GiB", "--max-expand", "8K"],
                 ["--nan", "refuse", "--threads", "2"], ["--convention", "torch", "--compute", "f32"],
                 ["--mask", "[[true]]"], ["--view", "-", "--explain", "x.md"],
                 ["--seed", "1", "--wq", '{"rand":{"shape":[2,2]}}', "--embeddings", "[[1,2]]"],
                 ["job.json", "-q", "--dry-run", "-o", "o.npz", "--force"]):
        yield ["run"] + qkv + more
    for words in ("batch jobs -d out --resume --jobs 2", "batch - --format ndjson", "examples list",
                  "view r.json -o x.svg", "inspect a.npy b.npz#Q", "convert a.npy -o b.csv --repr",
                  "compare a.npy b.npy --rtol 1e-5 --equal-nan", "merge a.npz b.npz -o c.npz",
                  "random randint --low 0 --high 3 --shape 3,3 --seed 42", "svd m.csv --rank 2",
                  "conventions", "completions bash", "man run", "schema", "run --help"):
        yield words.split()


def command_line_seeds():
    for number, words in enumerate(command_lines()):
        yield str(number), "\0".join(words).encode()


def numpy_text_seeds():
    for number in range(24):
        yield str(number), np.random.RandomState(number).bytes(40 + 8 * number)


def expected_text_seeds():
    yield "print", b"[[ 1.    0.5 ]\n [ 0.25 -2.  ]]\narray([1.e-05, 1.e+10])\n(nan, inf)\n"
    for path in sorted(ROOT.glob("data/examples/*/expected.txt")):
        yield path.parent.name, path.read_bytes()[:600]


def gate_seeds():
    for number, gate in enumerate([
            "max_abs < 1e-3 and cosine > 0.999", "context|output: rms <= 2 * baseline_rms + 1e-5",
            "[a-c]*: not (token_p99 > .5 or 0 < snr < 60)", "abs_or_rel(abs=8e-4, rel=2.01/128) == 0",
            "mismatched(rtol=1e-3) - -ulp != ref_max * ref_rounding", "(?:x|y.)?: pcc >= 0.99"]):
        yield str(number), gate.encode()


def mask_rule_seeds():
    for number, rule in enumerate([
            "q >= k and (q - k < 128 or k < 4)", "k < 6 or t[q] == t[k]", "q // 8 == k // 8 and (q - k) % 3 != 0",
            "k < 9 or u[q, k % 5]", "v[k] >= 0 and not b == h", "0 <= min(q, k, 7) * abs(q - k) < max(L, S) - i - j"]):
        yield str(number), rule.encode()


def bias_rule_seeds():
    for number, rule in enumerate([
            "-0.5 * abs(q - k)", "t[k] / (1 + h) - u[q, k % 5]", "-log(1 + abs(q - k)) * (b == h)", "v[k] // 0.25 % 3 - S",
            "exp2(-h) * sqrt(i + j) - max(exp(-k), 1e-3, L)", "(k == 0 and not q == 0 or g > 0) * log2(k + 1)",
            "x[k, h] * 2", "(q - k) % 3 - t[k] // 2", "v[k] * min(q, k, 7) - abs(u[q, k % 5] - i) * (h + 1)"]):
        yield str(number), rule.encode()
    for name, rule in mask_rule_seeds():  # expressions of integers are in both languages
        yield f"mask-{name}", rule


def expression_seeds():
    yield from bias_rule_seeds()
    yield "call", b"min(a=q, k + 1) - -log(x=-2e3) == doc[t[q], -k] != 0 or not (b or h) and L"


def words():
    """All strings in the source that may be keys, words or flags."""
    def text_of(*patterns):
        return "".join(path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(ROOT.glob(pattern)))

    text = text_of("src/attn/job/*.cpp", "src/attn/cli/*.cpp", "src/attn/problem/*_table.*")
    strings = set(re.findall(r'"((?:--)?[A-Za-z][A-Za-z0-9_.-]{1,24})"', text))
    keys = re.findall(r'"([A-Za-z][A-Za-z0-9_.]*)"', text_of("src/attn/job/field*.cpp"))
    flags = {"--" + re.sub("[._]", "-", key.lower()) for key in keys}
    return sorted(strings | flags)


SEEDS = {"npy": npy_seeds, "npz": npz_seeds, "safetensors": safetensors_seeds, "json": json_seeds,
         "csv": csv_seeds, "ndjson": ndjson_seeds, "job": job_seeds, "any_file": any_file_seeds,
         "convert": convert_seeds, "command_line": command_line_seeds, "numpy_text": numpy_text_seeds,
         "expected_text": expected_text_seeds, "gate": gate_seeds, "mask_rule": mask_rule_seeds,
         "bias_rule": bias_rule_seeds, "expression": expression_seeds}


def main(folder):
    for target, seeds in SEEDS.items():
        seed_folder = pathlib.Path(folder) / target
        seed_folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (seed_folder / name).write_bytes(data)
    dictionary = "".join(f'"{word}"\n' for word in words())
    (pathlib.Path(folder) / "words.dict").write_text(dictionary)


if __name__ == "__main__":
    main(sys.argv[1])
