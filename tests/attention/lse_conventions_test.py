"""What `logsumexp` is in other libraries: without the sinks, and +inf for a query that sees no key."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.jobs import run_arrays, start_arrays

B, H, L, S, D = 2, 3, 4, 6, 5
SINKS = [0.5, -1.0, 40.0]


def run(folder, outputs=("logsumexp", "context", "weights"), **options):
    """The outputs of a job, and its tensors."""
    rng = np.random.default_rng(4)
    tensors = {"Q": rng.standard_normal((B, H, L, D)), "K": rng.standard_normal((B, H, S, D)),
               "V": rng.standard_normal((B, H, S, D))}
    if any(name.startswith("grad_") for name in outputs):
        tensors |= {"grad_logsumexp": rng.standard_normal((B, H, L)), "grad_context": rng.standard_normal((B, H, L, D))}
    return tensors | run_arrays(folder, tensors, outputs=list(outputs), **options)


def scores(t):
    return t["Q"] @ t["K"].swapaxes(2, 3) / np.sqrt(D)


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("base", ["e", 2])
def test_sinks_excluded(tmp_path, path, base):
    """To full precision, even where nearly all weight is the sink's; nothing else changes."""
    with_sinks = run(tmp_path, path=path, sinks=SINKS, lse_base=base)
    without = run(tmp_path, path=path, sinks=SINKS, lse_base=base, lse_sinks="excluded")
    expected = np.log(np.exp(scores(without)).sum(-1)) / np.log(2 if base == 2 else np.e)
    np.testing.assert_allclose(without["logsumexp"], expected, rtol=1e-14)
    assert (without["context"] == with_sinks["context"]).all()
    assert (without["weights"] == with_sinks["weights"]).all()
    assert (with_sinks["logsumexp"] > without["logsumexp"]).all()


@pytest.mark.parametrize("outputs", [["logsumexp"], ["logsumexp", "row_max"], ["logsumexp", "mean_weights"]])
def test_sinks_excluded_with_other_outputs(tmp_path, outputs):
    out = run(tmp_path, outputs=outputs, sinks=SINKS, lse_sinks="excluded")
    np.testing.assert_allclose(out["logsumexp"], np.log(np.exp(scores(out)).sum(-1)), rtol=1e-14)


def test_a_query_that_sees_no_key_has_a_sink_only_if_it_counts(tmp_path):
    assert np.allclose(run(tmp_path, sinks=SINKS, key_lengths=0)["logsumexp"], np.array(SINKS)[:, None])
    assert np.isneginf(run(tmp_path, sinks=SINKS, key_lengths=0, lse_sinks="excluded")["logsumexp"]).all()


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("base", ["e", 2])
def test_infinity_of_queries_that_see_no_key(tmp_path, path, base):
    options = {"path": path, "lse_base": base, "key_lengths": [0, 4]}
    minus, plus = run(tmp_path, **options), run(tmp_path, lse_empty="inf", **options)
    assert np.isneginf(minus["logsumexp"][0]).all() and np.isposinf(plus["logsumexp"][0]).all()
    assert (minus["logsumexp"][1] == plus["logsumexp"][1]).all()
    assert (minus["weights"] == plus["weights"]).all()


def test_the_gradient_of_logsumexp_without_sinks(tmp_path):
    """By finite differences of sum(g context) + sum(h logsumexp)."""
    options = {"sinks": [0.5, -1.0, 2.0], "lse_sinks": "excluded"}
    t = run(tmp_path, outputs=["grad_Q", "grad_sinks"], **options)

    def loss(q, sinks):
        x = q @ t["K"].swapaxes(2, 3) / np.sqrt(D)
        e, s = np.exp(x), np.exp(np.asarray(sinks))[:, None, None]
        context = e / (e.sum(-1, keepdims=True) + s) @ t["V"]
        return (t["grad_context"] * context).sum() + (t["grad_logsumexp"] * np.log(e.sum(-1))).sum()

    for at in [(0, 0, 0, 0), (1, 2, 3, 4), (0, 1, 2, 3)]:
        q = [t["Q"].copy(), t["Q"].copy()]
        q[0][at] -= 1e-6
        q[1][at] += 1e-6
        found = (loss(q[1], options["sinks"]) - loss(q[0], options["sinks"])) / 2e-6
        assert abs(found - t["grad_Q"][at]) < 1e-7
    for h in range(H):
        step = 1e-6 * np.eye(H)[h]
        found = (loss(t["Q"], options["sinks"] + step) - loss(t["Q"], options["sinks"] - step)) / 2e-6
        assert abs(found - t["grad_sinks"][h]) < 1e-7


@pytest.mark.parametrize("options", [{"sinks": SINKS, "lse_sinks": "excluded"},
                                     {"key_lengths": [0, 4], "lse_empty": "inf", "lse_base": 2}])
def test_within_the_error_bound_of_itself(tmp_path, options):
    run(tmp_path, outputs=["logsumexp", "context"], compute="f32", **options)
    assert attn("compare", "--reference", tmp_path / "out.npz", tmp_path / "job.json").returncode == 0


@pytest.mark.parametrize("made_with, finding", [
    ({"lse_sinks": "excluded"}, ("logsumexp.sinks", "--lse-sinks excluded")),
    ({"lse_empty": "inf"}, ("logsumexp.empty", "--lse-empty inf"))])
