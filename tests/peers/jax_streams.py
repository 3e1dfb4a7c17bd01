"""What JAX draws in the steps of support/jax_steps.py, compared with `attn random`."""

import re

import jax
import numpy as np

from peers import random_streams
from support.jax_steps import steps_of
from support.torch_steps import seeded

SEEDS = [0, 1, 42, 2**31, 2**32 - 1, *range(1000, 1195)]
SIZES = {0: [*range(1, 101), 4095, 4096, 100_000]}  # the first seed; JAX compiles each shape once
FEW = [1, 2, 3, 15, 16, 100, 4095, 4096, 100_000]


def key_of(seed, steps):
    key = jax.random.PRNGKey(seed)
    for step in steps.split():
        if fold := re.fullmatch(r"fold_in\((\d+)\)", step):
            key = jax.random.fold_in(key, int(fold[1]))
        else:
            count, index = re.fullmatch(r"split(?:\((\d+)\))?\[(\d+)\]", step).groups("2")
            key = jax.random.split(key, int(count))[int(index)]
    return key


def drawn(steps, generator):
    """The arrays of all steps, by name."""
    jax.config.update("jax_threefry_partitionable", generator == "jax")
    arrays, seed = {}, None
    for step in steps:
        if "seed" in step:
            seed = step["seed"]
            continue
        (method, arguments), = ((key, value) for key, value in step.items() if key != "to")
        key = key_of(seed, arguments.get("key", ""))
        options = {name: value for name, value in arguments.items() if name not in ("key", "shape", "dtype")}
        if "dtype" in arguments:
            options["dtype"] = arguments["dtype"]
        arrays[step["to"]] = np.asarray(getattr(jax.random, method)(key, shape=tuple(arguments["shape"]), **options))
    return arrays


def compare():
    """As random_streams.compare()."""
    runs = ((generator, seed,
             [seeded(seed), *(one for size in SIZES.get(seed, FEW) for one in steps_of(f"{size}.", size))])
            for generator in ("jax", "jax-original") for seed in SEEDS)
    return random_streams.compare(runs, drawn, lambda generator, name: f"{generator}, {name.rsplit('.')[-1]}")
