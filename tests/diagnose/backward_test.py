"""compare --reference names the mistake of a backward pass. The kernel is in NumPy, with a switch for each mistake.

Nothing in it comes from attn: the forward pass stores its result O and logsumexp L, and the backward pass recomputes
the weights from L, with D = rowsum(dO * O), as FlashAttention-2 does. Sums are in float32.
"""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak, under_asan
from support.rounding import rounded

F32 = np.float32
B, H, G, L, S, D = 2, 4, 2, 40, 56, 16


def random_job(seed, *features):
    """Tensors and options of a job with these features."""
    r = np.random.default_rng(seed)
    keys, groups = (L, H) if "square" in features else (S, G)
    t = {name: r.normal(size=shape).astype(F32) for name, shape in (
        ("Q", (B, H, L, D)), ("K", (B, groups, keys, D)), ("V", (B, groups, keys, D)), ("grad_context", (B, H, L, D)))}
    t["Q"] *= F32(1.5)
    o = {}
    if {"causal", "bottom-right"} & set(features):
        o["causal"] = True
    if "bottom-right" in features:
        o["alignment"] = "bottom-right"
    if "window" in features:
        o["window"] = [12, 0]
    if "mask" in features:
        t["mask"] = r.random((L, keys)) < .7
        t["mask"][:, 0] = True
    if "softcap" in features:
        o["softcap"] = 2.0
    if "sinks" in features:
        t["sinks"] = (r.normal(size=H) + 2).astype(F32)
    if "head_scale" in features:
        t["head_scale"] = (r.random(H) + 1).astype(F32)
    if "dropout" in features:
        t["dropout_mask"], o["dropout_p"] = r.random((B, H, L, keys)) < .7, .3
    if "rotary" in features:
        o["rotary"] = {"kind": "half", "base": 1e4}
    if "bias" in features:
        t["bias"] = r.normal(size=(1, H, L, keys)).astype(F32)
    return t, o


def rotated(x, sign):
    n = D // 2
    angles = np.arange(x.shape[2])[:, None] * 1e4 ** (-np.arange(n) / n)
    c, s = np.cos(angles).astype(F32), (sign * np.sin(angles)).astype(F32)
    return np.concatenate([x[..., :n] * c - x[..., n:] * s, x[..., :n] * s + x[..., n:] * c], -1)


def visible(t, o, *mistakes):
    i, j = np.arange(L)[:, None], np.arange(t["K"].shape[2])
    offset = t["K"].shape[2] - L if o.get("alignment") == "bottom-right" else 0
    if "causal mask top-left" in mistakes:
        offset = 0
    if "causal mask bottom-right" in mistakes:
        offset = t["K"].shape[2] - L
    seen = np.ones((L, len(j)), bool)
    if (o.get("causal") and "no causal mask" not in mistakes) or "causal mask added" in mistakes:
        seen &= j <= i + offset
    if "window" in o:
        seen &= (i + offset - j <= o["window"][0] - ("window one key short" in mistakes)) & (j <= i + offset)
    if "mask" in t:
        seen &= t["mask"]
    return np.ones_like(seen) if "no mask" in mistakes else seen


def scores(t, o, q, k, mistakes):
    s = F32(D ** -1 if {"scale 1/D in both passes", "scale 1/D"} & set(mistakes) else D ** -.5) * (q @ k.swapaxes(-1, -2))
    if "head_scale" in t:
        s *= t["head_scale"][:, None, None]
    capped = F32(o["softcap"]) * np.tanh(s / F32(o["softcap"])) if "softcap" in o else s
    x = capped + t["bias"] if "bias" in t else capped
    return capped, np.where(visible(t, o, *mistakes), x, F32(-np.inf))


