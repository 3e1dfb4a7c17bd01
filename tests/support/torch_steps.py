"""Lists of steps for `attn random FILE.json --generator torch`."""

import math

import numpy as np


def seeded(seed):
    return {"seed": seed}


def step(name, method, **arguments):
    return {method: arguments, "to": name}


def shape_of(size):
    """An odd shape with about `size` elements: (1, 3, size / 3) if 3 divides it."""
    return [1, 3, size // 3] if size % 3 == 0 else [size]


def steps_of(prefix, size):
    """Every method with about `size` elements, each followed by a probe of the generator's state."""
    shape = shape_of(size)
    columns = min(size, 37)
    matrix = [columns, -(-size // columns)]
    probabilities = [i / 21 for i in range(min(size, 20))]
    draws = [
        ("rand", {"shape": shape}),
        ("randn", {"shape": shape}),
        ("randint", {"low": -3, "high": 100, "shape": shape}),
        ("randint", {"low": -(2**63), "high": 2**63 - 1, "shape": shape}),
        ("randint", {"high": 2**28, "shape": shape}),
        ("randint", {"high": 2**28 - 1, "shape": shape, "dtype": "int32"}),
        ("randint", {"high": 2, "shape": shape, "dtype": "bool"}),
        ("randint", {"low": -5, "high": 5, "shape": shape, "dtype": "float32"}),
        ("randint", {"high": 256, "shape": shape, "dtype": "uint8"}),
        ("randperm", {"n": size}),
        ("normal", {"mean": 0.25, "std": 0.02, "shape": shape}),
        ("uniform", {"low": -0.1, "high": 0.3, "shape": shape}),
        ("bernoulli", {"p": 0.3, "shape": shape}),
        ("bernoulli", {"values": probabilities}),
        ("bernoulli", {"values": probabilities, "dtype": "float64"}),
        ("rand", {"shape": shape, "dtype": "float64"}),
        ("randn", {"shape": shape, "dtype": "float64"}),
        ("normal", {"mean": -1.5, "std": 3, "shape": shape, "dtype": "float64"}),
        ("uniform", {"low": -7, "high": 9, "shape": shape, "dtype": "float64"}),
        ("kaiming_uniform", {"shape": matrix, "a": math.sqrt(5)}),
        ("kaiming_uniform", {"shape": [2, *matrix], "mode": "fan_out", "nonlinearity": "relu"}),
        ("kaiming_normal", {"shape": matrix, "a": 0.2}),
        ("kaiming_normal", {"shape": matrix, "nonlinearity": "tanh", "dtype": "float64"}),
        ("xavier_uniform", {"shape": matrix, "gain": 1.5}),
        ("xavier_normal", {"shape": matrix}),
        ("Embedding", {"num_embeddings": matrix[0], "embedding_dim": matrix[1]}),
        ("Embedding", {"num_embeddings": 6, "embedding_dim": columns, "indices": [0, 5, 2, 2]}),
        ("Linear", {"in_features": matrix[0], "out_features": matrix[1]}),
        ("Linear", {"in_features": columns, "out_features": 3, "bias": False, "dtype": "float64"}),
        ("MultiheadAttention", {"embed_dim": columns}),
        ("MultiheadAttention", {"embed_dim": 4, "kdim": columns, "vdim": 5, "bias": False}),
    ]
    steps = []
    for number, (method, arguments) in enumerate(draws):
        name = f"{prefix}{number}.{method}"
        steps.append({method: arguments, "to": name})
        # Three words of the generator, and the normal number that may be kept from the last draw.
        steps.append(step(name + ".words", "randint", high=2**28 - 1, shape=[3]))
        if method in ("randn", "normal"):
            steps.append(step(name + ".kept", "randn", shape=[1]))
    return steps


GOLDEN_STREAMS = {0: 1, 1: 15, 42: 16, 2**32 - 1: 45, 2**64 - 1: 300}  # seed: size


def golden_steps():
    """The steps of tests/golden/random/torch.json."""
    return [one for seed, size in GOLDEN_STREAMS.items()
            for one in [seeded(seed), *steps_of(f"seed{seed}.", size)]]


def differences(expected, found):
    """The names of arrays that are not equal bit for bit."""
    return [name for name, array in expected.items()
            if name not in found or found[name].dtype != array.dtype or found[name].shape != array.shape
            or found[name].tobytes() != np.ascontiguousarray(array).tobytes()]
