"""Gradients, compared with finite differences of plain loops.

The loss is the sum of the elements of the outputs times those of the given grad_context, grad_weights, ... Its
derivative by a tensor, along a random direction, is a difference of two evaluations of
tests/support/plain_attention.py, which shares no code with the program.
"""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak
from support.jobs import run_arrays
from support.plain_attention import attend
from support.random_job import RandomJob

JOBS = 40
STEP, TOLERANCE = 1e-5, 2e-7
FIXED = {"dropout_mask", "query_lengths", "key_lengths", "documents", "key_documents", "cu_seqlens_q", "cu_seqlens_k",
         "position_ids", "key_position_ids"}


def difference_along(function, t, name, direction):
    """The derivative of function(t) along a direction of one tensor."""
    return (function({**t, name: t[name] + STEP * direction}) -
            function({**t, name: t[name] - STEP * direction})) / (2 * STEP)


def assert_derivatives(function, t, gradients, names, rng):
    """Compares each gradient with a difference along a random direction."""
    for name in names:
        found = gradients[f"grad_{name}"]
        assert found.shape == t[name].shape, name
        direction = np.where(np.isfinite(t[name]), rng.standard_normal(t[name].shape), 0)
        expected = difference_along(function, t, name, direction)
        size = max(1, np.abs(found * direction).sum())
        assert abs((found * direction).sum() - expected) <= TOLERANCE * size, name


def loss_of(stages, seeds):
    """Queries without keys do not count: their weights are constants, or NaN."""
    total = 0
    for name, seed in seeds.items():
        value = stages[name.removeprefix("grad_")]
        total += (np.where(np.isfinite(value), value, 0) * seed).sum()
    return total


def random_job(seed):
    """Tensors, options and seeds (derivatives of the loss by outputs)."""
    job = RandomJob(1000 + seed)
    if job.o.get("normaliser") == "hardmax":
        job.o["normaliser"] = "softmax"
    S = job.S + ("bias_K" in job.t) + job.o.get("zero_key", False)
    rows = (job.B, job.H, job.L)
    shapes = {"grad_context": (*rows, job.Dv), "grad_weights": (*rows, S), "grad_logsumexp": rows}
    chosen = [name for name in shapes if job.chance(0.6)] or ["grad_context"]
    return job.t, job.o, {name: job.rng.standard_normal(shapes[name]) for name in chosen}


def differentiable(t):
    return [name for name, array in t.items() if name not in FIXED and array.dtype == float]


@pytest.fixture(scope="module")
def results(module_path):
    """The folder with the gradients of all random jobs, numbered from 1, computed in one batch."""
    lines = []
    for seed in range(JOBS):
        t, o, seeds = random_job(seed)
        tensors = {**t, **seeds}
        np.savez(module_path / f"in{seed}.npz", **tensors)
        lines.append(json.dumps({**o, **{name: f"in{seed}.npz#{name}" for name in tensors},
                                 "outputs": [*(f"grad_{name}" for name in differentiable(t)), "delta"]}))
    attn("batch", "-", "--out-dir", "out", "--name", "{index}", "-q", stdin="\n".join(lines), cwd=module_path)
    return module_path / "out"


@pytest.mark.parametrize("seed", range(JOBS))
def test_gradients_of_a_random_job(results, seed):
    t, o, seeds = random_job(seed)
    with np.load(results / f"{seed + 1}.npz") as outputs:
        found = dict(outputs)
    assert_derivatives(lambda t: loss_of(attend(t, o), seeds), t, found, differentiable(t), np.random.default_rng(seed))


def split(x, heads):
    B, L, width = x.shape
    return x.reshape(B, L, heads, width // heads).transpose(0, 2, 1, 3)


def normalised(x, kind, t, epsilon):
    if kind == "layer":
        x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x ** 2).mean(-1, keepdims=True) + epsilon)
    return x * t["input_norm_weight"] + (t["input_norm_bias"] if "input_norm_bias" in t else 0)