def gradients(t, o, *mistakes):
    """dQ, dK, dV and those of the bias, the sinks and head_scale, as an attn job names them."""
    is_ = mistakes.__contains__
    q, k, v, dO = (t[name] for name in ("Q", "K", "V", "grad_context"))
    groups, times = k.shape[1], H // k.shape[1]
    if "rotary" in o:
        q, k = rotated(q, 1), rotated(k, 1)
    k, v = np.repeat(k, times, 1), np.repeat(v, times, 1)
    in_both = [m for m in mistakes if m.endswith("in both passes")]
    _, x = scores(t, o, q, k, in_both)
    sinks = t.get("sinks", np.full(H, -np.inf, F32))
    factor = F32(np.log2(np.e) if is_("sinks times log2 e") else D ** -.5 if is_("sinks times the scale") else 1)
    sinks = factor * (np.roll(sinks, -1) if is_("sink of the next head") else sinks[:1].repeat(H) if is_("sink of head 0")
                      else sinks)[:, None, None]
    high = np.maximum(x.max(-1, keepdims=True), sinks)
    lse = high + np.log(np.exp(x - high).sum(-1, keepdims=True) + np.exp(sinks - high))
    kept = t["dropout_mask"] / F32(1 - o["dropout_p"]) if "dropout_mask" in t else F32(1)
    context = (np.exp(x - lse) * kept) @ v

    y, x = scores(t, o, q, k, mistakes)
    of_lse = np.log(2) if is_("2^x with the natural logsumexp") else 1 / np.log(2) if is_("e^x with that of base 2") else 1
    if is_("sinks not in the logsumexp"):
        high = x.max(-1, keepdims=True)
        P = np.exp(x - high) / np.exp(x - high).sum(-1, keepdims=True)
    elif is_("weights not normalised"):
        P = np.exp(x)
    elif is_("weights not divided by their sum"):
        P = np.exp(x - x.max(-1, keepdims=True))
    else:
        P = np.exp(x - lse * F32(of_lse))
    if is_("dropout mask not applied"):
        kept = F32(1)
    if is_("not divided by 1 - p"):
        kept = t["dropout_mask"]
    dV = (P * kept).swapaxes(-1, -2) @ dO
    dP = (dO @ v.swapaxes(-1, -2)) * kept
    delta = (dO * context).sum(-1, keepdims=True)
    if is_("row sums of its own weights"):
        delta = (P * dP).sum(-1, keepdims=True)
    dx = P * (dP - delta * F32(0 if is_("no row sums") else 2 if is_("row sums twice") else -1 if is_("row sums added") else 1))
    power = 1 if is_("softcap derivative not squared") else 2
    ds = dx * (1 - (y / F32(o["softcap"])) ** power) if "softcap" in o and not is_("no derivative of the softcap") else dx
    scale = F32(D ** -1 if is_("scale 1/D in both passes") or is_("scale 1/D") else D ** -.5)
    of_head_scale = (ds * scale * (q @ k.swapaxes(-1, -2))).sum((0, 2, 3))
    if "head_scale" in t:
        ds = ds * t["head_scale"][:, None, None]
    of = lambda name: F32(1) if is_(f"no scale in {name}") else scale ** 2 if is_(f"scale twice in {name}") else scale
    dQ, dK = of("dQ") * (ds @ k), of("dK") * (ds.swapaxes(-1, -2) @ q)

    def of_group(g):
        heads = g.reshape(B, groups, times, *g.shape[2:])
        if is_("first head of the group"):
            return heads[:, :, 0]
        if is_("last head of the group"):
            return heads[:, :, -1]
        if is_("groups tiled"):
            return g.reshape(B, times, groups, *g.shape[2:]).sum(1)
        return heads.mean(2) if is_("mean of the group") else heads.sum(2)

    dK, dV = of_group(dK), of_group(dV)
    if "rotary" in o and not is_("not rotated back"):
        sign = 1 if is_("rotated again") else -1
        dQ, dK = rotated(dQ, sign), rotated(dK, sign)
    if is_("dK and dV swapped"):
        dK, dV = dV, dK
    if is_("dQ and dK swapped"):
        dQ, dK = dK, dQ
    result = {"grad_Q": dQ, "grad_K": dK, "grad_V": dV}
    if "bias" in t:
        result["grad_bias"] = (dx[:1] if is_("bias of the first item") else dx[-1:] if is_("bias of the last item")
                               else dx.mean(0, keepdims=True) if is_("mean of the bias") else dx.sum(0, keepdims=True))
    if "head_scale" in t:
        result["grad_head_scale"] = of_head_scale
    if "sinks" in t:
        result["grad_sinks"] = -(np.exp(sinks - lse) * delta).sum((0, 2, 3)) * (factor if is_("and so their derivative") else 1)
    return {name: x * F32(2) if is_("twice") else x for name, x in result.items()}


def reports(folder, tensors, options, results, *flags):
    """The tensors of the report, by name, and its text."""
    np.savez(folder / "inputs.npz", **tensors)
    (folder / "job.json").write_text(json.dumps({name: f"inputs.npz#{name}" for name in tensors} | options))
    np.savez(folder / "result.npz", **results)
    arguments = ["compare", folder / "result.npz", "--reference", folder / "job.json", "--diagnose", *flags]
    run, text = attn(*arguments, "--json"), attn(*arguments)
    assert run.returncode in (0, 1), run.stderr.decode()
    assert run.returncode == text.returncode
    return {tensor["name"]: tensor for tensor in json.loads(run.stdout)["tensors"]}, text.stdout.decode()


