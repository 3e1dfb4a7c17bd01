"""`attn convert FILE --format text`, compared with NumPy's text of random arrays under random print options.

The arrays with the same options share an .npz file, so that 20,000 arrays need only 200 runs.
"""

import warnings

import numpy as np
import pytest

from support.attn import attn, under_sanitizer

FILES, ARRAYS_OF_A_FILE = 25 if under_sanitizer() else 100, 200
WITH_DEFAULT_OPTIONS = 10  # files
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


def random_file(path, file):
    """Saves random arrays to the path; returns their print options and the arrays by name."""
    rng = np.random.default_rng([20230105, file])
    options = dict(DEFAULTS) if file < WITH_DEFAULT_OPTIONS else random_options(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # float64 overflows when cast to float16
        arrays = {f"a{i:06}": random_array(rng) for i in range(ARRAYS_OF_A_FILE)}
    np.savez(path, **arrays)
    return options, arrays


def first_difference(expected, found):
    """The array and the line of the first difference."""
    name = ""
    for expected_line, found_line in zip(expected.split("\n"), found.split("\n") + [""]):
        if expected_line.endswith(":"):
            name = expected_line
        if expected_line != found_line:
            return f"{name} expected {expected_line!r}, found {found_line!r}"
    return "" if expected == found else "lengths differ"


def attn_text(path, form, options):
    run = attn("convert", path, "--format", "text", *form, *flags_of(options))
    assert run.returncode == 0, run.stderr
    return run.stdout.decode(errors="replace")


@pytest.mark.parametrize("file", range(FILES))
def test_random_arrays(tmp_path, file):
    path = tmp_path / "arrays.npz"
    options, arrays = random_file(path, file)
    for form, to_text in ([], str), (["--repr"], repr):
        expected = numpy_text(arrays, options, to_text)
        assert not first_difference(expected, attn_text(path, form, options)), f"{form} {options}"


@pytest.mark.parametrize("form, to_text", [([], str), (["--repr"], repr)], ids=["str", "repr"])
def test_every_float16(tmp_path, form, to_text):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    arrays = {"a000000": every, "a000001": every.reshape(256, 256)}
    np.savez(tmp_path / "arrays.npz", **arrays)
    options = dict(DEFAULTS, threshold=1 << 17)
    expected = numpy_text(arrays, options, to_text)
    assert not first_difference(expected, attn_text(tmp_path / "arrays.npz", form, options))
