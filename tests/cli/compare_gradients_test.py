"""Error bounds of gradients: kernels computed here with NumPy, with every rounding of a kernel, and planted faults.

The kernel computes in float32, stores in its precision, and rounds weights and derivatives of scores to it before
matrix products, as FlashAttention does.
"""

import json
import re

import numpy as np
import pytest

from support.attn import ROOT, attn
from support.jobs import run_arrays
from support.rounding import rounded
from support.safetensors_file import build, entry

F = np.float32
B, H, G, L, S, D = 2, 4, 2, 40, 56, 16
SCALE, CAP, RATE = 0.3, 3.0, 0.25
WANTED = ["grad_Q", "grad_K", "grad_V", "grad_bias", "grad_sinks", "delta"]
OPTIONS = {"causal": "bottom-right", "scale": SCALE, "softcap": CAP, "dropout_p": RATE, "rotary": {"kind": "half"}}
PRECISIONS = ["f16", "bf16", "f32"]
WITHOUT_ROTARY = "right, without rotary positions"


def tensors(precision, seed=0):
    rng = np.random.default_rng(seed)
    t = {"Q": (B, H, L, D), "K": (B, G, S, D), "V": (B, G, S, D), "grad_context": (B, H, L, D), "bias": (H, L, S), "sinks": (H,)}
    t = {name: rounded(rng.standard_normal(shape), precision) for name, shape in t.items()}
    t["sinks"] = np.abs(t["sinks"]) + 2  # about a tenth of the sum of 56 keys
    return {**t, "dropout_mask": rng.random((B, H, L, S)) > RATE}


