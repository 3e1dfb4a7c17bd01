"""Random tensors of a job: mistakes are reported, and the numbers are those of NumPy."""

import json
import subprocess
import sys

import numpy as np
import pytest

from support.attn import attn

ONE = {"shape": [1, 1]}

# K, generator, message
REFUSED = [
    ({"randint": {"shape": [1, 1]}}, "", "randint: expected the argument 'high', found none"),
    ({"randint": {"hihg": 2}}, "", "randint: unknown argument 'hihg' (did you mean 'high'?)"),
    ({"randint": {"high": "ten"}}, "", "randint: high: expected a whole number, found a string"),
    ({"randint": {"high": "9" * 40}}, "", "randint: high: expected a whole number, found a string"),
    ({"randint": {"high": 2.5}}, "", "randint: high: expected a whole number, found a float"),
    ({"randint": {"high": 3, "dtype": "int65"}}, "",
     "randint: dtype: expected a dtype such as \"int64\", found 'int65'"),
    ({"randint": {"high": 3, "dtype": 64}}, "",
     'randint: dtype: expected a dtype such as "int64", found an integer'),
    ({"rand": {"shape": [-1]}}, "", "rand: shape: expected whole numbers >= 0, found -1"),
    ({"rand": {"shape": "2,2"}}, "",
     "rand: shape: expected a list of whole numbers, found a string"),
    ({"rand": {"shape": ["a"]}}, "",
     "rand: shape: expected a list of whole numbers, found an array"),
    ({"normal": {**ONE, "loc": "far"}}, "", "normal: loc: expected a number, found a string"),
    ({"permutation": {}}, "", "permutation: expected either 'n' or 'values'"),
    ({"permutation": {"n": 3, "values": [1]}}, "", "permutation: expected either 'n' or 'values'"),
    ({"permutation": {"n": -3}}, "", "permutation: n: expected 0 to 2147483647, found -3"),
    ({"permutation": {"n": 1 << 31}}, "",
     "permutation: n: expected 0 to 2147483647, found 2147483648"),
    ({"permutation": {"n": "5"}}, "", "permutation: n: expected a whole number, found a string"),
    ({"Linear": {"in_features": "99999", "out_features": 1}}, "torch",
     "Linear: in_features: expected a whole number, found a string"),
    ({"shuffle": {}}, "", "shuffle: expected the argument 'values', found none"),
    ({"choice": {**ONE, "n": 3, "values": [1]}}, "", "choice: expected either 'n' or 'values'"),
    ({"choice": {**ONE}}, "", "choice: expected either 'n' or 'values'"),
    ({"choice": {**ONE, "n": 3, "replace": 1}}, "",
     "choice: replace: expected true or false, found an integer"),
    ({"choice": {**ONE, "n": 1, "p": [[1]]}}, "", "choice: p: expected a list of numbers, found"),
    ({"choice": {**ONE, "n": 1, "p": ["a"]}}, "", "choice: p: "),
    ({"integers": {"high": 3, **ONE}}, "",
     "integers: not available for RandomState, only for default_rng"),
    ({"rand": {**ONE, "size": [1]}}, "", "rand: 'size' and 'shape' are the same argument"),
    ({"rnd": ONE}, "", "unknown random method 'rnd'"),
    ({"rand": ONE, "randn": ONE}, "", "expected an object with one random method"),
    ({"rand": 3}, "", "rand: expected an object of arguments, found an integer"),
    ({"random": {**ONE, "dtype": "int8"}}, "default_rng",
     "random: dtype: expected float64 or float32, found int8"),
    ({"randn": ONE}, "default_rng",
     "randn: not available for default_rng, only for RandomState or torch; the methods of default_rng are random, "
     "integers, uniform, standard_normal, normal, permutation, shuffle, choice"),
]

