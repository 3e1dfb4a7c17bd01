"""The text of random arrays, as the installed NumPy 2 and as `attn convert --numpy 2` print it."""

import collections
import pathlib
import tempfile

import numpy as np

from support.random_arrays import DEFAULTS, attn_text, numpy_text, parts_of, random_arrays, random_options

FILES, WITH_DEFAULT_OPTIONS = 100, 10
OLDEST = (2, 3)  # earlier versions print float32 and float16 differently


def compare():
    """The numbers of texts and of equal texts by kind of array, and a line for each that differs."""
    if tuple(map(int, np.__version__.split(".")[:2])) < OLDEST:
        raise SystemExit(f"numpy-text: expected NumPy 2.3 or later, found {np.__version__}")
    counts = collections.defaultdict(lambda: [0, 0])
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "arrays.npz"
        for file in range(FILES):
            rng = np.random.default_rng([2, 2023, file])
            options = DEFAULTS if file < WITH_DEFAULT_OPTIONS else random_options(rng)
            arrays = random_arrays(rng)
            np.savez(path, **arrays)
            for form, to_text in ([], str), (["--repr"], repr):
                expected = parts_of(numpy_text(arrays, options, to_text))
                found = parts_of(attn_text(path, [*form, "--numpy", 2], options))
                for name, array in arrays.items():
                    kind = array.dtype.name if array.dtype.kind == "f" else "integers, bool"
                    equal = found.get(name) == expected[name]
                    counts[kind][0] += 1
                    counts[kind][1] += equal
                    if not equal:
                        differences.append(f"{options} {form}: expected {expected[name]!r}, "
                                           f"found {found.get(name)!r}")
    return counts, differences
