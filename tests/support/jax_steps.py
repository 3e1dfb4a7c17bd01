"""Lists of steps for `attn random FILE.json --generator jax`."""

from support.torch_steps import seeded, shape_of

KEYS = ["", "split[1]", "split(3)[2] fold_in(7)"]
STREAMS = {0: 1, 1: 7, 42: 16, 2**31 + 5: 45, 2**32 - 1: 301}  # seed: size


def steps_of(prefix, size):
    """Every method with about `size` elements, for each key."""
    shape = shape_of(size)
    draws = [("uniform", {}), ("uniform", {"minval": -0.1, "maxval": 0.25}), ("uniform", {"minval": -5, "maxval": 7}),
             ("normal", {}), ("bernoulli", {"p": 0.3}), ("bernoulli", {}),
             ("randint", {"minval": 0, "maxval": 3}), ("randint", {"minval": -1000, "maxval": 2**31 - 1}),
             ("randint", {"minval": -(2**31), "maxval": 2**31 - 1}),
             ("randint", {"minval": 0, "maxval": 256, "dtype": "uint8"}),
             ("randint", {"minval": -128, "maxval": 128, "dtype": "int8"}),
             ("randint", {"minval": 5, "maxval": 40_000, "dtype": "uint16"}),
             ("randint", {"minval": 0, "maxval": 2**31 - 1, "dtype": "uint32"})]
    return [{method: {"shape": shape, **({"key": key} if key else {}), **arguments},
             "to": f"{prefix}{k}.{number}.{method}"}
            for k, key in enumerate(KEYS) for number, (method, arguments) in enumerate(draws)]


def golden_steps():
    """The steps of tests/golden/random/jax.json and jax-original.json."""
    return [one for seed, size in STREAMS.items() for one in [seeded(seed), *steps_of(f"seed{seed}.", size)]]
