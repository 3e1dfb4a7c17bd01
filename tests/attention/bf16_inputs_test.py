"""Inputs that are stored in bfloat16 are computed with the accuracy of float32, on every instruction set.

Products of bfloat16 numbers are exact in float32, so some processors multiply them as they are (decision 38).
"""

import json
import os
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, attn
from support.random_tensors import BFLOAT16, write
from support.rounding import rounded

ROUNDOFF = 2.0**-24


def supported_isas():
    version = attn("--version", "-v").stdout.decode()
    return version.partition("(of ")[2].partition(")")[0].split(", ")


def stored(x):
    """Numbers that bfloat16 represents, as such."""
    return (np.asarray(x, "f4").view("u4") >> 16).astype("u2").view(BFLOAT16)


def run(folder, tensors, isa, **job):
    """The outputs of a job, as float32."""
    write(folder / "in.safetensors", {name: stored(x) for name, x in tensors.items()})
    (folder / "job.json").write_text(json.dumps({**job, **{name: f"in.safetensors#{name}" for name in tensors}}))
    subprocess.run([ATTN, "run", "job.json", "-o", "out.npz", "--force"], cwd=folder, check=True, capture_output=True,
                   env=dict(os.environ, ATTN_ISA=isa))
    with np.load(folder / "out.npz") as outputs:
        return dict(outputs)


def normal(rng, *shape):
    return rounded(rng.standard_normal(shape), "bf16")


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("L, S, D, Dv", [(1, 700, 64, 64), (5, 40, 33, 20), (17, 600, 64, 130), (70, 70, 128, 48)])
def test_accuracy_is_that_of_float32(tmp_path, isa, L, S, D, Dv):
    rng = np.random.default_rng(L)
    t = {"Q": normal(rng, 2, L, D), "K": normal(rng, 2, S, D), "V": normal(rng, 2, S, Dv)}
    found = run(tmp_path, t, isa, outputs=["context", "logsumexp"])
    q, k, v = (t[name].astype(float) for name in "QKV")
    x = q @ k.swapaxes(1, 2) / np.sqrt(D)
    log = np.log(np.exp(x).sum(-1))
    assert found["logsumexp"].dtype == np.float32
    assert np.abs(found["logsumexp"] - log).max() <= 40 * ROUNDOFF * (1 + np.abs(x).max())
    context = np.exp(x - log[..., None]) @ v
    # Results are rounded to bfloat16, once, except where the error before it crosses a midpoint.
    error = 60 * ROUNDOFF * (np.exp(x - log[..., None]) @ np.abs(v))
    low, high = rounded(context - error, "bf16"), rounded(context + error, "bf16")
    assert ((low <= found["context"]) & (found["context"] <= high)).all()


@pytest.mark.parametrize("isa", supported_isas())
def test_rows_alone_have_the_same_bytes(tmp_path, isa):
    rng = np.random.default_rng(4)
    t = {"Q": normal(rng, 2, 40, 33), "K": normal(rng, 2, 90, 33), "V": normal(rng, 2, 90, 20)}
    outputs = ["context", "logsumexp"]
    whole = run(tmp_path, t, isa, outputs=outputs)
    part = run(tmp_path, t, isa, outputs=outputs, rows=[7, 31])
    for name in outputs:
        assert part[name].tobytes() == whole[name][:, [7, 31]].tobytes(), name


def test_compute_f32_does_not_depend_on_amx(tmp_path):
    isas = supported_isas()
    if "amx_bf16" not in isas:
        pytest.skip("a processor without AMX")
    rng = np.random.default_rng(5)
    t = {name: normal(rng, 2, 300, 64) for name in "QKV"}
    one, other = (run(tmp_path, t, isa, outputs=["logsumexp"], compute="f32")["logsumexp"] for isa in ("amx_bf16", "avx512"))
    assert one.tobytes() == other.tobytes()
    faster = run(tmp_path, t, "amx_bf16", outputs=["logsumexp"])["logsumexp"]
    assert (faster != one).any()


@pytest.mark.parametrize("isa", supported_isas())
def test_latent_attention_has_the_bytes_of_queries_keys_and_values(tmp_path, isa):
    rng = np.random.default_rng(2)
    ckv, pe, q = normal(rng, 1, 75, 32), normal(rng, 1, 75, 8), normal(rng, 1, 4, 3, 40)
    keys = np.concatenate([ckv, pe], -1)[:, None]
    outputs = ["context", "logsumexp"]
    found = run(tmp_path, {"Q_nope": q[..., :32], "Q_pe": q[..., 32:], "CKV": ckv, "K_pe": pe}, isa, scale=0.2, outputs=outputs)
    plain = run(tmp_path, {"Q": q, "K": keys, "V": keys[..., :32]}, isa, scale=0.2, outputs=outputs)
    for name in outputs:
        assert found[name].tobytes() == plain[name].tobytes(), name


@pytest.mark.parametrize("isa", supported_isas())
def test_subnormal_factors_that_count_as_0_are_within_the_bound(tmp_path, isa):
    rng = np.random.default_rng(3)
    t = {"Q": rounded(np.full((4, 8), 1e-39), "bf16"), "K": rounded(1e30 * (1 + rng.random((40, 8))), "bf16"),
         "V": normal(rng, 40, 8)}
    run(tmp_path, t, isa, outputs=["scores", "weights", "context"])
    done = attn("convert", "out.npz", "--dtype", "bf16", "-o", "out.safetensors", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    done = attn("compare", "out.safetensors", "--reference", "job.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
