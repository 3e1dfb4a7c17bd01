#!/usr/bin/python3
"""Equivalent of `attn batch` as a Python loop in one process with json, NumPy and SciPy.

    batch_loop.py FOLDER OUT-FOLDER      one .npz per job file
    batch_loop.py - < JOBS > RESULTS     one line of JSON per line
"""

import json
import os
import sys

import numpy as np
from scipy.special import softmax


def compute(job):
    np.random.seed(job["seed"])
    words = np.array(job["embeddings"])
    queries, keys, values = (
        words @ np.random.randint(job[name]["randint"]["high"], size=job[name]["randint"]["shape"])
        for name in ("W_Q", "W_K", "W_V"))
    scores = queries @ keys.T
    weights = softmax(scores / np.sqrt(keys.shape[1]), axis=1)
    return {"scores": scores, "weights": weights, "context": weights @ values}


if sys.argv[1] == "-":
    for line in sys.stdin:
        outputs = compute(json.loads(line))
        print(json.dumps({name: array.tolist() for name, array in outputs.items()}))
else:
    folder, out = sys.argv[1:]
    os.makedirs(out)
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            np.savez(os.path.join(out, name[:-5] + ".npz"), **compute(json.load(file)))
