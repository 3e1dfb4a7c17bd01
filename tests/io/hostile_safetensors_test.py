"""Broken, lying and merely odd .safetensors files: each is read correctly or refused."""

import struct

import pytest

from support.attn import attn
from support.hostile import KINDS, Case, accepted, check_accepted, check_refused, kinds, refused
from support.safetensors_file import build, entry, read

ONE = struct.pack("<d", 1.5)
TWO = struct.pack("<2d", 1.5, -2)
READ_ONE = {"x": ("F64", (1,), ONE)}
READ_TWO = {"x": ("F64", (2,), TWO)}


def one(begin=0, end=8, data=ONE, **keys):
    return build({"x": entry(begin, end, **keys)}, data)


def length_cases():
    valid = one()
    for size in [0, 1, 7]:
        yield Case(101, f"{size} bytes", valid[:size], "expected 8 bytes" if size else "is empty")
    yield Case(102, "N = 0", build("", ONE), "expected '{'")
    yield Case(103, "N over the limit", build("{}", b"", 100_000_001), "at most 100000000")
    for length in [2**63, 2**64 - 1, 2**64 - 8]:
        yield Case(104, f"N = {length}", build("{}", b"", length), "at most 100000000")
    yield Case(105, "N beyond the file", build("{}", b"", 3), "header of 3 bytes, but the file has only 2")


def text_cases():
    for kind, name, header, error in [
        (106, "not UTF-8", b'{"\xff": 1}', "not UTF-8"),
        (107, "not JSON", "{nonsense}", "header: "),
        (107, "a list", "[1, 2]", "expected '{'"),
        (108, "a leading space", " {}", "expected '{'"),
        (109, "trailing NULs", b"{}\0\0", "NUL"),
        (107, "two documents", "{}{}", "header: "),
        (107, "unclosed", '{"x": {"dtype": "F64"', "header: "),
    ]:
        yield Case(kind, name, build(header), error)
    text = '{"x": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}%s}'
    yield Case(109, "trailing spaces", build(text % "" + " " * 9, ONE), result=READ_ONE)
    twice = text % ', "x": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}'
    yield Case(110, "a name twice", build(twice, ONE), "'x' occurs twice")
    yield Case(110, "a key twice", build((text % "").replace('"shape"', '"dtype": "F64", "shape"'), ONE),
               "'dtype' occurs twice")
    yield Case(111, "no name", build({"": entry(0, 8)}, ONE), "without a name")
    yield Case(111, "a tensor __metadata__", build({"__metadata__": entry(0, 8)}, ONE), "a string")
    long = "n" * 1_000_000
    yield Case(111, "a name of 1 MB", build({long: entry(0, 8)}, ONE), result={long: READ_ONE["x"]})
    yield Case(111, "control characters, broken", build({"\x1b[2J\n": entry(0, 16)}, TWO[:9]),
               r"\x1b[2J\x0a")
    odd = "a\\b/../\x1b\u202e"
    yield Case(111, "control characters", build({odd: entry(0, 8)}, ONE), result={odd: READ_ONE["x"]})
    for value, error in [
        (1, "'k': expected a string"),
        ({}, "'k': expected a string"),
        (None, "'k': expected a string"),
    ]:
        yield Case(112, f"metadata {value}", build({"__metadata__": {"k": value}}), error)
    for value in [None, [], "text", 3]:
        yield Case(112, f"metadata is {value}", build({"__metadata__": value}), "an object of strings")
    yield Case(112, "metadata", build({"__metadata__": {"k": "v"}, "x": entry(0, 8)}, ONE), result=READ_ONE)


