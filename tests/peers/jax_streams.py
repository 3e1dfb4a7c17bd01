"""What JAX draws in the steps of support/jax_steps.py, compared with `attn random`.

JAX compiles a program for each method, its arguments and its shape, which takes much longer than to draw. Here
one program draws all tensors of a size for many seeds, mapped over their keys by jax.vmap. For some sizes, the
first seed is also drawn one tensor at a time.
"""

import collections
import functools
import json
import re

import jax
import numpy as np

from peers import random_streams
from support.jax_steps import steps_of
from support.torch_steps import differences, seeded

SEEDS = [0, 1, 42, 2**31, 2**32 - 1, *range(1000, 1195)]
SIZES = [*range(1, 101), 4095, 4096, 100_000]
FEW = [1, 2, 3, 15, 16, 100, 4095, 4096, 100_000]
MOST_NUMBERS = 1 << 24  # of one comparison


def key_of(seed, steps):
    key = jax.random.PRNGKey(seed)
    for step in steps.split():
        if fold := re.fullmatch(r"fold_in\((\d+)\)", step):
            key = jax.random.fold_in(key, int(fold[1]))
        else:
            count, index = re.fullmatch(r"split(?:\((\d+)\))?\[(\d+)\]", step).groups("2")
            key = jax.random.split(key, int(count))[int(index)]
    return key


def calls_of(steps):
    """Seed, method, arguments and name of each step that draws."""
    seed = None
    for step in steps:
        if "seed" in step:
            seed = step["seed"]
            continue
        (method, arguments), = ((key, value) for key, value in step.items() if key != "to")
        yield seed, method, arguments, step["to"]


def draw(key, method, arguments):
    options = {name: value for name, value in arguments.items() if name not in ("key", "shape")}
    return getattr(jax.random, method)(key, shape=tuple(arguments["shape"]), **options)


def use(generator):
    jax.config.update("jax_threefry_partitionable", generator == "jax")


def drawn(steps, generator):
    """The arrays of all steps, by name."""
    use(generator)
    return {name: np.asarray(draw(key_of(seed, arguments.get("key", "")), method, arguments))
            for seed, method, arguments, name in calls_of(steps)}


@functools.lru_cache(maxsize=None)
def known_key(_, seed, steps):
    """key_of() with the generator that is in use."""
    return np.asarray(key_of(seed, steps))


@functools.lru_cache(maxsize=1)
def program(_, calls):
    """A function of one array of keys for each call, a method and its arguments as JSON."""
    draws = [functools.partial(draw, method=method, arguments=json.loads(arguments)) for method, arguments in calls]
    return jax.jit(lambda keys: [jax.vmap(one)(each) for one, each in zip(draws, keys)])


def drawn_by_vmap(steps, generator):
    """As drawn(), with one program for all steps, in which each call is mapped over its keys."""
    use(generator)
    keys, names = collections.defaultdict(list), collections.defaultdict(list)
    for seed, method, arguments, name in calls_of(steps):
        call = method, json.dumps({option: value for option, value in arguments.items() if option != "key"})
        keys[call].append(known_key(generator, seed, arguments.get("key", "")))
        names[call].append(name)
    results = program(generator, tuple(keys))([np.stack(each) for each in keys.values()])
    return {name: array for some, arrays in zip(names.values(), map(np.asarray, results))
            for name, array in zip(some, arrays)}


def runs(seeds, sizes):
    """Generator, what is drawn, and steps for each size: equal numbers of seeds, about MOST_NUMBERS numbers."""
    for generator in "jax", "jax-original":
        for size in sizes:
            parts = min(len(seeds), -(-len(seeds) * size * len(steps_of("", size)) // MOST_NUMBERS))
            for some in np.array_split(seeds, parts):
                yield generator, f"size {size}", [
                    step for seed in some.tolist() for step in [seeded(seed), *steps_of(f"{seed}.{size}.", size)]]


def kind_of(generator, name):
    return f"{generator}, {name.rsplit('.')[-1]}"


def compare():
    """As random_streams.compare()."""
    counts, lines = random_streams.compare(runs(SEEDS, SIZES), drawn_by_vmap, kind_of)
    for generator, size, steps in runs(SEEDS[:1], FEW):
        unequal = differences(drawn(steps, generator), drawn_by_vmap(steps, generator))
        lines += [f"{generator}, {size}: {name} differs with vmap" for name in unequal]
    return counts, lines
