"""The option `o_scale`, which divides the context after its gates."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.jobs import run_arrays, start_arrays

B, H, L, S, D = 2, 3, 4, 6, 5


def tensors(*more):
    rng = np.random.default_rng(7)
    return {"Q": rng.standard_normal((B, H, L, D)), "K": rng.standard_normal((B, H, S, D)),
            "V": rng.standard_normal((B, H, S, D))} | {name: rng.standard_normal((B, H, L, D)) for name in more}


def run(folder, outputs=("context",), with_tensors=(), **options):
    return run_arrays(folder, tensors(*with_tensors), outputs=list(outputs), **options)


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("compute, dtype", [("f64", np.float64), ("f32", np.float32)])
@pytest.mark.parametrize("gate", [(), ("gate",)])
def test_the_context_is_divided(tmp_path, path, compute, dtype, gate):
    options = {"path": path, "compute": compute, "with_tensors": gate, "outputs": ["context", "weights"]}
    plain, scaled = run(tmp_path, **options), run(tmp_path, o_scale=0.3, **options)
    assert (scaled["context"] == (plain["context"].astype(float) / 0.3).astype(dtype)).all()
    assert (scaled["weights"] == plain["weights"]).all()


def test_the_output_follows(tmp_path):
    options = {"with_tensors": (), "outputs": ["output"], "layout": "bhld"}
    identity = np.eye(H * D).tolist()
    plain, scaled = run(tmp_path, W_O=identity, **options), run(tmp_path, W_O=identity, o_scale=8, **options)
    assert (scaled["output"] == plain["output"] / 8).all()


@pytest.mark.parametrize("gate", [(), ("gate",)])
def test_gradients_are_divided_too(tmp_path, gate):
    wanted = ["grad_Q", "grad_K", "grad_V"] + [f"grad_{name}" for name in gate]
    options = {"with_tensors": ("grad_context", *gate), "outputs": wanted}
    plain, scaled = run(tmp_path, **options), run(tmp_path, o_scale=0.3, **options)
    for name in wanted:
        np.testing.assert_allclose(scaled[name], plain[name] / 0.3, rtol=1e-13, atol=1e-15)
    assert attn("compare", "--reference", tmp_path / "out.npz", tmp_path / "job.json").returncode == 0


def test_within_the_error_bound_of_itself(tmp_path):
    run(tmp_path, compute="f32", o_scale=0.3)
    assert attn("compare", "--reference", tmp_path / "out.npz", tmp_path / "job.json").returncode == 0


@pytest.mark.parametrize("made_with, named", [({}, "output.o_scale_dropped"),
                                              ({"o_scale": 1 / 0.3}, "output.o_scale_inverted")])
def test_diagnosis(tmp_path, made_with, named):
    wrong = run(tmp_path, **made_with)["context"]
    run(tmp_path, o_scale=0.3)
    np.savez(tmp_path / "wrong.npz", context=wrong)
    done = attn("compare", tmp_path / "wrong.npz", "--reference", tmp_path / "job.json", "--diagnose", "--json")
    assert named in [found["id"] for found in json.loads(done.stdout)["tensors"][0]["diagnosis"]]


@pytest.mark.parametrize("number", [0, -1, "nan", [2]])
def test_it_is_a_positive_number(tmp_path, number):
    assert_error(start_arrays(tmp_path, tensors(), o_scale=number), 65, "o_scale")
