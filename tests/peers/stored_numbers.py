"""The numbers of 8-bit and 4-bit codes are those of ml_dtypes and of PyTorch, with random scales."""

import json
import pathlib
import tempfile

import ml_dtypes
import numpy as np
import torch

from support.attn import attn

BYTES = np.arange(256, dtype=np.uint8)
CODES = {"e4m3": (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn), "e5m2": (ml_dtypes.float8_e5m2, torch.float8_e5m2),
         "e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, torch.float8_e4m3fnuz),
         "e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, torch.float8_e5m2fnuz)}
TENSORS = 40


def keys(job):
    """K as attn reads it; arrays of the job are in a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        np.savez(path / "j.npz", **{name: value for name, value in job.items() if isinstance(value, np.ndarray)})
        (path / "job.json").write_text(json.dumps(
            {name: f"j.npz#{name}" if isinstance(value, np.ndarray) else value for name, value in job.items()}))
        run = attn("run", "job.json", "--outputs", "K", "-o", "k.npy", cwd=path)
        assert run.returncode == 0, run.stderr.decode()
        return np.load(path / "k.npy")


def of_bytes():
    """Name -> (numbers of all bytes, those of attn). Rows of a block of columns have an MX scale of their own."""
    one = np.ones((1, 256), "f4")
    for name, (dtype, _) in CODES.items():
        yield name, BYTES.view(dtype).astype("f4"), keys({"Q": one, "K": BYTES[None], "k_type": name})[0]
    pairs = np.stack([BYTES & 15, BYTES >> 4], -1).view(ml_dtypes.float4_e2m1fn).astype("f4").reshape(16, 32)
    scales = BYTES.reshape(16, 16)[:, :1]
    for kind, width, dtype in ("mxfp4", 32, ml_dtypes.float8_e8m0fnu), ("nvfp4", 16, ml_dtypes.float8_e4m3fn):
        given = np.repeat(scales, 32 // width, axis=1)
        theirs = pairs * np.repeat(given.view(dtype).astype("f4"), width, axis=1)
        ours = keys({"Q": one[:, :32], "K": BYTES.reshape(16, 16), "k_type": kind, "k_scale": given})
        yield kind, theirs, ours


def of_tensors():
    """The same for tensors that PyTorch casts, with a scale for each head or token."""
    for seed in range(TENSORS):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(2, 3, 20, 16, generator=generator) * 10
        for name, (_, dtype) in CODES.items():
            scale = torch.rand(*((3,) if seed % 2 else (2, 3, 20)), generator=generator)
            full = scale[None, :, None, None] if seed % 2 else scale[..., None]
            coded = x.to(dtype)
            ours = keys({"Q": np.ones((2, 3, 1, 16), "f4"), "K": coded.view(torch.uint8).numpy(), "k_type": name,
                         "k_scale": scale.numpy()})
            yield name, (coded.float() * full).numpy(), ours


def compare():
    """({kind: (tensors, equal)}, differences)"""
    counts, differences = {}, []
    for kind, pairs in (f"ml_dtypes {ml_dtypes.__version__}: all codes", of_bytes()), ("PyTorch's casts", of_tensors()):
        done = equal = 0
        for name, theirs, ours in pairs:
            done += 1
            if np.array_equal(theirs, ours, equal_nan=True):
                equal += 1
            else:
                differences.append(f"{kind}, {name}: {np.sum(theirs != ours)} elements")
        counts[kind] = done, equal
    return counts, differences
