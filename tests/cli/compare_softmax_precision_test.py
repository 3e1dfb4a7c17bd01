"""`attn compare --reference` of jobs with `softmax.precision`: the bound counts the rounding of scores and of weights."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.rounding import rounded

BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
OUTPUTS = ["weights", "logsumexp", "entropy", "context"]
L, D = 96, 32


def tensors_of(dtype, size=1.0):
    rng = np.random.default_rng(7)
    return {name: (size * rng.standard_normal((2, L, D))).astype(dtype) for name in "QKV"}


def softmax(x):
    top = x.max(axis=-1, keepdims=True)
    powers = np.exp(x - top)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / total, (top + np.log(total))[..., 0]


def kernel(tensors, precision, shift=0, scale=D**-0.5, temperature=1.0):
    """Sums in float64, and the roundings that softmax.precision asks for."""
    q, k, v = (tensors[name].astype("f8") for name in "QKV")
    scores = q @ k.swapaxes(1, 2) * scale / temperature
    scores = np.where(np.tri(L, k=shift, dtype=bool), rounded(scores, precision), -np.inf)
    weights, logsumexp = softmax(scores)
    weights = rounded(weights, precision)
    entropy = -np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0).sum(axis=-1)
    return {"weights": weights, "logsumexp": logsumexp, "entropy": entropy, "context": weights @ v}


def compare(folder, tensors, outputs, dtype, *flags, **job):
    """The exit code, and the largest error of each output as a fraction of its bound."""
    np.savez(folder / "in.npz", **tensors)
    job = {**job, "causal": True, **{name: f"in.npz#{name}" for name in tensors}}
    (folder / "job.json").write_text(json.dumps(job))
    np.savez(folder / "mine.npz", **{name: array.astype(dtype) for name, array in outputs.items()})
    done = attn("compare", "mine.npz", "--reference", "job.json", *flags, "--json", cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, {tensor["name"].rpartition("#")[2]: tensor["bound"]["worst"]["value"]
                             for tensor in json.loads(done.stdout)["tensors"]}


@pytest.mark.parametrize("dtype", ["f2", "f4"])
@pytest.mark.parametrize("precision", BITS)
def test_a_kernel_with_these_roundings_is_within_the_bound(tmp_path, precision, dtype):
    for options in {}, {"temperature": 0.5}:
        tensors = tensors_of(dtype)
        code, worst = compare(tmp_path, tensors, kernel(tensors, precision, **options), dtype,
                              softmax={"precision": precision}, **options)
        assert code == 0, worst
        assert set(worst) == set(OUTPUTS)


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_a_kernel_without_these_roundings_is_within_the_bound_of_this_job_only(tmp_path, precision):
    tensors = tensors_of("f4")
    for size in 1, 3:
        exact = kernel({name: size * array for name, array in tensors.items()}, "f64")
        large = {name: size * array for name, array in tensors.items()}
        code, worst = compare(tmp_path, large, exact, "f4", softmax={"precision": precision})
        assert code == 0, worst
        assert worst["weights"] > 0.05  # the bound is not arbitrarily wide
        assert compare(tmp_path, large, kernel(large, precision), "f4")[0] == 1


@pytest.mark.parametrize("precision", BITS)
@pytest.mark.parametrize("mistake", [{"shift": 1}, {"shift": -1}, {"scale": 1 / D}, {"scale": 1}])
def test_a_mistake_exceeds_the_bound(tmp_path, precision, mistake):
    tensors = tensors_of("f4")
    with np.errstate(invalid="ignore"):
        wrong = kernel(tensors, precision, **mistake)
    assert compare(tmp_path, tensors, wrong, "f4", softmax={"precision": precision})[0] == 1


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_results_of_attn_are_within_the_bound(tmp_path, precision):
    rng = np.random.default_rng(8)
    np.savez(tmp_path / "in.npz", **{name: rng.standard_normal((1, 2, L, D)).astype("f2") for name in "QKV"})
    job = ["in.npz", "--softmax-precision", precision, "--causal", "--sinks", "[0.5, -1]"]
    done = attn("run", *job, "--outputs", ",".join(OUTPUTS), "-o", "mine.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = attn("compare", "mine.npz", "--reference", *job, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


def test_gradients_have_no_bound_with_it(tmp_path):
    tensors = tensors_of("f4")
    np.savez(tmp_path / "in.npz", grad_context=tensors["Q"], **tensors)
    np.savez(tmp_path / "mine.npz", grad_Q=tensors["Q"])
    run = attn("compare", "mine.npz", "--reference", "in.npz", "--softmax-precision", "f16", cwd=tmp_path)
    assert_error(run, 2, "no error bound is known with softmax.precision")
