"""Gradients on several ranks have the bytes of attn run: rank 0 computes them."""

import filecmp
import json

import numpy as np
import pytest

from mpi.ranks import NEEDS_MPI, messages, mpi
from support.attn import attn

pytestmark = NEEDS_MPI
B, H, L, S, D = 2, 4, 70, 300, 8


@pytest.mark.parametrize("options", [{}, {"causal": True, "alignment": "bottom-right", "softcap": 3.0}, {"path": "reference"}],
                         ids=["kernels", "causal", "reference"])
def test_ranks_do_not_change_bytes(tmp_path, options):
    r = np.random.default_rng(1)
    shapes = {"Q": (B, H, L, D), "K": (B, 2, S, D), "V": (B, 2, S, D), "bias": (1, H, L, S), "grad_context": (B, H, L, D)}
    np.savez(tmp_path / "in.npz", **{name: r.standard_normal(shape).astype("float32") for name, shape in shapes.items()})
    outputs = ["context", "grad_Q", "grad_K", "grad_V", "grad_bias", "delta"]
    job = options | {name: f"in.npz#{name}" for name in shapes} | {"outputs": outputs}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "one.npz", cwd=tmp_path).returncode == 0
    for ranks in range(1, 5):
        done = mpi(tmp_path, "run", "job.json", "-o", f"ranks{ranks}.npz", ranks=ranks)
        assert done.returncode == 0, messages(done)
        assert filecmp.cmp(tmp_path / "one.npz", tmp_path / f"ranks{ranks}.npz", shallow=False)
