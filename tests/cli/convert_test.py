#!/usr/bin/env python3
"""`attn convert` from outside: round trips through every format, refusals, files left alone."""

import io
import json
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import Checks, attn  # noqa: E402
import safetensors_file  # noqa: E402

DTYPES = ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64", "bool"]
checks = Checks("convert")


def same(a, b):
    """Same dtype, shape and elements; NaN equals NaN, and zeros have the same sign."""
    return (a.dtype == b.dtype and a.shape == b.shape and
            np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and
            (a.dtype.kind != "f" or np.array_equal(np.signbit(a), np.signbit(b))))


def convert(*args, **keywords):
    """Runs `attn convert ARGS...`, which has to succeed without a word on stderr."""
    run = attn("convert", *args, **keywords)
    checks.check(run.returncode == 0 and run.stderr == b"",
                 f"convert {args}: exit {run.returncode}, {run.stderr}")
    return run.stdout


def refused(code, words, *args, **keywords):
    """Runs what has to fail with `code`, one line on stderr that has all `words`, and no output."""
    run = attn("convert", *args, **keywords)
    lines = run.stderr.decode().splitlines()
    checks.check(run.returncode == code and run.stdout == b"" and len(lines) >= 1 and
                 all(word in run.stderr.decode() for word in words),
                 f"convert {args}: exit {run.returncode} instead of {code}, {run.stderr}")


def sample(dtype, shape, rng):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        ends = np.array([limits.min, limits.max], dtype)
        return np.concatenate([ends, values])[:count].reshape(shape)
    values = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
    special = [0.0, -0.0, np.finfo(dtype).max, np.finfo(dtype).tiny, np.nan, np.inf, -np.inf]
    return np.concatenate([special, values])[:count].astype(dtype).reshape(shape)


def test_binary_round_trips(folder, rng):
    for dtype in DTYPES:
        for shape in [(), (5,), (4, 3), (2, 3, 4), (0, 3)]:
            array = sample(dtype, shape, rng)
            np.save(folder / "in.npy", array)
            convert(folder / "in.npy", "-o", folder / "one.npz", "--force")
            with np.load(folder / "one.npz") as archive:
                checks.check(archive.files == ["arr_0"] and same(archive["arr_0"], array),
                             f"npy to npz: {dtype} {shape}")
            convert(folder / "one.npz", "-o", folder / "back.npy", "--force")
            checks.check((folder / "back.npy").read_bytes() == (folder / "in.npy").read_bytes(),
                         f"npz to npy: {dtype} {shape}")


def test_json_round_trips(folder, rng):
    for dtype in DTYPES:
        for shape in [(), (5,), (4, 3), (2, 3, 4)]:
            array = sample(dtype, shape, rng)
            np.save(folder / "in.npy", array)
            convert(folder / "in.npy", "-o", folder / "a.json", "--force")
            document = json.loads((folder / "a.json").read_text())
            if array.dtype.kind == "f":
                cells = [float(cell) for cell in np.array(document, dtype=object).ravel()]
                read = np.array(cells).reshape(shape).astype(dtype)
                checks.check(same(read, array), f"npy to json: digits of {dtype} {shape}")
            else:
                checks.check(json.dumps(document) == json.dumps(array.tolist()),
                             f"npy to json: {dtype} {shape}")
            convert(folder / "a.json", "-o", folder / "back.npy", "--dtype", dtype, "--force")
            checks.check(same(np.load(folder / "back.npy"), array), f"json to npy: {dtype} {shape}")


def test_csv_round_trips(folder, rng):
    for dtype in DTYPES:
        if dtype in ("bool", "uint64"):
            continue  # CSV has neither: it holds int64 and float64
        array = sample(dtype, (6, 4), rng)
        np.save(folder / "in.npy", array)
        convert(folder / "in.npy", "-o", folder / "a.csv", "--force")
        read = np.genfromtxt(folder / "a.csv", delimiter=",", dtype=array.dtype)
        checks.check(same(read, array), f"npy to csv: {dtype}")
        convert(folder / "a.csv", "-o", folder / "back.npy", "--dtype", dtype, "--force")
        checks.check(same(np.load(folder / "back.npy"), array), f"csv to npy: {dtype}")


