"""Gradients in kernels, compared with the path of the formula, which gradients_test.py compares with finite differences.

Sizes around those of the kernels' blocks: 48 queries and 192 keys.
"""

import json
import re

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak, under_asan
from support.jobs import run_arrays

# Of the largest element. In float32, queries and keys are rounded once and sums have up to 400 terms.
TOLERANCE = {"float64": 1e-13, "float32": 4e-6}


def gradient_job(seed):
    """The tensors, options and wanted gradients of a random job that the kernels support."""
    rng = np.random.default_rng([11, seed])
    dtype = ["float64", "float32"][seed % 2]

    def chance(p):
        return rng.random() < p

    G, times, B = int(rng.choice([1, 2])), int(rng.choice([1, 2, 3])), int(rng.choice([1, 2]))
    H, L, S = G * times, int(rng.choice([1, 47, 50, 100])), int(rng.choice([3, 191, 193, 400]))
    D, Dv = int(rng.choice([1, 8, 20])), int(rng.choice([1, 8, 17]))
    t, o = {}, {}

    def give(name, *shape, factor=1.0):
        t[name] = (factor * rng.standard_normal(shape)).astype(dtype)

    give("Q", B, H, L, D), give("K", B, G, S, D), give("V", B, G, S, Dv), give("grad_context", B, H, L, Dv)
    wanted = ["Q", "K", "V"]
    if chance(0.4):
        o["causal"] = str(rng.choice(["bottom-right", "top-left"]))
        if o["causal"] == "top-left":
            o["causal"] = True
    if chance(0.3):
        o["window"] = [int(rng.integers(0, 60)), int(rng.integers(0, 60))]
    if chance(0.3):
        t["key_lengths"] = rng.integers(0, S + 1, B)
    elif chance(0.3):
        t["documents"], t["key_documents"] = rng.integers(-1, 3, (B, L)), np.sort(rng.integers(-1, 3, (B, S)), 1)
    if chance(0.4):
        give("bias", *(1 if chance(0.4) else n for n in (B, H, L, S)))
        t["bias"][rng.random(t["bias"].shape) < 0.1] = -np.inf
        wanted += ["bias"]
    if chance(0.4):
        t["mask"] = rng.random((B, 1, L, S)) < 0.8
        if chance(0.3):
            give("mask", H, 1 if chance(0.3) else L, S)
            wanted += ["mask"]
    if chance(0.4):
        o |= {"softcap": 2.0, "softcap_order": str(rng.choice(["before-mask", "after-mask"]))}
    if chance(0.3):
        give("sinks", H)
        wanted += ["sinks"]
    if chance(0.3):
        give("grad_logsumexp", B, H, L)
        if chance(0.5):
            o["lse_base"] = 2
    if chance(0.2):
        give("head_scale", H)
    if chance(0.2):
        o["temperature"] = 1.5
    if chance(0.2):
        t["alibi_slopes"] = rng.random(H).astype(dtype)
    if chance(0.2):
        give("gate", B, H, L, Dv)
        wanted += ["gate"]
    if chance(0.2):
        o["zero_key"] = True
    if chance(0.2) and D % 2 == 0:
        o["rotary"] = {"kind": "half"}
    if chance(0.2):
        o["empty_rows"] = "nan"
    if chance(0.2) and L > 2:
        o["rows"] = [L - 1, 0, 2]
        for name in ("grad_context", "grad_logsumexp"):
            if name in t:
                t[name] = t[name][:, :, :3]
    if chance(0.3):
        keys = S + ("zero_key" in o)
        t["dropout_mask"] = rng.random([1 if chance(0.3) else n for n in (B, H, L, keys)]) < 0.7
        o["dropout_p"] = 0.3
    if "key_lengths" in t and chance(0.6):  # what is hidden may hold anything
        for name, value in ("K", np.nan), ("V", np.inf):
            for x, length in zip(t[name], t["key_lengths"]):
                x[:, length:] = value
        if chance(0.5):
            t["key_lengths"][0] = 0  # its queries see no key
            t["grad_context"][0, 0, 0] = np.nan
    return t, o, [f"grad_{name}" for name in wanted] + ["delta"]


