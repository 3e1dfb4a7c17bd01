#!/usr/bin/env python3
"""Files that NumPy writes are read right, and what attn writes is what NumPy would have written."""

import io
import itertools
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import Checks, attn  # noqa: E402

checks = Checks("numpy files")
DTYPES = ["f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
SHAPES = [(), (0,), (1,), (7,), (2, 3), (4, 0, 3), (2, 3, 4), (1, 5, 1, 2)]


def bits(dtype, shape, seed):
    """Random bits: NaNs with payloads, subnormals, infinities and negative zeros among them."""
    count = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    raw = np.random.RandomState(seed).bytes(count)
    array = np.frombuffer(raw, dtype).reshape(shape)
    return array.view("u1") % 2 == 1 if dtype == "?" else array


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def native(array):
    """The array as attn writes it: C order, little-endian."""
    return np.array(array.astype(array.dtype.newbyteorder("<")), order="C", ndmin=0)


def convert(source, target):
    run = attn("convert", source, "-o", target, "--force")
    return checks.check(run.returncode == 0, f"convert {source}: {run.returncode} {run.stderr}")


def single_arrays(folder):
    cases = itertools.product(DTYPES, SHAPES, "CF", "<>")
    for seed, (dtype, shape, order, endian) in enumerate(cases):
        if endian == ">" and np.dtype(dtype).itemsize == 1:
            continue
        if order == "F" and len(shape) < 2:
            continue
        array = bits(dtype, shape, seed)
        array = np.array(array.view(array.dtype.newbyteorder(endian)), order=order)
        np.save(folder / "in.npy", array)
        if convert(folder / "in.npy", folder / "out.npy"):
            what = f"{dtype} {shape} {order} {endian}"
            checks.check((folder / "out.npy").read_bytes() == saved(native(array)), what)


def versions(folder):
    array = np.arange(6.0).reshape(2, 3)
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(folder / "in.npy", "wb") as file:
            np.lib.format.write_array(file, array, version)
        if convert(folder / "in.npy", folder / "out.npy"):
            checks.check((folder / "out.npy").read_bytes() == saved(array), f"version {version}")


def archives(folder):
    arrays = {
        "Q": np.arange(6.0).reshape(2, 3), "W_\u00fc": np.arange(4, dtype=">i2"), "empty": np.zeros(
            (0, 3), "f4"), "scalar": np.float16(1.5),
        "F": np.asfortranarray(np.arange(12).reshape(3, 4)), "a/b": np.array([True, False])
    }
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "deflated.npz", **arrays)
    # A pipe cannot be sought in, so zipfile writes the sizes behind the data.
    program = ("import numpy as np, sys; a = np.load(sys.argv[1]);"
               "np.savez(sys.stdout.buffer, **a)")
    run = subprocess.run([sys.executable, "-c", program, folder / "stored.npz"],
                         capture_output=True,
                         check=True)
    (folder / "piped.npz").write_bytes(run.stdout)
    for kind in ["stored", "deflated", "piped"]:
        if not convert(folder / f"{kind}.npz", folder / "out.npz"):
            continue
        with np.load(folder / "out.npz") as out:
            checks.check(out.files == list(arrays), f"{kind}: names and their order {out.files}")
            for name in out.files:
                checks.check(
                    saved(out[name]) == saved(native(np.asarray(arrays[name]))), f"{kind}: {name}")
        test = subprocess.run([sys.executable, "-m", "zipfile", "-t", folder / "out.npz"],
                              capture_output=True)
        checks.check(b"Done testing" in test.stdout and not test.stderr, f"{kind}: zipfile -t")
        member = folder / "one.npy"
        if convert(f"{folder}/{kind}.npz#Q", member):
            checks.check(member.read_bytes() == saved(arrays["Q"]), f"{kind}: FILE#Q")


with tempfile.TemporaryDirectory() as name:
    single_arrays(pathlib.Path(name))
    versions(pathlib.Path(name))
    archives(pathlib.Path(name))
checks.finish()
