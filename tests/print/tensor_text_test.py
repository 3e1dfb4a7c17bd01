"""`--style` prints tensors as PyTorch, JAX and TensorFlow do.

The golden files have random tensors with the texts of PyTorch and JAX (tests/golden/README.md). Other texts were
printed by the library and version that the test names.
"""

import json

import numpy as np
import pytest

from support.attn import ROOT, assert_error, attn
from support.random_tensors import styled_text

GOLDEN = ROOT / "tests/golden/tensor-text"
SETS = {style: json.loads((GOLDEN / f"{style}.json").read_text())["sets"] for style in ("torch", "jax")}
NUMBERED = [(style, number) for style, sets in SETS.items() for number in range(len(sets))]


@pytest.mark.parametrize("style, number", NUMBERED)
def test_random_tensors(style, number):
    case = SETS[style][number]
    path = GOLDEN / f"{style}-{number}.safetensors"
    for form in case.keys() - {"options"}:
        found = styled_text(path, style, case["options"], ["--repr"] if form == "repr" else [])
        assert found == case[form]


def text_of(folder, array, *flags):
    np.save(folder / "x.npy", array)
    run = attn("convert", "x.npy", "--format", "text", *flags, cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode()[:-1]


TENSORFLOW = [
    # array, flags, text; from tensorflow.org/text/tutorials/transformer (2.3) and the guide "Tensors" (2.15)
    (np.array([[0, 1, 0, 0]], "f4"), [], "tf.Tensor([[0. 1. 0. 0.]], shape=(1, 4), dtype=float32)"),
    (np.array([[550, 5.5]], "f4"), [], "tf.Tensor([[550.    5.5]], shape=(1, 2), dtype=float32)"),
    (np.array(4, "i4"), [], "tf.Tensor(4, shape=(), dtype=int32)"),
    (np.array([2, 3, 4], "f4"), [], "tf.Tensor([2. 3. 4.], shape=(3,), dtype=float32)"),
    (np.array([[1, 2], [3, 4], [5, 6]], "f2"), [],
     "tf.Tensor(\n[[1. 2.]\n [3. 4.]\n [5. 6.]], shape=(3, 2), dtype=float16)"),
    (np.array([2, 3, 4], "f4"), ["--repr"],
     "<tf.Tensor: shape=(3,), dtype=float32, numpy=array([2., 3., 4.], dtype=float32)>"),
    (np.array([[1, 2], [3, 4]], "i4"), ["--repr"],
     "<tf.Tensor: shape=(2, 2), dtype=int32, numpy=\narray([[1, 2],\n       [3, 4]], dtype=int32)>"),
    (np.array(4, "i4"), ["--repr"], "<tf.Tensor: shape=(), dtype=int32, numpy=4>"),
    (np.array(0.1, "f4"), ["--repr"], "<tf.Tensor: shape=(), dtype=float32, numpy=0.10000000149011612>"),
]


@pytest.mark.parametrize("array, flags, text", TENSORFLOW, ids=lambda value: value if isinstance(value, str) else "")
def test_tensorflow(tmp_path, array, flags, text):
    assert text_of(tmp_path, array, "--style", "tf", *flags) == text


JOB = {"Q": [[0.0]], "K": [[0.0]], "V": [[0.5, -2.25]], "outputs": ["V"]}


def print_job(print_options, *flags):
    return attn("run", "-", *flags, stdin=json.dumps(JOB | {"print_options": print_options}))


TORCH = {"style": "torch"}


@pytest.mark.parametrize("print_options, flags, text", [
    (TORCH, [], "tensor([[ 0.5000, -2.2500]], dtype=torch.float64)"),
    ({}, ["--style", "torch"], "tensor([[ 0.5000, -2.2500]], dtype=torch.float64)"),
    (TORCH | {"precision": 2}, [], "tensor([[ 0.50, -2.25]], dtype=torch.float64)"),
    ({"precision": 2}, ["--style", "torch"], "tensor([[ 0.50, -2.25]], dtype=torch.float64)"),
    (TORCH | {"precision": 2}, ["--precision", 1], "tensor([[ 0.5, -2.2]], dtype=torch.float64)"),
    (TORCH, ["--style", "numpy"], "[[ 0.5  -2.25]]"),
    ({"suppress": True, "floatmode": "fixed"}, ["--style", "torch"], "tensor([[ 0.5000, -2.2500]], dtype=torch.float64)"),
    (TORCH | {"sci_mode": "always"}, ["--style", "numpy"], "[[ 0.5  -2.25]]"),
    (TORCH | {"sci_mode": "always"}, [], "tensor([[ 5.0000e-01, -2.2500e+00]], dtype=torch.float64)"),
    (TORCH | {"grad_fn": "MmBackward0"}, [], "tensor([[ 0.5000, -2.2500]], dtype=torch.float64, grad_fn=<MmBackward0>)"),
    (TORCH, ["--requires-grad"], "tensor([[ 0.5000, -2.2500]], dtype=torch.float64, requires_grad=True)"),
    ({"style": "jax"}, [], "[[ 0.5  -2.25]]"),
    ({"style": "jax"}, ["--repr"], "Array([[ 0.5 , -2.25]], dtype=float64)"),
    ({"style": "tf"}, [], "tf.Tensor([[ 0.5  -2.25]], shape=(1, 2), dtype=float64)"),
], ids=str)
def test_style_of_a_job(print_options, flags, text):
    run = print_job(print_options, *flags)
    assert run.returncode == 0, run.stderr.decode()
    assert run.stdout.decode().split("\n", 1)[1] == text + "\n"


def test_jax_uses_the_rules_of_numpy_2(tmp_path):
    """NumPy 2 prints exponents from 1e6 on."""
    million = np.array([1e6], "f4")
    assert text_of(tmp_path, million, "--style", "jax") == "[1.e+06]"
    assert text_of(tmp_path, million, "--style", "jax", "--numpy", 1) == "[1000000.]"


@pytest.mark.parametrize("print_options, message", [
    ({"style": "pytorch"}, "print_options.style: expected numpy, torch, jax or tf, found 'pytorch'"),
    ({"sci_mode": "always"}, "print_options.sci_mode: requires print_options.style torch"),
    ({"style": "jax", "grad_fn": "X"}, "print_options.grad_fn: requires print_options.style torch"),
    ({"requires_grad": True}, "print_options.requires_grad: requires print_options.style torch"),
    (TORCH | {"grad_fn": 1}, "print_options.grad_fn: expected a string, found 1"),
    (TORCH | {"suppress": True}, "print_options.style: 'torch' cannot be combined with print_options.suppress"),
    (TORCH | {"floatmode": "fixed"}, "print_options.style: 'torch' cannot be combined with print_options.floatmode"),
    (TORCH | {"numpy": 2}, "print_options.style: 'torch' cannot be combined with print_options.numpy"),
], ids=str)
def test_invalid_settings_are_refused(print_options, message):
    assert_error(print_job(print_options), 65, message)


@pytest.mark.parametrize("flags, message", [
    (["--style", "pytorch"], "--style: expected numpy, torch, jax or tf, found 'pytorch'"),
    (["--sci-mode", "always"], "--sci-mode: requires --style torch"),
    (["--grad-fn", "X", "--style", "tf"], "--grad-fn: requires --style torch"),
    (["--requires-grad"], "--requires-grad: requires --style torch"),
    (["--style", "torch", "--suppress"], "--style: 'torch' cannot be combined with --suppress"),
    (["--style", "torch", "--floatmode", "fixed"], "--style: 'torch' cannot be combined with --floatmode"),
], ids=str)
def test_flags_without_effect_are_refused(tmp_path, flags, message):
    np.save(tmp_path / "x.npy", [1.5])
    assert_error(attn("convert", "x.npy", "--format", "text", *flags, cwd=tmp_path), 2, message)
    assert_error(print_job({}, *flags), 2, message)


def test_control_characters_are_escaped(tmp_path):
    """As in all text of a user that is printed."""
    assert "\x1b" not in text_of(tmp_path, np.array([1.5]), "--style", "torch", "--grad-fn", "\x1b[31m")
