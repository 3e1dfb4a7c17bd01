"""attn.testing: correct kernels pass, wrong ones fail with the report of `attn compare --reference`."""

import sys
import types

import numpy as np
import pytest

from support.attn import attn as program
from support.dlpack import bfloat16

RNG = np.random.default_rng(7)


def rounded(x):
    """x rounded to bfloat16, to nearest even, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


Q, K, V = (rounded(RNG.standard_normal((2, 16, 8))) for _ in range(3))


def kernel(q, k, v, scale):
    """Attention of (H, L, D) in float32, causal."""
    scores = (q @ k.transpose(0, 2, 1)) * np.float32(scale)
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.fixture(scope="module")
def assert_attention(attn_module):
    import attn.testing
    return attn.testing.assert_attention


def test_correct_float32_kernel(assert_attention):
    report = assert_attention(kernel(Q, K, V, 8 ** -0.5), Q, K, V, causal=True)
    assert report["same"] is True
    assert report["tensors"][0]["bound"]["of"] == "f32"
    assert report["tensors"][0]["bound"]["worst"]["value"] < 1


def test_correct_bfloat16_kernel(assert_attention):
    out = bfloat16(rounded(kernel(Q, K, V, 8 ** -0.5)))
    report = assert_attention(out, bfloat16(Q), bfloat16(K), bfloat16(V), causal=True)
    assert report["tensors"][0]["bound"]["of"] == "bf16"


def test_pages(assert_attention):
    """Keys and values in pages of 4, without k and v."""
    pages = {"K_pages": K[0].reshape(4, 4, 1, 8), "V_pages": V[0].reshape(4, 4, 1, 8), "layout": "blhd",
             "block_table": np.array([[2, 0, 3], [1, 3, 0]]), "key_lengths": np.array([10, 7])}
    q = Q[:, :1, None]
    order = [[8, 9, 10, 11, 0, 1, 2, 3, 12, 13], [4, 5, 6, 7, 12, 13, 14]]
    weights = [np.exp(K[0][keys] @ q[b, 0, 0] * np.float32(8 ** -0.5)) for b, keys in enumerate(order)]
    out = np.stack([w @ V[0][keys] / w.sum() for w, keys in zip(weights, order)])[:, None, None]
    assert assert_attention(out, q, **pages)["same"] is True
    with pytest.raises(AssertionError, match="the results of batch items 1, 0"):
        assert_attention(out[::-1], q, **pages)


def test_missing_scale(assert_attention):
    with pytest.raises(AssertionError, match=r"agrees with --scale none \(the job has 1/sqrt\(8\)\)"):
        assert_attention(kernel(Q, K, V, 1), Q, K, V, causal=True)


def test_missing_scale_of_scores_is_named(assert_attention):
    with pytest.raises(AssertionError, match=r"agrees with --scale none \(the job has 1/sqrt\(8\)\)"):
        assert_attention({"scaled_scores": Q @ K.transpose(0, 2, 1)}, Q, K, V)


def test_mask_that_the_job_lacks(assert_attention):
    with pytest.raises(AssertionError, match=r"agrees with --causal \(the job has no causal mask\)"):
        assert_attention(kernel(Q, K, V, 8 ** -0.5), Q, K, V)


def test_swapped_axes_are_named(assert_attention):
    out = kernel(Q, K, V, 8 ** -0.5).transpose(1, 0, 2)
    with pytest.raises(AssertionError, match="A agrees with B if its axes 0 and 1 .* are swapped"):
        assert_attention(out, Q, K, V, causal=True)


def test_several_outputs(assert_attention):
    scores = np.where(np.tril(np.ones((16, 16), bool)), Q.astype(float) @ K.transpose(0, 2, 1) / 8 ** 0.5, -np.inf)
    lse = np.log(np.exp(scores).sum(-1)).astype(np.float32)
    report = assert_attention({"context": kernel(Q, K, V, 8 ** -0.5), "logsumexp": lse}, Q, K, V, causal=True)
    assert [tensor["name"] for tensor in report["tensors"]] == ["context", "logsumexp"]


def test_tolerances(assert_attention):
    out = kernel(Q, K, V, 8 ** -0.5) + np.float32(1e-3)
    assert_attention(out, Q, K, V, causal=True, atol=2e-3)
    with pytest.raises(AssertionError, match="rtol 0.0001"):
        assert_attention(out, Q, K, V, causal=True, rtol=1e-4)


def test_report_is_that_of_the_program(assert_attention, tmp_path):
    out = kernel(Q, K, V, 8 ** -0.5)
    out[1, 3, 4] += 1
    np.savez(tmp_path / "job.npz", Q=Q, K=K, V=V)
    np.save(tmp_path / "out.npy", out)
    expected = program("compare", "out.npy", "--reference", "job.npz", "--causal", cwd=tmp_path)
    assert expected.returncode == 1
    with pytest.raises(AssertionError) as raised:
        assert_attention(out, Q, K, V, causal=True)
    assert str(raised.value) == expected.stdout.decode()


class WithHistory:
    """What a torch.Tensor that requires gradients does."""
    requires_grad = True

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    def detach(self):
        return self.array


class Negated(WithHistory):
    """A tensor of PyTorch with the negative bit: its elements in memory have the other sign."""
    requires_grad = False

    def is_neg(self):
        return True

    def resolve_neg(self):
        return -self.array


def test_negative_bit(assert_attention):
    assert_attention(kernel(Q, -K, V, 8 ** -0.5), Q, Negated(K), V, causal=True)


def test_name_that_is_no_output(assert_attention, attn_module):
    with pytest.raises(attn_module.Error, match=r"^unknown output 'contxt' \(did you mean 'context'\?\)$"):
        assert_attention({"contxt": kernel(Q, K, V, 8 ** -0.5)}, Q, K, V, causal=True)


def test_warning_is_that_of_the_caller(assert_attention, attn_module):
    with pytest.warns(attn_module.AttnWarning, match="^tokens: expected as many as the 16 queries, found 1;") as caught:
        assert_attention(kernel(Q, K, V, 8 ** -0.5), Q, K, V, causal=True, tokens=["a"])
    assert caught[0].filename == __file__


def test_history_of_gradients_is_left_out(assert_attention):
    assert_attention(WithHistory(kernel(Q, K, V, 8 ** -0.5)), *map(WithHistory, (Q, K, V)), causal=True)


class Tracked(np.ndarray):
    """An array with the part of torch.Tensor that backward=True uses."""
    requires_grad = False

    def detach(self):
        return np.asarray(self)


def tracked(x):
    x = np.asarray(x).view(Tracked)
    x.requires_grad = True
    return x


class Kernel:
    """One head in float64 by hand, with its gradients in the place of autograd's."""

    def __init__(self, monkeypatch):
        self.q, self.k, self.v, self.g = (RNG.standard_normal((6, 4)) for _ in range(4))
        scores = self.q @ self.k.T / 2
        self.weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        self.context = self.weights @ self.v
        self.found = self.gradients(self.g)
        self.arguments = [tracked(x) for x in (self.context, self.q, self.k, self.v)]
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(autograd=types.SimpleNamespace(grad=self.grad)))

    def gradients(self, g):
        slopes = self.weights * (g @ self.v.T - (g * self.context).sum(1, keepdims=True)) / 2
        return {"grad_Q": slopes @ self.k, "grad_K": slopes.T @ self.q, "grad_V": self.weights.T @ g}

    def grad(self, outputs, leaves, seeds, allow_unused):
        assert len(leaves) == len(self.found) and len(outputs) == len(seeds) and allow_unused
        self.seeds = seeds
        return list(self.found.values())


