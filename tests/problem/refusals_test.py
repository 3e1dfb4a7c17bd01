"""Options that contradict each other or the tensors are refused before anything is computed."""

import json

import numpy as np
import pytest

from support.attn import attn


def ones(*shape):
    return np.ones(shape).tolist()


QKV = {"Q": ones(2, 3), "K": ones(4, 3), "V": ones(4, 3)}
CASES = [
    # keys added to the job, parts of the lines on stderr, in order
    ({"past_K": ones(2, 3)}, ["past_K: requires past_V"]),
    ({"past_K": ones(2, 2), "past_V": ones(3, 3)},
     ["past_K: expected (*, 3) to match Q (2, 3), found (2, 2)"]),
    ({"past_K": ones(2, 3), "past_V": ones(3, 3)},
     ["past_V: expected (2, 3) to match past_K (2, 3), found (3, 3)"]),
    ({"past_K": ones(2, 3), "past_V": ones(2, 3), "mask": ones(2, 4)},
     ["mask: expected a shape that broadcasts to the scores (2, 6), found (2, 4)"]),
    ({"key_lengths": [5]}, ["key_lengths: expected lengths from 0 to 4, found 5"]),
    ({"query_lengths": [-1]}, ["query_lengths: expected lengths from 0 to 2, found -1"]),
    ({"key_lengths": [1, 2]},
     ["key_lengths: expected one whole number for each of the 1 batch items, found int64 (2,)"]),
    ({"key_lengths": [1.5]}, ["key_lengths: expected one whole number for each"]),
    ({"documents": [0, 1]}, ["key_documents: required because there are 4 keys"]),
    ({"key_documents": [0, 1, 0, 1]}, ["key_documents: requires documents"]),
    ({"documents": [0, 1, 2], "key_documents": [0, 1, 0, 1]},
     ["documents: expected whole numbers of shape (2,) or (1, 2), found int64 (3,)"]),
    ({"documents": [0, 1], "cu_seqlens_q": [0, 2], "cu_seqlens_k": [0, 4]},
     ["documents: cannot be combined with cu_seqlens_q"]),
    ({"cu_seqlens_q": [0, 3], "cu_seqlens_k": [1, 4]},
     ["cu_seqlens_q: expected non-decreasing whole numbers from 0 to 2, found 0 to 3",
      "cu_seqlens_k: expected non-decreasing whole numbers from 0 to 4, found 1 to 4"]),
    ({"cu_seqlens_q": [0, 2, 1, 2], "cu_seqlens_k": [0.5]},
     ["cu_seqlens_q: expected non-decreasing whole numbers from 0 to 2, found decreasing numbers",
      "cu_seqlens_k: expected non-decreasing whole numbers from 0 to 4, found float64 (1,)"]),
    ({"causal": "top-left", "alignment": "bottom-right"},
     ["causal: top-left contradicts alignment bottom-right"]),
    ({"causal_offset": 1}, ["causal_offset: requires causal, window, mask_rule, chunk, bias_rule, alibi, alibi_slopes or relative_bias"]),
    ({"causal": True, "alignment": "bottom-right", "causal_offset": 2},
     ["causal_offset: cannot be combined with alignment"]),
    ({"causal": True, "alignment": "top-left", "causal_offset": 0},
     ["causal_offset: cannot be combined with alignment"]),
    ({"causal": "top-left", "causal_offset": 0}, ["causal: 'top-left' cannot be combined with causal_offset"]),
    ({"causal": True, "causal_offset": 1, "documents": [0, 0], "key_documents": [0, 0, 0, 0]},
     ["causal_offset: cannot be combined with documents"]),
    ({"causal": True, "causal_offset": 10 ** 12 + 1},
     ["causal_offset: expected a whole number from -1000000000000 to 1000000000000, found 1000000000001"]),
    ({"causal": True, "causal_offset": 1.5}, ["causal_offset: expected a whole number"]),
    ({"layout": "blhd"}, ["layout: 'blhd' requires Q, K and V with 4 axes"]),
    ({"Q": ones(2, 12), "V": ones(4, 12), "heads": 4},
     ["K: expected (*, 12) to match Q (2, 12), found (4, 3); kv_heads = 1 if these are 1 head of 3"]),
    ({"batch_axis": "second"}, ["batch_axis: requires inputs with 3 axes"]),
    ({"mask_polarity": "ignore"}, ["mask_polarity: requires a boolean mask"]),
    ({"mask_polarity": "ignore", "mask": np.full((2, 4), 0.5).tolist()},
     ["mask_polarity: requires a boolean mask"]),
    ({"short_mask": "hide"}, ["short_mask: requires mask"]),
    ({"key_mask": [1, 0]}, ["key_mask: expected shape (4,) or (1, 4), found (2,)"]),
    ({"bias_K": ones(3)}, ["bias_K: requires bias_V"]),
    ({"bias_K": ones(2), "bias_V": ones(3)},
     ["bias_K: expected (3,) to match Q (2, 3), found (2,)"]),
    ({"sinks": ones(2)}, ["sinks: expected (1,) to match heads = 1, found (2,)"]),
    ({"gate": ones(2, 2)}, ["gate: expected (2, 3) to match V (4, 3), found (2, 2)"]),
    ({"W_gate": ones(3, 3)}, ["W_gate: requires embeddings"]),
    ({"b_gate": ones(3)}, ["b_gate: requires W_gate"]),
    ({"Q": ones(3, 2, 3), "K": ones(4, 2), "V": ones(4, 3)}, ["K: expected (*, 3) to match Q (3, 2, 3), found (4, 2)"]),
    ({"Q": ones(3, 2, 3), "V": ones(5, 3)}, ["V: expected (4, *) to match K (4, 3), found (5, 3)"]),
    ({"bias": ones(2, 3)}, ["bias: expected a shape that broadcasts to the scores (2, 4), found (2, 3)"]),
    ({"bias": [[True]]}, ["bias: expected numbers to add, found booleans; use mask"]),
    ({"dropout_p": 0.5}, ["dropout_p: requires dropout_mask"]),
    ({"dropout_mask": ones(2, 4)}, ["dropout_mask: requires dropout_p"]),
    ({"dropout_mask": ones(2, 4), "dropout_p": 1}, ["dropout_p: expected a finite number >= 0 and < 1, found 1"]),
    ({"dropout_mask": ones(2, 4), "dropout_p": -0.1}, ["dropout_p: expected a finite number >= 0 and < 1, found -0.1"]),
    ({"dropout_mask": ones(2, 3), "dropout_p": 0.5},
     ["dropout_mask: expected a shape that broadcasts to the weights (2, 4), found (2, 3)"]),
    ({"dropout_mask": [[2.0], [0.0]], "dropout_p": 0.5},
     ["dropout_mask: expected booleans, or the numbers 0 and 1, found 2"]),
    ({"dropout_mask": [["NaN"], [0.0]], "dropout_p": 0.5},
     ["dropout_mask: expected booleans, or the numbers 0 and 1, found nan"]),
    ({"head_scale": ones(2)}, ["head_scale: expected (1,) to match heads = 1, found (2,)"]),
    ({"sinks": ones(1), "normaliser": "sparsemax"}, ["sinks: requires normaliser softmax"]),
    ({"sinks": ones(1), "softmax": {"axis": "all"}}, ["sinks: requires softmax.axis keys"]),
    ({"softcap_order": "after-mask"}, ["softcap_order: requires softcap"]),
    ({"q_norm": ones(3)}, ["q_norm: requires qk_norm rms, l2 or layer"]),
    ({"qk_norm": "rms", "k_norm": ones(4)},
     ["k_norm: expected (3,) to match Q (2, 3), found (4,)"]),
    ({"qk_norm": "rms", "k_norm_bias": ones(3)}, ["k_norm_bias: requires qk_norm layer"]),
    ({"qk_norm": "rms", "Q": ones(2, 6), "K": ones(4, 6), "V": ones(4, 6), "heads": 2, "q_norm": ones(6)},
     ["q_norm: expected (3,) to match Q (2, 6), found (6,); set qk_norm_axis: all to normalise all heads"]),
    ({"qk_norm": "rms", "Q": ones(2, 6), "K": ones(4, 6), "V": ones(4, 6), "heads": 2, "k_norm": ones(3, 2)},
     ["k_norm: expected (2, 3) to match heads = 2 and Q (2, 6), found (3, 2)"]),
    ({"qk_norm": "rms", "qk_norm_axis": "all", "Q": ones(2, 6), "K": ones(4, 6), "V": ones(4, 6), "heads": 2,
      "q_norm": ones(3)},
     ["q_norm: expected (6,) to match Q (2, 6), found (3,)"]),
    ({"qk_norm_axis": "all"}, ["qk_norm_axis: requires qk_norm rms, l2 or layer"]),
    ({"qk_norm_epsilon": 1}, ["qk_norm_epsilon: requires qk_norm rms, l2 or layer"]),
    ({"alibi": True, "alibi_slopes": ones(1)}, ["alibi: cannot be combined with alibi_slopes"]),
    ({"alibi_slopes": ones(2)}, ["alibi_slopes: expected (1,) to match heads = 1, found (2,)"]),
    ({"relative": {"max_distance": 9}}, ["relative.max_distance: requires relative_bias"]),
    ({"relative_bias": ones(3, 1)}, ["relative_bias: expected an even number of buckets, at least 4"]),
    ({"relative_bias": ones(32, 1), "relative": {"max_distance": 8}},
     ["relative.max_distance: expected more than 8"]),
    ({"top_k": 2}, ["top_k: requires normaliser top_k"]),
    ({"normaliser": "top_k"}, ["normaliser: 'top_k' requires top_k"]),
    ({"temperature": 0}, ["temperature: expected a finite number > 0, found 0"]),
    ({"score": "general"}, ["score: 'general' requires W_score"]),
    ({"score": "general", "W_score": ones(3, 2)},
     ["W_score: expected (3, 3) to match K (4, 3), found (3, 2)"]),
    ({"score": "concat", "W_score": ones(3, 2)}, ["W_score: expected (6, *) to match Q"]),
    ({"W_score": ones(3, 3), "v_score": ones(3)},
     ["W_score: requires score general or concat", "v_score: requires score additive or concat"]),
    ({"score": "additive", "W_score_Q": ones(3, 2)}, ["W_score_K: expected (3, 2) to match"]),
    ({"score": "additive", "g_score": ones(2)}, ["g_score: expected one number, found (2,)"]),
    ({"position": {"base": 10}}, ["position.base: requires position.kind sinusoidal"]),
    ({"rotary": {"base": 10}}, ["rotary.base: requires rotary.kind half or interleaved"]),
    ({"rotary": {"kind": "half"}}, ["rotary.width: expected an even number from 2 to 3, found 3"]),
    ({"rotary": {"kind": "half", "width": 2, "factor": 2}},
     ["rotary.factor: requires rotary.scaling linear, ntk, dynamic-ntk, yarn, llama3 or longrope"]),
    ({"rotary": {"kind": "half", "width": 2, "scaling": "longrope", "original_length": 9}},
     ["rotary.scaling: 'longrope' requires rotary.short_factor"]),
    ({"rotary": {"kind": "half", "width": 2, "scaling": "longrope", "original_length": 9, "short_factor": [1]}},
     ["rotary.short_factor: requires rotary.long_factor"]),
    ({"rotary": {"kind": "half", "width": 2, "scaling": "longrope", "original_length": 9,
                 "short_factor": [1, 2], "long_factor": [0]}},
     ["rotary.short_factor: expected a number for each pair of columns, (1,), found (2,)",
      "rotary.long_factor: expected finite numbers > 0"]),
    ({"rotary": {"kind": "half", "width": 2, "long_factor": [1], "short_factor": [1]}},
     ["rotary.long_factor: requires rotary.scaling longrope"]),  # said once for both factors
    ({"rotary": {"kind": "half", "width": 2, "scaling": "yarn", "factor": 2}},
     ["rotary.scaling: 'yarn' requires rotary.original_length"]),
    ({"rotary": {"kind": "half", "width": 2, "scaling": "ntk", "factor": 2}},
     ["rotary.kind: expected heads of at least 4 columns, found 3"]),
    ({"rotary": {"kind": "half", "width": 2, "beta_fast": 9}},
     ["rotary.beta_fast: requires rotary.scaling yarn"]),
    ({"rotary": {"kind": "half", "width": 2, "low_frequency_factor": 2}},
     ["rotary.low_frequency_factor: requires rotary.scaling llama3"]),
    ({"cos": ones(9, 1), "sin": ones(9, 1)}, ["cos: requires rotary.kind half or interleaved"]),
    ({"cos": ones(3, 1), "sin": ones(3, 1), "rotary": {"kind": "half"}},
     ["cos: expected a row for position 3, found (3, 1)"]),
    ({"cos": ones(9, 1), "sin": ones(8, 1), "rotary": {"kind": "half"}},
     ["sin: expected the shape of cos (9, 1), found (8, 1)"]),
    ({"cos": ones(9, 2), "sin": ones(9, 2), "rotary": {"kind": "half"}},
     ["cos: expected (positions, r/2) or (B, L, r/2) with r up to 3, found (9, 2)"]),
    ({"cos": ones(9, 1), "sin": ones(9, 1), "rotary": {"kind": "half", "base": 10}},
     ["cos: cannot be combined with rotary.base"]),
    ({"position_ids": [0, 1], "rotary": {"kind": "half", "width": 2}},
     ["key_position_ids: required because there are 4 new keys"]),
    ({"query_scale": {"factor": 0.1}}, ["query_scale.factor: requires query_scale.length"]),
    ({"query_scale": {"length": 9}}, ["query_scale.length: requires query_scale.factor"]),
    ({"position_ids": [0, 1]}, ["position_ids: requires rotary.kind or query_scale.factor"]),
]


@pytest.mark.parametrize("added, lines", CASES, ids=[lines[0] for _, lines in CASES])
def test_job_is_refused(added, lines):
    """Each mistake has a line of its own, and there are no other lines."""
    run = attn("run", "-", stdin=json.dumps({**QKV, **added}))
    stderr = run.stderr.decode().splitlines()
    assert run.returncode == 65
    assert run.stdout == b""
    assert len(stderr) == len(lines)
    for line in lines:
        assert any(line in found for found in stderr), f"{line!r} not in {stderr}"


def test_lengths_are_counted_by_batch_items():
    job = {"Q": ones(2, 2, 3), "K": ones(2, 4, 3), "key_lengths": [1, 2, 3]}
    run = attn("run", "-", stdin=json.dumps(job))
    assert b"each of the 2 batch items" in run.stderr