def entry_cases():
    for kind, dtype, error in [
        (113, "F128", "unknown dtype 'F128'"),
        (114, "f64", "did you mean 'F64'"),
        (113, 7, "dtype: expected a string"),
        (129, "C64", "C64 is not supported"),
    ]:
        item = entry(0, 8, dtype, [1])
        yield Case(kind, f"dtype {dtype}", build({"x": item}, ONE), error)
    for dtype, shape in [("F4", [3]), ("F6_E2M3", [2]), ("F6_E3M2", [3])]:
        yield Case(115, f"{shape} of {dtype}", one(dtype=dtype, shape=shape), "fill whole bytes")
    yield Case(115, "columns of F4", one(dtype="F4", shape=[16, 1]), "expected an even number of columns")
    for offsets in [[-8, 0], [0, 8.0], [0.5, 8], [0, 2**63], ["0", 8], None, {}, [[0, 8]]]:
        item = dict(entry(0, 8), data_offsets=offsets)
        yield Case(116, f"offsets {offsets}", build({"x": item}, ONE), "data_offsets: expected")
    item = dict(entry(0, 8), data_offsets=[0, 2**64])
    yield Case(116, "offset 2^64", build({"x": item}, ONE), "a number that fits 64 bits")
    for offsets in [[], [0], [0, 8, 8]]:
        item = dict(entry(0, 8), data_offsets=offsets)
        yield Case(116, f"offsets {offsets}", build({"x": item}, ONE), "expected 2 numbers")
    yield Case(117, "begin after end", build({"x": dict(entry(0, 8), data_offsets=[8, 0])}, ONE),
               "the end precedes the start")
    for shape in [[2], [], [0], [1, 2], [9]]:
        size = struct.calcsize("d") * (shape[-1] if shape else 1)
        if size != 8:
            yield Case(123, f"shape {shape}", one(shape=shape), f"takes {size} bytes")
    for shape in [[-1], [1.0], [True], "1", None, {}, [[1]], [2, 2**64 - 2]]:
        yield Case(124, f"shape {shape}", build({"x": dict(entry(0, 8), shape=shape)}, ONE),
                   "shape: expected a list")
    for shape in [[2, 2**63 - 1], [2**62, 4], [2**32, 2**32]]:
        yield Case(124, f"shape {shape}", one(shape=shape), "2^63 elements")
    yield Case(124, "bits wrap", one(shape=[2**60]), "2^64 bits")
    for axes in (65, 50_000):
        yield Case(115, f"{axes} axes", build({"x": entry(0, 8, shape=[1] * axes)}, ONE),
                   f"shape: expected at most 64 numbers, found {axes}")
    yield Case(115, "64 axes", build({"x": entry(0, 8, shape=[1] * 64)}, ONE),
               result={"x": ("F64", (1,) * 64, ONE)})
    for key in ["dtype", "shape", "data_offsets"]:
        item = entry(0, 8)
        del item[key]
        yield Case(125, f"no {key}", build({"x": item}, ONE), f"the key '{key}'")
    yield Case(125, "an extra key", build({"x": dict(entry(0, 8), evil=1)}, ONE), "unknown key 'evil'")
    for value in [None, 1, "F64", [1]]:
        yield Case(125, f"an entry is {value}", build({"x": value}, ONE), "x: expected an object")


def span_cases():
    pair = {"x": entry(0, 8), "y": entry(8, 16)}
    for kind, name, header, data, error in [
        (118, "gap at the start", {"x": entry(8, 16)}, TWO, "offset 8; expected 0"),
        (118, "gap inside", {"x": entry(0, 8), "y": entry(16, 24)}, TWO + ONE, "offset 16; expected 8"),
        (119, "overlap", {"x": entry(0, 8), "y": entry(4, 12)}, TWO[:12], "inside another tensor"),
        (119, "ten in one span", {f"t{i}": entry(0, 8) for i in range(10)}, ONE, "inside another tensor"),
        (121, "bytes after the last", pair, TWO + b"PK\3\4", "4 bytes follow"),
        (121, "bytes after nothing", {}, ONE, "8 bytes follow"),
        (122, "2 bytes short", pair, TWO[:-2], "the file has only 14 bytes"),
        (122, "no data", pair, b"", "the file has only 0 bytes")]:
        yield Case(kind, name, build(header, data), error)
    shared = {"e": entry(8, 8, "F32", [0, 3]), "x": entry(0, 8), "f": entry(8, 8, "I8", [0]),
              "y": entry(8, 16)}
    yield Case(120, "empty tensors share an offset", build(shared, TWO),
               result={"x": READ_ONE["x"], "y": ("F64", (1,), TWO[8:]), "e": ("F32", (0, 3), b""),
                       "f": ("I8", (0,), b"")})
    yield Case(127, "no tensors", build({}), result={})
    odd = build(b'{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F64","shape":'
                b'[2],"data_offsets":[1,17]}}', b"\7" + TWO)
    yield Case(128, "float64 at an odd offset", odd, result={"x": READ_TWO["x"], "b": ("U8", (1,), b"\7")})
    values = b"\0\1\x7f\x80\xff"
    yield Case(129, "bool bytes 2 to 255", build({"x": entry(0, 5, "BOOL", [5])}, values),
               result={"x": ("BOOL", (5,), b"\0\1\1\1\1")})
    special = struct.pack("<4Q", 0x7FF0000000000001, 0xFFF8DEADBEEF0000, 1 << 63, 1)
    yield Case(129, "NaN payloads, -0, subnormal", build({"x": entry(0, 32)}, special),
               result={"x": ("F64", (4,), special)})
    count = 20_000
    many = {f"t{i}": entry(i, i + 1, "U8", [1]) for i in range(count)}
    yield Case(126, f"{count} entries", build(many, bytes(count)),
               result={name: ("U8", (1,), b"\0") for name in many})


