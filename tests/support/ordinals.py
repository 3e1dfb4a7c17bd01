"""Positions of numbers among the representable ones."""

import numpy as np


def ordinals(array, dtype):
    """Positions among the representable numbers, as Python integers; both zeros are 0."""
    bits = array.astype(dtype).view(f"i{np.dtype(dtype).itemsize}").ravel().tolist()
    least = -2 ** (8 * np.dtype(dtype).itemsize - 1)
    return [i if i >= 0 else least - i for i in bits]