# K, generator, seed, a function that draws the same K with NumPy
DRAWN = [
    ({"rand": {"shape": [2, 3]}}, "", 1, lambda: np.random.RandomState(1).rand(2, 3)),
    ({"rand": {"size": [2, 3]}}, "", 1, lambda: np.random.RandomState(1).rand(2, 3)),
    ({"rand": {"shape": [2, 3]}}, "", [1, 2], lambda: np.random.RandomState([1, 2]).rand(2, 3)),
    ({"rand": {"shape": [2, 3]}}, "", [1.0, 2], lambda: np.random.RandomState([1, 2]).rand(2, 3)),
    ({"randn": {"shape": [2, 3]}}, "", 7.0, lambda: np.random.RandomState(7).randn(2, 3)),
    ({"uniform": {"low": 1, "high": 2, "shape": [2, 3]}}, "", 3,
     lambda: np.random.RandomState(3).uniform(1, 2, (2, 3))),
    ({"randint": {"low": -2, "high": 1 << 63, "shape": [2, 3]}}, "", 3,
     lambda: np.random.RandomState(3).randint(-2, 1 << 63, (2, 3))),
    ({"randint": {"high": "18446744073709551616", "shape": [1, 2], "dtype": "uint64"}}, "", 11,
     lambda: np.random.RandomState(11).randint(0, 1 << 64, (1, 2), np.uint64)),
    ({"permutation": {"values": [[1, 2], [3, 4]]}}, "", 4,
     lambda: np.random.RandomState(4).permutation([[1, 2], [3, 4]])),
    ({"shuffle": {"values": [[1, 2], [3, 4], [5, 6]]}}, "", 4,
     lambda: shuffled(np.array([[1, 2], [3, 4], [5, 6]]), np.random.RandomState(4))),
    ({"choice": {"n": 9, "shape": [2, 4], "replace": False}}, "", 5,
     lambda: np.random.RandomState(5).choice(9, (2, 4), False)),
    ({"choice": {"values": [7, 8, 9], "shape": [2, 4], "p": [0.5, 0.25, 0.25]}}, "", 5,
     lambda: np.random.RandomState(5).choice([7, 8, 9], (2, 4), True, [0.5, 0.25, 0.25])),
    ({"random": {"shape": [2, 3]}}, "default_rng", 5, lambda: np.random.default_rng(5).random((2, 3))),
    ({"random": {"shape": [2, 3], "dtype": "float32"}}, "default_rng", 5,
     lambda: np.random.default_rng(5).random((2, 3), np.float32)),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", (1 << 64) - 1,
     lambda: np.random.default_rng((1 << 64) - 1).uniform(size=(2, 3))),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", str(1 << 70),
     lambda: np.random.default_rng(1 << 70).uniform(size=(2, 3))),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", [1, (1 << 64) - 1, str(1 << 70)],
     lambda: np.random.default_rng([1, (1 << 64) - 1, 1 << 70]).uniform(size=(2, 3))),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", 1 << 64,
     lambda: np.random.default_rng(1 << 64).uniform(size=(2, 3))),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", 3 ** 600,
     lambda: np.random.default_rng(3 ** 600).uniform(size=(2, 3))),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", 10 ** 308,
     lambda: np.random.default_rng(10 ** 308).uniform(size=(2, 3))),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", 3 ** 700,
     lambda: np.random.default_rng(3 ** 700).uniform(size=(2, 3))),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", [3 ** 700, 7, 10 ** 400],
     lambda: np.random.default_rng([3 ** 700, 7, 10 ** 400]).uniform(size=(2, 3))),
    ({"uniform": {"shape": [2, 3]}}, "default_rng", [1, (1 << 70) + 1],
     lambda: np.random.default_rng([1, (1 << 70) + 1]).uniform(size=(2, 3))),
    ({"integers": {"high": 3, "shape": [2, 3], "endpoint": True}}, "default_rng", 5,
     lambda: np.random.default_rng(5).integers(3, size=(2, 3), endpoint=True)),
]

# seed, generator, message
REFUSED_SEEDS = [
    (1 << 32, "", "seed: expected 0 to 4294967295, found a larger number"),
    ([1 << 32], "", "seed: expected 0 to 4294967295, found a larger number"),
    (1 << 64, "", "seed: expected 0 to 4294967295, found a larger number"),
    (3 ** 700, "", "seed: expected 0 to 4294967295, found a larger number"),
    (-3 ** 700, "default_rng", "seed: expected a whole number >= 0"),
    (-(1 << 64), "default_rng", "seed: expected a whole number >= 0"),
    ([1, "x"], "", "seed: expected a whole number >= 0"),
    ([1, -1], "", "seed: expected a whole number >= 0"),
    ([1.5, 1], "", "seed: expected a whole number >= 0"),
    ([-1.0, 1], "", "seed: expected a whole number >= 0"),
    ([], "", "seed: expected a whole number >= 0"),
    (-1.0, "", "seed: expected a whole number >= 0"),
    (True, "", "seed: expected a whole number >= 0"),
]


