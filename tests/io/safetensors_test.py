#!/usr/bin/env python3
"""Safetensors files, written and read: every dtype, against files made and read by plain loops."""

import json
import math
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import Checks, attn  # noqa: E402
from safetensors_file import build, entry, read  # noqa: E402

DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8",
          "U8": "u1", "U16": "u2", "U32": "u4", "U64": "u8", "BOOL": "?"}
checks = Checks("safetensors")


def ok(folder, *args, **keywords):
    run = attn(*args, cwd=folder, **keywords)
    checks.check(run.returncode == 0 and run.stderr == b"", f"{args}: {run}")
    return run.stdout


def arrays(rng):
    """One of each dtype, with odd lengths, and the shapes that are easily got wrong."""
    made = {f"t.{name}": rng.integers(0, 2 if name == "BOOL" else 100, (3, 5)).astype(code)
            for name, code in DTYPES.items()}
    made["scalar"] = np.array(2.5)
    made["empty"] = np.zeros((0, 4), "f4")
    made["bits"] = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    return made


def test_round_trips(folder, rng):
    made = arrays(rng)
    np.savez(folder / "in.npz", **made)
    ok(folder, "convert", "in.npz", "-o", "out.safetensors")
    data = (folder / "out.safetensors").read_bytes()
    found, metadata = read(data)
    length = int.from_bytes(data[:8], "little")
    checks.check(length % 8 == 0 and data[8:9] == b"{" and metadata == {}, "the header is padded")
    names = {np.dtype(code): name for name, code in DTYPES.items()}
    checks.check(set(found) == set(made), f"names {sorted(found)}")
    for name, array in made.items():
        checks.check(found[name] == (names[array.dtype], array.shape, array.tobytes()), name)
    # The order of the safetensors package, whose files are to come out byte for byte.
    dtypes = "U64 I64 F64 F32 U32 I32 F16 U16 I16 I8 U8 BOOL".split()
    order = sorted(made, key=lambda name: (dtypes.index(found[name][0]), name))
    checks.check(list(found) == order, f"by dtype, then by name: {list(found)}")
    ok(folder, "convert", "out.safetensors", "-o", "again.safetensors")
    checks.check((folder / "again.safetensors").read_bytes() == data, "the same bytes again")
    ok(folder, "convert", "out.safetensors", "-o", "back.npz")
    with np.load(folder / "back.npz") as back:
        for name, array in made.items():
            checks.check(back[name].dtype == array.dtype and back[name].shape == array.shape and
                         back[name].tobytes() == array.tobytes(), f"{name}: to npz")
    stdout = ok(folder, "convert", "-", "--format", "safetensors", stdin=data)
    checks.check(stdout == data, "from pipe to pipe")
    ok(folder, "compare", "in.npz", "out.safetensors", "--equal-nan")


def bfloat16(bits):
    return float(np.array([bits << 16], "u4").view("f4")[0])


def e4m3(bits):
    """OCP 8-bit floating point, E4M3: bias 7, no infinities."""
    sign, exponent, fraction = -1 if bits & 128 else 1, bits >> 3 & 15, bits & 7
    if exponent == 15 and fraction == 7:
        return math.nan
    return sign * (fraction / 8 * 2.0 ** -6 if exponent == 0 else
                   (1 + fraction / 8) * 2.0 ** (exponent - 7))


def e5m2(bits):
    """E5M2: bias 15, infinities and NaN as IEEE 754 has them."""
    sign, exponent, fraction = -1 if bits & 128 else 1, bits >> 2 & 31, bits & 3
    if exponent == 31:
        return math.nan if fraction else sign * math.inf
    return sign * (fraction / 4 * 2.0 ** -14 if exponent == 0 else
                   (1 + fraction / 4) * 2.0 ** (exponent - 15))


