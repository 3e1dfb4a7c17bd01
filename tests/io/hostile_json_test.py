#!/usr/bin/env python3
"""Hostile JSON and CSV: each file is made here and given to `attn inspect`.

A good file must be read (exit 0) and hold the value the table says, which `attn convert` tells. A
bad one must be refused (exit 65) with one line on stderr that names the file. None may take long.
Number 151 stands for a line of 1 GB; it is 64 MB here, to keep the test quick.
"""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402

SECONDS = 60  # no case takes more than a few
REFUSED = object()  # stands for exit 65
READ = object()  # stands for exit 0 where the value is too long to compare


def long_line():
    return b"[" + b",".join([b"1234567"] * (8 << 20)) + b"]"


# Number, name, bytes (or what makes them), the value expected.
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


NUMBERS = {152} | {case[0] for case in JSON_CASES + CSV_CASES}


def same(a, b):
    """Equal, and integers and floats told apart."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def try_case(checks, folder, case, suffix):
    number, name, contents, expected = case
    label = f"{number} {name}"
    path = folder / f"hostile-{number}{suffix}"
    path.write_bytes(contents() if callable(contents) else contents)
    run = attn("inspect", path.name, cwd=folder, timeout=SECONDS)
    if expected is REFUSED:
        checks.check(run.returncode == 65, f"{label}: exit {run.returncode}, expected 65")
        start = f"attn: {path.name}: ".encode()
        checks.check(run.stderr.startswith(start) and run.stderr.count(b"\n") == 1
                     and run.stderr.endswith(b"\n") and len(run.stderr) < 500,
                     f"{label}: stderr {run.stderr[:300]}")
        checks.check(run.stdout == b"", f"{label}: stdout {run.stdout[:300]}")
        return
    checks.check(run.returncode == 0, f"{label}: exit {run.returncode}: {run.stderr[:300]}")
    if expected is READ:
        return
    run = attn("convert", path.name, "--format", "json", cwd=folder, timeout=SECONDS)
    value = json.loads(run.stdout) if run.returncode == 0 else run.stderr
    checks.check(same(value, expected), f"{label}: {value}, expected {expected}")


def lines(checks, folder):
    """152: lines of JSON as they come from other systems; a bad one does not stop the others."""
    good = '{"Q": [[1.0]], "K": [[2.0]], "outputs": ["scores"]}'
    text = "\n".join([good, "", good + "\r", "{bad", " \t", "[1]", good])  # the last without its end
    run = attn("batch", "-", stdin=text, cwd=folder, timeout=SECONDS)
    found = [json.loads(line) for line in run.stdout.splitlines()]
    checks.check(run.returncode == 3 and [line.get("scores", line.get("code")) for line in found] ==
                 [[[2.0]], [[2.0]], 65, 65, [[2.0]]], f"152: {run}")


def main():
    checks = Checks("hostile JSON and CSV")
    with tempfile.TemporaryDirectory() as folder:
        lines(checks, folder)
        for suffix, cases in ((".json", JSON_CASES), (".csv", CSV_CASES)):
            for case in cases:
                try_case(checks, pathlib.Path(folder), case, suffix)
    checks.finish()


if __name__ == "__main__":
    main()
