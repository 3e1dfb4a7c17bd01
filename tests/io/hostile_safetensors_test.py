#!/usr/bin/env python3
"""Broken, lying and merely odd .safetensors files: each is read right or refused by name."""

import pathlib
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import Checks, attn  # noqa: E402
from hostile import Row, run_rows  # noqa: E402
from safetensors_file import build, entry, read  # noqa: E402

ONE = struct.pack("<d", 1.5)
TWO = struct.pack("<2d", 1.5, -2)
READ_ONE = {"x": ("F64", (1,), ONE)}
READ_TWO = {"x": ("F64", (2,), TWO)}


def one(begin=0, end=8, data=ONE, **keys):
    return build({"x": entry(begin, end, **keys)}, data)


def length_rows():
    sound = one()
    for size in [0, 1, 7]:
        yield Row(101, f"{size} bytes", sound[:size], "expected 8 bytes" if size else "is empty")
    yield Row(102, "N = 0", build("", ONE), "begin with '{'")
    yield Row(103, "N over the limit", build("{}", b"", 100_000_001), "at most 100000000")
    for length in [2**63, 2**64 - 1, 2**64 - 8]:
        yield Row(104, f"N = {length}", build("{}", b"", length), "at most 100000000")
    yield Row(105, "N beyond the file", build("{}", b"", 3), "header of 3 bytes, of which the file has 2")


def text_rows():
    for number, name, header, says in [
        (106, "not UTF-8", b'{"\xff": 1}', "not UTF-8"), (107, "not JSON", "{nonsense}", "header: "),
        (107, "a list", "[1, 2]", "begin with '{'"), (108, "a leading space", " {}", "begin with '{'"),
        (109, "trailing NULs", b"{}\0\0", "NUL"), (107, "two documents", "{}{}", "header: "),
        (107, "unclosed", '{"x": {"dtype": "F64"', "header: ")]:
        yield Row(number, name, build(header), says)
    text = '{"x": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}%s}'
    yield Row(109, "trailing spaces", build(text % "" + " " * 9, ONE), gives=READ_ONE)
    twice = text % ', "x": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}'
    yield Row(110, "a name twice", build(twice, ONE), "'x' stands here a second time")
    yield Row(110, "a key twice", build((text % "").replace('"shape"', '"dtype": "F64", "shape"'), ONE),
              "'dtype' stands here a second time")
    yield Row(111, "no name", build({"": entry(0, 8)}, ONE), "without a name")
    yield Row(111, "a tensor __metadata__", build({"__metadata__": entry(0, 8)}, ONE), "a string")
    long = "n" * 1_000_000
    yield Row(111, "a name of 1 MB", build({long: entry(0, 8)}, ONE), gives={long: READ_ONE["x"]})
    yield Row(111, "control characters, broken", build({"\x1b[2J\n": entry(0, 16)}, TWO[:9]),
              r"\x1b[2J\x0a")
    odd = "a\\b/../\x1b\u202e"
    yield Row(111, "control characters", build({odd: entry(0, 8)}, ONE), gives={odd: READ_ONE["x"]})
    for value, says in [(1, "'k': expected a string"), ({}, "'k': expected a string"),
                        (None, "'k': expected a string")]:
        yield Row(112, f"metadata {value}", build({"__metadata__": {"k": value}}), says)
    for value in [None, [], "text", 3]:
        yield Row(112, f"metadata is {value}", build({"__metadata__": value}), "an object of strings")
    yield Row(112, "metadata", build({"__metadata__": {"k": "v"}, "x": entry(0, 8)}, ONE), gives=READ_ONE)


