#!/usr/bin/python3
"""The worked example, self-attention over four words, with NumPy and SciPy."""

import numpy as np
from scipy.special import softmax

words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])

np.random.seed(42)
W_Q, W_K, W_V = (np.random.randint(3, size=(3, 3)) for _ in range(3))

scores = (words @ W_Q) @ (words @ W_K).T
weights = softmax(scores / np.sqrt(W_K.shape[1]), axis=1)
context = weights @ (words @ W_V)

for name, array in [("scores", scores), ("weights", weights), ("context", context)]:
    print(name)
    print(array)
