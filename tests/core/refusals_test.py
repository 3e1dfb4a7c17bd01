#!/usr/bin/env python3
"""Options that contradict each other or their tensors are told before anything is computed."""

import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import Checks, attn  # noqa: E402


def ones(*shape):
    return np.ones(shape).tolist()


QKV = {"Q": ones(2, 3), "K": ones(4, 3), "V": ones(4, 3)}
BATCH = {"Q": ones(2, 2, 3), "K": ones(2, 4, 3)}
CASES = [
    # what is added to the job, what the lines say
    ({"past_K": ones(2, 3)}, ["past_K: expected past_V beside it, found none"]),
    ({"past_K": ones(2, 2), "past_V": ones(3, 3)},
     ["past_K: expected (*, 3) to match Q (2, 3), found (2, 2)"]),
    ({"past_K": ones(2, 3), "past_V": ones(3, 3)},
     ["past_V: expected (2, 3) to match past_K (2, 3), found (3, 3)"]),
    ({"past_K": ones(2, 3), "past_V": ones(2, 3), "mask": ones(2, 4)},
     ["mask: expected a shape that broadcasts to the scores (2, 6), found (2, 4)"]),
    ({"key_lengths": [5]}, ["key_lengths: expected lengths of 0 to 4, found 5"]),
    ({"query_lengths": [-1]}, ["query_lengths: expected lengths of 0 to 2, found -1"]),
    ({"key_lengths": [1, 2]},
     ["key_lengths: expected a whole number for each of the 1 batch rows, found int64 (2,)"]),
    ({"key_lengths": [1.5]}, ["key_lengths: expected a whole number for each"]),
    ({"documents": [0, 1]}, ["key_documents: expected the documents of the 4 keys"]),
    ({"key_documents": [0, 1, 0, 1]}, ["documents: expected the documents of the queries"]),
    ({"documents": [0, 1, 2], "key_documents": [0, 1, 0, 1]},
     ["documents: expected whole numbers of shape (2,) or (1, 2), found int64 (3,)"]),
    ({"documents": [0, 1], "cu_seqlens_q": [0, 2], "cu_seqlens_k": [0, 4]},
     ["documents: expected either documents or cu_seqlens, found both"]),
    ({"cu_seqlens_q": [0, 3], "cu_seqlens_k": [1, 4]},
     ["cu_seqlens_q: expected whole numbers that rise from 0 to 2, found others",
      "cu_seqlens_k: expected whole numbers that rise from 0 to 4, found others"]),
    ({"causal": "top-left", "alignment": "bottom-right"}, ["causal: expected the alignment bottom-right of -, found top-left"]),
]


def main():
    checks = Checks("refusals")
    for added, lines in CASES:
        run = attn("run", "-", stdin=json.dumps({**QKV, **added}))
        err = run.stderr.decode()
        checks.check(run.returncode == 65 and run.stdout == b"", f"{added}: {run}")
        for line in lines:
            checks.check(line in err, f"{added}: expected '{line}' in {err}")
        checks.check(len(err.splitlines()) == len(lines), f"{added}: all, and no more: {err}")
    run = attn("run", "-", stdin=json.dumps({**BATCH, "key_lengths": [1, 2, 3]}))
    checks.check(b"each of the 2 batch rows" in run.stderr, f"{run}")
    checks.finish()


main()
