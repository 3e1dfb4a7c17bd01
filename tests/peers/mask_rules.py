"""Mask rules that show the keys of masks of other libraries: FlexAttention's mask_mod and transformers' models. Lists of
blocks that show those of FlexAttention's BlockMask."""

import json
import pathlib
import random
import tempfile

import numpy as np
import torch
import transformers
from torch.nn.attention.flex_attention import BlockMask, create_mask
from transformers import masking_utils
from transformers.models.gemma3.modeling_gemma3 import create_masks_for_vision_model, get_block_sequence_ids_for_mask

from support.attn import attn

JOBS = 20  # of each rule


def shown(job, shape):
    """The mask that attn makes, (B, H, L, S)."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "job.json").write_text(json.dumps(job))
        run = attn("mask", "job.json", "--shape", ",".join(map(str, shape)), "-o", "mask.npy", cwd=path)
        assert run.returncode == 0, run.stderr.decode()
        return np.broadcast_to(np.load(path / "mask.npy"), shape)


def flex_rules(rng, L, S):
    """Name -> (rule, mask_mod, tables)."""
    W, C, P, M, R = (rng.randint(1, 12) for _ in range(5))
    documents = np.sort([rng.randint(0, 3) for _ in range(max(L, S))])
    blocks = np.array([[rng.random() < 0.5 for _ in range(S // M + 1)] for _ in range(L // M + 1)])
    start = [rng.randint(0, q) for q in range(L)]
    doc, grid, first = map(torch.tensor, (documents, blocks, start))
    return {
        "causal": ("q >= k", lambda b, h, q, k: q >= k, {}),
        "window": (f"q >= k and q - k <= {W}", lambda b, h, q, k: (q >= k) & (q - k <= W), {}),
        "prefix": (f"k < {P} or q >= k", lambda b, h, q, k: (k < P) | (q >= k), {}),
        "documents": ("doc[q] == doc[k] and q >= k", lambda b, h, q, k: (doc[q] == doc[k]) & (q >= k), {"doc": documents}),
        "chunks": (f"q // {C} == k // {C}", lambda b, h, q, k: q // C == k // C, {}),
        "dilated": (f"abs(q - k) <= {W} and (q - k) % {R} == 0",
                    lambda b, h, q, k: ((q - k).abs() <= W) & ((q - k) % R == 0), {}),
        "first tokens": (f"q >= k and (q - k < {W} or k < {P})", lambda b, h, q, k: (q >= k) & ((q - k < W) | (k < P)), {}),
        "blocks": (f"blocks[q // {M}, k // {M}]", lambda b, h, q, k: grid[q // M, k // M], {"blocks": blocks}),
        "grid": (f"abs(q % {C} - k % {C}) <= {R} and abs(q // {C} - k // {C}) <= {R}",
                 lambda b, h, q, k: ((q % C - k % C).abs() <= R) & ((q // C - k // C).abs() <= R), {}),
        "start of each query": ("start[q] <= k <= q", lambda b, h, q, k: (first[q] <= k) & (k <= q), {"start": start}),
        "heads": (f"q >= k and (h % 2 == 0 or q - k < {W})",
                  lambda b, h, q, k: (q >= k) & ((h % 2 == 0) | (q - k < W)), {}),
        "items": (f"q >= k + b * {R}", lambda b, h, q, k: q >= k + b * R, {}),
    }


def config_of(kind, **more):
    config = kind(num_hidden_layers=2, hidden_size=8, num_attention_heads=2, num_key_value_heads=2, head_dim=4,
                  vocab_size=8, intermediate_size=8, **more)
    config._attn_implementation = "sdpa"
    return config


def transformers_rules(rng, L, _):
    """Name -> (rule, mask (B, 1, L, L), tables)."""
    B, W, C = 2, rng.randint(2, 9), rng.randint(2, 9)
    padding = [rng.randint(0, L // 2) for _ in range(B)]
    types = torch.tensor([[0] * p + [int(rng.random() < 0.7) for _ in range(L - p)] for p in padding])
    present = torch.tensor([[int(i >= p) for i in range(L)] for p in padding])
    inputs = dict(inputs_embeds=torch.zeros(B, L, 8), cache=None)
    llama = config_of(transformers.Llama4TextConfig, attention_chunk_size=C)
    gemma = config_of(transformers.Gemma3TextConfig, sliding_window=W)
    bert = transformers.ModernBertConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2, vocab_size=8,
                                         intermediate_size=8, local_attention=2 * W)
    bert._attn_implementation = "sdpa"
    images = get_block_sequence_ids_for_mask(types)
    masks = create_masks_for_vision_model(gemma, attention_mask=present, position_ids=None, block_sequence_ids=images,
                                          **inputs)
    prefix = torch.where(types == 0, 0, -1)
    image = {"image": images.tolist(), "left": padding}
    in_image = "(q >= k or image[q] >= 0 and image[q] == image[k]) and k >= left[b]"
    skip = dict(allow_is_causal_skip=False)
    return {
        "Llama 4, chunks": (f"q >= k >= left[b] and (q - left[b]) // {C} == (k - left[b]) // {C}",
                            masking_utils.create_chunked_causal_mask(llama, attention_mask=present, **inputs, **skip),
                            {"left": padding}),
        "Gemma 3, all layers": (in_image, masks["full_attention"], image),
        "Gemma 3, sliding layers": (f"{in_image} and q - k < {W}", masks["sliding_attention"], image),
        "PaliGemma": ("(q >= k or prefix[q] == 0 and prefix[k] == 0) and k >= left[b]",
                      masking_utils.create_causal_mask(gemma, attention_mask=present, block_sequence_ids=prefix, **inputs,
                                                       **skip),
                      {"prefix": prefix.tolist(), "left": padding}),
        "ModernBERT, sliding layers": (f"abs(q - k) <= {W} and k >= left[b]",
                                       masking_utils.create_bidirectional_sliding_window_mask(
                                           bert, attention_mask=present, inputs_embeds=inputs["inputs_embeds"],
                                           allow_is_bidirectional_skip=False),
                                       {"left": padding}),
    }


def rule_job(rule, tables):
    used = {name: np.asarray(table).tolist() for name, table in tables.items()}
    return {"mask_rule": rule} | ({"mask_tables": used} if used else {})


def block_lists(rng, B, H, L, S):
    """A job with lists of blocks for blocks of queries, and the mask of the same BlockMask."""
    M = rng.randint(1, 9)
    rows, columns = -(-L // M), -(-S // M)
    lists = torch.tensor([[[rng.sample(range(columns), columns) for _ in range(rows)] for _ in range(H)] for _ in range(B)])
    counts = torch.randint(0, columns + 1, (B, H, rows), generator=torch.Generator().manual_seed(rng.getrandbits(31)))
    blocks = BlockMask.from_kv_blocks(counts.int(), lists.int(), BLOCK_SIZE=M).to_dense()
    listed = torch.where(torch.arange(columns) < counts[..., None], lists, -1).repeat_interleave(M, 2)[:, :, :L]
    dense = blocks.repeat_interleave(M, 2).repeat_interleave(M, 3)[:, :, :L, :S]
    return {"key_indices": listed.tolist(), "index_block": M}, dense != 0


def compare():
    """({kind: (masks, equal)}, differences)"""
    counts, differences = {}, []
    for seed in range(5 * JOBS):
        rng = random.Random(seed)
        shape = 2, 2, rng.randint(1, 40), rng.randint(1, 40)
        job, theirs = block_lists(rng, *shape)
        if not np.array_equal(shown(job, shape), theirs.numpy()):
            differences.append(f"BlockMask, seed {seed}: {shape}, blocks of {job['index_block']}")
    counts["BlockMask, key_indices"] = 5 * JOBS, 5 * JOBS - len(differences)
    of_models = f"transformers {transformers.__version__}: Llama 4, Gemma 3, PaliGemma, ModernBERT"
    for kind, rules, B, H in ("FlexAttention, 12 rules", flex_rules, 2, 2), (of_models, transformers_rules, 2, 1):
        done = equal = 0
        for seed in range(JOBS):
            rng = random.Random(seed)
            L = rng.randint(1, 40)
            S = L if rules is transformers_rules else rng.randint(1, 40)
            for name, (rule, theirs, tables) in rules(rng, L, S).items():
                if callable(theirs):
                    theirs = create_mask(theirs, B, H, L, S, device="cpu")
                ours = shown(rule_job(rule, tables), (B, H, L, S))
                done += 1
                if np.array_equal(np.broadcast_to(theirs.numpy(), ours.shape), ours):
                    equal += 1
                else:
                    differences.append(f"{kind}, {name}, seed {seed}: {rule}, {L} queries, {S} keys")
        counts[kind] = done, equal
    return counts, differences