QK, QKV, KV = ["grad_Q", "grad_K"], ["grad_Q", "grad_K", "grad_V"], ["grad_K", "grad_V"]
# Features of the job, mistakes, the gradients that they change, the id of the finding and words of its line.
MISTAKES = [
    (["causal"], ["no row sums"], QK, "backward.row_sums_dropped", "dS = P * dP"),
    (["softcap", "sinks", "mask"], ["no row sums"], QK, "backward.row_sums_dropped", "delta"),
    (["causal"], ["row sums twice"], QK, "backward.row_sums_twice", "dS = P * (dP - 2 delta)"),
    (["softcap", "mask"], ["row sums added"], QK, "backward.row_sums_added", "dS = P * (dP + delta)"),
    (["causal", "softcap"], ["weights not divided by their sum"], QKV, "backward.maximum_as_logsumexp", "exp(score - maximum)"),
    (["causal"], ["scale 1/D"], QKV, "backward.scale.1/D", "--scale 0.0625, 1/16 in the backward pass only"),
    (["causal"], ["no causal mask"], QKV, "backward.causal.dropped", "without --causal in the backward pass only"),
    (["causal", "rotary"], ["no causal mask"], QKV, "backward.causal.dropped", "backward pass only"),
    (["causal"], ["no causal mask", "row sums of its own weights"], QK, "backward.causal.dropped_with_row_sums",
     "with its own row sums"),
    ([], ["causal mask added"], QKV, "backward.causal.added", "--causal in the backward pass only"),
    (["bottom-right"], ["causal mask top-left"], QKV, "backward.causal.alignment", "backward pass only"),
    (["causal"], ["causal mask bottom-right"], QKV, "backward.causal.alignment", "backward pass only"),
    (["causal", "window"], ["window one key short"], QKV, "backward.window.left-1", "--window 11,0 in the backward"),
    (["causal", "mask"], ["no mask"], QKV, "backward.masks_dropped", "without any mask"),
    (["causal"], ["first head of the group"], KV, "backward.group_first", "first query head"),
    (["softcap"], ["last head of the group"], KV, "backward.group_last", "last query head"),
    (["sinks"], ["mean of the group"], KV, "backward.group_mean", "the mean over the query heads"),
    (["rotary"], ["groups tiled"], KV, "backward.group_tiled", "head h % G"),
    (["dropout"], ["dropout mask not applied"], QKV, "backward.dropout.dropped", "without --dropout-mask"),
    (["dropout", "causal"], ["dropout mask not applied", "row sums of its own weights"], QK, "dropout.dropped",
     "without --dropout-mask"),  # the gradients of a job without dropout
    (["dropout"], ["not divided by 1 - p"], QKV, "backward.dropout.not_divided", "not divided by 1 - p"),
    (["sinks", "causal"], ["sinks not in the logsumexp"], QKV, "backward.sink.dropped", "without --sinks"),
    (["softcap"], ["no derivative of the softcap"], QK, "backward.softcap_dropped",
     "agrees with a backward pass without the derivative of the softcap"),
    (["softcap", "causal"], ["softcap derivative not squared"], QK, "backward.softcap_not_squared", "1 - y / c instead"),
    (["softcap", "bias"], ["softcap derivative not squared"], QK, "backward.softcap_not_squared", "1 - y / c instead"),
    (["causal", "rotary"], ["weights not normalised"], QKV, "backward.not_normalised", "not divided by their sum"),
    (["causal", "softcap"], ["2^x with the natural logsumexp"], QKV, "backward.logsumexp_as_base_2", "natural logsumexp"),
    (["mask"], ["e^x with that of base 2"], QKV, "backward.logsumexp_from_base_2", "of base 2 taken"),
    (["causal"], ["no scale in dQ"], ["grad_Q"], "backward.dQ_unscaled", "dQ without the scale"),
    (["causal"], ["no scale in dK"], ["grad_K"], "backward.dK_unscaled", "dK without the scale"),
    (["rotary"], ["scale twice in dQ"], ["grad_Q"], "backward.dQ_scaled_twice", "twice to dQ"),
    (["dropout"], ["scale twice in dK"], ["grad_K"], "backward.dK_scaled_twice", "twice to dK"),
    (["rotary", "causal"], ["not rotated back"], QK, "backward.rotary_dropped", "not rotated back"),
    (["rotary"], ["rotated again"], QK, "backward.rotary_sign", "positive angles"),
    (["causal"], ["dK and dV swapped"], ["grad_K"], "backward.of_values", "grad_V"),
    (["causal"], ["dK and dV swapped"], ["grad_V"], "backward.of_keys", "grad_K"),
    (["square", "causal"], ["dQ and dK swapped"], ["grad_Q"], "backward.of_keys", "grad_K"),
    (["square", "rotary"], ["dQ and dK swapped"], ["grad_K"], "backward.of_queries", "grad_Q"),
    (["bias"], ["bias of the first item"], ["grad_bias"], "backward.bias_first", "only the first index"),
    (["bias", "causal"], ["bias of the last item"], ["grad_bias"], "backward.bias_last", "only the last index"),
    (["bias", "softcap"], ["mean of the bias"], ["grad_bias"], "backward.bias_mean", "the mean over the axes"),
    (["causal", "sinks", "bias"], ["twice"], QKV + ["grad_bias", "grad_sinks"], "backward.twice", "added up twice"),
    ([], ["scale 1/D in both passes"], QKV, "scale.1/D", "--scale 0.0625"),
    (["head_scale"], ["scale 1/D in both passes"], QKV + ["grad_head_scale"], "scale.1/D", "--scale 0.0625"),
    (["head_scale", "causal", "softcap"], ["no row sums"], QK + ["grad_head_scale"], "backward.row_sums_dropped", "delta"),
    (["head_scale", "causal"], ["no causal mask"], QKV + ["grad_head_scale"], "backward.causal.dropped", "without --causal"),
    (["sinks", "causal"], ["sinks times log2 e"], ["grad_sinks"], "sink.log2e", "sinks multiplied by log2(e)"),
    (["sinks", "causal"], ["sinks times the scale"], ["grad_sinks"], "sink.scaled", "sinks multiplied by the scale"),
    (["sinks", "causal"], ["sinks times log2 e", "and so their derivative"], ["grad_sinks"], "sink.log2e_chained",
     "and their derivative by the same factor"),
    (["sinks", "mask"], ["sink of the next head"], ["grad_sinks"], "sink.next_head", "the sink of the next head"),
    (["sinks"], ["sink of head 0"], ["grad_sinks"], "sink.head_0", "the sink of head 0 for all heads"),
]


