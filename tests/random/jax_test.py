"""`attn random --generator jax` draws what JAX 0.10 drew (tests/golden/random/jax.json)."""

import hashlib
import json
import pathlib

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.jax_steps import golden_steps

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "random" / "jax.json").read_text())
GENERATORS = ["jax", "jax-original"]


@pytest.fixture(scope="module")
def drawn(module_path):
    """The arrays of both generators."""
    (module_path / "steps.json").write_text(json.dumps(golden_steps()))
    arrays = {}
    for generator in GENERATORS:
        run = attn("random", "steps.json", "--generator", generator, "--seed", 0, "-o", f"{generator}.npz",
                   cwd=module_path)
        assert run.returncode == 0, run.stderr
        with np.load(module_path / f"{generator}.npz") as archive:
            arrays[generator] = dict(archive)
    return arrays


@pytest.mark.parametrize("generator, name", [(generator, name) for generator in GENERATORS
                                             for name in GOLDEN[generator]])
def test_array_is_that_of_jax(drawn, generator, name):
    array = drawn[generator][name]
    assert {"dtype": array.dtype.name, "shape": list(array.shape),
            "sha256": hashlib.sha256(array.tobytes()).hexdigest()} == GOLDEN[generator][name]


def numbers(*args):
    return json.loads(attn("random", *args, "--format", "json").stdout)


def test_published_numbers_of_a_notebook():
    """Lippe, UvA deep learning tutorial 6 in JAX, from before JAX 0.5."""
    found = numbers("normal", "--generator", "jax-original", "--seed", 42, "--key", "split[1]", "--shape", "3,3,2")
    assert np.allclose(found[0], [[-0.6613315, 0.70056266], [0.08239268, -1.7793142], [-0.04378588, 1.0965251]],
                       rtol=2e-7, atol=0)


@pytest.mark.parametrize("generator, uniform, integers", [
    ("jax", [0.4267275666499091, 0.015010069515314584],
     [-145378591231461835, -3741815450302687554, -3506958169482507113]),
    ("jax-original", [0.5741444178995352, 0.856637528879185],
     [737850866990560265, 1429391967684893512, -3545556397496990502]),
])
class TestWordsOf64Bits:
    """What JAX 0.10.2 prints with jax_enable_x64."""

    def test_uniform(self, generator, uniform, integers):
        """jax.random.uniform(jax.random.key(42), (2,), 'float64')"""
        assert numbers("uniform", "--generator", generator, "--seed", 42, "--dtype", "float64", "--shape", 2) == uniform

    def test_randint(self, generator, uniform, integers):
        """jax.random.randint(jax.random.key(42), (3,), -2**62, 2**62, 'int64')"""
        assert numbers("randint", "--generator", generator, "--seed", 42, "--dtype", "int64", "--shape", 3, "--minval",
                       -2**62, "--maxval", 2**62) == integers


def test_call_without_a_key_repeats_its_numbers():
    found = numbers("normal", "--generator", "jax", "--seed", 1, "--shape", 3, "--repeat", 2)
    assert found["arr_0"] == found["arr_1"]


REFUSED = [
    (["normal", "--seed", 2**32], "seed: expected 0 to 4294967295, found a larger number"),
    (["normal", "--seed", "1,2"], "seed: expected one whole number for jax, found a list"),
    (["normal", "--seed", 1, "--dtype", "float64"], "normal: unknown argument 'dtype'"),
    (["normal", "--seed", 1, "--key", "split[2]"],
     "normal: key: expected steps such as split[1], split(3)[0] or fold_in(7), found 'split[2]'"),
    (["normal", "--seed", 1, "--key", "split"], "key: expected steps"),
    (["normal", "--seed", 1, "--key", "split(3)[0"], "key: expected steps"),
    (["normal", "--seed", 1, "--key", "fold_in(-1)"], "key: expected steps"),
    (["normal", "--seed", 1, "--key", "fold(1)"], "key: expected steps"),
    (["normal", "--seed", 1, "--key", "split[1]]"], "key: expected steps"),
    (["normal", "--seed", 1, "--key", "split[1]split[0]"], "key: expected steps"),
    (["normal", "--seed", 1, "--key", "fold_in(1)split[0]"], "key: expected steps"),
    (["uniform", "--seed", 1, "--minval", 1], "uniform: bounds: expected minval < maxval"),
    (["uniform", "--seed", 1, "--dtype", "float16"], "uniform: dtype: expected float32 or float64"),
    (["randint", "--seed", 1, "--minval", 3, "--maxval", 3], "randint: bounds: expected low < high"),
    (["randint", "--seed", 1, "--minval", 0, "--maxval", 300, "--dtype", "uint8"], "randint: bounds: uint8 holds"),
    (["randint", "--seed", 1, "--minval", 0, "--maxval", 2, "--dtype", "bool"], "expected an integer type"),
    (["bernoulli", "--seed", 1, "--p", 2], "bernoulli: p: expected 0 to 1, found 2"),
    (["randn", "--seed", 1], "randn: not available for jax, only for RandomState or torch"),
]


@pytest.mark.parametrize("args, message", REFUSED, ids=[" ".join(map(str, args)) for args, _ in REFUSED])
def test_call_is_refused(args, message):
    assert_error(attn("random", *args, "--generator", "jax"), 2, message)