def all_cases():
    return [*length_cases(), *text_cases(), *entry_cases(), *span_cases()]


CASES = all_cases()


def test_every_kind_has_a_case():
    assert kinds(CASES) | {130} == KINDS["safetensors"]  # 130: test_index_of_shards_is_refused


@pytest.mark.parametrize("case", refused(CASES), ids=str)
def test_file_is_refused(tmp_path, case):
    check_refused(tmp_path, case, ".safetensors")


@pytest.mark.parametrize("case", accepted(CASES), ids=str)
def test_file_is_read(tmp_path, case):
    check_accepted(tmp_path, case, ".safetensors", lambda data: read(data)[0])


class TestUnsupportedDtype:
    """A tensor of a dtype that the program does not support does not affect the file's other tensors."""

    @pytest.fixture
    def folder(self, tmp_path):
        header = {"q": entry(0, 8, "C64", [1]), "x": entry(8, 16)}
        (tmp_path / "m.safetensors").write_bytes(build(header, TWO))
        return tmp_path

    def test_other_tensors_are_read(self, folder):
        run = attn("convert", "m.safetensors#x", cwd=folder)
        assert (run.returncode, run.stdout) == (0, b"[-2.]\n")

    def test_missing_tensor_is_refused(self, folder):
        run = attn("convert", "m.safetensors#y", cwd=folder)
        assert run.returncode == 65
        assert b"has no tensor 'y'" in run.stderr

    def test_inspect_names_the_tensor(self, folder):
        run = attn("inspect", "m.safetensors", cwd=folder)
        assert run.returncode == 65
        assert b"q: dtype C64 is not supported" in run.stderr


def test_index_of_shards_is_refused(tmp_path):
    """The index of a model in shards contains no tensors itself."""
    (tmp_path / "i.json").write_text('{"metadata": {}, "weight_map": {"x": "gone.safetensors"}}')
    run = attn("inspect", "i.json", cwd=tmp_path)
    assert run.returncode == 65
    assert b"has no array" in run.stderr


class TestFileWithoutTensors:
    """Such a file is valid, but no command can compute with it."""

    JOB = '{"Q": "e.safetensors", "K": [[1, 2]]}'

    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "e.safetensors").write_bytes(build({}))
        (tmp_path / "k.json").write_text("[[1, 2]]")
        (tmp_path / "job.json").write_text(self.JOB)
        return tmp_path

    @pytest.mark.parametrize("arguments", [
        ["run", "--q", "e.safetensors", "--k", "k.json"],
        ["svd", "e.safetensors"],
        ["random", "shuffle", "--seed", "1", "--input", "e.safetensors"],
        ["run", "-"],
        ["compare", "k.json", "--reference", "job.json"],
    ], ids=" ".join)
    def test_command_refuses_it(self, folder, arguments):
        run = attn(*arguments, stdin=self.JOB, cwd=folder)
        assert run.returncode in (2, 65)
        assert b"e.safetensors: " in run.stderr

    def test_batch_continues_with_the_next_job(self, folder):
        run = attn("batch", "-", stdin=self.JOB + '\n{"Q": [[1, 2]], "K": [[1, 2]]}\n', cwd=folder)
        lines = run.stdout.splitlines()
        assert run.returncode == 3
        assert len(lines) == 2
        assert b"has no arrays" in lines[0]
