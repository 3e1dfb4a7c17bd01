"""Random arrays and print options, for comparing attn's text with NumPy's.

Works with NumPy 1 and 2; the arrays may differ between versions of NumPy.
"""

import re
import warnings

import numpy as np

from support.attn import attn

ARRAYS_OF_A_FILE = 200
FLOATS = ["float64", "float32", "float16"]
OTHERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
MODES = ["fixed", "unique", "maxprec", "maxprec_equal"]
DEFAULTS = dict(precision=8, threshold=1000, edgeitems=3, linewidth=75, suppress=False,
                floatmode="maxprec")


def random_shape(rng):
    def extents(low, high, rank):
        return tuple(int(n) for n in rng.integers(low, high, rank))

    kind = rng.integers(0, 100)
    if kind < 8:
        return ()
    if kind < 16:
        shape = list(extents(0, 4, rng.integers(1, 5)))
        shape[rng.integers(0, len(shape))] = 0
        return tuple(shape)
    for limit, low, high, rank in [(45, 1, 30, 1), (70, 1, 9, 2), (80, 1, 5, 3), (88, 1, 4, 4),
                                   (92, 1, 3, 5), (95, 990, 1100, 1), (98, 28, 40, 2)]:
        if kind < limit:
            return extents(low, high, rank)
    return extents(8, 13, 3)


def random_reals(rng, count):
    """float64 numbers of one of several distributions."""
    sign = rng.choice([-1.0, 1.0], count)
    distributions = [
        lambda: rng.standard_normal(count),
        lambda: sign * 10.0 ** rng.uniform(-320, 300, count),
        lambda: rng.integers(-1000, 1000, count).astype(float),
        lambda: sign * rng.integers(0, 10 ** int(rng.integers(1, 17)), count),
        lambda: np.round(rng.standard_normal(count), int(rng.integers(0, 10))),
        lambda: rng.random(count),
        lambda: rng.integers(-64, 64, count) / 2.0 ** int(rng.integers(1, 12)),  # ties
        lambda: sign * 2.0 ** rng.integers(-1074, 1000, count),
        lambda: sign * 2.0 ** rng.integers(-24, 16, count),
        lambda: sign * 10.0 ** rng.uniform(-6, 6, count),
        lambda: rng.random(count) * 10.0 ** rng.integers(-8, 10),
        lambda: 10.0 ** rng.integers(-9, 10, count),
    ]
    return np.array(distributions[rng.integers(0, len(distributions))]())


def random_floats(rng, dtype, count):
    if rng.random() < 0.1:  # random bits
        bits = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
        return bits.view(dtype)
    values = random_reals(rng, count)
    for special, share in [(np.nan, 0.1), (np.inf, 0.08), (-np.inf, 0.08), (0.0, 0.1), (-0.0, 0.1)]:
        if rng.random() < share:
            values[rng.random(count) < rng.choice([0.1, 0.5, 1.0])] = special
    return values.astype(dtype)


def random_array(rng):
    dtype = np.dtype(rng.choice(FLOATS if rng.random() < 0.75 else OTHERS))
    shape = random_shape(rng)
    count = int(np.prod(shape, dtype=int))
    if dtype.kind == "f":
        return random_floats(rng, dtype, count).reshape(shape)
    if dtype.kind == "b":
        return (rng.random(count) < rng.choice([0.0, 0.5, 1.0])).reshape(shape)
    limits = np.iinfo(dtype)
    low, high = limits.min, limits.max
    if rng.random() < 0.5:
        low, high = max(low, -10), 10
    return rng.integers(low, high, count, dtype=dtype, endpoint=True).reshape(shape)


def random_options(rng):
    options = dict(DEFAULTS)
    for name, share, choices in [
            ("precision", 0.4, [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 15, 16, 17, 18, 20, 25]),
            ("threshold", 0.3, [0, 1, 5, 10, 50, 2000]),
            ("edgeitems", 0.3, [0, 1, 2, 4, 5]),
            ("linewidth", 0.3, [1, 10, 20, 30, 40, 50, 60, 70, 74, 76, 80, 100, 132, 200])]:
        if rng.random() < share:
            options[name] = int(rng.choice(choices))
    options["suppress"] = bool(rng.random() < 0.3)
    if rng.random() < 0.6:
        options["floatmode"] = str(rng.choice(MODES))
    return options


def random_arrays(rng, count=ARRAYS_OF_A_FILE):
    """Random arrays by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # float64 overflows when cast to float16
        return {f"a{i:06}": random_array(rng) for i in range(count)}


def flags_of(options):
    """The flags that set these options."""
    for name, value in options.items():
        if name == "suppress":
            if value:
                yield "--suppress"
        elif value != DEFAULTS[name]:
            yield from (f"--{name}", value)


def numpy_text(arrays, options, to_text):
    with np.printoptions(**options):
        return "\n".join(f"{name}:\n{to_text(array)}\n" for name, array in arrays.items())


def attn_text(path, form, options):
    """What `attn convert` prints; `form` are more flags."""
    run = attn("convert", path, "--format", "text", *form, *flags_of(options))
    assert run.returncode == 0, run.stderr
    return run.stdout.decode(errors="replace")


def parts_of(text):
    """The text of each array by name."""
    words = re.split(r"^(a\d{6}):\n", text, flags=re.MULTILINE)
    return {name: part.rstrip("\n") for name, part in zip(words[1::2], words[2::2])}
