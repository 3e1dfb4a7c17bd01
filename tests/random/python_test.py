"""`attn random --generator python` draws what the module `random` of CPython draws, bit for bit. (Under sanitizers, a
fifth of the numbers.)
"""

import json
import random

import numpy as np
import pytest

from support.attn import assert_error, attn, under_sanitizer

COUNT = 200_000 if under_sanitizer() else 1_000_000
SEEDS = [0, 42, 2**32 + 7, 10**40]
WEIGHTS = [0.1, 0.05, 0.25, 0.0, 0.4, 0.125, 0.075]
METHODS = {  # name: variants of its arguments
    "random": [{}],
    "uniform": [{"a": -2.5, "b": 0.1}],
    "gauss": [{"mu": 3.25, "sigma": 0.7}, {"mu": 0, "sigma": 0.08}],
    "normalvariate": [{"mu": 3.25, "sigma": 0.7}],
    "randint": [{"a": -3, "b": 3}, {"a": 0, "b": 2**32 - 1}, {"a": -(2**63), "b": 2**63 - 2}],
    "randrange": [{"start": 5, "stop": 6}, {"start": -1, "stop": 2**40}],
    "getrandbits": [{"k": 1}, {"k": 32}, {"k": 33}, {"k": 63}],
}


def flags_of(arguments):
    return [text for name, value in arguments.items() for text in (f"--{name}", value)]


def drawn(folder, seed, *args):
    output = folder / "drawn.npy"
    run = attn("random", *args, "--generator", "python", "--seed", seed, "-o", output, "--force")
    assert run.returncode == 0, run.stderr
    return np.load(output)


@pytest.mark.parametrize("method", METHODS)
def test_method(tmp_path, method):
    """Most numbers are drawn with the first variant of the arguments."""
    variants = METHODS[method]
    for number, seed in enumerate(SEEDS):
        arguments, count = variants[number % len(variants)], COUNT if number == 0 else 9_999
        python = random.Random(seed)
        expected = np.array([getattr(python, method)(*arguments.values()) for _ in range(count)])
        found = drawn(tmp_path, seed, method, *flags_of(arguments), "--shape", count)
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", SEEDS)
class TestPopulations:
    def test_choice(self, tmp_path, seed):
        python = random.Random(seed)
        expected = [python.choice(range(1000)) for _ in range(1000)]
        assert drawn(tmp_path, seed, "choice", "--n", 1000, "--shape", 1000).tolist() == expected

    def test_choices(self, tmp_path, seed):
        expected = random.Random(seed).choices(range(123), k=1000)
        assert drawn(tmp_path, seed, "choices", "--n", 123, "--shape", 1000).tolist() == expected

    def test_weighted_choices_of_values(self, tmp_path, seed):
        np.save(tmp_path / "values.npy", np.arange(7.0) ** 2)
        expected = random.Random(seed).choices(np.arange(7.0) ** 2, weights=WEIGHTS, k=1000)
        found = drawn(tmp_path, seed, "choices", "--input", tmp_path / "values.npy", "--weights",
                      ",".join(map(str, WEIGHTS)), "--shape", 1000)
        assert found.tolist() == expected

    @pytest.mark.parametrize("n, k", [(21, 3), (22, 3), (5, 5), (85, 16), (86, 16), (10**6, 300), (1, 0)])
    def test_sample(self, tmp_path, seed, n, k):
        expected = random.Random(seed).sample(range(n), k)
        assert drawn(tmp_path, seed, "sample", "--n", n, "--k", k).tolist() == expected

    def test_shuffle(self, tmp_path, seed):
        expected = list(range(32_033))
        random.Random(seed).shuffle(expected)
        assert drawn(tmp_path, seed, "shuffle", "--n", 32_033).tolist() == expected

    def test_shuffled_rows(self, tmp_path, seed):
        rows = np.arange(60).reshape(20, 3)
        np.save(tmp_path / "values.npy", rows)
        expected = rows.tolist()
        random.Random(seed).shuffle(expected)
        assert drawn(tmp_path, seed, "shuffle", "--input", tmp_path / "values.npy").tolist() == expected


def test_steps_share_one_stream(tmp_path):
    """As microgpt does: a list is shuffled, then weights are drawn. gauss() keeps the second number of a pair."""
    steps = [{"shuffle": {"n": 1001}, "to": "order"}, {"gauss": {"sigma": 0.08, "shape": [3, 3]}, "to": "wte"},
             {"random": {}, "to": "one"}, {"gauss": {"sigma": 0.08, "shape": [2]}, "to": "wpe"},
             {"seed": 7}, {"gauss": {}, "to": "after"}]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    run = attn("random", "steps.json", "--generator", "python", "--seed", 42, "-o", "drawn.npz", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    found = np.load(tmp_path / "drawn.npz")

    python = random.Random(42)
    order = list(range(1001))
    python.shuffle(order)
    assert found["order"].tolist() == order
    assert found["wte"].tolist() == [[python.gauss(0, 0.08) for _ in range(3)] for _ in range(3)]
    assert found["one"] == python.random()
    assert found["wpe"].tolist() == [python.gauss(0, 0.08) for _ in range(2)]
    assert found["after"] == random.Random(7).gauss(0, 1)


@pytest.mark.parametrize("args, message", [
    (["randint", "--a", 3, "--b", 2], "range: expected start < stop, found [3, 3)"),
    (["randrange", "--stop", 2**64], "range: expected 64-bit integers"),
    (["getrandbits", "--k", 64], "k: expected 0 to 63, found 64"),
    (["uniform", "--a", 1], "expected the argument 'b', found none"),
    (["choice", "--n", 0], "expected at least one element"),
    (["choices", "--n", 2, "--weights", "1"], "weights: expected 2 numbers, found 1"),
    (["choices", "--n", 2, "--weights", "1,-1"], "weights: expected numbers that are not negative"),
    (["choices", "--n", 2, "--weights", "0,0"], "weights: expected a finite sum above 0, found 0"),
    (["sample", "--n", 3, "--k", 4], "k: expected 0 to 3, found 4"),
    (["randn"], "not available for python"),
])
def test_bad_arguments(args, message):
    run = attn("random", *args, "--generator", "python", "--seed", 1)
    assert run.returncode in (2, 65)
    assert_error(run, run.returncode, message)


@pytest.mark.parametrize("method", ["random", "gauss", "sample"])
def test_module_of_python_is_suggested(method):
    run = attn("random", f"random.{method}", "--seed", 1)
    assert_error(run, 2, f"did you mean '{method} --generator python'?")
