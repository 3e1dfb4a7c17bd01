"""Hostile JSON and CSV files, given to `attn inspect`.

A good file is read, and `attn convert` prints the expected value. A bad one is refused (exit code 65)
with one line on stderr that names the file. No file takes long. Kind 151 is a line of 1 GB in the
original list; it is 64 MB here, to keep the test fast.
"""

import json

import pytest

from support.attn import attn
from support.hostile import KINDS

SECONDS = 60  # the limit for one file; they take a few at most
REFUSED = object()  # exit code 65
READ = object()  # exit code 0; the value is too long to compare


def long_line():
    return b"[" + b",".join([b"1234567"] * (8 << 20)) + b"]"


# Kind, name, contents (or a function that makes them), expected value.
JSON_CASES = [
    (131, "a million '['", b"[" * 10**6, REFUSED),
    (132, "a million '[', closed", b"[" * 10**6 + b"]" * 10**6, REFUSED),
    (132, "73 levels", b"[" * 73 + b"]" * 73, REFUSED),
    (133, "100,000 nested objects", b'{"m":' * 10**5 + b"1" + b"}" * 10**5, REFUSED),
    (133, "objects nested in metadata", b'{"a":[1],"metadata":' + b'{"m":' * 10**5, REFUSED),
    (134, "duplicate keys", b'{"a":[1],"a":[2]}', REFUSED),
    (134, "duplicate keys, one escaped", b'{"a":[1],"\\u0061":[2]}', REFUSED),
    (135, "NaN", b"[1,NaN]", REFUSED),
    (135, "Infinity", b"[Infinity]", REFUSED),
    (135, "-Infinity", b"[-Infinity]", REFUSED),
    (135, "as strings", b'[1,"NaN","Infinity","-Infinity"]', [1.0, "NaN", "Infinity", "-Infinity"]),
    (136, "1e999", b"[1e999]", REFUSED),
    (136, "-1e999", b"[-1e999]", REFUSED),
    (136, "1e-999", b"[1e-999]", [0.0]),
    (137, "an integer of a million digits", b"[" + b"9" * 10**6 + b"]", REFUSED),
    (137, "a fraction of a million digits", b"[0." + b"3" * 10**6 + b"]", [1 / 3]),
    (138, "exponent -2147483648", b"[1e-2147483648]", [0.0]),
    (138, "exponent 2147483648", b"[1e2147483648]", REFUSED),
    (138, "exponent of 100 digits", b"[1e-" + b"9" * 100 + b"]", [0.0]),
    (139, "2^53 + 1", b"[9007199254740993]", [9007199254740993]),
    (139, "2^64 - 1", b"[18446744073709551615]", [18446744073709551615]),
    (139, "2^64", b"[18446744073709551616]", REFUSED),
    (139, "-2^63 - 1", b"[-9223372036854775809]", REFUSED),
    (140, "0.1 in full", b"[0.1000000000000000055511151231257827021181583404541015625]", [0.1]),
    (140, "halfway", b"[9007199254740993.0]", [9007199254740992.0]),
    (140, "above halfway", b"[9007199254740993." + b"0" * 800 + b"1]", [9007199254740994.0]),
    (141, "UTF-8 byte order mark", b"\xef\xbb\xbf[1]", [1]),
    (142, "UTF-16 LE", "[1]".encode("utf-16"), REFUSED),
    (142, "UTF-16 BE", b"\xfe\xff" + "[1]".encode("utf-16-be"), REFUSED),
    (142, "UTF-16 without a mark", "[1]".encode("utf-16-le"), REFUSED),
    (143, "byte 0xFF", b'{"a\xff":[1]}', REFUSED),
    (143, "overlong", b'{"a\xc0\xaf":[1]}', REFUSED),
    (143, "lone surrogate", b'{"a\xed\xa0\x80":[1]}', REFUSED),
    (143, "lone surrogate, escaped", b'{"a\\ud800":[1]}', REFUSED),
    (144, "NUL after the value", b"[1]\0garbage", REFUSED),
    (144, "NUL in a string", b'{"a\0":[1]}', REFUSED),
    (145, "trailing comma in an array", b"[1,]", REFUSED),
    (145, "trailing comma in an object", b'{"a":[1],}', REFUSED),
    (145, "comment", b"[1] // one", REFUSED),
    (145, "comment inside", b"[/* one */ 1]", REFUSED),
    (145, "single quotes", b"{'a':[1]}", REFUSED),
    (146, "ragged rows", b"[[1,2,3],[4,5]]", REFUSED),
    (146, "ragged rows in a member", b'{"W_Q":[[1,2,3],[4,5]]}', REFUSED),
    (146, "rows of two depths", b"[[1,2],[[3],[4]]]", REFUSED),
    (147, "a string among numbers", b'[1,"2"]', REFUSED),
    (147, "null among numbers", b"[1,null]", REFUSED),
    (147, "a boolean among numbers", b"[1,true]", REFUSED),
    (147, "a number among booleans", b"[[true],[0]]", REFUSED),
    (147, "an object among numbers", b"[1,{}]", REFUSED),
    (147, "integers and floats", b"[[1,2],[3,0.5]]", [[1.0, 2.0], [3.0, 0.5]]),
    (148, "[]", b"[]", []),
    (148, "[[]]", b"[[]]", [[]]),
    (148, "[[],[]]", b"[[],[]]", [[], []]),
    (148, "[[],[1]]", b"[[],[1]]", REFUSED),
    (149, "batch x head x sequence x width", b"[[[[1,2],[3,4]]],[[[5,6],[7,8]]]]",
     [[[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]]),
    (150, "two documents", b"[1][2]", REFUSED),
    (150, "two documents on two lines", b"[1]\n[2]\n", REFUSED),
    (151, "a line of 64 MB", long_line, READ),
    (151, "a line of 64 MB without its end", lambda: long_line()[:-1], REFUSED),
]

CSV_CASES = [
    (154, "CRLF, quotes, blank lines at the end", b'"1",2\r\n3,"4"\r\n\r\n', [[1, 2], [3, 4]]),
    (154, "a header with a line break in it", b'"a\nb",c\n1,2\n', [[1, 2]]),
    (154, "named rows and columns", b",I,am\nI,1,2\nam,3,4\n", [[1, 2], [3, 4]]),
    (154, "byte order mark", b"\xef\xbb\xbf1,2\n", [[1, 2]]),
    (154, "embedded line break", b'1,"2\n3"\n', REFUSED),
    (154, "quote without an end", b'1,"2\n', REFUSED),
    (154, "';' between cells", b"1;2\n3;4\n", REFUSED),
    (154, "',' in decimals", b"1,5;2,5\n", REFUSED),
    (154, "a formula", b"1,2\n=cmd(),3\n", REFUSED),
    (154, "a formula alone", b"=cmd()\n", REFUSED),
    (154, "a million columns", b",".join([b"1"] * 10**6) + b"\n", READ),
    (154, "a million columns, then one less",
     b",".join([b"1"] * 10**6) + b"\n" + b",".join([b"1"] * (10**6 - 1)), REFUSED),
    (154, "NUL", b"1,2\0\n", REFUSED),
    (154, "not UTF-8", b"1,\xff\n", REFUSED),
    (154, "UTF-16", "1,2\n".encode("utf-16"), REFUSED),
    (154, "ragged", b"1,2\n3\n", REFUSED),
    (154, "empty cell", b"1,2\n3,\n", REFUSED),
    (154, "hexadecimal", b"0x10\n3\n", REFUSED),
    (154, "overflow", b"1e999\n", REFUSED),
    (154, "nothing", b"", REFUSED),
]


# Suffix, kind, name, contents, expected value.
CASES = [(".json", *case) for case in JSON_CASES] + [(".csv", *case) for case in CSV_CASES]
BROKEN = [case[:-1] for case in CASES if case[-1] is REFUSED]
READABLE = [case for case in CASES if case[-1] is not REFUSED]


def ids(cases):
    return [f"{kind} {suffix} {name}" for suffix, kind, name, *_ in cases]


def test_every_kind_has_a_case():
    kinds = {kind for _, kind, *_ in CASES}
    assert kinds | {152} == KINDS["json"]  # 152: test_bad_line_of_a_batch_does_not_stop_the_others


def inspect(folder, suffix, kind, contents):
    path = folder / f"hostile-{kind}{suffix}"
    path.write_bytes(contents() if callable(contents) else contents)
    return path.name, attn("inspect", path.name, cwd=folder, timeout=SECONDS)


@pytest.mark.parametrize("suffix, kind, _, contents", BROKEN, ids=ids(BROKEN))
def test_file_is_refused(tmp_path, suffix, kind, _, contents):
    name, run = inspect(tmp_path, suffix, kind, contents)
    assert run.returncode == 65
    assert run.stdout == b""
    assert run.stderr.startswith(f"attn: {name}: ".encode())
    assert run.stderr.endswith(b"\n")
    assert run.stderr.count(b"\n") == 1
    assert len(run.stderr) < 500


def typed(value):
    """The value with its numbers' types, as 1 == 1.0 == True in Python."""
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


@pytest.mark.parametrize("suffix, kind, _, contents, expected", READABLE, ids=ids(READABLE))
def test_file_is_read(tmp_path, suffix, kind, _, contents, expected):
    name, run = inspect(tmp_path, suffix, kind, contents)
    assert run.returncode == 0, run.stderr[:300]
    assert run.stdout != b""
    if expected is not READ:
        run = attn("convert", name, "--format", "json", cwd=tmp_path, timeout=SECONDS)
        assert run.returncode == 0, run.stderr[:300]
        assert typed(json.loads(run.stdout)) == typed(expected)


def test_bad_line_of_a_batch_does_not_stop_the_others(tmp_path):
    """Lines as other systems write them: CRLF, empty lines, no line break at the end."""
    good = '{"Q": [[1.0]], "K": [[2.0]], "outputs": ["scores"]}'
    lines = [good, "", good + "\r", "{bad", " \t", "[1]", good]
    run = attn("batch", "-", stdin="\n".join(lines), cwd=tmp_path, timeout=SECONDS)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 3
    assert [result.get("scores", result.get("code")) for result in results] == \
        [[[2.0]], [[2.0]], 65, 65, [[2.0]]]