JOBS = 40


@pytest.fixture(scope="module")
def results(module_path):
    """The folder with the results of all jobs on both paths, computed in one batch."""
    lines = []
    for seed in range(JOBS):
        t, o, outputs = gradient_job(seed)
        np.savez(module_path / f"in{seed}.npz", **t)
        wide = {name: x.astype("float64") if x.dtype == "float32" else x for name, x in t.items()}
        np.savez(module_path / f"wide{seed}.npz", **wide)
        for path, file in ("auto", "in"), ("reference", "wide"):
            lines.append(json.dumps({**o, **{name: f"{file}{seed}.npz#{name}" for name in t}, "outputs": outputs, "path": path}))
    run = attn("batch", "-", "--out-dir", "out", "--name", "{index}", "-q", stdin="\n".join(lines), cwd=module_path)
    assert run.returncode == 0, run.stderr.decode()
    return module_path / "out"


@pytest.mark.parametrize("seed", range(JOBS))
def test_a_random_job_agrees_with_the_formula(results, seed):
    dtype = str(gradient_job(seed)[0]["Q"].dtype)
    with np.load(results / f"{2 * seed + 1}.npz") as found, np.load(results / f"{2 * seed + 2}.npz") as expected:
        assert set(found) == set(expected)
        for name in found:
            assert found[name].dtype == dtype and found[name].shape == expected[name].shape
            size = max(1, np.abs(expected[name]).max(initial=0))
            assert np.abs(found[name] - expected[name]).max(initial=0) <= TOLERANCE[dtype] * size, name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("least", [-1e20, -1e30, np.finfo("float32").min])
def test_a_query_whose_scores_are_all_hugely_negative_has_equal_weights(tmp_path, least, dtype):
    """Masks of the smallest number: 1 / S is lost in the logsumexp, which is `least` with or without it."""
    rng = np.random.default_rng(12)
    L, S, D = 50, 200, 8
    t = {name: rng.standard_normal((n, D)).astype(dtype) for name, n in (("Q", L), ("K", S), ("V", S), ("grad_context", L))}
    t["mask"] = np.where(np.arange(L) % 2, np.asarray(least, dtype), 0)[:, None].repeat(S, 1).astype(dtype)
    exact = {name: x.astype(float) for name, x in t.items()}
    scores = exact["Q"] @ exact["K"].T / np.sqrt(D) + exact["mask"]
    P = np.exp(scores - scores.max(1, keepdims=True))
    P /= P.sum(1, keepdims=True)
    dP = exact["grad_context"] @ exact["V"].T
    ds = P * (dP - (P * dP).sum(1, keepdims=True)) / np.sqrt(D)
    expected = {"grad_V": P.T @ exact["grad_context"], "grad_Q": ds @ exact["K"], "grad_K": ds.T @ exact["Q"]}
    found = run_arrays(tmp_path, t, outputs=list(expected))
    assert dry_run(tmp_path, t, outputs=list(expected))["path"] == "kernels"
    for name in expected:
        assert np.abs(found[name] - expected[name]).max() <= TOLERANCE[dtype] * np.abs(expected[name]).max(), name


def dry_run(folder, t, **job):
    np.savez(folder / "in.npz", **t)
    (folder / "job.json").write_text(json.dumps({**job, **{name: f"in.npz#{name}" for name in t}}))
    run = attn("run", "job.json", "--dry-run", "--format", "json", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)


def tensors(L=4, S=5):
    rng = np.random.default_rng(4)
    return {name: rng.standard_normal((2, 3, n, 2)) for name, n in
            (("Q", L), ("K", S), ("V", S), ("grad_context", L))}


