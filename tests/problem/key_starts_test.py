"""The input `key_starts`: keys before it are padding, and positions count from it."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.jobs import run_arrays, start_arrays

B, H, G, L, S, D = 3, 4, 2, 4, 9, 5


def tensors(seed=0, L=L):
    rng = np.random.default_rng(seed)
    return {"Q": rng.standard_normal((B, H, L, D)), "K": rng.standard_normal((B, G, S, D)),
            "V": rng.standard_normal((B, G, S, D))}


def run(folder, tensors, outputs=("context", "weights", "logsumexp"), **options):
    return run_arrays(folder, tensors, outputs=list(outputs), **options)


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("seed", range(12))
def test_each_item_has_the_numbers_of_its_keys_alone(tmp_path, seed, path):
    """FlashAttention's key_leftpad: item b is computed as if it had the keys starts[b] to lengths[b] - 1 only."""
    rng = np.random.default_rng(seed)
    t = tensors(seed)
    starts = rng.integers(0, 5, B)
    lengths = rng.integers(5, S + 1, B)
    options = [{"causal": "bottom-right"}, {"causal": "bottom-right", "window": [2, -1]}, {"alibi": True},
               {"alignment": "bottom-right", "mask_rule": "q >= k and k % 2 == 0 or k == 0"}][seed % 4]
    for b in range(B):
        for name in "KV":
            t[name][b, :, :starts[b]] = np.nan  # as what a cache may hold there
    aligned = {"alignment": "bottom-right"} | options
    whole = run(tmp_path, t, key_starts=starts.tolist(), key_lengths=lengths.tolist(), path=path, **aligned)
    for b in range(B):
        keys = slice(starts[b], lengths[b])
        alone = run(tmp_path, {name: x[b:b + 1, :, keys] if name in "KV" else x[b:b + 1] for name, x in t.items()},
                    path=path, **aligned)
        np.testing.assert_allclose(whole["context"][b], alone["context"][0], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(whole["logsumexp"][b], alone["logsumexp"][0], rtol=1e-13)
        expected = np.zeros((H, L, S))
        expected[:, :, keys] = alone["weights"][0]
        np.testing.assert_allclose(whole["weights"][b], expected, rtol=1e-13, atol=1e-15)


def test_left_padded_queries_and_keys(tmp_path):
    """As in transformers' generation: queries and keys of an item both start at the same index."""
    t = tensors(3, L=S)
    starts = [0, 2, 5]
    whole = run(tmp_path, t, key_starts=starts, causal=True, mask_rule="q // 3 == k // 3")
    for b, start in enumerate(starts):
        alone = run(tmp_path, {name: x[b:b + 1, :, start:] for name, x in t.items()}, causal=True,
                    mask_rule="q // 3 == k // 3")
        np.testing.assert_allclose(whole["context"][b, :, start:], alone["context"][0], rtol=1e-13)
        assert (whole["weights"][b, :, :start] == 0).all(), "padded queries see no key"
        assert np.isneginf(whole["logsumexp"][b, :, :start]).all()


def test_one_number_is_of_all_items(tmp_path):
    t = tensors()
    one = run(tmp_path, t, key_starts=2, causal="bottom-right")
    three = run(tmp_path, t, key_starts=[2, 2, 2], causal="bottom-right")
    assert (one["context"] == three["context"]).all()


def test_a_start_at_the_end_hides_all_keys(tmp_path):
    out = run(tmp_path, tensors(), key_starts=[S, 4, 0], key_lengths=[S, 3, 0])
    assert (out["context"] == 0).all() and np.isneginf(out["logsumexp"]).all()


def test_positions_count_from_it_in_a_mask_rule(tmp_path):
    visible = run(tmp_path, tensors(), key_starts=[0, 2, 5], mask_rule="k == 0")["weights"] > 0
    assert [np.flatnonzero(visible[b, 0, 0]).tolist() for b in range(B)] == [[0], [2], [5]]


@pytest.mark.parametrize("starts, problem", [
    ([0, 1], "one whole number for each of the 3 batch items"), ([0, 1, S + 1], f"lengths from 0 to {S}"),
    ([0, -1, 2], f"lengths from 0 to {S}"), ([0.5, 1, 1], "key_starts")])
def test_bad_starts(tmp_path, starts, problem):
    assert_error(start_arrays(tmp_path, tensors(), key_starts=starts), 65, problem)


def test_documents_have_no_start(tmp_path):
    assert_error(start_arrays(tmp_path, tensors(L=S), key_starts=[0, 1, 2], documents=[0] * 4 + [1] * 5), 65,
                 "documents have no padding before their keys")


def test_diagnosis_names_visible_padding(tmp_path):
    t = tensors(5)
    result = run(tmp_path, t, causal="bottom-right", outputs=["context"])
    np.savez(tmp_path / "wrong.npz", context=result["context"])
    run(tmp_path, t, key_starts=[1, 2, 3], causal="bottom-right", outputs=["context"])
    done = attn("compare", tmp_path / "wrong.npz", "--reference", tmp_path / "job.json", "--diagnose", "--json")
    assert [found["id"] for found in json.loads(done.stdout)["tensors"][0]["diagnosis"]] == ["mask.key_starts_dropped"]
