"""Rounding to the precisions of kernels."""

import numpy as np


def rounded(x, precision):
    """x rounded to `precision`, as float64."""
    if precision == "f64":
        return x
    if precision in ("f32", "f16"):
        return x.astype({"f32": "f4", "f16": "f2"}[precision]).astype("f8")
    drop = np.uint64({"bf16": 16, "tf32": 13}[precision])
    bits = np.atleast_1d(np.asarray(x, "f4")).view("u4").astype("u8")
    half = (np.uint64(1) << (drop - np.uint64(1))) - np.uint64(1)
    bits = (bits + half + ((bits >> drop) & np.uint64(1))) >> drop << drop
    return bits.astype("u4").view("f4").astype("f8").reshape(np.shape(x))