def test_diagnosis_names_another_convention(tmp_path, made_with, finding):
    job = {"outputs": ["logsumexp"]}
    if "lse_sinks" in made_with:
        job["sinks"] = [0.5, -1.0, 1.0]
    else:
        job["causal_offset"], job["causal"] = -1, True
    wrong = run(tmp_path, **job, **made_with)["logsumexp"]
    run(tmp_path, **job)
    np.savez(tmp_path / "wrong.npz", logsumexp=wrong)
    done = attn("compare", tmp_path / "wrong.npz", "--reference", tmp_path / "job.json", "--diagnose", "--json")
    assert finding in [(found["id"], found["flags"]) for found in json.loads(done.stdout)["tensors"][0]["diagnosis"]]


def test_lse_sinks_requires_sinks(tmp_path):
    assert_error(start_arrays(tmp_path, {"Q": np.eye(2), "K": np.eye(2)}, lse_sinks="excluded"), 65, "lse_sinks")


@pytest.mark.parametrize("convention, base, empty, sinks", [
    ("flash", np.e, np.inf, True), ("fa3", np.e, -np.inf, True), ("flashinfer", 2, -np.inf, True),
    ("flashmla", np.e, np.inf, False), ("trtllm", np.e, -np.inf, True), ("vllm", np.e, -np.inf, True)])
def test_conventions(tmp_path, convention, base, empty, sinks):
    """Queries (B, L, H, D), aligned with the last key; one item sees all keys, the other none."""
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, L, H, D)), rng.standard_normal((2, S, H, D))
    np.savez(tmp_path / "in.npz", Q=q, K=k, V=k, sinks=[0.5, 0.0, 1.0], key_lengths=[S, 0])
    if sinks and empty == np.inf:  # no query with a sink is without keys
        np.savez(tmp_path / "in.npz", Q=q, K=k, V=k, key_lengths=[S, 0])
    done = attn("run", "in.npz", "--convention", convention, "--causal", "--outputs", "logsumexp", "-o",
                "out.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out.npz")["logsumexp"]
    x = np.einsum("lhd,shd->hls", q[0], k[0]) / np.sqrt(D)
    e = np.exp(x) * (np.arange(S) <= np.arange(L)[:, None] + S - L)
    counted = sinks and empty == -np.inf
    sums = e.sum(-1) + (np.exp([0.5, 0.0, 1.0])[:, None] if counted else 0)
    np.testing.assert_allclose(found[0], np.log(sums) / np.log(base), rtol=1e-13)
    if not counted:
        assert (found[1] == empty).all()


def test_packed_queries_of_serving_conventions(tmp_path):
    """vLLM, FlashInfer: queries (T, H, D) of sequences in pages (P, page size, G, D)."""
    rng = np.random.default_rng(2)
    q, pages = rng.standard_normal((3, H, D)), rng.standard_normal((4, 2, H, D))
    np.savez(tmp_path / "in.npz", Q=q, K_pages=pages, V_pages=pages, cu_seqlens_q=[0, 1, 3], key_lengths=[3, 4],
             block_table=[[3, 0], [1, 2]])
    for convention in "flashinfer", "vllm":
        done = attn("run", "in.npz", "--convention", convention, "--causal", "--outputs", "context", "-o",
                    "out.npz", "--force", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        keys = pages[[1, 2]].reshape(4, H, D)
        e = np.exp(np.einsum("hd,shd->hs", q[2], keys) / np.sqrt(D))
        expected = np.einsum("hs,shd->hd", e / e.sum(-1, keepdims=True), keys)
        np.testing.assert_allclose(np.load(tmp_path / "out.npz")["context"][2], expected, rtol=1e-13)


@pytest.mark.parametrize("recorded", [True, False])
def test_merge_of_parts_with_infinity(tmp_path, recorded):
    """A part that some queries do not see, as FlashAttention 2 writes it."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((n, D)) for n in (L, S, S))
    mask = np.ones((L, S), bool)
    mask[1, :3] = False
    for name, keys in ("whole", slice(0, S)), ("a", slice(0, 3)), ("b", slice(3, S)):
        np.savez(tmp_path / f"{name}.in.npz", Q=q, K=k[keys], V=v[keys], mask=mask[:, keys])
        done = attn("run", f"{name}.in.npz", "--convention", "flash", "--outputs", "logsumexp,head_context", "-o",
                    f"{name}.npz", "--force", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        if not recorded:
            with np.load(tmp_path / f"{name}.npz") as file:
                arrays = {n: file[n] for n in ("logsumexp", "head_context")}
            np.savez(tmp_path / f"{name}.npz", **arrays)
    assert np.isposinf(np.load(tmp_path / "a.npz")["logsumexp"].ravel()[1])
    flags = [] if recorded else ["--lse-empty", "inf"]
    done = attn("merge", "a.npz", "b.npz", "-o", "all.npz", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    merged, whole = np.load(tmp_path / "all.npz"), np.load(tmp_path / "whole.npz")
    for name in "logsumexp", "head_context":
        np.testing.assert_allclose(merged[name], whole[name], rtol=1e-13, atol=1e-15)


def test_merge_refuses_logsumexp_without_sinks(tmp_path):
    run(tmp_path, outputs=["logsumexp", "head_context"], sinks=SINKS, lse_sinks="excluded")
    assert_error(attn("merge", tmp_path / "out.npz", tmp_path / "out.npz"), 65, "--lse-sinks included")