@pytest.mark.parametrize("features, mistakes, names, id, words", MISTAKES, ids=lambda x: "-".join(x) if isinstance(x, list) else "")
def test_mistake_is_named(tmp_path, features, mistakes, names, id, words):
    tensors, options = random_job(1, *features)
    right, wrong = gradients(tensors, options), gradients(tensors, options, *mistakes)
    assert set(names) <= {name for name in right if np.abs(right[name] - wrong[name]).max() > 1e-3}
    found, text = reports(tmp_path, tensors, options, {name: wrong[name] for name in names})
    blocks = [f"agrees with {block}" for block in text.split("\n  agrees with ")[1:]]
    assert len(blocks) == len(names) and all(words in block.split("\n")[0] for block in blocks), text
    for name in names:
        diagnosis = found[name]["diagnosis"]
        # Without row sums, dV is that of a job whose forward pass has the mistake, too.
        is_both = name == "grad_V" and id.startswith(("backward.dropout", "backward.sink"))
        assert [finding["id"] for finding in diagnosis] == [id.removeprefix("backward.") if is_both else id]
        assert diagnosis[0]["explained"] >= .99
        assert diagnosis[0]["residual_after"] < diagnosis[0]["residual_before"] / 100


@pytest.mark.parametrize("features", [
    [], ["causal"], ["bottom-right", "softcap"], ["window", "causal", "sinks"], ["mask", "rotary", "bias"],
    ["dropout", "causal", "sinks"], ["head_scale", "softcap"], ["square", "rotary", "dropout", "softcap"]], ids="-".join)
def test_right_kernels_get_no_name(tmp_path, features):
    for seed in range(3):
        tensors, options = random_job(seed, *features)
        found, text = reports(tmp_path, tensors, options, gradients(tensors, options))
        assert "agrees" not in text
        assert all("diagnosis" not in tensor for tensor in found.values()) and len(found) >= 3