def layer(t, heads, kv_heads, norm=None):
    """The outputs of a layer with projections: a position added, input_norm, gate, W_O."""
    x = 3 * t["embeddings"]
    M = x.shape[2]
    angle = np.arange(x.shape[1])[:, None] / 10000 ** (np.arange(0, M, 2) / M)
    x = x + np.stack([np.sin(angle), np.cos(angle)], 2).reshape(x.shape[1], M)
    if norm:
        x = normalised(x, norm, t, {"layer": 1e-5, "rms": 1e-6}[norm])
    source = t.get("memory", x)
    q = split(x @ t["W_Q"] + t["b_Q"], heads)
    k = split(source @ t["W_K"] + t["b_K"], kv_heads)
    v = split(t.get("memory_V", source) @ t["W_V"] + t["b_V"], kv_heads)
    gate = split(x @ t["W_gate"] + t["b_gate"], heads)
    context = attend({"Q": q, "K": k, "V": v, "gate": gate}, {"causal": True})["context"]
    joined = context.transpose(0, 2, 1, 3).reshape(len(x), x.shape[1], -1)
    return {"context": joined, "output": joined @ t["W_O"] + t["b_O"]}


@pytest.mark.parametrize("source", ["embeddings", "memory", "memory_V"])
@pytest.mark.parametrize("norm", [None, "rms", "layer"])
def test_gradients_of_projections(tmp_path, norm, source):
    rng = np.random.default_rng([7, len(source)])
    shapes = {"embeddings": (2, 4, 6), "W_Q": (6, 8), "b_Q": (8,), "W_K": (6, 4), "b_K": (4,), "W_V": (6, 6), "b_V": (6,),
              "W_gate": (6, 12), "b_gate": (12,), "W_O": (12, 5), "b_O": (5,)}
    if norm:
        shapes["input_norm_weight"] = (6,)
    if norm == "layer":
        shapes["input_norm_bias"] = (6,)
    if source != "embeddings":
        shapes |= {"memory": (2, 5, 6)}
    if source == "memory_V":
        shapes |= {"memory_V": (2, 5, 6)}
    t = {name: 0.5 * rng.standard_normal(shape) for name, shape in shapes.items()}
    seeds = {"grad_context": rng.standard_normal((2, 4, 12)), "grad_output": rng.standard_normal((2, 4, 5))}
    options = {"heads": 4, "kv_heads": 2, "causal": True, "position": {"kind": "sinusoidal", "embedding_scale": 3}}
    if norm:
        options["input_norm"] = norm
    found = run_arrays(tmp_path, {**t, **seeds}, **options, outputs=[f"grad_{name}" for name in t])
    assert_derivatives(lambda t: loss_of(layer(t, 4, 2, norm), seeds), t, found, t, rng)


Q, K, V, G = np.random.default_rng(3).standard_normal((4, 2, 3, 4, 5))


def gradients(folder, t, names=("Q", "K", "V"), **options):
    return run_arrays(folder, t, **options, outputs=[f"grad_{name}" for name in names])


