"""A million numbers of each method of `attn random` equal those of NumPy bit for bit. (Under sanitizers, a
fifth of them.)
"""

import json

import numpy as np
import pytest

from support.attn import attn, under_sanitizer

COUNT = 200_000 if under_sanitizer() else 1_000_000
SEEDS = [0, 42, 2**32 - 1, [1, 2, 3]]
WEIGHTS = [0.1, 0.05, 0.25, 0.0, 0.4, 0.125, 0.075]
RANGES = {  # dtype: the ranges of the first seeds
    "bool": [(0, 2), (0, 2), (1, 2)],
    "int8": [(-128, 128), (-100, 100), (0, 3)],
    "uint8": [(0, 256), (3, 200), (0, 10)],
    "int16": [(-(2**15), 2**15), (-5, 1000), (0, 3)],
    "uint16": [(0, 2**16), (1, 40_000), (0, 10)],
    "int32": [(-(2**31), 2**31), (-(2**31), 5), (0, 3)],
    "uint32": [(0, 2**32), (7, 2**31 + 9), (0, 10)],
    "int64": [(-(2**63), 2**63), (-(2**62), 2**40), (0, 3), (0, 2**32)],
    "uint64": [(0, 2**64), (0, 2**63 + 1), (0, 10), (1, 2**32 + 1)],
}
FLOATS = {  # method: arguments
    "rand": {},
    "random": {},
    "random_sample": {},
    "randn": {},
    "standard_normal": {},
    "uniform": {"low": -2.5, "high": 0.1},
    "normal": {"loc": 3.25, "scale": 0.7},
}


def flags_of(arguments):
    return [text for name, value in arguments.items() for text in (f"--{name}", value)]


def check_draw(folder, seed, expected, *args):
    """`attn random ARGS... --seed SEED` gives the expected array."""
    words = seed if isinstance(seed, list) else [seed]
    output = folder / "drawn.npy"
    run = attn("random", *args, "--seed", ",".join(map(str, words)), "-o", output, "--force")
    assert run.returncode == 0, run.stderr
    found, expected = np.load(output), np.ascontiguousarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.sum(found != expected) == 0
    assert found.tobytes() == expected.tobytes()


@pytest.fixture(params=SEEDS, ids=str)
def seed(request):
    return request.param


@pytest.mark.parametrize("method", FLOATS)
def test_float_method(tmp_path, seed, method):
    arguments = FLOATS[method]
    draw = getattr(np.random.RandomState(seed), method)
    expected = draw(COUNT) if method in ("rand", "randn") else draw(size=COUNT, **arguments)
    check_draw(tmp_path, seed, expected, method, *flags_of(arguments), "--shape", COUNT)


@pytest.mark.parametrize("dtype, seed, low, high", [
    (dtype, seed, *limits) for dtype, ranges in RANGES.items() for seed, limits in zip(SEEDS, ranges)])