@pytest.fixture
def one_head(monkeypatch):
    return Kernel(monkeypatch)


@pytest.mark.parametrize("in_dict", [False, True])
def test_backward(assert_attention, one_head, in_dict):
    out, *inputs = one_head.arguments
    report = assert_attention({"context": out} if in_dict else out, *inputs, grad_context=one_head.g, backward=True)
    assert [tensor["name"] for tensor in report["tensors"]] == ["context", *one_head.found]
    assert one_head.seeds == [one_head.g]


GATES = [{}, {"precision": "f32", "baseline": True}]


@pytest.mark.parametrize("gates", GATES)
def test_wrong_backward(assert_attention, one_head, gates):
    one_head.found["grad_K"] *= 2
    with pytest.raises(AssertionError, match="grad_K"):
        assert_attention(*one_head.arguments, grad_context=one_head.g, backward=True, **gates)


def test_baseline_of_the_backward_pass(assert_attention, one_head):
    assert_attention(*one_head.arguments, grad_context=one_head.g, backward=True, **GATES[1])


@pytest.mark.parametrize("in_dict", [False, True])
def test_backward_of_an_output(assert_attention, one_head, in_dict):
    """With W_O, out is the output, and grad_output the derivative of the loss."""
    W_O = RNG.standard_normal((4, 5))
    of_output = RNG.standard_normal((6, 5))
    one_head.found = one_head.gradients(of_output @ W_O.T) | {"grad_W_O": one_head.context.T @ of_output}
    out = tracked(one_head.context @ W_O)
    report = assert_attention({"output": out} if in_dict else out, *one_head.arguments[1:], W_O=tracked(W_O),
                              grad_output=of_output, backward=True)
    assert [tensor["name"] for tensor in report["tensors"]] == ["output", *one_head.found]


