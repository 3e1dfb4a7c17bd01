"""`attn convert FILE --format text`, compared with NumPy's text of random arrays under random print options.

The arrays with the same options share an .npz file, so that 20,000 arrays need only 200 runs. The golden
files have texts of NumPy 2 (tests/golden/README.md).
"""

import json

import numpy as np
import pytest

from support.attn import ROOT, assert_error, attn, under_sanitizer
from support.random_arrays import DEFAULTS, attn_text, numpy_text, parts_of, random_arrays, random_options

FILES = 25 if under_sanitizer() else 40
WITH_DEFAULT_OPTIONS = 10  # files
GOLDEN = ROOT / "tests/golden/numpy2"
SETS = json.loads((GOLDEN / "text.json").read_text())["sets"]
INSTALLED = tuple(int(part) for part in np.__version__.split(".")[:2])
VERSION = [] if INSTALLED < (2, 0) else ["--numpy", 2]
pytestmark = pytest.mark.skipif((2, 0) <= INSTALLED < (2, 3), reason="prints neither as 1.24 nor as 2.3")


def random_file(path, file):
    """Saves random arrays to the path; returns their print options and the arrays by name."""
    rng = np.random.default_rng([20230105, file])
    options = dict(DEFAULTS) if file < WITH_DEFAULT_OPTIONS else random_options(rng)
    arrays = random_arrays(rng)
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


@pytest.mark.parametrize("file", range(FILES))
def test_random_arrays(tmp_path, file):
    path = tmp_path / "arrays.npz"
    options, arrays = random_file(path, file)
    for form, to_text in ([], str), (["--repr"], repr):
        expected = numpy_text(arrays, options, to_text)
        found = attn_text(path, [*form, *VERSION], options)
        assert not first_difference(expected, found), f"{form} {options}"


@pytest.mark.parametrize("form, to_text", [([], str), (["--repr"], repr)], ids=["str", "repr"])
def test_every_float16(tmp_path, form, to_text):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    arrays = {"a000000": every, "a000001": every.reshape(256, 256)}
    np.savez(tmp_path / "arrays.npz", **arrays)
    options = dict(DEFAULTS, threshold=1 << 17)
    expected = numpy_text(arrays, options, to_text)
    assert not first_difference(expected, attn_text(tmp_path / "arrays.npz", [*form, *VERSION], options))


def golden_text(folder, case, form, version):
    """attn's text of the arrays of a golden set."""
    with np.load(GOLDEN / "arrays.npz") as arrays:
        np.savez(folder / "arrays.npz", **{name: arrays[name] for name in case["str"]})
    flags = ["--repr"] if form == "repr" else []
    return parts_of(attn_text(folder / "arrays.npz", [*flags, "--numpy", version], case["options"]))


@pytest.mark.parametrize("form", ["str", "repr"])
@pytest.mark.parametrize("case", SETS, ids=[str(number) for number in range(len(SETS))])
def test_numpy_2(tmp_path, case, form):
    assert golden_text(tmp_path, case, form, 2) == case[form]


def test_each_golden_set_differs_from_numpy_1(tmp_path):
    same = [case["options"] for case in SETS
            if golden_text(tmp_path, case, "str", 1) == case["str"]
            and golden_text(tmp_path, case, "repr", 1) == case["repr"]]
    assert same == []


# Commands that print [55136, inf] in float16, which NumPy 1 and 2 print differently.
COMMANDS = {
    "convert": ["convert", "x.npy"],
    "run": ["run", "--q", "x.npy", "--k", "x.npy", "--v", "x.npy", "--outputs", "V"],
    "random": ["random", "permutation", "--seed", 0, "--input", "x.npy"],
    "merge": ["merge", "part.npz"],
    "svd": ["svd", "y.npy"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_prints_arrays(tmp_path, command):
    x = np.array([[55136, np.inf]], np.float16)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.array([[2e6]], np.float32))
    np.savez(tmp_path / "part.npz", logsumexp=np.zeros(1, np.float32), head_context=x)
    for version, number, others in ("1", "55136.", "2000000."), ("2", "5.514e+04", "2.e+06"):
        run = attn(*COMMANDS[command], "--numpy", version, cwd=tmp_path)
        assert run.returncode == 0, run.stderr.decode()
        assert (others if command == "svd" else number) in run.stdout.decode()


JOB = {"Q": [[0.0]], "K": [[0.0]], "V": [[0.123456789, 1e-9]], "outputs": ["V"]}


def print_job(print_options, *flags):
    return attn("run", "-", *flags, stdin=json.dumps(JOB | {"print_options": print_options}))


@pytest.mark.parametrize("print_options, flags, text", [
    ({}, [], "[[1.23456789e-01 1.00000000e-09]]"),
    ({"precision": 3, "suppress": True}, [], "[[0.123 0.   ]]"),
    ({"precision": 3, "suppress": True}, ["--precision", 5], "[[0.12346 0.     ]]"),
    ({"suppress": True, "floatmode": "fixed", "precision": 2}, [], "[[0.12 0.00]]"),
    ({"numpy": 2, "threshold": 1, "edgeitems": 1}, ["--repr"], "array([[1.23456789e-01, 1.00000000e-09]], shape=(1, 2))"),
    ({"numpy": 2, "threshold": 1}, ["--repr", "--numpy", 1], "array([[1.23456789e-01, 1.00000000e-09]])"),
    ({"linewidth": 20}, [], "[[1.23456789e-01\n  1.00000000e-09]]"),
], ids=str)
def test_print_options_of_a_job(print_options, flags, text):
    run = print_job(print_options, *flags)
    assert run.returncode == 0, run.stderr.decode()
    assert run.stdout.decode().split("\n", 1)[1] == text + "\n"


def test_print_options_are_not_recorded():
    recorded = [json.loads(print_job(options, "--format", "json").stdout)["made_by"]["job"]
                for options in ({}, {"numpy": 2})]
    assert recorded[0] == recorded[1]
    assert "V" in recorded[0]


@pytest.mark.parametrize("print_options, message", [
    ({"numpy": 3}, "print_options.numpy: expected a whole number from 1 to 2, found 3"),
    ({"precision": -1}, "print_options.precision: expected a whole number from 0 to 1100, found -1"),
    ({"linewidth": 1 << 40}, "print_options.linewidth: expected a whole number from 1 to 2147483647"),
    ({"floatmode": "fix"}, "print_options.floatmode: expected fixed, unique, maxprec or maxprec_equal, found 'fix'"),
    ({"suppress": 1}, "print_options.suppress: expected true or false"),
    ({"sign": "+"}, "print_options: unknown key 'sign'"),
], ids=str)
def test_print_options_are_checked(print_options, message):
    assert_error(print_job(print_options), 65, message)


def test_another_version_is_refused():
    assert_error(attn("run", "--numpy", 3, stdin="{}"), 2, "--numpy: expected a whole number from 1 to 2")