class TestReport:
    """What it says beside the name of the mistake."""

    def of(self, folder, change, *features):
        tensors, options = random_job(1, *features)
        return reports(folder, tensors, options, change(gradients(tensors, options)))[1]

    def test_factor(self, tmp_path):
        text = self.of(tmp_path, lambda g: {"grad_Q": -g["grad_Q"]}, "causal")
        assert "\n  is -1 times the reference\n" in text and "hint" not in text

    def test_few_digits(self, tmp_path):
        """Numbers that were typed agree with no mistake, and a factor of about 1 says nothing."""
        text = self.of(tmp_path, lambda g: {"grad_Q": np.round(g["grad_Q"].astype(float), 5)}, "causal")
        assert "exceed the error bound of f64" in text and "hint: A is about" not in text

    def test_backward_pass_only(self, tmp_path):
        tensors, options = random_job(1, "dropout")
        found = gradients(tensors, options, "not divided by 1 - p")
        text = reports(tmp_path, tensors, options, {"grad_Q": found["grad_Q"]})[1]
        assert ("\n  agrees with --dropout-p 0 in the backward pass only: kept weights are not divided by 1 - p "
                "(the job has 0.3)\n") in text

    def test_heads_are_named(self, tmp_path):
        def change(g):
            g["grad_K"][1, 0, 5] += 1
            g["grad_K"][0, 1, 7] += 1
            return {"grad_K": g["grad_K"]}
        text = self.of(tmp_path, change, "causal")
        assert "\n    batch  head  differing" in text and "axis 0" not in text

    def test_swapped_axes_are_named(self, tmp_path):
        text = self.of(tmp_path, lambda g: {"grad_K": g["grad_K"].swapaxes(1, 2)})
        assert "hint: A agrees with B if its axes 1 and 2 (G and N) are swapped" in text

    @pytest.mark.parametrize("value, line", [(0, "all wrong elements are 0"), (np.nan, "all wrong elements are NaN")])
    def test_blank(self, tmp_path, value, line):
        text = self.of(tmp_path, lambda g: {"grad_Q": np.full_like(g["grad_Q"], value)}, "causal").splitlines()
        assert f"  {line}" in text
        assert not [line for line in text if "mistake" in line or "tested" in line]

    @pytest.mark.parametrize("name", ["grad_K", "grad_V"])
    def test_gradients_of_query_heads(self, tmp_path, name):
        """FlashAttention-2 writes those of keys and values for each query head, before they are added up."""
        tensors, options = random_job(1, "causal")
        repeated = {**tensors, "K": np.repeat(tensors["K"], H // G, 1), "V": np.repeat(tensors["V"], H // G, 1)}
        found = gradients(repeated, options)[name]
        for result, hint in [(found, "A agrees with B if it is summed over"),
                             (found * 2, "A has a gradient for each query head; that of a key/value head is the sum over")]:
            text = reports(tmp_path, tensors, options, {name: result})[1]
            assert f"\n  hint: {hint} each group of 2 (H / G) query heads\n" in text


class TestNames:
    """The tensors of A are recognised by the names that kernels give them, and other gradients are refused."""

    JOB = {name: np.random.default_rng(8).normal(size=shape) for name, shape in
           (("embeddings", (6, 5)), ("W_Q", (5, 8)), ("W_K", (5, 8)), ("W_V", (5, 8)), ("W_O", (8, 3)), ("grad_output", (6, 3)))}

    def job(self, folder, tensors, **options):
        np.savez(folder / "inputs.npz", **tensors)
        (folder / "job.json").write_text(json.dumps({name: f"inputs.npz#{name}" for name in tensors} | options))

    def compared(self, folder, **results):
        np.savez(folder / "a.npz", **results)
        return attn("compare", "a.npz", "--reference", "job.json", "--json", cwd=folder)

    def named(self, run):
        assert run.returncode == 0, run.stderr.decode() + run.stdout.decode()
        return [tensor["name"] for tensor in json.loads(run.stdout)["tensors"]]

    @pytest.mark.parametrize("name", ["q_grad", "gradQ", "query.grad", "grad_query", "dquery", "Q_grad", "d_q"])
    def test_alone(self, tmp_path, name):
        tensors, options = random_job(1, "causal")
        self.job(tmp_path, tensors, **options)
        assert self.named(self.compared(tmp_path, **{name: gradients(tensors, options)["grad_Q"]})) == ["grad_Q"]

    @pytest.mark.parametrize("name, meant", [
        ("dX", "grad_embeddings"), ("x.grad", "grad_embeddings"), ("out_proj.weight.grad", "grad_W_O"),
        ("q_proj.weight.grad", "grad_W_Q")])
    def test_of_a_layer(self, tmp_path, name, meant):
        self.job(tmp_path, self.JOB, heads=2)
        assert attn("run", "job.json", "--outputs", meant, "-o", "own.npz", cwd=tmp_path).returncode == 0
        assert self.named(self.compared(tmp_path, **{name: np.load(tmp_path / "own.npz")[meant]})) == [meant]

    @pytest.mark.parametrize("name", ["in_proj_weight.grad", "grad_of_something", "myGrad"])
    def test_unknown_gradient_is_refused(self, tmp_path, name):
        self.job(tmp_path, self.JOB, heads=2)
        assert_error(self.compared(tmp_path, **{name: np.zeros((5, 8))}), 2,
                     f"A: {name}: is not the name of an output; use --as {name}=NAME; outputs of its shape: grad_W_Q, "
                     "grad_W_K, grad_W_V")

    def test_beside_inputs_and_the_logsumexp(self, tmp_path):
        tensors, options = random_job(1, "causal")
        self.job(tmp_path, tensors, **options)
        assert attn("run", "job.json", "--outputs", "logsumexp", "-o", "own.npz", cwd=tmp_path).returncode == 0
        seed = tensors["grad_context"]
        run = self.compared(tmp_path, dq=gradients(tensors, options)["grad_Q"], dO=seed, dout=seed, do=seed,
                            lse=np.load(tmp_path / "own.npz")["logsumexp"])
        assert sorted(self.named(run)) == ["grad_Q", "logsumexp"]


def test_noise_gets_no_name(tmp_path):
    tensors, options = random_job(1, "causal", "softcap")
    r = np.random.default_rng(2)
    wrong = {name: x + r.normal(size=x.shape).astype(F32) for name, x in gradients(tensors, options).items()}
    found, text = reports(tmp_path, tensors, options, wrong)
    assert all(tensor["diagnosis"] == [] for tensor in found.values()) and "no known mistake explains it" in text


@pytest.mark.parametrize("name, mistake, id", [
    ("grad_W_Q", "no scale in dQ", "backward.dQ_unscaled"), ("grad_W_K", "no row sums", "backward.row_sums_dropped"),
    ("grad_W_V", "no causal mask", "backward.causal.dropped"), ("grad_embeddings", "no row sums", "backward.row_sums_dropped")])
def test_mistakes_before_projections(tmp_path, name, mistake, id):
    """The mistake is in attention; its gradients pass through projections of packed heads and rotary positions."""
    r = np.random.default_rng(4)
    width = 24
    embeddings = r.normal(size=(B, L, width)).astype(F32)
    W = {x: (r.normal(size=(width, H * D)) / width ** .5).astype(F32) for x in "QKV"}
    split = lambda x: x.reshape(B, L, H, D).transpose(0, 2, 1, 3)
    join = lambda x: x.transpose(0, 2, 1, 3).reshape(B, L, H * D)
    seed = r.normal(size=(B, H, L, D)).astype(F32)
    options = {"causal": True, "rotary": {"kind": "half", "base": 1e4}}
    d = gradients({x: split(embeddings @ W[x]) for x in "QKV"} | {"grad_context": seed}, options, mistake)
    by_projected = {x: join(d[f"grad_{x}"]) for x in "QKV"}
    result = {"grad_embeddings": sum(by_projected[x] @ W[x].T for x in "QKV"),
              **{f"grad_W_{x}": np.einsum("blm,bln->mn", embeddings, by_projected[x]) for x in "QKV"}}
    tensors = {"embeddings": embeddings, **{f"W_{x}": W[x] for x in "QKV"}, "grad_context": join(seed)}
    found, _ = reports(tmp_path, tensors, options | {"heads": H}, {name: result[name]})
    assert [finding["id"] for finding in found[name]["diagnosis"]] == [id]


def test_gradients_of_a_lower_precision_are_arithmetic(tmp_path):
    tensors, options = random_job(3, "causal")
    right = gradients({name: x.astype(np.float16).astype(F32) if x.dtype == F32 else x for name, x in tensors.items()},
                      options)
    found, text = reports(tmp_path, tensors, options, {"grad_V": right["grad_V"]})
    assert found["grad_V"]["diagnosis"] == [] and "arithmetic or a small mistake" in text


def test_gradients_of_parameters_are_not_arithmetic(tmp_path):
    """Their rows are sums over all queries, so that a mistake in one of these changes all rows about alike."""
    r = np.random.default_rng(0)
    tokens, width = 12, 16
    x, W_Q, W_K, W_V, seed = (r.normal(size=shape).astype(F32) for shape in (
        (tokens, width), (width, width), (width, width), (width, width), (tokens, width)))
    W_Q, W_K = W_Q / 4, W_K / 4
    scores = (x @ W_Q) @ (x @ W_K).T / 4
    visible = np.tri(tokens, dtype=bool)
    visible[11, 0] = False
    P = np.exp(np.where(visible, scores, F32(-np.inf)))
    P /= P.sum(-1, keepdims=True)
    tensors = {"embeddings": x, "W_Q": W_Q, "W_K": W_K, "W_V": W_V, "grad_context": seed}
    found, text = reports(tmp_path, tensors, {"causal": True}, {"grad_W_V": x.T @ (P.T @ seed)})
    assert found["grad_W_V"]["arithmetic"] is None and "no known mistake explains it" in text


def test_context_of_a_job_with_a_loss(tmp_path):
    """The derivatives of the loss have the layout of the job, and do not disturb the search."""
    r = np.random.default_rng(5)
    q, k, v, seed = (r.normal(size=(L, H * D)).astype(F32) for _ in range(4))
    tensors = {"Q": q, "K": k, "V": v, "grad_context": seed}
    split = lambda x: x.reshape(L, H, D).transpose(1, 0, 2)
    weights = np.exp(split(q) @ split(k).swapaxes(-1, -2) / D)
    context = (weights / weights.sum(-1, keepdims=True) @ split(v)).transpose(1, 0, 2).reshape(L, H * D)
    found, _ = reports(tmp_path, tensors, {"heads": H}, {"context": context})
    assert [finding["id"] for finding in found["context"]["diagnosis"]] == ["scale.1/D"]


def test_layout_of_the_job_is_named(tmp_path):
    tensors, options = random_job(3, "causal")
    dV = gradients(tensors, options)["grad_V"].transpose(0, 2, 1, 3)
    _, text = reports(tmp_path, tensors, options, {"grad_V": np.ascontiguousarray(dV)})
    assert "axes 1 and 2" in text


def large_job(folder, heads=16, length=1024, width=16):
    """Causal float32 gradients of many heads, one head at a time, and their job."""
    r = np.random.default_rng(6)
    t = {name: r.normal(size=(1, heads, length, width)).astype(F32) for name in ("Q", "K", "V", "grad_context")}
    hidden = np.triu(np.ones((length, length), bool), 1)
    result = {f"grad_{name}": np.empty_like(t[name]) for name in "QKV"}
    for h in range(heads):
        q, k, v, dO = (t[name][0, h] for name in ("Q", "K", "V", "grad_context"))
        P = np.exp(np.where(hidden, F32(-np.inf), q @ k.T * F32(width ** -.5)))
        P /= P.sum(-1, keepdims=True)
        ds = P * (dO @ v.T - (dO * (P @ v)).sum(-1, keepdims=True)) * F32(width ** -.5)
        result["grad_Q"][0, h], result["grad_K"][0, h], result["grad_V"][0, h] = ds @ k, ds.T @ q, P.T @ dO
    np.savez(folder / "inputs.npz", **t)
    (folder / "job.json").write_text(json.dumps({name: f"inputs.npz#{name}" for name in t} | {"causal": True}))
    return result


@pytest.mark.long
def test_large_gradients_are_tested_in_some_heads(tmp_path):
    """The matrices of all scores would take 128 MiB each; the search and the bounds have none."""
    result = large_job(tmp_path)
    result["grad_K"] *= F32(4)
    np.savez(tmp_path / "result.npz", **result)
    arguments = ["compare", tmp_path / "result.npz", "--reference", tmp_path / "job.json", "--diagnose"]
    run, peak = attn_and_peak(*arguments, "--json")
    assert run.returncode == 1 and (peak < 256 << 20 or under_asan())  # its shadow memory
    found = {tensor["name"]: tensor for tensor in json.loads(run.stdout)["tensors"]}
    assert "diagnosis" not in found["grad_Q"] and "diagnosis" not in found["grad_V"]
    assert [finding["id"] for finding in found["grad_K"]["diagnosis"]] == ["backward.dK_unscaled"]
    search = found["grad_K"]["search"]
    assert (search["heads"], search["of_heads"], search["untested"]) == (8, 16, [])
    assert_error(attn(*arguments, "--max-memory", "40M"), 65, "for the search for mistakes")


@pytest.mark.long
def test_mistake_in_some_of_many_heads_is_no_mistake_in_all(tmp_path):
    result = large_job(tmp_path)
    result["grad_K"][0, [3, 11]] += np.random.default_rng(7).normal(size=result["grad_K"][0, [3, 11]].shape).astype(F32)
    np.savez(tmp_path / "result.npz", grad_K=result["grad_K"])
    text = attn("compare", tmp_path / "result.npz", "--reference", tmp_path / "job.json", "--diagnose").stdout.decode()
    assert "no known mistake explains it" in text and "wrong: heads 3, 11 of 16" in text
    assert "on 8 sampled key/value heads" in text


DELTAS = [
    (["causal"], "P dP without mask", "backward.causal.dropped", "without --causal in the backward pass only"),
    (["causal", "mask"], "P dP without mask", "backward.masks_dropped", "without any mask"),
    (["dropout", "causal"], "P dP without dropout", "dropout.dropped", "without --dropout-mask"),  # the same as the next
    (["dropout"], "dO O without dropout", "dropout.dropped", "without --dropout-mask"),
    (["causal"], "times the scale", "backward.delta_scaled", "delta times the scale"),
    (["softcap"], "twice", "backward.delta_twice", "delta added up twice"),
    (["causal", "sinks"], "less grad_logsumexp", "backward.delta_minus_lse", "delta less grad_logsumexp"),
    (["causal"], "rounded to f16", "backward.delta_of_f16", "the context rounded to float16"),
    (["rotary"], "rounded to bf16", "backward.delta_of_bf16", "the context rounded to bfloat16"),
]


def delta(t, o, mistake=""):
    q, k = (rotated(t[name], 1) if "rotary" in o else t[name] for name in "QK")
    k, v = (np.repeat(x, H // x.shape[1], 1) for x in (k, t["V"]))
    kept = t["dropout_mask"] / F32(1 - o["dropout_p"]) if "dropout_mask" in t else F32(1)
    _, x = scores(t, o, q, k, [])
    sinks = t["sinks"][:, None, None] if "sinks" in t else F32(-np.inf)
    high = np.maximum(x.max(-1, keepdims=True), sinks)
    lse = high + np.log(np.exp(x - high).sum(-1, keepdims=True) + np.exp(sinks - high))
    dO = t["grad_context"]
    if mistake.startswith("P dP"):
        P = np.exp(scores(t, o, q, k, ["no mask"] if mistake.endswith("mask") else [])[1] - lse)
        return (P * (dO @ v.swapaxes(-1, -2)) * (1 if mistake.endswith("dropout") else kept)).sum(-1)
    O = (np.exp(x - lse) * (1 if mistake == "dO O without dropout" else kept)) @ v
    if mistake.startswith("rounded"):
        O = rounded(O, mistake.split()[-1]).astype(F32)
    result = (dO * O).sum(-1)
    return {"times the scale": result * F32(D ** -.5), "twice": result * F32(2),
            "less grad_logsumexp": result - t.get("grad_logsumexp", 0)}.get(mistake, result)


@pytest.mark.parametrize("features, mistake, id, words", DELTAS, ids=lambda x: "-".join(x) if isinstance(x, list) else "")
def test_mistake_of_delta_is_named(tmp_path, features, mistake, id, words):
    tensors, options = random_job(2, *features)
    tensors["grad_logsumexp"] = np.random.default_rng(3).normal(size=(B, H, L)).astype(F32)
    found, text = reports(tmp_path, tensors, options, {"delta": delta(tensors, options)})
    assert "agrees" not in text and "diagnosis" not in found["delta"]
    found, text = reports(tmp_path, tensors, options, {"delta": delta(tensors, options, mistake)})
    assert [finding["id"] for finding in found["delta"]["diagnosis"]] == [id], text
    assert words in text.split("\n  agrees with ")[1].split("\n")[0]


def test_noise_in_delta_gets_no_name(tmp_path):
    tensors, options = random_job(1, "causal", "dropout")
    noise = np.random.default_rng(2).normal(size=(B, H, L)).astype(F32)
    found, text = reports(tmp_path, tensors, options, {"delta": delta(tensors, options) + noise})
    assert found["delta"]["diagnosis"] == [] and "no known mistake explains it" in text
