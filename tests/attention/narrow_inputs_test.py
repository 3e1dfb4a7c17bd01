"""Queries, keys and values in a narrower type than the computation have the bytes of the same numbers in its type.

Kernels read large ones where they are and convert their rows, everything else converts them first.
"""

import json
import subprocess

import numpy as np
import pytest

from support.attn import ATTN
from support.random_tensors import BFLOAT16, write
from support.rounding import rounded

SPLIT = {"Q": (2, 4, 130, 64), "K": (2, 2, 150, 64), "V": (2, 2, 150, 64)}  # 65,536 bytes and more in 16 bits
PAST = {"past_K": (2, 2, 200, 64), "past_V": (2, 2, 200, 64)}
PACKED = {"Q": (300, 256), "K": (300, 128), "V": (300, 128)}
GRADIENTS = ["grad_Q", "grad_K", "grad_V"]
CASES = {
    "heads": (SPLIT, {}),
    "causal": (SPLIT, {"causal": True, "window": [40, 0]}),
    "one query": (SPLIT, {"rows": [5]}),
    "some queries": (SPLIT, {"rows": [5, 6, 80]}),
    "past": (SPLIT | PAST, {}),
    "layout blhd": ({"Q": (2, 130, 4, 64), "K": (2, 150, 2, 64), "V": (2, 150, 2, 64)}, {"layout": "blhd"}),
    "packed heads": (PACKED, {"heads": 4, "kv_heads": 2}),
    "documents": (PACKED, {"heads": 4, "kv_heads": 2, "documents": [0] * 100 + [1] * 200}),
    "rotary": (SPLIT, {"rotary": {"kind": "half"}}),
    "qk_norm": (SPLIT, {"qk_norm": "rms"}),
    "K as V": ({name: SPLIT[name] for name in "QK"}, {}),
    "reference path": (SPLIT, {"softmax": {"axis": "all"}}),
    "weights": (SPLIT, {"outputs": ["scores", "weights", "context", "entropy"]}),
    "gradients": (SPLIT | {"grad_context": (2, 4, 130, 64)}, {"outputs": ["context", *GRADIENTS]}),
    "sparsemax": (SPLIT, {"normaliser": "sparsemax"}),
    "l2": (SPLIT, {"score": "l2"}),
}


def stored(x, dtype):
    return (x.view("u4") >> 16).astype("u2").view(BFLOAT16) if dtype == "bf16" else x.astype({"f16": "f2"}.get(dtype, "f4"))


def results(folder, tensors, job):
    write(folder / "in.safetensors", tensors)
    (folder / "job.json").write_text(json.dumps({**job, **{name: f"in.safetensors#{name}" for name in tensors}}))
    subprocess.run([ATTN, "run", "job.json", "-o", "out.npz", "--force"], cwd=folder, check=True, capture_output=True)
    with np.load(folder / "out.npz") as outputs:
        return {name: outputs[name] for name in outputs if outputs[name].dtype.kind == "f"}


@pytest.mark.parametrize("dtype, compute", [("f16", "f32"), ("bf16", "f32"), ("f32", "f64")])
@pytest.mark.parametrize("case", CASES)
def test_bytes_are_those_of_the_wider_type(tmp_path, case, dtype, compute):
    shapes, job = CASES[case]
    rng = np.random.default_rng(3)
    numbers = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    if dtype != "f32":
        numbers = {name: rounded(x, dtype).astype("f4") for name, x in numbers.items()}
    job = {"outputs": ["context"], **job, "compute": compute}
    narrow = results(tmp_path, {name: stored(x, dtype) for name, x in numbers.items()}, job)
    wide = results(tmp_path, {name: x.astype({"f32": "f4", "f64": "f8"}[compute])
                              for name, x in numbers.items()}, job)
    assert narrow.keys() == wide.keys() >= set(job["outputs"])
    for name, array in wide.items():
        assert narrow[name].dtype == array.dtype, name
        assert narrow[name].tobytes() == array.tobytes(), name