class TestLayouts:
    """Each gradient has the layout of its tensor."""

    @pytest.fixture
    def expected(self, tmp_path):
        (tmp_path / "bhld").mkdir()
        return gradients(tmp_path / "bhld", {"Q": Q, "K": K, "V": V, "grad_context": G})

    def test_blhd(self, tmp_path, expected):
        moved = {name: x.transpose(0, 2, 1, 3) for name, x in zip(("Q", "K", "V", "grad_context"), (Q, K, V, G))}
        found = gradients(tmp_path, moved, layout="blhd")
        assert all(np.array_equal(found[name].transpose(0, 2, 1, 3), expected[name]) for name in expected)

    @pytest.mark.parametrize("batch_second", [False, True])
    def test_joined_heads(self, tmp_path, expected, batch_second):
        def joined(x):
            x = x.transpose(0, 2, 1, 3).reshape(2, 4, 15)
            return x.swapaxes(0, 1) if batch_second else x

        t = {"Q": joined(Q), "K": joined(K), "V": joined(V), "grad_context": joined(G)}
        found = gradients(tmp_path, t, heads=3, **({"batch_axis": "second"} if batch_second else {}))
        assert all(np.array_equal(found[name], joined(expected[name])) for name in expected)

    def test_head_context(self, tmp_path, expected):
        def joined(x):
            return x.transpose(0, 2, 1, 3).reshape(2, 4, 15)

        found = gradients(tmp_path, {"Q": joined(Q), "K": joined(K), "V": joined(V), "grad_context": G}, heads=3)
        assert np.array_equal(found["grad_Q"], joined(expected["grad_Q"]))

    def test_keys_that_the_batch_shares_add_up(self, tmp_path):
        q, g = Q[:, 0], G[:, 0]
        apart = gradients(tmp_path, {"Q": q, "K": np.stack([K[0, 0]] * 2), "V": np.stack([V[0, 0]] * 2), "grad_context": g})
        shared = gradients(tmp_path, {"Q": q, "K": K[0, 0], "V": V[0, 0], "grad_context": g})
        assert np.allclose(shared["grad_K"], apart["grad_K"].sum(0), rtol=1e-14, atol=1e-15)

    def test_weights_of_torch(self, tmp_path):
        rng = np.random.default_rng(5)
        t = {"embeddings": rng.standard_normal((4, 5)), "W_Q": rng.standard_normal((5, 5)), "W_K": rng.standard_normal((5, 5)),
             "W_V": rng.standard_normal((5, 3)), "grad_context": rng.standard_normal((4, 3))}
        names = ["W_Q", "W_K", "W_V"]
        plain = gradients(tmp_path, t, names)
        turned = gradients(tmp_path, {k: x.T if k in names else x for k, x in t.items()}, names, weights_layout="out-in")
        assert all(np.array_equal(turned[name].T, plain[name]) for name in plain)

    def test_default_values_are_keys(self, tmp_path):
        alone = gradients(tmp_path, {"Q": Q, "K": K, "grad_context": G}, ["K"])["grad_K"]
        both = gradients(tmp_path, {"Q": Q, "K": K, "V": K, "grad_context": G}, ["K", "V"])
        assert np.allclose(alone, both["grad_K"] + both["grad_V"], rtol=1e-14, atol=1e-15)

    def test_selected_rows(self, tmp_path):
        seed = np.zeros_like(G)
        seed[:, :, [3, 1]] = G[:, :, :2]
        whole = gradients(tmp_path, {"Q": Q, "K": K, "V": V, "grad_context": seed})
        found = gradients(tmp_path, {"Q": Q, "K": K, "V": V, "grad_context": G[:, :, :2]}, rows=[3, 1])
        assert all(np.allclose(found[name], whole[name], rtol=1e-14, atol=1e-15) for name in whole)

    def test_short_mask(self, tmp_path):
        mask = np.random.default_rng(6).standard_normal((4, 3))
        short = gradients(tmp_path, {"Q": Q, "K": K, "V": V, "mask": mask, "grad_context": G}, ["mask"], short_mask="hide")
        full = np.concatenate([mask, np.full((4, 1), -np.inf)], 1)
        whole = gradients(tmp_path, {"Q": Q, "K": K, "V": V, "mask": full, "grad_context": G}, ["mask"])
        assert np.array_equal(short["grad_mask"], whole["grad_mask"][:, :3])
        assert (whole["grad_mask"][:, 3] == 0).all()


@pytest.mark.parametrize("options", [
    {}, {"score": "cosine"}, {"score": "l2"}, {"score": "additive"}, {"softcap": 2}, {"softcap": 2, "softcap_order": "after-mask"},
    {"qk_norm": "rms"}, {"qk_norm": "l2"}, {"rotary": {"kind": "half", "width": 4}}, {"normaliser": "sparsemax"},
    {"normaliser": "sigmoid"}, {"normaliser": "entmax15"}, {"softmax": {"axis": "all"}}, {"empty_rows": "nan"},
    {"temperature": 0.5}, {"clip_qkv": 1.0}], ids=str)
def test_what_is_hidden_has_gradient_0_whatever_it_holds(tmp_path, options):
    """The last key is hidden, as is all of the second query; both hold NaN."""
    mask = np.ones((4, 4), bool)
    mask[:, 3], mask[1] = False, False
    clean = {"Q": Q.copy(), "K": K.copy(), "V": V.copy(), "gate": G, "grad_context": G, "mask": mask,
             "grad_logsumexp": np.ones((2, 3, 4))}
    spoilt = {name: x.copy() for name, x in clean.items()}
    spoilt["K"][:, :, 3], spoilt["V"][:, :, 3], spoilt["Q"][:, :, 1] = np.nan, np.inf, np.nan
    names = ("Q", "K", "V", "gate")
    expected, found = (gradients(tmp_path, t, names, **options) for t in (clean, spoilt))
    for name in names:
        assert np.array_equal(found[f"grad_{name}"], expected[f"grad_{name}"])
    assert (found["grad_K"][:, :, 3] == 0).all() and (found["grad_V"][:, :, 3] == 0).all()
    assert (found["grad_Q"][:, :, 1] == 0).all() and (found["grad_gate"][:, :, 1] == 0).all()
    assert np.abs(found["grad_Q"][:, :, 0]).max() > 0


