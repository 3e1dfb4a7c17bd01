"""Rotary scalings of HuggingFace transformers (ROPE_INIT_FUNCTIONS), by the queries that they rotate.

The library computes frequencies in float32; `exact` computes them in float64.
"""

import unittest.mock

import numpy as np
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from peers.cases import Case, Draw

COUNT = 300
OURS = {"linear": "linear", "dynamic": "dynamic-ntk", "yarn": "yarn", "longrope": "longrope", "llama3": "llama3"}


def parameters_of(draw, r):
    """Random parameters of a scaling, as in config.json, and as in a job."""
    kind = draw.pick(*OURS)
    theirs = {"rope_type": kind, "rope_theta": draw.pick(100.0, 1e4, 5e5), "factor": draw.pick(1.0, 2.0, 4.5)}
    ours = {"kind": "half", "scaling": OURS[kind], "base": theirs["rope_theta"], "factor": theirs["factor"]}
    original = draw.pick(32, 100)
    if kind != "linear":
        ours["original_length"] = original
    if kind in ("yarn", "longrope", "llama3"):
        theirs["original_max_position_embeddings"] = original
    if kind in ("yarn", "longrope") and draw.chance(0.5):
        theirs["attention_factor"] = ours["attention_factor"] = 1.25
    more = {}
    if kind == "yarn" and draw.chance(0.5):
        more = {"beta_fast": 8.0, "beta_slow": 2.0, "truncate": draw.chance(0.5)}
    if kind == "llama3":
        more = {"low_freq_factor": draw.pick(1.0, 2.0), "high_freq_factor": 4.0}
        ours |= {"low_frequency_factor": more["low_freq_factor"], "high_frequency_factor": 4.0}
    elif kind == "longrope":
        more = {f"{name}_factor": draw.rng.uniform(1, 4, r // 2).tolist() for name in ("short", "long")}
        ours |= more
    else:
        ours |= more
    return {**theirs, **more}, ours, original


def rotated(q, inv_freq, factor, positions):
    """apply_rotary_pos_emb of transformers."""
    angles = torch.outer(positions.to(inv_freq.dtype), inv_freq)
    cos, sin = (torch.cat([x, x], -1).to(q.dtype) * factor for x in (angles.cos(), angles.sin()))
    half = q.shape[-1] // 2
    return q * cos + torch.cat([-q[..., half:], q[..., :half]], -1) * sin


def scalings():
    for seed in range(COUNT):
        draw, dtype = Draw("rotary", seed), ["float64", "float32"][seed % 2]
        r, L = draw.pick(4, 8, 16), draw.pick(1, 3, 20)
        theirs, ours, original = parameters_of(draw, r)
        config = transformers.LlamaConfig(hidden_size=2 * r, num_attention_heads=2, head_dim=r,
                                          max_position_embeddings=original, rope_parameters=theirs)
        positions = torch.arange(L) + draw.pick(0, 25, 31, 80, 99)
        q = draw.normal(L, r, dtype=dtype)

        def compute(as_dtype):
            context = int(positions[-1]) + 1
            inv_freq, factor = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, "cpu", seq_len=context)
            queries = rotated(torch.from_numpy(q).to(as_dtype), inv_freq.to(as_dtype), factor, positions)
            return {"queries": queries.numpy()}

        with unittest.mock.patch("torch.float", torch.float64), unittest.mock.patch("torch.float32", torch.float64), \
             unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
            exact = compute(torch.float64)
        library = compute(getattr(torch, dtype)) if dtype == "float32" else exact
        job = {"Q": q, "K": q, "position_ids": positions.numpy(), "rotary": ours, "outputs": ["queries"]}
        yield Case(f"{OURS[theirs['rope_type']]} {seed}", dtype, job, library, exact)
