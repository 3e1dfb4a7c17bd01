"""The option `causal_offset`, compared with NumPy on both paths: query i has the position i + offset among the keys."""

import json

import numpy as np
import pytest

from support.attn import attn

SHAPES = [(1, 5), (4, 3), (70, 130)]  # (L, S)
OFFSETS = [-200, -4, -1, 0, 1, 3, 60, 500]
SLOPES = np.array([0.5, 0.03])
KINDS = {
    "causal": ["--causal"],
    "window": ["--window", "4,2"],
    "window without limit": ["--window", "-1,3"],
    "causal window": ["--causal", "--window", "6,-1"],
    "alibi": ["--alibi-slopes", "[0.5, 0.03]"],
    "causal alibi": ["--causal", "--alibi-slopes", "[0.5, 0.03]"],
    "relative bias": ["--relative-bias", "table.npy", "--relative-max-distance", 20],
}


def problem(L, S, seed=0):
    rng = np.random.default_rng([L, S, seed])
    return {name: rng.standard_normal((2, n, 4)) for name, n in dict(Q=L, K=S, V=S).items()}


def distances(L, S, offset):
    """Key position minus query position, (L, S)."""
    return np.arange(S) - (np.arange(L)[:, None] + offset)


def buckets(distance, count, most):
    """T5's buckets in both directions (Raffel et al. 2020)."""
    half, exact = count // 2, count // 4
    magnitude = np.abs(distance)
    share = np.log(np.maximum(magnitude, 1) / exact) / np.log(most / exact)
    wide = exact + (share * (half - exact) + 1e-6).astype(int)
    return np.where(distance > 0, half, 0) + np.where(magnitude < exact, magnitude, np.minimum(wide, half - 1))


def expected(tensors, kind, offset, table):
    Q, K, V = tensors["Q"], tensors["K"], tensors["V"]
    d = distances(Q.shape[1], K.shape[1], offset)
    scores = Q @ K.swapaxes(1, 2) / 2
    if "alibi" in kind:
        scores = scores - SLOPES[:, None, None] * abs(d)
    if kind == "relative bias":
        scores = scores + np.moveaxis(table[buckets(d, len(table), 20)], 2, 0)
    visible = np.ones_like(d, bool)
    if "causal" in kind:
        visible &= d <= 0
    left, right = {"window": (4, 2), "window without limit": (10 ** 9, 3), "causal window": (6, 10 ** 9)}.get(
        kind, (10 ** 9, 10 ** 9))
    visible &= (d >= -left) & (d <= right)
    with np.errstate(invalid="ignore", divide="ignore"):
        largest = np.where(visible, scores, -np.inf).max(-1, keepdims=True)
        e = np.where(visible, np.exp(scores - largest), 0)
        total = e.sum(-1)
        weights = np.nan_to_num(e / total[..., None])
        return {"weights": weights, "context": weights @ V,
                "logsumexp": np.where(visible.any(-1), np.log(total) + largest[..., 0], -np.inf)}


def run(folder, tensors, *flags, outputs="weights,context,logsumexp", file="out.npz"):
    """Runs a job with two heads, given as an axis."""
    np.savez(folder / "in.npz", **{name: array[None] for name, array in tensors.items()})
    done = attn("run", "in.npz", *flags, "--outputs", outputs, "-o", file, "--force", cwd=folder)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    with np.load(folder / file) as found:
        return {name: array[0] for name, array in found.items()}


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_offset(tmp_path, shape, kind, path):
    tensors = problem(*shape)
    table = np.random.default_rng(1).standard_normal((8, 2))
    np.save(tmp_path / "table.npy", table)
    for offset in OFFSETS:
        found = run(tmp_path, tensors, *KINDS[kind], "--causal-offset", offset, "--path", path)
        for name, wanted in expected(tensors, kind, offset, table).items():
            np.testing.assert_allclose(found[name], wanted, rtol=1e-11, atol=1e-12, err_msg=f"{name} {offset}")


