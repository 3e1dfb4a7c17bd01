#!/usr/bin/env python3
"""Writes tests/golden/random/torch.json: the dtype, shape and SHA-256 of what PyTorch draws in golden_steps().

    build/peers-venv/bin/python tests/random/torch_golden.py

torch_test.py draws the same steps with attn. Needs a CPU with AVX2 that is not made by Intel: see
docs/formats.md.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np
import torch

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from peers.torch_streams import drawn  # noqa: E402
from support.torch_steps import golden_steps  # noqa: E402


def main():
    arrays = {name: {"dtype": array.dtype.name, "shape": list(array.shape),
                     "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}
              for name, array in drawn(golden_steps()).items()}
    text = json.dumps({"torch": torch.__version__, "arrays": arrays})
    (TESTS / "golden" / "random" / "torch.json").write_text(text.replace('"seed', '\n"seed') + "\n")


if __name__ == "__main__":
    main()
