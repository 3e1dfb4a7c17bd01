"""Broken, lying and merely odd .npy files: each is read correctly or refused."""

import os
import pathlib
import pickle
import struct
import tempfile

import pytest

from support.hostile import (KINDS, Case, accepted, check_accepted, check_refused, kinds, read_plain_npy,
                             refused)

MAGIC = b"\x93NUMPY"
ONE = struct.pack("<d", 1.5)
SIX = struct.pack("<6d", *range(6))
READ_ONE = ("<f8", (1,), ONE)
READ_SIX = ("<f8", (2, 3), SIX)
CANARY = pathlib.Path(tempfile.gettempdir()) / f"attn-canary-{os.getpid()}"


def npy(text, data=ONE, version=1, length=None):
    text = text if isinstance(text, bytes) else text.encode("latin-1")
    size = len(text) if length is None else length
    return MAGIC + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I",
                                                     size) + text + data


def header(descr="'<f8'", shape="(1,)", fortran="False", end="\n"):
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}{end}"


def padded(text, total, version=1):
    start = 10 if version == 1 else 12
    return text[:-1].ljust(total - start - 1) + "\n"


class Canary:
    """Unpickling it creates the file CANARY."""

    def __reduce__(self):
        return pathlib.Path.touch, (CANARY,)


def shape_cases():
    broken = [
        (38, "not a tuple", "(1)", "written (4,)"),
        (41, "negative", "(-1,)", "expected a length"),
        (43, "hexadecimal", "(0x3,)", "expected ','"),
        (43, "octal", "(0o3,)", "expected ','"),
        (43, "underscore", "(1_000,)", "expected ','"),
        (44, "True", "(True,)", "a length"),
        (45, "a float", "(3.0,)", "expected ','"),
        (46, "2^63", f"({2**63},)", "a length"),
        (46, "2^64", f"({2**64},)", "a length"),
        (46, "2^65", f"({2**65},)", "a length"),
        (47, "product wraps", "(4611686018427387905, 4)", "2^63 elements"),
        (48, "bytes wrap", f"({2**61},)", "2^64 bytes"),
        (49, "zero by 2^63", f"(0, {2**63})", "a length"),
        (50, "8 TB of 24 bytes", "(1000000000000,)", "8000000000000 bytes, but only 24"),
        (51, "200 axes of 1", "(" + "1, " * 200 + ")", "more than 64 axes"),
        (34, "65 axes", "(" + "1, " * 65 + ")", "more than 64 axes"),
        (33, "3000 axes", "(" + "1, " * 3000 + ")", "more than 64 axes"),
        (32, "brackets within the limit", "(" * 9000, "expected a length"),
        (38, "a list", "[1]", "expected a shape"),
    ]
    for kind, name, shape, error in broken:
        yield Case(kind, name, npy(header(shape=shape), ONE * 3), error)
    for shape in [(), (1,) * 33, (1,) * 64]:
        data = npy(header(shape=repr(shape)))
        yield Case(39, f"{len(shape)} axes", data, result=("<f8", shape, ONE))
    for shape in [(0,), (0, 5), (5, 0)]:
        data = npy(header(shape=repr(shape)), b"")
        yield Case(40, f"empty {shape}", data, result=("<f8", shape, b""))
    yield Case(42, "Python 2", npy(header(shape="(2L, 3L)"), SIX), result=READ_SIX)


