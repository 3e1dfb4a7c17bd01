"""Writes tests/golden/numpy2: random arrays, and how NumPy 2 prints them with random print options.

Half of the arrays of each set are printed differently by NumPy 1. NumPy 2.3 or later must be installed:

    build/peers-venv/bin/python tests/print/numpy2_golden.py
"""

import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ROOT  # noqa: E402
from support.random_arrays import DEFAULTS, random_arrays, random_options  # noqa: E402

SETS, WITH_DEFAULT_OPTIONS, ARRAYS_OF_A_SET, LARGEST = 16, 5, 10, 30
FOLDER = ROOT / "tests/golden/numpy2"
AT_LIMITS = [np.float32(x) for x in (999999, 1e6, 1e8, 1e-4, np.nextafter(np.float32(1e-4), np.float32(0)), 3e15)]
AT_LIMITS += [np.float16(x) for x in (999.5, 1000, 65504, 1e-4, 9.99e-5)]


def texts(array, **options):
    with np.printoptions(**options):
        return str(array), repr(array)


def golden_set(number):
    """The options, and arrays that NumPy 1 prints differently and alike with them."""
    if number == 0:
        return DEFAULTS, [np.array(value, x.dtype) for x in AT_LIMITS for value in (x, [x, 2])]
    rng = np.random.default_rng([2, number])
    options = DEFAULTS if number < WITH_DEFAULT_OPTIONS else random_options(rng)
    chosen = {True: [], False: []}
    while min(map(len, chosen.values())) < ARRAYS_OF_A_SET // 2:
        for array in random_arrays(rng).values():
            is_first_summarised = array.size > 1000 and not chosen[False]
            if array.size > LARGEST and not is_first_summarised:
                continue
            alike = texts(array, legacy="1.25", **options) == texts(array, **options)
            if len(chosen[alike]) < ARRAYS_OF_A_SET // 2:
                chosen[alike].append(array)
    return options, [*chosen[False], *chosen[True]]


def main():
    if tuple(map(int, np.__version__.split(".")[:2])) < (2, 3):
        sys.exit(f"expected NumPy 2.3 or later, found {np.__version__}")
    arrays, sets = {}, []
    for number in range(SETS):
        options, chosen = golden_set(number)
        case = {"options": options, "str": {}, "repr": {}}
        for array in chosen:
            name = f"a{len(arrays):06}"
            arrays[name] = array
            case["str"][name], case["repr"][name] = texts(array, **options)
        sets.append(case)
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(FOLDER / "arrays.npz", **arrays)
    (FOLDER / "text.json").write_text(json.dumps({"numpy": np.__version__, "sets": sets}, indent=1) + "\n")


if __name__ == "__main__":
    main()
