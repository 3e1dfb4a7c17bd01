"""`compare --reference` computes each batch item and group of heads by itself: every option of theirs reaches its own."""

import json

import numpy as np
import pytest

from support.attn import attn

B, H, G, L, S, D = 2, 4, 2, 7, 9, 4
R = np.random.default_rng(3)


def numbers(*shape):
    return R.standard_normal(shape)


OPTIONS = {
    "mask of each head": {"mask": R.random((B, H, L, S)) < .8},
    "mask of each batch item": {"mask": R.random((B, 1, L, S)) < .8},
    "additive mask of each head": {"mask": numbers(1, H, L, S)},
    "bias": {"bias": numbers(H, L, S)},
    "mask of keys": {"key_mask": R.random((B, S)) < .8},
    "lengths": {"key_lengths": np.array([5, 9]), "query_lengths": np.array([7, 4]), "causal": True},
    "documents": {"documents": np.array([[0, 0, 1, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1, 0]]),
                  "key_documents": np.array([[0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 0, 1, 0, 1, 0, 1, 0]])},
    "slopes of each batch item": {"alibi_slopes": R.random((B, H)), "causal": True},
    "relative bias": {"relative_bias": numbers(8, H), "relative_max_distance": 6},
    "sinks": {"sinks": numbers(H), "window": [3, 0]},
    "head scale": {"head_scale": numbers(H)},
    "appended keys": {"bias_K": numbers(G * D), "bias_V": numbers(G * D)},
    "zero key": {"zero_key": True},
    "past": {"past_K": numbers(B, G, 3, D), "past_V": numbers(B, G, 3, D), "causal": True},
    "gate": {"gate": numbers(B, H, L, D)},
    "norms of each head": {"qk_norm": "rms", "q_norm": numbers(H, D), "k_norm": numbers(G, D)},
    "rotary": {"rotary": {"kind": "half"}, "position_ids": np.arange(B * L).reshape(B, L),
               "key_position_ids": np.arange(B * S).reshape(B, S)},
    "dropout": {"dropout_mask": R.random((B, H, L, S)) < .8, "dropout_p": .2},
    "projected result": {"W_O": numbers(H * D, 5)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_each_group_of_heads_has_its_own_options(tmp_path, name):
    options = OPTIONS[name]
    tensors = {"Q": numbers(B, H, L, D), "K": numbers(B, G, S, D), "V": numbers(B, G, S, D)}
    tensors |= {key: x for key, x in options.items() if isinstance(x, np.ndarray)}
    np.savez(tmp_path / "in.npz", **tensors)
    wanted = ["weights", "logsumexp", "entropy", "output" if "W_O" in tensors else "context"]
    job = {key: x for key, x in options.items() if key not in tensors} | {"outputs": wanted}
    (tmp_path / "job.json").write_text(json.dumps(job | {key: f"in.npz#{key}" for key in tensors}))
    assert attn("run", "job.json", "-o", "result.npz", cwd=tmp_path).returncode == 0
    run = attn("compare", "result.npz", "--reference", "job.json", cwd=tmp_path)
    assert run.stdout.decode().endswith("4 of 4 tensors pass\n"), run
    result = dict(np.load(tmp_path / "result.npz"))
    for key, x in result.items():  # and the bound sees what belongs to another head
        np.savez(tmp_path / "other.npz", **{key: np.roll(x, 1, 1 if x.ndim > 3 else 0)})
        assert attn("compare", "other.npz", "--reference", "job.json", cwd=tmp_path).returncode == 1, key