@pytest.mark.parametrize("kind", ["causal", "alibi"])
@pytest.mark.parametrize("shape", [(3, 3), (1, 5), (4, 3)], ids=str)
def test_it_is_the_offset_of_the_alignment(tmp_path, shape, kind):
    L, S = shape
    tensors = problem(L, S)
    for alignment, offset in ("top-left", 0), ("bottom-right", S - L):
        aligned = run(tmp_path, tensors, *KINDS[kind], "--alignment", alignment)
        found = run(tmp_path, tensors, *KINDS[kind], "--causal-offset", offset)
        assert all((found[name] == aligned[name]).all() for name in found)


def test_past_keys_count_as_keys(tmp_path):
    tensors, past = problem(2, 3), problem(1, 4, seed=1)
    cached = tensors | {"past_K": past["K"], "past_V": past["V"]}
    found = run(tmp_path, cached, "--causal", "--causal-offset", 4)
    aligned = run(tmp_path, cached, "--causal", "--alignment", "top-left")
    assert all((found[name] == aligned[name]).all() for name in found)
    whole = {"Q": tensors["Q"], **{x: np.concatenate([past[x], tensors[x]], 1) for x in "KV"}}
    wanted = expected(whole, "causal", 1, None)
    np.testing.assert_allclose(run(tmp_path, cached, "--causal", "--causal-offset", 1)["context"], wanted["context"])


@pytest.mark.parametrize("flags", [[], ["--alibi-slopes", "[0.5, 0.03]"], ["--window", "100,-1"]], ids=str)
def test_merged_chunks_are_causal_attention(tmp_path, flags):
    """Chunks of 64 queries and 50 keys, each with the offset between them."""
    whole = problem(192, 192)
    wanted = run(tmp_path, whole, "--causal", *flags, outputs="head_context,logsumexp")
    for q in range(0, 192, 64):
        files = []
        for k in range(0, 192, 50):
            files.append(f"{k}.npz")
            chunk = {"Q": whole["Q"][:, q:q + 64], "K": whole["K"][:, k:k + 50], "V": whole["V"][:, k:k + 50]}
            run(tmp_path, chunk, "--causal", *flags, "--causal-offset", q - k,
                outputs="head_context,logsumexp", file=files[-1])
        assert attn("merge", *files, "-o", "all.npz", "--force", cwd=tmp_path).returncode == 0
        with np.load(tmp_path / "all.npz") as merged:
            for name, array in merged.items():
                np.testing.assert_allclose(array[0], wanted[name][:, q:q + 64], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("offset", [-10 ** 12, -10 ** 6, 10 ** 6, 10 ** 12])
def test_memory_does_not_depend_on_the_offset(tmp_path, offset, path):
    tensors = {name: np.round(array * 4) for name, array in problem(3, 4).items()}
    found = run(tmp_path, tensors, "--alibi-slopes", "[0.5, 0.03125]", "--causal-offset", offset, "--path", path,
                "--scale", "none", "--max-memory", "1M", outputs="masked_scores")
    bias = np.array([0.5, 0.03125])[:, None, None] * abs(distances(3, 4, offset))
    np.testing.assert_allclose(found["masked_scores"], tensors["Q"] @ tensors["K"].swapaxes(1, 2) - bias, rtol=1e-15)


def test_the_kernels_compute_it(tmp_path):
    np.savez(tmp_path / "in.npz", **problem(3, 4))
    plan = attn("run", "in.npz", "--causal", "--causal-offset", -2, "--dry-run", "--format", "json", cwd=tmp_path)
    assert json.loads(plan.stdout)["path"] == "kernels"


def test_it_replaces_the_alignment_of_a_convention(tmp_path):
    tensors = {name: array.swapaxes(0, 1) for name, array in problem(2, 5).items()}  # blhd
    found = run(tmp_path, tensors, "--convention", "flash", "--causal", "--causal-offset", 1)
    wanted = expected(problem(2, 5), "causal", 1, None)
    np.testing.assert_allclose(found["weights"], wanted["weights"], atol=1e-14)