class TestIntegers:
    SHAPE = (1000, COUNT // 1000)

    def flags(self, dtype, low, high):
        return ["--low", low, "--high", high, "--dtype", dtype, "--shape", "%d,%d" % self.SHAPE]

    def test_randint(self, tmp_path, dtype, seed, low, high):
        expected = np.random.RandomState(seed).randint(low, high, self.SHAPE, dtype)
        check_draw(tmp_path, seed, expected, "randint", *self.flags(dtype, low, high))

    def test_integers(self, tmp_path, dtype, seed, low, high):
        expected = np.random.default_rng(seed).integers(low, high, self.SHAPE, dtype)
        check_draw(tmp_path, seed, expected, "integers", "--generator", "default_rng",
                   *self.flags(dtype, low, high))


@pytest.mark.parametrize("seed", [*SEEDS, 2**128 - 1, [2**70, 5]], ids=str)
class TestGenerator:
    """Methods of numpy.random.default_rng."""

    FLAGS = ["--generator", "default_rng", "--shape", COUNT]

    def test_random(self, tmp_path, seed):
        expected = np.random.default_rng(seed).random(COUNT)
        check_draw(tmp_path, seed, expected, "random", *self.FLAGS)

    def test_random_float32(self, tmp_path, seed):
        expected = np.random.default_rng(seed).random(COUNT, dtype=np.float32)
        check_draw(tmp_path, seed, expected, "random", *self.FLAGS, "--dtype", "float32")

    def test_uniform(self, tmp_path, seed):
        expected = np.random.default_rng(seed).uniform(-7, 1e9, COUNT)
        check_draw(tmp_path, seed, expected, "uniform", *self.FLAGS, "--low", -7, "--high", 1e9)

    def test_standard_normal(self, tmp_path, seed):
        expected = np.random.default_rng(seed).standard_normal(COUNT)
        check_draw(tmp_path, seed, expected, "standard_normal", *self.FLAGS)

    def test_standard_normal_float32(self, tmp_path, seed):
        expected = np.random.default_rng(seed).standard_normal(COUNT, np.float32)
        check_draw(tmp_path, seed, expected, "standard_normal", *self.FLAGS, "--dtype", "float32")

    def test_normal(self, tmp_path, seed):
        expected = np.random.default_rng(seed).normal(3.25, 0.7, COUNT)
        check_draw(tmp_path, seed, expected, "normal", *self.FLAGS, "--loc", 3.25, "--scale", 0.7)

    def test_permutation(self, tmp_path, seed):
        expected = np.random.default_rng(seed).permutation(COUNT)
        check_draw(tmp_path, seed, expected, "permutation", *self.FLAGS[:2], "--n", COUNT)


ARRAYS = {
    "matrix": np.random.RandomState(99).randint(0, 1000, (COUNT // 4, 4)),
    "vector": np.random.RandomState(98).standard_normal(COUNT).astype(np.float32),
}


@pytest.fixture(scope="module")
def folder(module_path):
    """A folder with matrix.npy and vector.npy."""
    for name, array in ARRAYS.items():
        np.save(module_path / f"{name}.npy", array)
    return module_path


def test_permutation_of_a_range(tmp_path, seed):
    expected = np.random.RandomState(seed).permutation(COUNT)
    check_draw(tmp_path, seed, expected, "permutation", "--n", COUNT)


@pytest.mark.parametrize("name", ARRAYS)
def test_permutation_of_an_array(folder, seed, name):
    expected = np.random.RandomState(seed).permutation(ARRAYS[name])
    check_draw(folder, seed, expected, "permutation", "--input", folder / f"{name}.npy")


@pytest.mark.parametrize("name", ARRAYS)
def test_shuffle(folder, seed, name):
    expected = ARRAYS[name].copy()
    np.random.RandomState(seed).shuffle(expected)
    check_draw(folder, seed, expected, "shuffle", "--input", folder / f"{name}.npy")


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("method", ["permutation", "shuffle"])
def test_rows_in_the_order_of_default_rng(folder, seed, method, name):
    expected = ARRAYS[name].copy()
    generator = np.random.default_rng(seed)
    if method == "shuffle":
        generator.shuffle(expected)
    else:
        expected = generator.permutation(expected)
    check_draw(folder, seed, expected, method, "--generator", "default_rng", "--input", folder / f"{name}.npy")


# population, number of elements: Floyd's method, and the end of a shuffled range
DISTINCT = [(COUNT, COUNT // 100), (COUNT, COUNT), (COUNT, COUNT // 30), (10_000, 10_000), (10_001, 200),
            (10_001, 201), (10_001, 501), (7, 7), (5, 0), (1, 1)]


class TestChoiceOfGenerator:
    FLAGS = ["--generator", "default_rng", "--shape"]

    @pytest.fixture
    def choice(self, seed):
        return np.random.default_rng(seed).choice

    @pytest.mark.parametrize("population, size", DISTINCT)
    def test_without_replacement(self, tmp_path, seed, choice, population, size):
        check_draw(tmp_path, seed, choice(population, size, replace=False), "choice", *self.FLAGS, size, "--n",
                   population, "--no-replace")

    @pytest.mark.parametrize("population, size", DISTINCT)
    def test_in_the_order_in_which_elements_are_found(self, tmp_path, seed, choice, population, size):
        check_draw(tmp_path, seed, choice(population, size, replace=False, shuffle=False), "choice", *self.FLAGS,
                   size, "--n", population, "--no-replace", "--no-shuffle")

    def test_with_replacement(self, tmp_path, seed, choice):
        check_draw(tmp_path, seed, choice(12345, COUNT), "choice", *self.FLAGS, COUNT, "--n", 12345)

    def test_with_probabilities(self, tmp_path, seed, choice):
        check_draw(tmp_path, seed, choice(7, COUNT, p=WEIGHTS), "choice", *self.FLAGS, COUNT, "--n", 7, "--p",
                   comma_separated(WEIGHTS))

    def test_with_probabilities_and_without_replacement(self, tmp_path, seed, choice):
        weights = np.arange(2000.0)
        weights /= weights.sum()
        check_draw(tmp_path, seed, choice(2000, (30, 50), replace=False, p=weights), "choice", *self.FLAGS, "30,50",
                   "--n", 2000, "--no-replace", "--p", comma_separated(weights))

    def test_from_an_array(self, folder, seed, choice):
        check_draw(folder, seed, choice(ARRAYS["vector"], (10, 20)), "choice", *self.FLAGS, "10,20", "--input",
                   folder / "vector.npy")


def test_methods_of_default_rng_share_one_stream(tmp_path):
    """Half words that a method leaves are used by the next one."""
    steps = [{"standard_normal": {"shape": [3], "dtype": "float32"}, "to": "a"}, {"permutation": {"n": 6}, "to": "b"},
             {"standard_normal": {"shape": [2]}, "to": "c"},
             {"choice": {"n": 9, "shape": [4], "replace": False}, "to": "d"},
             {"normal": {"loc": 1, "scale": 2, "shape": [3]}, "to": "e"}, {"random": {"shape": [2]}, "to": "f"}]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    attn("random", "steps.json", "--generator", "default_rng", "--seed", 5, "-o", "out.npz", cwd=tmp_path)
    rng = np.random.default_rng(5)
    expected = [rng.standard_normal(3, np.float32), rng.permutation(6), rng.standard_normal(2),
                rng.choice(9, 4, replace=False), rng.normal(1, 2, 3), rng.random(2)]
    with np.load(tmp_path / "out.npz") as found:
        assert [found[name].tolist() for name in "abcdef"] == [array.tolist() for array in expected]


def comma_separated(numbers):
    return ",".join(map(repr, numbers))


class TestChoice:
    @pytest.fixture
    def choice(self, seed):
        return np.random.RandomState(seed).choice

    def test_with_replacement(self, tmp_path, seed, choice):
        check_draw(tmp_path, seed, choice(12345, COUNT), "choice", "--n", 12345, "--shape", COUNT)

    def test_without_replacement(self, tmp_path, seed, choice):
        check_draw(tmp_path, seed, choice(COUNT, COUNT, replace=False), "choice", "--n", COUNT, "--shape",
                   COUNT, "--no-replace")

    def test_with_probabilities(self, tmp_path, seed, choice):
        check_draw(tmp_path, seed, choice(7, COUNT, p=WEIGHTS), "choice", "--n", 7, "--shape", COUNT, "--p",
                   comma_separated(WEIGHTS))

    def test_with_probabilities_and_without_replacement(self, tmp_path, seed, choice):
        weights = np.arange(2000.0)
        weights /= weights.sum()
        check_draw(tmp_path, seed, choice(2000, (30, 50), replace=False, p=weights), "choice", "--n", 2000,
                   "--shape", "30,50", "--no-replace", "--p", comma_separated(weights))

    def test_from_an_array(self, folder, seed, choice):
        check_draw(folder, seed, choice(ARRAYS["vector"], (10, 20)), "choice", "--input",
                   folder / "vector.npy", "--shape", "10,20")