def test_dry_run_names_the_path_and_counts_flops(tmp_path):
    plan = dry_run(tmp_path, tensors(), outputs=["grad_Q", "grad_K"])
    assert plan["path"] == "kernels" and plan.get("fallback_reason") is None
    product = 2 * (2 * 3) * 4 * 5 * 2
    assert 7 * product <= plan["flops"] <= 7 * product + 30 * product / 4


@pytest.mark.parametrize("reason, extra, options, wanted", [
    ("score", {}, {"score": "cosine"}, "grad_Q"),
    ("normaliser", {}, {"normaliser": "sigmoid"}, "grad_Q"),
    ("empty_rows", {}, {"empty_rows": "uniform"}, "grad_Q"),
    ("path", {}, {"path": "reference"}, "grad_Q"),
    ("grad_weights", {"grad_weights": np.ones((2, 3, 4, 5))}, {}, "grad_Q"),
    ("grad_head_scale", {"head_scale": np.ones(3)}, {}, "grad_head_scale"),
    ("grad_alibi_slopes", {"alibi_slopes": np.ones(3)}, {}, "grad_alibi_slopes"),
    ("grad_relative_bias", {"relative_bias": np.ones((8, 3))}, {}, "grad_relative_bias"),
])
def test_dry_run_says_why_the_formula_computes(tmp_path, reason, extra, options, wanted):
    plan = dry_run(tmp_path, {**tensors(), **extra}, **options, outputs=[wanted])
    assert (plan["path"], plan["fallback_reason"]) == ("reference", reason)


def test_threads_do_not_change_bytes(tmp_path):
    rng = np.random.default_rng(2)
    for name, shape in ("q", (1, 4, 300, 16)), ("k", (1, 2, 700, 16)), ("v", (1, 2, 700, 16)), ("g", (1, 4, 300, 16)), ("b", (300, 700)):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(shape).astype("float32"))
    written = set()
    for threads in "1", "2", "3", "7":
        run = attn("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--grad-context", "g.npy", "--bias", "b.npy", "--causal",
                   "--outputs", "grad_Q,grad_K,grad_V,grad_bias", "--threads", threads, "-o", "out.npz", "--force", cwd=tmp_path)
        assert_error(run, 0)
        with np.load(tmp_path / "out.npz") as found:
            written.add(b"".join(found[name].tobytes() for name in sorted(found)))
    assert len(written) == 1


@pytest.mark.skipif(under_asan(), reason="AddressSanitizer's shadow memory")
@pytest.mark.parametrize("dropout", [False, True])
def test_memory_does_not_grow_with_the_scores(tmp_path, dropout):
    rng = np.random.default_rng(1)
    for name in "q", "k", "v", "g":
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((1, 1, 3000, 8)).astype("float32"))
    flags = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--grad-context", "g.npy", "--outputs", "grad_Q,grad_K,grad_V", "--causal"]
    if dropout:
        np.save(tmp_path / "kept.npy", rng.random((1, 3000)) < 0.7)
        flags += ["--dropout-mask", "kept.npy", "--dropout-p", "0.3"]
    plan = json.loads(attn("run", *flags, "--dry-run", "--format", "json", cwd=tmp_path).stdout)
    _, least = attn_and_peak("run", "--q", "q.npy", "--k", "k.npy", "--outputs", "queries", "-o", "least.npz", cwd=tmp_path)
    _, peak = attn_and_peak("run", *flags, "-o", "out.npz", cwd=tmp_path)
    scores = 3000 * 3000 * 4
    assert peak <= least + plan["memory"] and plan["memory"] < scores


def planned_bytes(folder, *flags):
    """What --dry-run says for results in a file, which take no text."""
    text = attn("run", *flags, "-o", "out.npz", "--dry-run", cwd=folder).stdout.decode()
    number, unit = re.search(r"at most ([0-9.]+) (.iB) of memory.*fused kernels", text).groups()
    return float(number) * 2 ** {"KiB": 10, "MiB": 20, "GiB": 30}[unit]