def entry_rows():
    for number, dtype, says in [(113, "F128", "unknown dtype 'F128'"), (114, "f64", "did you mean 'F64'"),
                                (113, 7, "dtype: expected a string"), (129, "C64", "C64 is not one"),
                                (129, "F8_E8M0", "F8_E8M0 is not one")]:
        item = entry(0, 8, dtype, [8] if dtype == "F8_E8M0" else [1])
        yield Row(number, f"dtype {dtype}", build({"x": item}, ONE), says)
    for dtype, shape in [("F4", [3]), ("F6_E2M3", [2]), ("F6_E3M2", [3])]:
        yield Row(115, f"{shape} of {dtype}", one(dtype=dtype, shape=shape), "fill whole bytes")
    for offsets in [[-8, 0], [0, 8.0], [0.5, 8], [0, 2**63], ["0", 8], None, {}, [[0, 8]]]:
        item = dict(entry(0, 8), data_offsets=offsets)
        yield Row(116, f"offsets {offsets}", build({"x": item}, ONE), "data_offsets: expected")
    item = dict(entry(0, 8), data_offsets=[0, 2**64])
    yield Row(116, "offset 2^64", build({"x": item}, ONE), "a number that fits 64 bits")
    for offsets in [[], [0], [0, 8, 8]]:
        item = dict(entry(0, 8), data_offsets=offsets)
        yield Row(116, f"offsets {offsets}", build({"x": item}, ONE), "expected 2 numbers")
    yield Row(117, "begin after end", build({"x": dict(entry(0, 8), data_offsets=[8, 0])}, ONE),
              "the end after the beginning")
    for shape in [[2], [], [0], [1, 2], [9]]:
        size = struct.calcsize("d") * (shape[-1] if shape else 1)
        if size != 8:
            yield Row(123, f"shape {shape}", one(shape=shape), f"takes {size} bytes")
    for shape in [[-1], [1.0], [True], "1", None, {}, [[1]], [2, 2**64 - 2]]:
        yield Row(124, f"shape {shape}", build({"x": dict(entry(0, 8), shape=shape)}, ONE),
                  "shape: expected a list")
    for shape in [[2, 2**63 - 1], [2**62, 4], [2**32, 2**32]]:
        yield Row(124, f"shape {shape}", one(shape=shape), "2^63 elements")
    yield Row(124, "bits wrap", one(shape=[2**60]), "2^64 bits")
    for axes in (65, 50_000):
        yield Row(115, f"{axes} axes", build({"x": entry(0, 8, shape=[1] * axes)}, ONE),
                  f"shape: expected at most 64 numbers, found {axes}")
    yield Row(115, "64 axes", build({"x": entry(0, 8, shape=[1] * 64)}, ONE),
              gives={"x": ("F64", (1,) * 64, ONE)})
    for key in ["dtype", "shape", "data_offsets"]:
        item = entry(0, 8)
        del item[key]
        yield Row(125, f"no {key}", build({"x": item}, ONE), f"the key '{key}'")
    yield Row(125, "a key more", build({"x": dict(entry(0, 8), evil=1)}, ONE), "unknown key 'evil'")
    for value in [None, 1, "F64", [1]]:
        yield Row(125, f"an entry is {value}", build({"x": value}, ONE), "x: expected an object")