def test_hidden_tokens_do_not_reach_the_weights(tmp_path):
    rng = np.random.default_rng(8)
    t = {"embeddings": rng.standard_normal((2, 4, 6)), "grad_output": rng.standard_normal((2, 4, 2)), "query_lengths": np.array([4, 3]),
         "key_lengths": np.array([4, 3]), **{name: rng.standard_normal((6, 6)) for name in ("W_Q", "W_K", "W_V")},
         "W_O": rng.standard_normal((6, 2))}
    t["grad_output"][1, 3] = 0
    names = ["W_Q", "W_K", "W_V", "W_O", "embeddings"]
    expected = gradients(tmp_path, t, names)
    t["embeddings"][1, 3] = np.nan
    found = gradients(tmp_path, t, names)
    assert all(np.array_equal(found[name], expected[name]) for name in found)


def test_bias_of_minus_infinity_counts_as_hidden(tmp_path):
    bias = np.random.default_rng(9).standard_normal((4, 4))
    bias[2, :2] = -np.inf
    found = gradients(tmp_path, {"Q": Q, "K": K, "V": V, "bias": bias, "grad_context": G}, ["bias"])["grad_bias"]
    assert (found[2, :2] == 0).all() and np.isfinite(found).all() and np.abs(found).max() > 0


def test_delta_is_the_sum_over_the_keys_of_weights_times_their_gradient(tmp_path):
    found = run_arrays(tmp_path, {"Q": Q, "K": K, "V": V, "grad_context": G}, causal=True, outputs=["delta", "weights"])
    expected = (found["weights"] * (G @ V.swapaxes(2, 3))).sum(3)
    assert np.abs(found["delta"] - expected).max() <= 1e-13


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gradients_have_the_dtype_of_the_result(tmp_path, dtype):
    t = {name: x.astype(dtype) for name, x in zip(("Q", "K", "V", "grad_context"), (Q, K, V, G))}
    found, rounded = gradients(tmp_path, t), gradients(tmp_path, t, path="reference")
    exact = gradients(tmp_path, {name: x.astype(float) for name, x in t.items()}, path="reference")
    for name in exact:
        assert found[name].dtype == dtype and np.allclose(found[name], exact[name], rtol=0, atol=np.finfo(dtype).eps * 4)
        assert np.array_equal(rounded[name], exact[name].astype(dtype))


def test_an_input_that_does_not_matter_has_gradient_0(tmp_path):
    found = gradients(tmp_path, {"Q": Q, "K": K, "V": V, "grad_logsumexp": np.ones((2, 3, 4))})
    assert (found["grad_V"] == 0).all() and np.abs(found["grad_Q"]).max() > 0


@pytest.mark.parametrize("tensors, options, outputs, message", [
    ({}, {}, ["grad_weights"], "'grad_weights' is given by a job, not computed; outputs are gradients of its inputs, such as grad_Q"),
    ({}, {}, ["grad_Q"], "'grad_Q' requires grad_context, grad_output, grad_weights or grad_logsumexp"),
    ({}, {}, ["delta"], "'delta' requires grad_context"),
    ({"grad_context": G}, {}, ["grad_sinks"], "'grad_sinks' requires sinks"),
    ({"grad_context": G}, {"normaliser": "hardmax"}, ["grad_Q"], "hardmax has no derivative"),
    ({"grad_context": G, "mask": np.ones((4, 4), bool)}, {}, ["grad_mask"], "mask has dtype bool"),
    ({"grad_context": G, "Q": np.ones((2, 3, 4, 5), int)}, {}, ["grad_Q"], "Q has dtype int64"),
    ({"grad_context": G[:1]}, {}, ["grad_Q"], "grad_context: expected the shape of context (2, 3, 4, 5), found (1, 3, 4, 5)"),
    ({"grad_output": G}, {}, ["grad_Q"], "requires W_O"),
    ({"grad_context": G, "Q": np.zeros((2, 3, 4, 5))}, {"normaliser": "top_k", "top_k": 2}, ["grad_K"], "top_k has no derivative"),
    ({"grad_context": G}, {}, ["grad_token_ids"], "'grad_token_ids' does not exist, because token_ids has no gradient"),
])
def test_what_has_no_gradient_is_refused(tmp_path, tensors, options, outputs, message):
    np.savez(tmp_path / "in.npz", **{"Q": Q, "K": K, "V": V, **tensors})
    names = {"Q", "K", "V", *tensors}
    job = {**options, **{name: f"in.npz#{name}" for name in names}, "outputs": outputs}
    (tmp_path / "job.json").write_text(json.dumps(job))
    run = attn("run", "job.json", "-o", "out.npz", cwd=tmp_path)
    assert run.returncode in (2, 65)
    assert message in run.stderr.decode()