def shuffled(array, state):
    state.shuffle(array)
    return array


def run(folder, spec, generator, seed, keys=1, width=1):
    """Runs a job whose K, of shape (keys, width), is random."""
    job = {"Q": [[1.0] * width], "K": spec, "V": [[1.0]] * keys, "seed": seed, "outputs": ["K"]}
    if generator:
        job["generator"] = generator
    (folder / "job.json").write_text(json.dumps(job))
    return attn("run", "job.json", "-o", "out.npz", "--force", cwd=folder)


@pytest.mark.parametrize("spec, generator, message", REFUSED,
                         ids=[json.dumps(spec) for spec, *_ in REFUSED])
def test_random_tensor_is_refused(tmp_path, spec, generator, message):
    done = run(tmp_path, spec, generator, 1)
    assert done.returncode == 65
    assert f"job.json: K: {message}" in done.stderr.decode()


@pytest.mark.parametrize("seed, generator, message", REFUSED_SEEDS,
                         ids=[repr(seed) for seed, *_ in REFUSED_SEEDS])
def test_seed_is_refused(tmp_path, seed, generator, message):
    done = run(tmp_path, {"rand": ONE}, generator, seed)
    assert done.returncode == 65
    assert f"job.json: {message}" in done.stderr.decode()


@pytest.mark.parametrize("spec, generator, seed, draw", DRAWN,
                         ids=[f"{json.dumps(spec)} seed {seed}" for spec, _, seed, _ in DRAWN])
def test_random_tensor_is_that_of_numpy(tmp_path, spec, generator, seed, draw):
    expected = draw()
    done = run(tmp_path, spec, generator, seed, *expected.shape)
    assert done.returncode == 0, done.stderr.decode()
    with np.load(tmp_path / "out.npz") as out:
        found = out["K"]
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


def run_text(text):
    return attn("run", "-", "--format", "json", stdin=text)


def test_population_and_shape_need_the_memory_of_their_sum():
    job = {"embeddings": {"choice": {"n": 100_000, "shape": [1000, 100]}}, "seed": 0,
           "W_Q": [[1]] * 100, "W_K": [[1]] * 100, "outputs": ["logsumexp"], "rows": [0]}
    assert attn("run", "-", "--max-memory", "64M", stdin=json.dumps(job)).returncode == 0


def test_seed_of_10_000_digits_is_that_of_numpy():
    """Python converts at most 4300 digits to text and back, so the number is built and written in hexadecimal."""
    seed = int("f" * 8000, 16)
    digits = subprocess.run([sys.executable, "-X", "int_max_str_digits=0", "-c", f"print({hex(seed)})"],
                            capture_output=True, check=True).stdout.decode().strip()
    assert 9000 < len(digits) < 10_000
    job = '{"tokens": ["\\u00e9"], "Q": {"random": {"shape": [1, 3]}}, "K": [[1, 1, 1]], "outputs": ["Q"], ' \
          '"generator": "default_rng", "seed": %s}'
    run = run_text(job % digits)
    assert run.returncode == 0, run.stderr.decode()
    assert json.loads(run.stdout)["Q"] == np.random.default_rng(seed).random((1, 3)).tolist()


@pytest.mark.parametrize("text, message", [
    ('{"seed": %s}' % ("1" * 10_001), "seed: expected a whole number >= 0 of at most 10000 digits"),
    ('{"seed": %s, "Q" 1}' % ("1" * 400), "line 1, column 416: expected ':', found '1'"),
    ('{"heads": %s}' % ("1" * 400), "line 1, column 11: expected a number that fits 64 bits, found '11111111111111111111...'"
     " (400 bytes)"),
    ('{"seed": 0%s}' % ("1" * 400), "line 1, column 11: expected a number without leading zeros"),
    ('{"tokens": ["%s"], "Q": [[1]], "K": [[1]], "heads": 0}' % ("1" * 400), "heads: expected a whole number >= 1"),
    ('{"seed": 1%s.5}' % ("1" * 400), "line 1, column 10: expected a number that fits a float64"),
], ids=["too long", "error after it", "not a seed", "leading zero", "in a string", "float"])
def test_long_numbers_in_errors(text, message):
    run = run_text(text)
    assert run.returncode == 65
    assert message in run.stderr.decode()
