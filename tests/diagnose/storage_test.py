"""`attn compare --reference` names mistakes with quantised keys and values: scales, zero points and codes.

The wrong kernels are NumPy, with the job's stored elements read in another way.
"""

import json

import numpy as np
import pytest

from support.attn import attn
from support.stored_jobs import CODES, e2m1, e4m3

G, H, L, S, D = 2, 4, 6, 40, 32


def attention(Q, K, V):
    K, V = (x.repeat(H // G, axis=0) for x in (K, V))
    scores = Q @ K.transpose(0, 2, 1) / np.sqrt(D)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ V


def make():
    """Stored elements, scales (of keys for each head, of values for each token) and a zero point of keys."""
    rng = np.random.default_rng(0)
    return {"Q": rng.standard_normal((H, L, D)), "K": rng.integers(100, 156, (G, S, D)).astype("u1"),
            "V": rng.integers(0, 0x78, (G, S, D)).astype("u1"), "k_scale": np.array([0.011, 0.017]),
            "k_zero_point": np.array(128), "v_scale": rng.random((G, S)) * 0.01 + 0.005}


def context(job, keys=None, values=None):
    zero = job["k_zero_point"]
    K = (job["K"].astype(float) - zero) * job["k_scale"][:, None, None] if keys is None else keys
    V = e4m3(job["V"]) * job["v_scale"][..., None] if values is None else values
    return attention(job["Q"], K, V)


def centred(job):
    return job["K"].astype(float) - 128


WRONG = {
    "without --k-scale": lambda job: context(job, keys=centred(job)),
    "without --v-scale": lambda job: context(job, values=e4m3(job["V"])),
    "k_scale applied twice": lambda job: context(job, keys=centred(job) * job["k_scale"][:, None, None] ** 2),
    "v_scale applied twice": lambda job: context(job, values=e4m3(job["V"]) * job["v_scale"][..., None] ** 2),
    "division by v_scale instead of multiplication": lambda job: context(job, values=e4m3(job["V"]) / job["v_scale"][..., None]),
    "k_scale of head 0 for all heads": lambda job: context(job, keys=centred(job) * job["k_scale"][0]),
    "the first element of v_scale for all": lambda job: context(job, values=e4m3(job["V"]) * job["v_scale"][0, 0]),
    "without --k-scale and without --v-scale": lambda job: context(job, keys=centred(job), values=e4m3(job["V"])),
    "v_scale of head 0 for all heads": lambda job: context(job, values=e4m3(job["V"]) * job["v_scale"][:1, :, None]),
    "v_scale of the first key for all keys": lambda job: context(job, values=e4m3(job["V"]) * job["v_scale"][:, :1, None]),
    "--v-type e5m2": lambda job: context(job, values=CODES["e5m2"](job["V"]) * job["v_scale"][..., None]),
    "--v-type e4m3fnuz": lambda job: context(job, values=CODES["e4m3fnuz"](job["V"]) * job["v_scale"][..., None]),
}


def compare(folder, job, result, **options):
    """What attn says about a result for one batch item."""
    np.savez(folder / "j.npz", **{name: x[None] if x.ndim == 3 or name == "v_scale" else x for name, x in job.items()})
    np.save(folder / "mine.npy", result[None])
    (folder / "job.json").write_text(json.dumps({name: f"j.npz#{name}" for name in job} | options))
    return attn("compare", "mine.npy", "--reference", "job.json", cwd=folder).stdout.decode()


@pytest.mark.parametrize("claim", WRONG)
def test_the_mistake_is_named(tmp_path, claim):
    job = make()
    text = compare(tmp_path, job, WRONG[claim](job), v_type="e4m3")
    assert f"agrees with {claim}" in text or f"agrees with the job {claim}" in text, text


def test_right_results_are_within_the_bound(tmp_path):
    job = make()
    assert "1 of 1 tensor passes" in compare(tmp_path, job, context(job), v_type="e4m3")


@pytest.mark.parametrize("name", ["K", "V"])
def test_scales_of_batch_item_0_for_all(tmp_path, name):
    """Scales of each head, of two batch items."""
    rng = np.random.default_rng(4)
    Q = rng.standard_normal((2, H, L, D))
    K, V = (rng.integers(0, 0x70, (2, G, S, D)).astype("u1") for _ in range(2))
    scales = rng.random((2, 2, G)) * 0.01 + 0.005
    scaled = lambda x, scale: e4m3(x) * scale[..., None, None]
    first = lambda of, scale: np.repeat(scale[:1], 2, 0) if of == name else scale
    wrong = [attention(*parts) for parts in zip(Q, scaled(K, first("K", scales[0])), scaled(V, first("V", scales[1])))]
    np.savez(tmp_path / "j.npz", Q=Q, K=K, V=V, k_scale=scales[0], v_scale=scales[1])
    np.save(tmp_path / "mine.npy", np.array(wrong))
    tensors = ["Q", "K", "V", "k_scale", "v_scale"]
    (tmp_path / "job.json").write_text(json.dumps({x: f"j.npz#{x}" for x in tensors} | {"k_type": "e4m3", "v_type": "e4m3"}))
    text = attn("compare", "mine.npy", "--reference", "job.json", cwd=tmp_path).stdout.decode()
    assert f"agrees with {name.lower()}_scale of batch item 0 for all items" in text, text


def test_swapped_scales(tmp_path):
    job = make()
    job["v_scale"] = np.array([0.03, 0.002])
    K, V = centred(job), e4m3(job["V"])
    wrong = attention(job["Q"], K * job["v_scale"][:, None, None], V * job["k_scale"][:, None, None])
    text = compare(tmp_path, job, wrong, v_type="e4m3")
    assert "agrees with k_scale and v_scale swapped" in text, text


def test_zero_point(tmp_path):
    """Of values; one of keys adds the same number to all scores of a row."""
    job = make()
    job["V"] = np.random.default_rng(2).integers(90, 170, (G, S, D)).astype("u1")
    wrong = context(job, values=job["V"] * job["v_scale"][..., None])
    text = compare(tmp_path, job | {"v_zero_point": np.array(128)}, wrong)
    assert "agrees with the job without --v-zero-point" in text, text


@pytest.mark.parametrize("power, factor, claim", [
    (1, 1, "the job without --k-global-scale"), (1, 0.09, "k_global_scale applied twice"),
    (-1, 0.3, "division by k_scale instead of multiplication")])
def test_global_scale(tmp_path, power, factor, claim):
    rng = np.random.default_rng(3)
    Q, codes, V = rng.standard_normal((L, D)), rng.integers(0, 256, (S, D // 2)).astype("u1"), rng.standard_normal((S, D))
    scale = rng.integers(0x28, 0x40, (S, 2)).astype("u1")
    scores = Q @ (e2m1(codes) * e4m3(scale).repeat(16, axis=1) ** power * factor).T / np.sqrt(D)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.save(tmp_path / "mine.npy", weights / weights.sum(-1, keepdims=True) @ V)
    np.savez(tmp_path / "j.npz", Q=Q, K=codes, V=V, k_scale=scale)
    (tmp_path / "job.json").write_text(json.dumps({name: f"j.npz#{name}" for name in ("Q", "K", "V", "k_scale")}
                                                  | {"k_type": "nvfp4", "k_global_scale": 0.3}))
    text = attn("compare", "mine.npy", "--reference", "job.json", cwd=tmp_path).stdout.decode()
    assert f"agrees with {claim}" in text, text


def test_halves_of_bytes(tmp_path):
    """Four bits each, the second before the first."""
    rng = np.random.default_rng(1)
    Q, codes = rng.standard_normal((L, D)), rng.integers(0, 256, (S, D // 2)).astype("u1")
    V, scale = rng.standard_normal((S, D)), rng.integers(120, 126, (S, 1)).astype("u1")
    swapped = codes << 4 | codes >> 4
    numbers = e2m1(swapped) * np.ldexp(1.0, scale.astype(int) - 127)
    scores = Q @ numbers.T / np.sqrt(D)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.save(tmp_path / "mine.npy", weights / weights.sum(-1, keepdims=True) @ V)
    np.savez(tmp_path / "j.npz", Q=Q, K=codes, V=V, k_scale=scale)
    (tmp_path / "job.json").write_text(json.dumps({name: f"j.npz#{name}" for name in ("Q", "K", "V", "k_scale")} | {"k_type": "mxfp4"}))
    text = attn("compare", "mine.npy", "--reference", "job.json", cwd=tmp_path).stdout.decode()
    assert "agrees with 4-bit elements of K read from the high half first" in text, text