def test_dry_run_states_the_path_and_enough_memory(tmp_path):
    rng = np.random.default_rng(1)
    for name in "q", "k", "v", "g":
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((1, 4, 600, 16)))
    flags = ["--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--grad-context", "g.npy", "--outputs", "grad_Q,grad_K,grad_V",
             "--softcap", "5", "--causal", "--path", "reference"]
    plan = json.loads(attn("run", *flags, "--dry-run", "--format", "json", cwd=tmp_path).stdout)
    assert (plan["path"], plan["fallback_reason"]) == ("reference", "path")
    assert all(output["flops"] > 0 for output in plan["outputs"])
    _, least = attn_and_peak("run", "--q", "q.npy", "--k", "k.npy", "--outputs", "queries", "-o", "least.npz", cwd=tmp_path)
    _, peak = attn_and_peak("run", *flags, "-o", "out.npz", cwd=tmp_path)
    assert least < peak <= least + plan["memory"]


def test_batches_and_threads_do_not_change_bytes(tmp_path):
    for name, x in zip(("q", "k", "v", "g"), (Q, K, V, G)):
        np.save(tmp_path / f"{name}.npy", x)
        np.save(tmp_path / f"{name}1.npy", x[1:])
    runs = [("all", "", "1"), ("more", "", "3"), ("one", "1", "1")]
    for out, part, threads in runs:
        flags = [word for name in ("q", "k", "v") for word in (f"--{name}", f"{name}{part}.npy")]
        run = attn("run", *flags, "--grad-context", f"g{part}.npy", "--outputs", "grad_Q,grad_K", "--threads", threads, "-o",
                   f"{out}.npz", cwd=tmp_path)
        assert_error(run, 0)
    whole, more, one = (dict(np.load(tmp_path / f"{out}.npz")) for out, _, _ in runs)
    for name in whole:
        assert np.array_equal(whole[name], more[name]) and np.array_equal(whole[name][1:], one[name])


@pytest.mark.parametrize("name", ["dQ", "dq", "d_q", "q.grad", "Q.grad", "grad_q"])
def test_names_of_kernels(tmp_path, name):
    t = {"Q": Q, "K": K, "V": V, "grad_context": G}
    expected = gradients(tmp_path, t, ["Q"])["grad_Q"]
    found = run_arrays(tmp_path, t, outputs=[name])
    assert list(found) == ["grad_Q"] and np.array_equal(found["grad_Q"], expected)
    np.savez(tmp_path / "kernel.npz", **{name: expected, "dsink": np.zeros(3)})
    np.savez(tmp_path / "in.npz", sinks=np.zeros(3), **t)
    job = {key: f"in.npz#{key}" for key in t}
    (tmp_path / "job.json").write_text(json.dumps(job))
    run = attn("compare", f"kernel.npz#{name}", "job.json", "--reference", "--as", name, "--rtol", "1e-12", cwd=tmp_path)
    assert run.returncode == 0, run.stderr.decode()


def test_names_of_kernels_in_a_file(tmp_path):
    t = {"Q": Q, "K": K, "V": V, "grad_context": G}
    found = run_arrays(tmp_path, t, outputs=["grad_Q", "grad_K", "grad_V", "delta"])
    wrong = {"dq": found["grad_Q"], "dk": found["grad_K"] * 2, "dv": found["grad_V"], "softmax_d": found["delta"]}
    np.savez(tmp_path / "kernel.npz", **wrong)
    run = attn("compare", "kernel.npz", "job.json", "--reference", "--rtol", "1e-12", "--json", cwd=tmp_path)
    verdicts = {tensor["name"]: tensor for tensor in json.loads(run.stdout)["tensors"]}
    assert run.returncode == 1 and set(verdicts) == {"grad_Q", "grad_K", "grad_V", "delta"}