def test_several_arrays(folder):
    arrays = {"q": np.arange(6.0).reshape(2, 3) / 4, "k": np.arange(3), "mask": np.array([True])}
    np.savez(folder / "s.npz", **arrays)
    convert(folder / "s.npz", "-o", folder / "s.json")
    checks.check(json.loads((folder / "s.json").read_text()) ==
                 {name: array.tolist() for name, array in arrays.items()}, "npz to a JSON object")
    convert(folder / "s.json", "-o", folder / "s2.npz")
    with np.load(folder / "s2.npz") as archive:
        checks.check(archive.files == list(arrays) and
                     all(same(archive[name], arrays[name]) for name in arrays), "and back")
    convert(f"{folder}/s.npz#k", "-o", folder / "k.json")
    checks.check(json.loads((folder / "k.json").read_text()) == [0, 1, 2], "a member is an array")
    convert(f"{folder}/s.npz#k", "-o", folder / "k.npz")
    with np.load(folder / "k.npz") as archive:
        checks.check(archive.files == ["k"], "a member keeps its name in an npz")
    text = "".join(f"{name}:\n{array}\n\n" for name, array in arrays.items())[:-1]
    checks.check(convert(folder / "s.npz").decode() == text, "every array under its name")
    checks.check(convert(f"{folder}/s.npz#mask", "--repr").decode() == "array([ True])\n",
                 "one member stands alone")
    refused(65, ["s.npz", "mask"], folder / "s.npz", "-o", folder / "s.npy")
    refused(65, ["s.npz", "mask"], folder / "s.npz", "--format", "csv")
    checks.check(not (folder / "s.npy").exists(), "a refused conversion leaves nothing")


def test_standard_streams(folder):
    array = np.arange(12).reshape(3, 4)
    buffer = io.BytesIO()
    np.save(buffer, array)
    checks.check(convert("-", stdin=buffer.getvalue()).decode() == f"{array}\n", "npy from stdin")
    checks.check(convert("-", "--format", "csv", stdin="[[1, 2], [3, 4]]") == b"1,2\n3,4\n",
                 "JSON from stdin to CSV")
    checks.check(json.loads(convert("-", "--format", "json", stdin=buffer.getvalue())) ==
                 array.tolist(), "JSON to stdout")
    convert("-", "-o", folder / "stdin.npy", stdin=buffer.getvalue())
    checks.check(same(np.load(folder / "stdin.npy"), array), "stdin to a file")


def test_dtype(folder):
    np.save(folder / "d.npy", np.array([1.0, 2.5, 300.0]))
    convert(folder / "d.npy", "-o", folder / "d16.npy", "--dtype", "f16")
    checks.check(same(np.load(folder / "d16.npy"), np.array([1, 2.5, 300], np.float16)), "f16")
    convert(folder / "d.npy", "-o", folder / "db.npy", "--dtype", "bfloat16")
    checks.check(same(np.load(folder / "db.npy"), np.array([1, 2.5, 300], np.float32)),
                 "bfloat16 is written as float32")
    checks.check(convert(folder / "d.npy", "--repr", "--dtype", "bf16") ==
                 b"array([  1. ,   2.5, 300. ], dtype=bfloat16)\n", "bfloat16 as text")
    refused(65, ["d.npy", "300", "int8"], folder / "d.npy", "--dtype", "i8")
    refused(2, ["float46"], folder / "d.npy", "--dtype", "float46")


def test_outputs_are_whole_or_not_there(folder):
    np.save(folder / "in.npy", np.arange(3))
    (folder / "old.json").write_text("old")
    refused(73, ["old.json", "--force"], folder / "in.npy", "-o", folder / "old.json")
    checks.check((folder / "old.json").read_text() == "old", "the old file is untouched")
    refused(73, ["in.npy"], folder / "in.npy", "-o", folder / "in.npy", "--force")
    checks.check(same(np.load(folder / "in.npy"), np.arange(3)), "the input is untouched")
    np.save(folder / "cube.npy", np.zeros((2, 2, 2)))
    refused(65, ["old.csv", "(2, 2, 2)"], folder / "cube.npy", "-o", folder / "old.csv")
    (folder / "old.csv").write_text("old")
    refused(65, ["old.csv"], folder / "cube.npy", "-o", folder / "old.csv", "--force")
    checks.check((folder / "old.csv").read_text() == "old", "a failed conversion replaces nothing")
    convert(folder / "in.npy", "-o", folder / "old.json", "--force")
    checks.check(json.loads((folder / "old.json").read_text()) == [0, 1, 2], "--force replaces")
    refused(73, ["nowhere"], folder / "in.npy", "-o", folder / "nowhere" / "a.npy")
    checks.check(not any(".attn-tmp" in path.name for path in folder.iterdir()), "no litter")


def test_usage(folder):
    np.save(folder / "u.npy", np.arange(3))
    refused(66, ["missing.npy"], folder / "missing.npy")
    refused(65, ["u.npy", "W_Q"], f"{folder}/u.npy#W_Q")
    refused(2, ["u.bin"], folder / "u.npy", "-o", folder / "u.bin")
    refused(2, ["--format"], folder / "u.npy", "-o", folder / "u2.npy", "--format", "json")
    refused(2, ["--precision"], folder / "u.npy", "--format", "json", "--precision", "3")
    refused(2, ["--repr"], folder / "u.npy", "-o", folder / "u2.npy", "--repr")
    refused(2, ["precision"], folder / "u.npy", "--precision", "-1")
    refused(2, ["edgeitems"], folder / "u.npy", "--edgeitems", "-1")
    refused(2, ["linewidth"], folder / "u.npy", "--linewidth", "0")
    refused(2, ["floatmode"], folder / "u.npy", "--floatmode", "exact")
    refused(2, ["format"], folder / "u.npy", "--format", "xml")
    (folder / "broken.npy").write_bytes((folder / "u.npy").read_bytes()[:-1])
    refused(65, ["broken.npy"], folder / "broken.npy")