def heads(x):
    """Keys or values for each query head."""
    return np.repeat(x, H // G, 1)


def turned(x, sign, store):
    angles = np.arange(x.shape[2])[:, None] * 10000.0 ** (-np.arange(0, D, 2) / D)
    cos, sin = store(np.cos(angles)), store(sign * np.sin(angles))
    a, b = x[..., :D // 2], x[..., D // 2:]
    return store(np.concatenate([a * cos - b * sin, a * sin + b * cos], -1))


def gradients(t, precision, fault=""):
    """What a kernel with this fault computes."""
    def store(x):
        return rounded(np.asarray(x, F), precision).astype(F)

    t = {name: x if x.dtype == bool else x.astype(F) for name, x in t.items()}
    def turned_if(x, sign):
        return x if fault == WITHOUT_ROTARY else turned(x, sign, store)

    q, k = turned_if(t["Q"], 1), heads(turned_if(t["K"], 1))
    v, dO, kept = heads(t["V"]), t["grad_context"], t["dropout_mask"] * F(1 / (1 - RATE))
    hidden = np.arange(S) > np.arange(L)[:, None] + S - L
    capped = F(CAP) * np.tanh(q @ k.swapaxes(2, 3) * F(SCALE) / F(CAP))
    x = np.where(hidden, -np.inf, capped + t["bias"]).astype(F)
    sinks = t["sinks"][:, None, None]
    largest = np.maximum(x.max(-1, keepdims=True), sinks)
    terms, of_sink = np.exp(x - largest).sum(-1, keepdims=True), np.exp(sinks - largest)
    log = largest + np.log(terms + (0 if fault == "sink not in the logsumexp" else of_sink))
    weights = np.exp(x - largest) / (terms + of_sink)
    O = store(store(weights * kept) @ v)
    delta = (dO * O).sum(-1, keepdims=True)

    if fault == "no causal mask":
        x = capped + t["bias"]
    if fault == "causal mask aligned to the top left":
        x = np.where(np.arange(S) > np.arange(L)[:, None], -np.inf, capped + t["bias"])
    P = np.exp(x.astype(F) - log)
    dropped = kept if fault != "no dropout factor" else t["dropout_mask"].astype(F)
    dP = dO @ v.swapaxes(2, 3) * (1 if fault == "no dropout mask" else dropped)
    dx = P * (dP - delta)
    ds = dx * (1 if fault == "no derivative of the softcap" else 1 - (capped / F(CAP)) ** 2)
    dQ = store(F(SCALE) * (store(ds) @ k))
    dK = F(1 if fault == "grad_K not scaled" else SCALE) * (store(ds).swapaxes(2, 3) @ q)
    dV = store(P * kept).swapaxes(2, 3) @ dO

    def of_group(x):
        x = x.reshape(B, G, H // G, S, D)
        return store(x[:, :, -1] if fault == "not summed over the group" else x.sum(2))

    back = 0 if fault == "not rotated back" else -1
    return {"grad_Q": turned_if(dQ, back), "grad_K": turned_if(of_group(dK), back), "grad_V": of_group(dV),
            "grad_bias": store(dx.sum(0)), "grad_sinks": store(-(np.exp(sinks - log) * delta).sum((0, 2, 3))),
            "delta": delta[..., 0]}


FAULTS = ["no causal mask", "causal mask aligned to the top left", "not summed over the group", "no dropout mask",
          "no dropout factor", "sink not in the logsumexp", "no derivative of the softcap", "grad_K not scaled",
          "not rotated back"]


def fractions(folder, t, found, precision, options=None):
    """The largest error of each gradient, as a fraction of its bound."""
    np.savez(folder / "in.npz", **t)
    np.savez(folder / "kernel.npz", **found)
    job = {**(OPTIONS if options is None else options), **{name: f"in.npz#{name}" for name in t}}
    (folder / "job.json").write_text(json.dumps(job))
    # Every result passes this gate, so that no mistake is searched for.
    run = attn("compare", "kernel.npz", "--reference", "job.json", "--precision", precision, "--gate", "bound >= 0",
               "--json", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return {x["name"]: (x["bound"]["worst"] or {"value": 0})["value"] for x in json.loads(run.stdout)["tensors"]}


def test_the_kernel_without_rounding_is_right(tmp_path):
    t = tensors("f64")
    exact = run_arrays(tmp_path, t, **OPTIONS, outputs=WANTED)
    for name, found in gradients(t, "f32").items():
        assert np.abs(found - exact[name]).max() <= 1e-5 * np.abs(exact[name]).max(), name


@pytest.mark.parametrize("precision", PRECISIONS)
def test_right_kernels_are_within_the_bound(tmp_path, precision):
    t = tensors(precision, seed=1)
    found = fractions(tmp_path, t, gradients(t, precision), precision)
    assert set(found) == set(WANTED) and max(found.values()) <= 1, found


def documented():
    text = (ROOT / "docs" / "error-bounds.md").read_text().split("| backward kernel |")[1]
    return {name: cells.split(" | ") for name, cells in re.findall(r"^\| ([^|:]*) \| ([0-9.| over]+) \|$", text, re.MULTILINE)}


@pytest.mark.parametrize("fault", ["", WITHOUT_ROTARY, *FAULTS])
def test_faults_exceed_the_bound_as_documented(tmp_path, fault):
    for precision, figure in zip(PRECISIONS, documented()[fault or "right"]):
        t = tensors(precision)
        options = {key: x for key, x in OPTIONS.items() if key != "rotary" or fault != WITHOUT_ROTARY}
        found = max(fractions(tmp_path, t, gradients(t, precision, fault), precision, options).values())
        assert (found > 1) == (fault in FAULTS)
        # The rounding errors of a right kernel depend on the order in which NumPy's BLAS adds.
        tolerance = 0.06 if fault in FAULTS else 0.5
        assert found > 1000 if figure == "over 1000" else found == pytest.approx(float(figure), rel=tolerance)


def test_layers(tmp_path):
    """Projections in float32 by attn itself."""
    rng = np.random.default_rng(5)
    t = {name: rng.standard_normal(shape).astype(F) for name, shape in
         {"embeddings": (2, 9, 6), "W_Q": (6, 8), "b_Q": (8,), "W_K": (6, 4), "W_V": (6, 4), "W_gate": (6, 8), "W_O": (8, 5),
          "b_O": (5,), "grad_output": (2, 9, 5)}.items()}
    options = {"heads": 4, "kv_heads": 2, "causal": True, "rotary": {"kind": "interleaved"}}
    wanted = [f"grad_{name}" for name in t if name != "grad_output"]
    found = run_arrays(tmp_path, t, **options, outputs=wanted)
    assert max(fractions(tmp_path, t, found, "f32", options).values()) <= 1
    for name in wanted:
        wrong = {name: found[name] * F(1.002)}
        assert fractions(tmp_path, t, wrong, "f32", options)[name] > 1


@pytest.mark.parametrize("options, reason", [
    ({"score": "l2"}, "for gradients of score functions other than dot"),
    ({"normaliser": "sigmoid"}, "for gradients of normalisers other than softmax"),
    ({"softmax": {"axis": "all"}}, "with softmax.axis all"),
    ({"softmax": {"precision": "f32"}}, "with softmax.precision")])
def test_gradients_without_bound_are_refused_by_the_name_of_the_option(tmp_path, options, reason):
    t = {name: np.ones((1, 1, 2, 4)) for name in ("Q", "K", "V", "grad_context")}
    found = run_arrays(tmp_path, t, **options, outputs=["grad_Q"])
    np.savez(tmp_path / "kernel.npz", **found)
    run = attn("compare", "kernel.npz", "--reference", "job.json", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.decode().strip() == f"attn: --reference: no error bound is known {reason}; set --rtol, --atol or --ulp"


def verdict(folder, t, found, *flags, **options):
    """The exit code, the largest fractions of the bounds by name, and the messages."""
    np.savez(folder / "in.npz", **t)
    np.savez(folder / "kernel.npz", **found)
    (folder / "job.json").write_text(json.dumps({**options, **{name: f"in.npz#{name}" for name in t}}))
    run = attn("compare", "kernel.npz", "--reference", "job.json", "--json", *flags, cwd=folder)
    assert run.returncode in (0, 1), run.stderr.decode()
    worst = {x["name"]: x["bound"]["worst"]["value"] for x in json.loads(run.stdout)["tensors"]}
    assert all(isinstance(x, (int, float)) and np.isfinite(x) for x in worst.values())
    return run.returncode, worst, run.stderr.decode()


class TestDerivativesOfZero:
    """What is exactly 0 has a finite bound that accepts nothing else."""

    T = {name: x.astype(F) for name, x in zip(("Q", "K", "V", "grad_context"), np.random.default_rng(8).standard_normal((4, 9, 6)))}

    @pytest.mark.parametrize("norm", ["none", "l2"])
    def test_of_hidden_keys_of_zeros(self, tmp_path, norm):
        """The bound must not be divided by the norm, which is 1e-12."""
        t = {**{name: rounded(x, "f16") for name, x in self.T.items()}, "key_lengths": np.array(5)}
        t["K"][5:] = 0
        options = {"qk_norm": norm, "rotary": {"kind": "half"}}
        found = {name: x.astype("f2") for name, x in run_arrays(tmp_path, t, **options, outputs=["grad_K", "grad_V"]).items()}
        assert (found["grad_K"][5:] == 0).all()
        assert verdict(tmp_path, t, found, "--precision", "f16", **options)[0] == 0
        for name in found:
            leak = {name: found[name].copy()}
            leak[name][7, 1] = 1e-6
            code, worst, _ = verdict(tmp_path, t, leak, "--precision", "f16", **options)
            assert code == 1 and worst[name] > 1

    def test_of_a_whole_output(self, tmp_path):
        t = {name: x for name, x in self.T.items() if name != "grad_context"} | {"grad_logsumexp": np.ones(9, F)}
        assert verdict(tmp_path, t, {"grad_V": np.zeros((9, 6), F)})[:2] == (0, {"grad_V": 0})
        assert verdict(tmp_path, t, {"grad_V": np.full((9, 6), 1e-9, F)})[0] == 1
        seed = self.T["grad_context"]
        layer = {"embeddings": self.T["Q"], **{f"W_{x}": self.T["K"][:6] for x in "QKVO"}, "grad_context": seed}
        assert verdict(tmp_path, layer, {"grad_W_O": np.zeros((6, 6), F)})[:2] == (0, {"grad_W_O": 0})
        assert verdict(tmp_path, layer, {"grad_W_O": np.full((6, 6), 1e-9, F)})[0] == 1

    @pytest.mark.parametrize("least", [-1e4, -1e9, float(np.finfo(F).min)])
    def test_of_masks_with_the_smallest_number(self, tmp_path, least):
        """Errors of scores of -1e38 are large, but weights are between 0 and 1."""
        names = ["grad_Q", "grad_K", "grad_V", "grad_mask", "context", "delta"]
        for hidden in np.tri(9, dtype=bool) == 0, np.arange(81).reshape(9, 9) // 9 == 4:  # one query sees nothing else
            t = {**self.T, "mask": np.where(hidden, F(least), F(0))}
            found = run_arrays(tmp_path, t, outputs=names)
            assert verdict(tmp_path, t, found)[0] == 0
        t = {**self.T, "mask": np.where(np.tri(9, dtype=bool), F(0), F(least))}
        found = run_arrays(tmp_path, t, outputs=names)
        for name, at in ("grad_mask", (0, 5)), ("grad_K", (8, 0)), ("context", (0, 0)):
            wrong = {name: found[name].copy()}
            wrong[name][at] += F(1e-4)
            assert verdict(tmp_path, t, wrong)[0] == 1


def test_a_bound_that_accepts_zeros_is_stated(tmp_path):
    """In a layer of wide matrices, errors that are all added may exceed the derivatives themselves."""
    rng = np.random.default_rng(5)
    t = {name: rng.standard_normal(shape).astype(F) for name, shape in
         {"embeddings": (64, 96), "W_Q": (96, 64), "W_K": (96, 64), "W_V": (96, 64), "grad_context": (64, 64)}.items()}
    zeros = {"grad_W_Q": np.zeros((96, 64), F)}
    code, _, message = verdict(tmp_path, t, zeros, "--precision", "bf16")
    assert code == 0 and "warning: grad_W_Q: zeros would pass, too, because the error bound of bf16" in message
    small = {name: x * F(0.02 if name.startswith("W") else 1) for name, x in t.items()}
    code, _, message = verdict(tmp_path, small, run_arrays(tmp_path, small, outputs=["grad_W_V"]), "--precision", "f32")
    assert code == 0 and "zeros" not in message


def stored(tensors, dtypes):
    """The bytes of a safetensors file: F32 as it is, F16 rounded, BF16 from numbers that it can hold."""
    entries, data = {}, b""
    for name, x in tensors.items():
        dtype = dtypes(name)
        x = np.asarray(x, F)
        raw = (x if dtype == "F32" else x.astype("f2") if dtype == "F16" else (x.view("u4") >> np.uint32(16)).astype("u2")).tobytes()
        entries[name] = entry(len(data), len(data) + len(raw), dtype, list(x.shape))
        data += raw
    return build(entries, data)


class TestFloat32BesideSixteenBits:
    """A kernel of 16 bits stores delta, the gradient of the sinks and logsumexp in float32, but computes them in 16 bits."""

    KEPT = ["delta", "grad_sinks", "logsumexp"]

    def compared(self, folder, precision, found, inputs, *flags, results=None):
        """The bounds by tensor, of a kernel whose `found` are in the dtype of `precision` but for KEPT."""
        narrow = precision.upper()
        t = {**tensors(precision, seed=2)}
        of_kernel = found(t)
        (folder / "in.safetensors").write_bytes(stored({n: x for n, x in t.items() if n != "dropout_mask"}, lambda name: inputs or narrow))
        np.save(folder / "mask.npy", t["dropout_mask"])
        job = {**OPTIONS, **{name: f"in.safetensors#{name}" for name in t}, "dropout_mask": "mask.npy"}
        (folder / "job.json").write_text(json.dumps(job))
        (folder / "kernel.safetensors").write_bytes(
            stored({n: of_kernel[n] for n in results or of_kernel}, lambda name: "F32" if name in self.KEPT else narrow))
        return attn("compare", "kernel.safetensors", "--reference", "job.json", *flags, cwd=folder)

    @staticmethod
    def bounds(run):
        return {x["name"]: x["bound"] for x in json.loads(run.stdout)["tensors"]}

    @pytest.mark.parametrize("precision", ["f16", "bf16"])
    @pytest.mark.parametrize("inputs, results", [(None, None), ("F32", None), (None, ["delta", "grad_sinks"])],
                             ids=["all", "float32 inputs", "float32 results"])
    def test_right_kernel(self, tmp_path, precision, inputs, results):
        run = self.compared(tmp_path, precision, lambda t: gradients(t, precision), inputs, "--json", results=results)
        assert run.returncode == 0, run.stdout.decode()
        assert {bound["of"] for bound in self.bounds(run).values()} == {precision}

    def test_fault_in_float32_tensors(self, tmp_path):
        run = self.compared(tmp_path, "bf16", lambda t: {name: x * 5 for name, x in gradients(t, "bf16").items()}, None,
                            results=["delta", "grad_Q"])
        assert run.returncode == 1
        assert re.search("^delta .* float32 and float64: .* exceed the error bound of bf16$", run.stdout.decode(), re.MULTILINE)

    def test_typed_precision(self, tmp_path):
        run = self.compared(tmp_path, "bf16", lambda t: gradients(t, "bf16"), None, "--precision", "f32", "--json")
        assert run.returncode == 1 and {bound["of"] for bound in self.bounds(run).values()} == {"f32"}

    def test_float32_alone(self, tmp_path):
        run = self.compared(tmp_path, "bf16", lambda t: gradients(t, "bf16"), "F32", "--json", results=["delta"])
        assert run.returncode == 1 and self.bounds(run)["delta"]["of"] == "f32"

    def test_logsumexp_is_not_rounded(self, tmp_path):
        """Its sums and its storage are those of float32, so that its bound is far below a step of bfloat16."""
        t = {name: x for name, x in tensors("bf16", seed=2).items() if name in ("Q", "K", "V")}
        (tmp_path / "in.safetensors").write_bytes(stored(t, lambda name: "BF16"))
        scores = SCALE * t["Q"] @ heads(t["K"]).swapaxes(2, 3)
        lse = np.log(np.exp(scores).sum(-1))
        flags = ["--reference", "in.safetensors", "--scale", SCALE, "--json"]
        for factor, code in (1, 0), (1 + 1e-4, 1):
            (tmp_path / "lse.safetensors").write_bytes(stored({"logsumexp": lse * factor}, lambda name: "F32"))
            run = attn("compare", "lse.safetensors", *flags, cwd=tmp_path)
            assert run.returncode == code and self.bounds(run)["logsumexp"]["of"] == "bf16"

    def test_preset_by_dtype(self, tmp_path):
        """flashinfer tolerates 1e-2 in bfloat16, and 1e-5 in float32."""
        def found(t):
            return {name: x for name, x in gradients(t, "bf16").items() if name in ("delta", "grad_Q")}
        run = self.compared(tmp_path, "bf16", found, None, "--preset", "flashinfer", "--json")
        gates = {x["name"]: x["gates"] for x in json.loads(run.stdout)["tensors"]}
        assert ["rtol=1e-2" in gate["gate"] for gate in gates["delta"]] == [True]


SMALL = {"Q": [[[1.0, 2], [3, 1]]], "K": [[[1.0, 0], [0, 1]]], "V": [[[1.0, 2], [3, 4]]], "grad_context": [[[1.0, 0], [0, 1]]]}


def compared(folder, job, result):
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "result.json").write_text(json.dumps(result))
    return attn("compare", "result.json", "job.json", "--reference", cwd=folder)


def test_mistakes_are_sought_in_the_gradient_of_a_bias_of_all_queries(tmp_path):
    """Some kernels tried have the mask in the bias, which then differs between queries."""
    job = {**SMALL, "softcap": 2.0, "bias": [[0.5, 0.1]], "causal": True}
    run = compared(tmp_path, job, {"grad_bias": [[9.0, 1.0]]})
    assert (run.returncode, run.stderr) == (1, b"")


def test_mistakes_are_sought_in_gradients_of_selected_rows(tmp_path):
    job = {"Q": [[1.0, 2], [3, 1], [0, 1]], "K": [[1.0, 0], [0, 1], [1, 1]], "V": [[1.0, 2], [3, 4], [5, 6]], "rows": [1],
           "grad_context": [[1.0, 0]], "outputs": ["grad_K"]}
    run = compared(tmp_path, job, {"grad_K": [[9.0, 1], [1, 1], [1, 1]]})
    assert (run.returncode, run.stderr) == (1, b"")


def test_sinks_left_out_of_logsumexp_do_not_matter_without_its_gradient(tmp_path):
    job = {**SMALL, "Q": [SMALL["Q"]], "K": [SMALL["K"]], "V": [SMALL["V"]], "grad_context": [SMALL["grad_context"]],
           "sinks": [0.5], "outputs": ["grad_V"]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert attn("run", "job.json", "-o", "out.npz", cwd=tmp_path).returncode == 0
    (tmp_path / "job.json").write_text(json.dumps({**job, "lse_sinks": "excluded"}))
    assert attn("compare", "out.npz", "job.json", "--reference", cwd=tmp_path).returncode == 0