def descr_cases():
    for kind, descr, error in [
        (53, "'|V8'", "raw bytes"),
        (53, "'<V2'", "bfloat16"),
        (54, "'<U10'", "strings"),
        (54, "'|S4'", "strings"),
        (54, "'<U0'", "dtype '<U0'"),
        (54, "'<U-1'", "dtype '<U-1'"),
        (54, "'<U99999999999999999999'", "dtype '<U9"),
        (55, "'<M8[ns]'", "dates"),
        (55, "'<m8'", "dates"),
        (56, "[('a', '<f8')]", "structured"),
        (57, "('<f4', (2,))", "sub-array"),
        (58, "'<f3'", "'<f3'"),
        (58, "'<f1'", "'<f1'"),
        (58, "'<f0'", "'<f0'"),
        (58, "'<f99999999999'", "'<f99999999999'"),
        (62, "'<f16'", "'<f16'"),
        (62, "'<c8'", "complex"),
        (64, "''", "dtype ''"),
        (64, "'<'", "dtype '<'"),
        (58, "'f'", "dtype 'f'"),
        (58, "'<float64'", "dtype"),
        (36, r"'<f8\x00'", "without escapes"),
        (36, "'<f8\x00'", "without escapes"),
        (64, r"'\x1b[2J'", "without escapes"),
        (64, "'\x1b[2J'", r"\x1b[2J"),
    ]:
        yield Case(kind, f"dtype {descr}", npy(header(descr), ONE), error)
    payload = pickle.dumps([Canary()])
    yield Case(52, "a pickle", npy(header("'|O'"), payload), "pickles, which attn never loads")
    for code, letter, value in [("f8", "d", 1.5), ("i4", "i", -5), ("f2", "e", 1.5)]:
        swapped = npy(header(f"'>{code}'"), struct.pack(f">{letter}", value))
        written = (f"<{code}", (1,), struct.pack(f"<{letter}", value))
        yield Case(59, f"big-endian {code}", swapped, result=written)
    for descr in ["'=f8'", "'float64'", "'f8'"]:
        yield Case(60, f"NumPy accepts {descr}", npy(header(descr)), result=READ_ONE)
    yield Case(61, "|f8", npy(header("'|f8'")), result=READ_ONE)
    yield Case(63, "bool bytes 2 to 255", npy(header("'|b1'", "(4,)"), b"\0\1\2\xff"),
               result=("|b1", (4,), b"\0\1\1\1"))


def header_cases():
    usual = header()
    for kind, name, text, error in [
        (9, "header length 0", "", "found the end of the header"),
        (21, "NUL inside", header(shape="(1,\0)"), "expected"),
        (25, "key twice", "{'descr': '<f8', 'descr': '<f8'}", "'descr' twice"),
        (26, "no descr", "{'fortran_order': False, 'shape': (1,)}", "no 'descr'"),
        (27, "no shape", "{'descr': '<f8', 'fortran_order': False}", "no 'shape'"),
        (28, "no order", "{'descr': '<f8', 'shape': (1,)}", "no 'fortran_order'"),
        (29, "extra key", "{'descr': '<f8', 'evil': 1}", "unknown key 'evil'"),
        (30, "a list", "[1, 2]", "expected '{'"),
        (30, "a number", "42", "expected '{'"),
        (31, "unclosed brace", usual.replace("}", ""), "expected"),
        (31, "unclosed quote", "{'descr", "in quotes"),
        (35, "an expression", header("__import__('os').getcwd()"), "a dtype in quotes"),
        (35, "a call as shape", header(shape="(len('x'),)"), "expected a length"),
        (37, "a comment", "# x\n" + usual, "expected '{'"),
        (37, "an f-string", header("f'<f8'"), "in quotes"),
        (69, "order 'true'", header(fortran="true"), "True or False"),
        (69, "order 1", header(fortran="1"), "True or False"),
        (69, "order None", header(fortran="None"), "True or False"),
        (30, "two dicts", usual + usual, "the end of the header"),
    ]:
        yield Case(kind, name, npy(text), error)
    yield Case(10, "length beyond the file", npy(usual, length=len(usual) + 99), "but the file has only")
    yield Case(11, "length 65,535 in 77 bytes", npy(usual, length=65535)[:77], "header of 65535 bytes")
    yield Case(12, "length 2^32 - 1 in 12 bytes", npy("", b"", 2, 2**32 - 1), "header of 4294967295 bytes")
    yield Case(13, "length over the limit", npy(usual.rjust(10001), version=2), "the limit is 10000")
    yield Case(32, "100,000 brackets", npy("(" * 100000, version=2), "the limit is 10000")
    yield Case(33, "100,000 axes", npy(header(shape="(" + "1," * 100000 + ")"), version=2), "the limit is 10000")
    yield Case(16, "version 3.0, not UTF-8", npy(b"\xff" + usual.encode(), version=3), "not UTF-8")
    odd = padded("{'shape': (1,), 'descr': '<f8', 'fortran_order': False}\n", 192)
    for kind, name, data in [
        (13, "length at the limit", npy(usual.rjust(10000), version=2)),
        (14, "version 2.0", npy(usual, version=2)),
        (15, "version 3.0", npy(usual, version=3)),
        (17, "length byte over 0x7f", npy(odd)),
        (18, "no newline at the end", npy(header(end=""))),
        (19, "aligned to 16", npy(padded(usual, 80))),
        (20, "not aligned", npy(padded(usual, 81))),
        (22, "newline inside", npy(usual.replace(" ", "\n"))),
        (23, "other order", npy("{'shape': (1,), 'fortran_order': False, 'descr': '<f8'}")),
        (24, "double quotes", npy(usual.replace("'", '"'))),
    ]:
        yield Case(kind, name, data, result=READ_ONE)


