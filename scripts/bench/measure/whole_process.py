#!/usr/bin/python3
"""Attention from .npy to .npy with NumPy and SciPy, as an experienced user would write it.

    whole_process.py Q K V CONTEXT [WEIGHTS]      Q, K and V are (H, L, D)
"""

import sys

import numpy as np
from scipy.special import softmax

q, k, v = (np.load(path) for path in sys.argv[1:4])
scale = q.dtype.type(1 / np.sqrt(q.shape[-1]))
context = np.empty_like(q)
weights = None
if len(sys.argv) > 5:
    weights = np.lib.format.open_memmap(sys.argv[5], "w+", q.dtype, (len(q), len(q[0]), len(k[0])))
for h in range(len(q)):
    scores = q[h] @ k[h].T
    scores *= scale
    row = softmax(scores, axis=-1)
    context[h] = row @ v[h]
    if weights is not None:
        weights[h] = row
np.save(sys.argv[4], context)