def test_small_floats(folder):
    """All 256 values of either F8, and bfloat16 bit for bit."""
    data = bytes(range(256))
    header = {"a": entry(0, 256, "F8_E4M3", [16, 16]), "b": entry(256, 512, "F8_E5M2", [256]),
              "c": entry(512, 1024, "BF16", [256])}
    brains = (np.arange(256) * 257).astype("<u2")
    (folder / "small.safetensors").write_bytes(build(header, data * 2 + brains.tobytes()))
    ok(folder, "convert", "small.safetensors", "-o", "small.npz")
    with np.load(folder / "small.npz") as got:
        for name, decode, codes in [("a", e4m3, data), ("b", e5m2, data), ("c", bfloat16, brains)]:
            want = np.array([decode(int(code)) for code in codes], "f4")
            values = got[name].ravel()
            checks.check(got[name].dtype == np.float32 and np.array_equal(values, want, equal_nan=True)
                         and np.array_equal(np.signbit(values)[~np.isnan(want)],
                                        np.signbit(want)[~np.isnan(want)]), f"F8, BF16: {name}")
        checks.check(got["a"].shape == (16, 16), "the shape of F8")
    ok(folder, "convert", "small.safetensors", "-o", "small2.safetensors")
    found, _ = read((folder / "small2.safetensors").read_bytes())
    checks.check(found["c"] == ("BF16", (256,), brains.tobytes()), "bfloat16 stays, bit for bit")
    checks.check(found["a"][0] == "F32", "F8 is written as F32")


def test_jobs_and_results(folder, rng):
    q, k = rng.standard_normal((2, 3, 4))
    header = {"K": entry(0, 96, "F64", [3, 4]), "Q": entry(96, 192, "F64", [3, 4]),
              "causal": entry(192, 193, "BOOL", [])}
    (folder / "job.safetensors").write_bytes(build(header, k.tobytes() + q.tobytes() + b"\1"))
    np.savez(folder / "job.npz", Q=q, K=k, causal=True)
    ok(folder, "run", "job.npz", "-o", "result.npz")
    (folder / "tokens.json").write_text(json.dumps(
        {"Q": "job.safetensors#Q", "K": "job.safetensors#K", "causal": True,
         "tokens": ["I", "</script>", "\u202eam\n"]}))
    ok(folder, "run", "job.safetensors", "-o", "result.safetensors")
    checks.check(ok(folder, "compare", "result.safetensors", "result.npz", "--ulp", "0").endswith(
        b"3 of 3 tensors are the same\n"), "a job in .safetensors")
    ok(folder, "run", "tokens.json", "-o", "tokens.safetensors")
    found, metadata = read((folder / "tokens.safetensors").read_bytes())
    checks.check(sorted(found) == ["context", "scores", "weights"], "outputs")
    checks.check(metadata["schema"] == "attn/1" and
                 json.loads(metadata["tokens"]) == ["I", "</script>", "\u202eam\n"], f"{metadata}")
    made_by = json.loads(metadata["made_by"])
    checks.check(made_by["job"]["causal"] is True and "job.safetensors" in made_by["inputs"], "made_by")
    view = ok(folder, "view", "tokens.safetensors")
    checks.check(b"</script>" in view, "attn view finds the tokens")
    piped = ok(folder, "run", "tokens.json", "--format", "safetensors")
    checks.check(piped == (folder / "tokens.safetensors").read_bytes(), "on standard output")
    lines = ok(folder, "inspect", "tokens.safetensors").decode().splitlines()
    checks.check([line.split()[0] for line in lines[1:]] == sorted(found), "inspect")


def test_names_that_cannot_be_written(folder):
    np.savez(folder / "m.npz", **{"__metadata__": np.arange(2)})
    run = attn("convert", "m.npz", "-o", "m.safetensors", cwd=folder)
    checks.check(run.returncode == 65 and b"__metadata__" in run.stderr and
                 not (folder / "m.safetensors").exists(), f"__metadata__: {run}")


def main():
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_round_trips(folder, rng)
        test_small_floats(folder)
        test_jobs_and_results(folder, rng)
        test_names_that_cannot_be_written(folder)
    checks.finish()


main()
