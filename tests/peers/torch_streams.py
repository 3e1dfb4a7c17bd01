"""What PyTorch draws in the steps of support/torch_steps.py, compared with `attn random`."""

import numpy as np
import torch

from peers import random_streams
from support.torch_steps import seeded, steps_of

SEEDS = [0, 1, 42, 123, 2**31, 2**32 - 1, 2**32 + 5, 2**64 - 1, *range(1000, 1192)]
SIZES = [*range(1, 101), 4095, 4096, 100_000]


def dtype_of(arguments, default="float32"):
    return getattr(torch, arguments.get("dtype", default))


def empty(arguments):
    return torch.empty(*arguments.get("shape", []), dtype=dtype_of(arguments))


def initialised(name):
    """A function of torch.nn.init with the arguments of a step."""
    def draw(arguments):
        options = {key: value for key, value in arguments.items() if key not in ("shape", "dtype")}
        return getattr(torch.nn.init, name)(empty(arguments), **options)
    return draw


def embedding(arguments):
    weight = torch.nn.Embedding(arguments["num_embeddings"], arguments["embedding_dim"],
                                dtype=dtype_of(arguments)).weight
    return weight[arguments["indices"]] if "indices" in arguments else weight


def bernoulli(arguments):
    if "values" in arguments:
        return torch.bernoulli(torch.tensor(arguments["values"], dtype=dtype_of(arguments)))
    return empty(arguments).bernoulli_(arguments["p"])


def layer(make):
    return lambda arguments: make(**{**arguments, "dtype": dtype_of(arguments)}).state_dict()


METHODS = {
    "rand": lambda a: torch.rand(a["shape"], dtype=dtype_of(a)),
    "randn": lambda a: torch.randn(a["shape"], dtype=dtype_of(a)),
    "randint": lambda a: torch.randint(a.get("low", 0), a["high"], a["shape"], dtype=dtype_of(a, "int64")),
    "randperm": lambda a: torch.randperm(a["n"]),
    "normal": lambda a: empty(a).normal_(a.get("mean", 0), a.get("std", 1)),
    "uniform": lambda a: empty(a).uniform_(a.get("low", 0), a.get("high", 1)),
    "bernoulli": bernoulli,
    "Embedding": embedding,
    "Linear": layer(torch.nn.Linear),
    "MultiheadAttention": layer(lambda **a: torch.nn.MultiheadAttention(num_heads=1, **a)),
    **{name: initialised(name + "_")
       for name in ("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal")},
}


def drawn(steps):
    """The arrays of all steps, by name, drawn with PyTorch's default generator."""
    arrays = {}
    for one in steps:
        if "seed" in one:
            torch.manual_seed(one["seed"])
            continue
        (method, arguments), = ((key, value) for key, value in one.items() if key != "to")
        result = METHODS[method](arguments)
        parts = {"": result} if isinstance(result, torch.Tensor) else result
        for part, tensor in parts.items():
            arrays[one["to"] + ("." + part if part else "")] = tensor.detach().numpy()
    return arrays


def kind_of(_, name):
    return "state" if name.endswith((".words", ".kept")) else name.split(".")[2]


def compare():
    """As random_streams.compare()."""
    runs = (("torch", f"seed {seed}", [seeded(seed), *(one for size in SIZES for one in steps_of(f"{size}.", size))])
            for seed in SEEDS)
    return random_streams.compare(runs, lambda steps, _: drawn(steps), kind_of)