def span_rows():
    pair = {"x": entry(0, 8), "y": entry(8, 16)}
    for number, name, header, data, says in [
        (118, "gap at the start", {"x": entry(8, 16)}, TWO, "offset 8; expected 0"),
        (118, "gap inside", {"x": entry(0, 8), "y": entry(16, 24)}, TWO + ONE, "offset 16; expected 8"),
        (119, "overlap", {"x": entry(0, 8), "y": entry(4, 12)}, TWO[:12], "inside another tensor"),
        (119, "ten on one span", {f"t{i}": entry(0, 8) for i in range(10)}, ONE, "inside another tensor"),
        (121, "bytes after the last", pair, TWO + b"PK\3\4", "4 bytes follow"),
        (121, "bytes after nothing", {}, ONE, "8 bytes follow"),
        (122, "2 bytes short", pair, TWO[:-2], "the file has 14 bytes"),
        (122, "no data", pair, b"", "the file has 0 bytes")]:
        yield Row(number, name, build(header, data), says)
    shared = {"e": entry(8, 8, "F32", [0, 3]), "x": entry(0, 8), "f": entry(8, 8, "I8", [0]),
              "y": entry(8, 16)}
    yield Row(120, "empty tensors share an offset", build(shared, TWO),
              gives={"x": READ_ONE["x"], "y": ("F64", (1,), TWO[8:]), "e": ("F32", (0, 3), b""),
                     "f": ("I8", (0,), b"")})
    yield Row(127, "no tensors", build({}), gives={})
    odd = build(b'{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F64","shape":'
                b'[2],"data_offsets":[1,17]}}', b"\7" + TWO)
    yield Row(128, "float64 at an odd place", odd,
              gives={"x": READ_TWO["x"], "b": ("U8", (1,), b"\7")})
    values = b"\0\1\x7f\x80\xff"
    yield Row(129, "bool bytes 2 to 255", build({"x": entry(0, 5, "BOOL", [5])}, values),
              gives={"x": ("BOOL", (5,), b"\0\1\1\1\1")})
    special = struct.pack("<4Q", 0x7FF0000000000001, 0xFFF8DEADBEEF0000, 1 << 63, 1)
    yield Row(129, "NaN payloads, -0, subnormal", build({"x": entry(0, 32)}, special),
              gives={"x": ("F64", (4,), special)})
    count = 20_000
    many = {f"t{i}": entry(i, i + 1, "U8", [1]) for i in range(count)}
    yield Row(126, f"{count} entries", build(many, bytes(count)),
              gives={name: ("U8", (1,), b"\0") for name in many})


def test_others_in_the_file(checks):
    """A dtype that attn has no numbers for keeps nobody from the other tensors."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        header = {"q": entry(0, 8, "F4", [16]), "x": entry(8, 16)}
        (folder / "m.safetensors").write_bytes(build(header, TWO))
        run = attn("convert", "m.safetensors#x", cwd=folder)
        checks.check(run.returncode == 0 and run.stdout == b"[-2.]\n", f"beside F4: {run}")
        run = attn("convert", "m.safetensors#y", cwd=folder)
        checks.check(run.returncode == 65 and b"has no tensor 'y'" in run.stderr, f"{run}")
        run = attn("inspect", "m.safetensors", cwd=folder)
        checks.check(run.returncode == 65 and b"q: dtype F4 is not one" in run.stderr, f"{run}")
        # 130: the index of a model in shards holds no tensors itself.
        (folder / "i.json").write_text('{"metadata": {}, "weight_map": {"x": "gone.safetensors"}}')
        run = attn("inspect", "i.json", cwd=folder)
        checks.check(run.returncode == 65 and b"holds no array" in run.stderr, f"130: {run}")


def test_no_tensors(checks):
    """A file without tensors is legal, but no command can compute with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "e.safetensors").write_bytes(build({}))
        (folder / "k.json").write_text("[[1, 2]]")
        job = '{"Q": "e.safetensors", "K": [[1, 2]]}'
        (folder / "job.json").write_text(job)
        for arguments in (["run", "--q", "e.safetensors", "--k", "k.json"], ["svd", "e.safetensors"],
                          ["random", "shuffle", "--seed", "1", "--input", "e.safetensors"],
                          ["run", "-"], ["compare", "k.json", "--reference", "job.json"]):
            run = attn(*arguments, stdin=job, cwd=folder)
            checks.check(run.returncode in (2, 65) and b"e.safetensors: " in run.stderr,
                         f"{arguments}: {run}")
        run = attn("batch", "-", stdin=job + '\n{"Q": [[1, 2]], "K": [[1, 2]]}\n', cwd=folder)
        lines = run.stdout.splitlines()
        checks.check(run.returncode == 3 and len(lines) == 2 and b"holds no arrays" in lines[0],
                     f"batch: {run}")


def all_rows():
    return [*length_rows(), *text_rows(), *entry_rows(), *span_rows()]


NUMBERS = {130} | {row.number for row in all_rows()}


def main():
    checks = Checks("hostile .safetensors")
    rows = all_rows()
    run_rows(checks, rows, ".safetensors", lambda data: read(data)[0])
    test_others_in_the_file(checks)
    test_no_tensors(checks)
    checks.finish()


if __name__ == "__main__":
    main()
