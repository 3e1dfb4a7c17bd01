"""Rules, lists of keys, left padding, pages and scales on several ranks have the bytes of attn run, also if the ranks share
the keys of few queries."""

import filecmp
import json

import numpy as np
import pytest

from mpi.ranks import NEEDS_MPI, messages, mpi
from support.attn import attn

pytestmark = NEEDS_MPI
B, H, G, S, D = 2, 4, 2, 900, 8
TABLES = {"kind": [0, 1, 2, 1, 0], "slopes": [0.5, 0.25, 0.125, 0.0625]}


def pages(r):
    numbers = r.permutation(61)[:60].reshape(B, 30)
    return {"K_pages": r.standard_normal((61, 30, G, D)), "V_pages": r.standard_normal((61, 30, G, D)), "block_table": numbers}


CASES = {
    "mask rule of ranges": (lambda L, r: {}, {"mask_rule": "q >= k and k // 100 == q // 100", "alignment": "bottom-right"}),
    "mask rule of items and heads": (lambda L, r: {}, {
        "mask_rule": "kind[(q + k) % 5] != b and (k + h) % 3 > 0", "mask_tables": {"kind": TABLES["kind"]}}),
    "bias rule": (lambda L, r: {}, {"bias_rule": "-slopes[h] * abs(q - k) + b * sqrt(k) - 1 / (1 + i)",
                                    "mask_tables": {"slopes": TABLES["slopes"]}, "causal": "bottom-right"}),
    "lists": (lambda L, r: {"key_indices": r.permuted(np.tile(np.arange(S), (L, 1)), axis=1)[:, :50]}, {}),
    "lists of blocks": (lambda L, r: {"key_indices": r.integers(-1, S // 30, (B, G, L, 9))}, {"index_block": 30, "duplicates": "count"}),
    "left padding": (lambda L, r: {"key_starts": np.array([0, 333])}, {"causal": "bottom-right", "window": [400, 0]}),
    "pages": (lambda L, r: pages(r), {"key_lengths": [S, 451], "causal": "bottom-right"}),
    "scales": (lambda L, r: {"K": r.integers(-127, 128, (B, G, S, D), dtype="int8"), "k_scale": r.random(G) / 100,
                             "v_scale": r.random((B, G, S, 1)), "q_scale": r.random(H)}, {}),
}


@pytest.mark.parametrize("L", [2, 150], ids=["shared keys", "shared queries"])
@pytest.mark.parametrize("case", CASES)
def test_ranks_do_not_change_bytes(tmp_path, case, L):
    r = np.random.default_rng(3)
    tensors = {"Q": r.standard_normal((B, H, L, D)), "K": r.standard_normal((B, G, S, D)), "V": r.standard_normal((B, G, S, D))}
    made, options = CASES[case]
    tensors |= made(L, r)
    if "K_pages" in tensors:
        del tensors["K"], tensors["V"]
    arrays = {name: x.astype("float32") if x.dtype == "float64" else x for name, x in tensors.items()}
    np.savez(tmp_path / "in.npz", **arrays)
    job = options | {name: f"in.npz#{name}" for name in arrays} | {"outputs": ["context", "logsumexp", "weights", "key_weights"]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    alone = attn("run", "job.json", "-o", "one.npz", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr.decode()
    for ranks in range(1, 5):
        done = mpi(tmp_path, "run", "job.json", "-o", f"ranks{ranks}.npz", ranks=ranks)
        assert done.returncode == 0, messages(done)
        assert filecmp.cmp(tmp_path / "one.npz", tmp_path / f"ranks{ranks}.npz", shallow=False), ranks
