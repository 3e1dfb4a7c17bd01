#!/usr/bin/env python3
"""Writes tests/golden/random/jax.json: the dtype, shape and SHA-256 of what JAX draws in golden_steps().

    build/peers-venv/bin/python tests/random/jax_golden.py

jax_test.py draws the same steps with attn. Needs an x86-64 CPU with AVX2 and FMA.
"""

import hashlib
import json
import pathlib
import sys

import jax
import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from peers.jax_streams import drawn  # noqa: E402
from support.jax_steps import golden_steps  # noqa: E402


def main():
    golden = {"version": jax.__version__}
    for generator in "jax", "jax-original":
        golden[generator] = {
            name: {"dtype": array.dtype.name, "shape": list(array.shape),
                   "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}
            for name, array in drawn(golden_steps(), generator).items()}
    text = json.dumps(golden).replace('"seed', '\n"seed')
    (TESTS / "golden" / "random" / "jax.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