def test_every_format_into_every_other(folder, rng):
    """A float32 matrix through all pairs; what safetensors alone has a dtype for, into all."""
    suffixes = ["npy", "npz", "safetensors", "json", "csv"]
    x = rng.standard_normal((3, 4)).astype("f4")
    np.savez(folder / "from.npz", x=x)
    for first in suffixes:
        convert(folder / "from.npz#x", "-o", folder / f"a.{first}", "--force")
        for second in suffixes:
            convert(folder / f"a.{first}", "-o", folder / f"b.{second}", "--force")
            convert(folder / f"b.{second}", "-o", folder / "back.npy", "--dtype", "f32", "--force")
            checks.check(same(np.load(folder / "back.npy"), x), f"{first} to {second}")
    # 1, -2, the largest, the least above 0, and NaN or infinity, from the formats' definitions.
    narrow = {"BF16": ("<u2", [0x3F80, 0xC000, 0x7F7F, 0x0001, 0x7F80],
                       [1, -2, 255 * 2.0 ** 120, 2.0 ** -133, np.inf]),
              "F16": ("<u2", [0x3C00, 0xC000, 0x7BFF, 0x0001, 0x7C00], [1, -2, 65504, 2.0 ** -24, np.inf]),
              "F8_E4M3": ("u1", [0x38, 0xC0, 0x7E, 0x01, 0x7F], [1, -2, 448, 2.0 ** -9, np.nan]),
              "F8_E5M2": ("u1", [0x3C, 0xC0, 0x7B, 0x01, 0x7C], [1, -2, 57344, 2.0 ** -16, np.inf])}
    for dtype, (kind, bits, values) in narrow.items():
        raw = np.array(bits, kind).tobytes()
        header = {"x": safetensors_file.entry(0, len(raw), dtype, [1, 5])}
        (folder / "n.safetensors").write_bytes(safetensors_file.build(header, raw))
        for suffix in suffixes:
            convert(folder / "n.safetensors", "-o", folder / f"n2.{suffix}", "--force")
            # Digits in text are those that tell a value from its neighbours of the same dtype.
            own = {"BF16": "bf16", "F16": "f16"}.get(dtype, "f32")
            convert(folder / f"n2.{suffix}", "-o", folder / "n3.npy", "--dtype", own, "--force")
            got = np.load(folder / "n3.npy").astype("f8")
            checks.check(np.array_equal(got, [values], equal_nan=True), f"{dtype} to {suffix}: {got}")


def test_one_of_many(folder, rng):
    """FILE#NAME inflates that member alone: what is wrong with another's bytes is not its business."""
    arrays = {f"x{i}": rng.standard_normal((50, 50)) for i in range(3)}
    np.savez_compressed(folder / "many.npz", **arrays)
    raw = bytearray((folder / "many.npz").read_bytes())
    place = raw.find(b"x0.npy") + 2000
    raw[place:place + 50] = bytes(50)
    (folder / "many.npz").write_bytes(raw)
    convert(folder / "many.npz#x2", "-o", folder / "one.npy", "--force")
    checks.check(same(np.load(folder / "one.npy"), arrays["x2"]), "the one that is asked for")
    refused(65, ["many.npz: x0"], folder / "many.npz#x0")
    refused(65, ["many.npz: x0"], folder / "many.npz", "-o", folder / "all.json")


def test_what_raises_a_limit_is_a_flag(folder):
    """Every command that reads an archive takes the flag that its refusal names."""
    np.savez_compressed(folder / "z.npz", x=np.zeros((200, 200)))
    for command in ["inspect"], ["convert"], ["view"], ["svd"], ["compare", "z.npz"], ["merge"]:
        for size, tells in ("1K", True), ("1M", False):
            run = attn(*command, "z.npz", "--max-expand", size, cwd=folder)
            checks.check((b"--max-expand raises that" in run.stderr) == tells,
                         f"{command} --max-expand {size}: {run.stderr}")
    np.save(folder / "q.npy", np.ones((50, 4)))
    reference = ["compare", "q.npy", "--reference", "--q", "q.npy", "--k", "q.npy"]
    run = attn(*reference, "--max-memory", "10K", cwd=folder)
    checks.check(run.returncode == 65 and b"--max-memory" in run.stderr, f"{run}")
    checks.check(attn(*reference, "--max-memory", "10M", cwd=folder).returncode == 0, "enough memory")


def main():
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_binary_round_trips(folder, rng)
        test_json_round_trips(folder, rng)
        test_csv_round_trips(folder, rng)
        test_several_arrays(folder)
        test_standard_streams(folder)
        test_dtype(folder)
        test_outputs_are_whole_or_not_there(folder)
        test_usage(folder)
        test_every_format_into_every_other(folder, rng)
        test_one_of_many(folder, rng)
        test_what_raises_a_limit_is_a_flag(folder)
    checks.finish()


main()