@pytest.mark.skipif(under_asan(), reason="AddressSanitizer's shadow memory")
@pytest.mark.parametrize("heads, tokens, dtype, extra", [
    (1, 4096, "float32", []), (8, 4096, "float32", []), (8, 4096, "float16", []), (8, 4096, "float64", []),
    (8, 4096, "float32", ["--rotary", "half"]), (8, 4096, "float32", ["--layout", "blhd"]),
    (8, 4096, "float32", ["--compute", "f64"]), (8, 16384, "float32", []), (1, 32768, "float32", []), (4, 1024, "float32", ["--bias", "bias.npy"]),
    (4, 1024, "float32", ["--dropout-mask", "kept.npy", "--dropout-p", "0.25"])], ids=str)
def test_planned_memory_is_that_of_the_run(tmp_path, heads, tokens, dtype, extra):
    rng = np.random.default_rng(1)
    for name in "q", "k", "v", "g":
        shape = (1, tokens, heads, 64) if "--layout" in extra else (1, heads, tokens, 64)
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(shape).astype(dtype))
    outputs = "grad_Q,grad_K,grad_V"
    if "--bias" in extra:
        np.save(tmp_path / "bias.npy", rng.standard_normal((heads, tokens, tokens)).astype(dtype))
        outputs += ",grad_bias"
    if "--dropout-mask" in extra:
        np.save(tmp_path / "kept.npy", rng.random((1, heads, tokens, tokens)) < 0.75)
    flags = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--grad-context", "g.npy", "--outputs", outputs, "--causal",
             "--window", "64,0", "--threads", "2", *extra]
    np.save(tmp_path / "few.npy", np.ones((2, 2)))
    _, least = attn_and_peak("run", "--q", "few.npy", "--k", "few.npy", "--outputs", "queries", "-o", "least.npz", cwd=tmp_path)
    planned = planned_bytes(tmp_path, *flags)
    run, peak = attn_and_peak("run", *flags, "-o", "out.npz", cwd=tmp_path)
    assert run.returncode == 0
    code = 2 ** 20  # that of the kernels is not loaded for `least`
    assert peak - least <= planned + code and planned <= 1.5 * (peak - least) + 2 ** 24


@pytest.mark.skipif(under_asan(), reason="AddressSanitizer's shadow memory")
def test_inputs_and_gradients_have_no_copies_in_float64(tmp_path):
    """Beside inputs and results there are the context, and packed keys and values."""
    rng = np.random.default_rng(1)
    tensor = 8 * 16384 * 64 * 4
    for name in "q", "k", "v", "g":
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((1, 8, 16384, 64)).astype("float32"))
    _, peak = attn_and_peak("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--grad-context", "g.npy", "--outputs",
                            "grad_Q,grad_K,grad_V", "--window", "64,0", "--threads", "2", "-o", "out.npz", cwd=tmp_path)
    assert peak < (4 + 3 + 1 + 2) * tensor + 2 ** 25


def test_scores_beyond_float32_are_computed_in_float64(tmp_path):
    """The first score of the first query is 3e38, which the float32 kernels would multiply by log2(e)."""
    t = {name: x.astype("float32") for name, x in tensors(2, 3).items()}
    t["Q"][0, 0, 0], t["K"][0, 0, 0] = 1e19, 2.1e19
    found = {}
    for path in "auto", "reference":
        np.savez(tmp_path / "in.npz", **t)
        job = {"path": path, "outputs": ["grad_Q", "grad_K", "grad_V"], **{name: f"in.npz#{name}" for name in t}}
        (tmp_path / "job.json").write_text(json.dumps(job))
        assert_error(attn("run", "job.json", "-o", "out.npz", "--force", cwd=tmp_path), 0)
        with np.load(tmp_path / "out.npz") as outputs:
            found[path] = dict(outputs)
    for name, expected in found["reference"].items():
        assert np.isfinite(expected).all() and np.allclose(found["auto"][name], expected, rtol=1e-6, atol=0)
