#!/usr/bin/python3
"""Equivalent of `attn batch` as a Python loop in one process with json and NumPy.

    batch_loop.py FOLDER OUT-FOLDER npz|json   one file per job file
    batch_loop.py - < JOBS > RESULTS           one line of JSON per line
"""

import json
import os
import sys

import numpy as np


def compute(job):
    np.random.seed(job["seed"])
    words = np.array(job["embeddings"])
    queries, keys, values = (
        words @ np.random.randint(job[name]["randint"]["high"], size=job[name]["randint"]["shape"])
        for name in ("W_Q", "W_K", "W_V"))
    scores = queries @ keys.T
    scaled = scores / np.sqrt(keys.shape[1])
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return {"scores": scores, "weights": weights, "context": weights @ values}


def as_json(job):
    return json.dumps({name: array.tolist() for name, array in compute(job).items()})


if sys.argv[1] == "-":
    for line in sys.stdin:
        print(as_json(json.loads(line)))
else:
    folder, out, suffix = sys.argv[1:]
    os.makedirs(out)
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            job = json.load(file)
        path = os.path.join(out, f"{name[:-5]}.{suffix}")
        if suffix == "npz":
            np.savez(path, **compute(job))
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(as_json(job))