def test_backward_from_context_and_logsumexp(assert_attention, one_head):
    lse = np.log(np.exp(one_head.q @ one_head.k.T / 2).sum(1))
    of_lse = RNG.standard_normal(6)
    slopes = one_head.weights * of_lse[:, None] / 2
    one_head.found["grad_Q"] += slopes @ one_head.k
    one_head.found["grad_K"] += slopes.T @ one_head.q
    out, *inputs = one_head.arguments
    report = assert_attention({"context": out, "logsumexp": tracked(lse)}, *inputs, grad_context=one_head.g,
                              grad_logsumexp=of_lse, backward=True)
    assert len(report["tensors"]) == 5


@pytest.mark.parametrize("wrong", [False, True])
def test_backward_without_a_gradient(assert_attention, one_head, wrong):
    """The report has the others."""
    one_head.found["grad_V"] = None
    one_head.found["grad_K"] *= 2 if wrong else 1
    with pytest.raises(AssertionError) as raised:
        assert_attention(*one_head.arguments, grad_context=one_head.g, backward=True)
    lines = str(raised.value).splitlines()
    assert lines[0] == "grad_V: the kernel returns no gradient of v"
    assert lines[-1] == ("2" if wrong else "3") + " of 3 tensors pass"


@pytest.mark.parametrize("out, job, message", [
    (V, {"grad_context": V}, "out must be the context, a torch.Tensor that requires gradients"),
    (tracked(V), {}, "backward=True requires grad_context"),
    ({"output": tracked(V)}, {}, "backward=True requires grad_output"),
    (tracked(V), {"grad_output": V}, "grad_output requires output, but out is context"),
    (tracked(V), {"grad_context": V, "W_O": V}, "grad_context requires context, but out is output")])
def test_backward_without_what_it_needs(assert_attention, out, job, message):
    with pytest.raises(ValueError, match=message):
        assert_attention(out, Q, K, V, backward=True, **job)


@pytest.mark.parametrize("in_dict", [False, True])
def test_derivative_of_a_loss_without_gradients(assert_attention, in_dict):
    out = kernel(Q, K, V, 8 ** -0.5)
    with pytest.raises(ValueError, match="grad_context has no effect without backward=True or gradients in out"):
        assert_attention({"context": out} if in_dict else out, Q, K, V, causal=True, grad_context=V)


def test_gradients_in_a_dict(assert_attention, one_head):
    assert_attention(one_head.found, one_head.q, one_head.k, one_head.v, grad_context=one_head.g)


def test_wrong_job_is_an_error(assert_attention, attn_module):
    with pytest.raises(attn_module.Error, match="unknown key 'caussal'") as raised:
        assert_attention(V, Q, K, V, caussal=True)
    assert raised.value.exit_code == 65


def test_output_without_bound(assert_attention, attn_module):
    with pytest.raises(attn_module.Error, match="no error bound is known"):
        assert_attention(V, Q, K, V, normaliser="sparsemax")


def test_gates(assert_attention):
    out = kernel(Q, K, V, 8 ** -0.5)
    report = assert_attention(out, Q, K, V, causal=True, gate=["max_abs < 1e-5", "context: snr > 100"], preset="fla")
    assert [(gate["gate"], gate["preset"]) for gate in report["tensors"][0]["gates"]] == [
        ("max_abs < 1e-5", None), ("context: snr > 100", None), ("rms_ratio < 0.005 or max_abs <= 1e-6", "fla")]
    with pytest.raises(AssertionError, match=r"fails 1 gate\n  fails   rms < 0 \(rms "):
        assert_attention(out, Q, K, V, causal=True, gate="rms < 0")


def test_baseline(assert_attention):
    out = bfloat16(rounded(kernel(Q, K, V, 8 ** -0.5)))
    inputs = [bfloat16(x) for x in (Q, K, V)]
    for baseline, preset in ((True, None), (3, None), (None, ["fa2", "fa3"])):
        assert_attention(out, *inputs, causal=True, baseline=baseline, preset=preset)
    report = assert_attention(out, *inputs, causal=True, baseline=False)
    assert "gates" not in report["tensors"][0]
    with pytest.raises(AssertionError, match="baseline_max_abs"):
        assert_attention(out, *inputs, causal=True, baseline=0.0)


def test_gate_that_is_a_tensor_of_the_job(assert_attention):
    gate = RNG.standard_normal(Q.shape).astype(np.float32)
    out = kernel(Q, K, V, 8 ** -0.5) / (1 + np.exp(-gate))
    assert_attention(out, Q, K, V, causal=True, gate=gate)


@pytest.mark.parametrize("options, message", [
    ({"gate": "rmse < 1"}, r"--gate 'rmse < 1': unknown metric 'rmse' at character 1"),
    ({"preset": "fa9"}, "unknown preset 'fa9'"), ({"preset": 3}, "preset: expected a string or an array of strings"),
    ({"baseline": -1}, "baseline: expected true or a number of at least 0"),
    ({"gate": "rms < 1", "rtol": 1}, "which no gate names")])
def test_bad_gates(assert_attention, attn_module, options, message):
    with pytest.raises(attn_module.Error, match=message):
        assert_attention(Q, Q, K, V, **options)