def file_cases():
    for kind, data in enumerate([b"", b"\x93", MAGIC, MAGIC + b"\1\0"], 1):
        yield Case(kind, f"{len(data)} bytes", data,
                   "is empty" if not data else "not a .npy file" if kind < 3 else "ends inside")
    yield Case(5, "wrong magic", b"\x94" + npy(header())[1:], "not a .npy file")
    for kind, version in [(6, b"\1\1"), (7, b"\4\0"), (8, b"\0\0")]:
        yield Case(kind, f"version {version}", npy(header()).replace(b"\1\0", version, 1), "is not supported")
    yield Case(65, "a byte short", npy(header())[:-1], "only 7 follow")
    yield Case(66, "no data", npy(header(), b""), "only 0 follow")
    yield Case(67, "a byte more", npy(header(), ONE + b"x"), "1 more follow")
    yield Case(67, "a second array", npy(header()) * 2, "more follow the array")
    yield Case(68, "Fortran vector", npy(header(fortran="True")), result=READ_ONE)
    columns = struct.pack("<6d", 0, 3, 1, 4, 2, 5)
    yield Case(68, "Fortran matrix", npy(header(shape="(2, 3)", fortran="True"), columns), result=READ_SIX)
    yield Case(68, "Fortran, empty", npy(header(shape="(0, 3)", fortran="True"), b""),
               result=("<f8", (0, 3), b""))
    yield Case(70, "data at an odd offset", npy(padded(header(shape="(2, 3)"), 131), SIX), result=READ_SIX)
    special = struct.pack("<8Q", 0x7FF8000000000123, 0x7FF0000000000001, 0xFFF8DEADBEEF0000,
                          1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000)
    yield Case(71, "NaN payloads, -0, subnormals", npy(header(shape="(8,)"), special),
               result=("<f8", (8,), special))
    singles = struct.pack("<3I", 0x7F800001, 0xFFC12345, 1)
    yield Case(71, "signalling float32", npy(header("'<f4'", "(3,)"), singles),
               result=("<f4", (3,), singles))
    halves = struct.pack("<6H", 0x7BFF, 0xFBFF, 0x0001, 0x7C00, 0x7D01, 0x8000)
    yield Case(72, "extremes of float16", npy(header("'<f2'", "(6,)"), halves),
               result=("<f2", (6,), halves))


def all_cases():
    return [*file_cases(), *header_cases(), *shape_cases(), *descr_cases()]


CASES = all_cases()


def test_every_kind_has_a_case():
    assert kinds(CASES) == KINDS["npy"]


@pytest.mark.parametrize("case", refused(CASES), ids=str)
def test_file_is_refused(tmp_path, case):
    check_refused(tmp_path, case, ".npy")
    assert not CANARY.exists(), "the file's pickle was run"


@pytest.mark.parametrize("case", accepted(CASES), ids=str)
def test_file_is_read(tmp_path, case):
    check_accepted(tmp_path, case, ".npy", read_plain_npy)
