"""`attn random --generator torch` draws what PyTorch 2.13 drew (tests/golden/random/torch.json)."""

import hashlib
import json
import pathlib

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.torch_steps import golden_steps

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "random" / "torch.json").read_text())


@pytest.fixture(scope="module")
def drawn(module_path):
    (module_path / "steps.json").write_text(json.dumps(golden_steps()))
    run = attn("random", "steps.json", "--generator", "torch", "--seed", 0, "-o", "drawn.npz", cwd=module_path)
    assert run.returncode == 0, run.stderr
    with np.load(module_path / "drawn.npz") as archive:
        return dict(archive)


def test_all_arrays_are_drawn(drawn):
    assert list(drawn) == list(GOLDEN["arrays"])


@pytest.mark.parametrize("name", GOLDEN["arrays"])
def test_array_is_that_of_torch(drawn, name):
    array = drawn[name]
    assert {"dtype": array.dtype.name, "shape": list(array.shape),
            "sha256": hashlib.sha256(array.tobytes()).hexdigest()} == GOLDEN["arrays"][name]


def numbers(*args):
    return json.loads(attn("random", *args, "--generator", "torch", "--format", "json").stdout)


def test_published_numbers_of_manual_seed_0():
    """torch.manual_seed(0); torch.rand(2): in the documentation of many projects."""
    assert np.round(numbers("rand", "--seed", 0, "--shape", 2), 4).tolist() == [0.4963, 0.7682]


def test_method_of_the_command_line():
    """torch.manual_seed(123); torch.nn.Linear(3, 2): Raschka, LLMs from scratch, chapter 3."""
    found = numbers("Linear", "--seed", 123, "--in-features", 3, "--out-features", 2, "--no-bias")
    assert np.round(found["weight"], 4).tolist() == [[-0.2354, 0.0191, -0.2867], [0.2177, -0.4919, 0.4232]]


def test_probabilities_of_a_file_have_its_width(tmp_path):
    """torch.manual_seed(42); torch.bernoulli(torch.full((6,), 0.5, dtype=...)) of PyTorch 2.13."""
    for dtype, drawn in (np.float64, [1, 1, 1, 1, 0, 1]), (np.float32, [0, 0, 1, 0, 1, 0]):
        np.save(tmp_path / "p.npy", np.full(6, 0.5, dtype))
        run = attn("random", "bernoulli", "--generator", "torch", "--seed", 42, "--input", tmp_path / "p.npy",
                   "-o", "drawn.npy", "--force", cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        found = np.load(tmp_path / "drawn.npy")
        assert found.dtype == dtype and found.tolist() == drawn


def test_repeated_layers_have_numbered_names():
    found = numbers("Linear", "--seed", 1, "--in-features", 1, "--out-features", 1, "--repeat", 2)
    assert list(found) == ["arr_0.weight", "arr_0.bias", "arr_1.weight", "arr_1.bias"]


@pytest.mark.parametrize("generator, reason", [
    ("torch-mkl", "on Intel CPUs, PyTorch draws bernoulli_(p) and dropout from MKL's generator, which attn does not "
                  "have; give the mask as a tensor"),
    ("torch-cuda", "the numbers of PyTorch's CUDA generator depend on the GPU"),
])
class TestStreamThatCannotBeReproduced:
    def test_is_refused_by_the_command(self, generator, reason):
        assert_error(attn("random", "rand", "--seed", 1, "--generator", generator), 2, reason)

    def test_is_refused_in_a_job(self, generator, reason):
        job = {"Q": {"rand": {"shape": [1, 1]}}, "K": [[1.0]], "seed": 1, "generator": generator}
        assert_error(attn("run", "-", stdin=json.dumps(job)), 65, reason)


REFUSED = [
    (["rand", "--seed", "1,2"], "seed: expected one whole number for torch, found a list"),
    (["rand", "--seed", 2**64], "seed: expected 0 to 18446744073709551615, found a larger number"),
    (["rand", "--seed", 1, "--dtype", "float16"], "rand: dtype: expected float32 or float64, found float16"),
    (["randint", "--seed", 1, "--high", 3, "--dtype", "float16"], "randint: dtype: expected an integer type"),
    (["randint", "--seed", 1, "--high", 2**24 + 2, "--dtype", "float32"], "expected integers from -16777216 to"),
    (["randint", "--seed", 1, "--high", 2**63 + 1, "--dtype", "uint64"], "randint: bounds: expected integers from"),
    (["randint", "--seed", 1, "--low", 3, "--high", 3], "randint: bounds: expected low < high"),
    (["normal", "--seed", 1, "--std", -1], "normal: std: expected a number >= 0, found -1"),
    (["uniform", "--seed", 1, "--low", 1, "--high", 0], "uniform: bounds: expected low <= high"),
    (["uniform", "--seed", 1, "--low", "-3e38", "--high", "3e38"], "uniform: bounds: expected low <= high"),
    (["bernoulli", "--seed", 1, "--p", 1.5], "bernoulli: p: expected 0 to 1, found 1.5"),
    (["bernoulli", "--seed", 1], "bernoulli: expected either 'p' or 'values'"),
    (["randperm", "--seed", 1, "--n", 214748364], "randperm: n: expected 0 to 214748363"),
    (["kaiming_uniform", "--seed", 1, "--shape", 3], "kaiming_uniform: shape: expected two axes or more"),
    (["kaiming_uniform", "--seed", 1, "--shape", "3,3", "--mode", "in"], "mode: expected fan_in or fan_out"),
    (["kaiming_normal", "--seed", 1, "--shape", "3,3", "--nonlinearity", "gelu"], "nonlinearity: expected linear"),
    (["Embedding", "--seed", 1, "--num-embeddings", 2, "--embedding-dim", 2, "--indices", "0,2"],
     "Embedding: indices: expected 0 to 1, found 2"),
    (["Embedding", "--seed", 1, "--num-embeddings", 2, "--embedding-dim", 0, "--indices", "7"],
     "Embedding: indices: expected 0 to 1, found 7"),
    (["Embedding", "--seed", 1, "--num-embeddings", 0, "--embedding-dim", 2, "--indices", "0"],
     "Embedding: indices: expected no indices, because num_embeddings is 0, found 0"),
    (["Embedding", "--seed", 1, "--num-embeddings", 2, "--embedding-dim", 2, "--indices=-1"],
     "Embedding: indices: expected whole numbers >= 0, found -1"),
    (["Linear", "--seed", 1, "--in-features", 2], "Linear: expected the argument 'out_features', found none"),
    (["integers", "--seed", 1], "integers: not available for torch, only for default_rng"),
]


@pytest.mark.parametrize("args, message", REFUSED, ids=[" ".join(map(str, args)) for args, _ in REFUSED])
def test_call_is_refused(args, message):
    assert_error(attn("random", *args, "--generator", "torch"), 2, message)
