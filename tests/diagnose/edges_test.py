"""compare --reference and sensitivity with problems at the edge: some rows, no keys, no queries, other outputs."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, attn_and_peak, under_asan
from support.jobs import run_arrays

R = np.random.default_rng(4)


def numbers(*shape, dtype=np.float64):
    return R.standard_normal(shape).astype(dtype)


def write(folder, tensors, **options):
    np.savez(folder / "in.npz", **tensors)
    (folder / "job.json").write_text(json.dumps(options | {name: f"in.npz#{name}" for name in tensors}))


def compared(folder, *flags, **found):
    np.savez(folder / "found.npz", **found)
    return attn("compare", "found.npz", "--reference", "job.json", *flags, cwd=folder)


def first_lines(run):
    assert run.returncode == 1, run.stderr
    return run.stdout.decode().splitlines()[:2]


def softmax(x):
    w = np.exp(x - x.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True)


class TestRows:
    """The rows of a result are those that the job computes, in its order."""

    H, L, D = 2, 64, 8

    def kernel(self, t, rows, scale, window=None):
        i, j = np.arange(self.L)[:, None], np.arange(self.L)
        hidden = (j > i) | ((j < i - window) if window else False)
        return (softmax(np.where(hidden, -np.inf, t["Q"] @ t["K"].swapaxes(1, 2) * scale)) @ t["V"])[:, rows]

    @pytest.mark.parametrize("rows", [list(range(40, 64)), [50, 3, 63, 20, 41, 12, 30, 13]], ids=["last", "some"])
    @pytest.mark.parametrize("mistake, cause", [
        ({"scale": 1}, "  agrees with --scale none (the job has 1/sqrt(8))"),
        ({"scale": 8 ** -.5, "window": 10}, "  agrees with --window 10,")])
    def test_mistake_is_named(self, tmp_path, rows, mistake, cause):
        t = {name: numbers(self.H, self.L, self.D) for name in "QKV"}
        write(tmp_path, {name: x[None] for name, x in t.items()}, causal=True, rows=rows)
        run = compared(tmp_path, "--diagnose", head_context=self.kernel(t, rows, **mistake)[None])
        assert first_lines(run)[1].startswith(cause)

    def test_mistake_in_another_arrangement_is_named(self, tmp_path):
        t = {name: numbers(self.H, self.L, self.D) for name in "QKV"}
        rows = list(range(40, 64))
        write(tmp_path, {name: x[None] for name, x in t.items()}, causal=True, rows=rows)
        run = compared(tmp_path, "--diagnose", head_context=self.kernel(t, rows, 1)[None, ::-1])
        assert first_lines(run)[1].startswith("  agrees with --scale none (the job has 1/sqrt(8)) and the results of heads")

    def test_recovered_weights_are_those_of_the_row(self, tmp_path):
        t = {"Q": numbers(8, 16), "K": numbers(8, 16), "V": numbers(8, 16)}
        write(tmp_path, t, rows=[5, 3])
        w = softmax(t["Q"] @ t["K"].T / 4)[[5, 3]]
        w[1, [2, 6]] = 0
        run = compared(tmp_path, "--diagnose", context=np.float32(w @ t["V"]))
        assert "row 1 of head 0: its weights" in run.stdout.decode() and "they miss keys 2, 6" in run.stdout.decode()

    @pytest.mark.parametrize("rows", [[0, 1], [5, 0]])
    def test_sensitivity(self, tmp_path, rows):
        write(tmp_path, {"Q": numbers(6, 4), "K": numbers(7, 4), "V": numbers(7, 4)}, rows=rows)
        report = json.loads(attn("sensitivity", "job.json", "--json", cwd=tmp_path).stdout)
        assert {"scale.none", "softmax.over_queries"} <= {x["id"] for x in report["mistakes"]}

    @pytest.mark.parametrize("rows", [[5, 4, 3, 2, 1, 0], [0, 0, 1, 2, 3, 4]])
    def test_gradient_of_a_bias_is_that_of_its_own_rows(self, tmp_path, rows):
        t = {"Q": numbers(6, 4), "K": numbers(6, 4), "V": numbers(6, 4), "bias": numbers(6, 6), "grad_context": numbers(6, 4)}
        found = run_arrays(tmp_path, t, rows=rows, outputs=["grad_bias"])["grad_bias"]
        P = softmax(t["Q"] @ t["K"].T / 2 + t["bias"])[rows]
        dP = t["grad_context"] @ t["V"].T
        dx = P * (dP - (P * dP).sum(1, keepdims=True))
        expected = np.zeros((6, 6))
        np.add.at(expected, rows, dx)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("output", ["mean_weights", "key_weights", "entropy", "weight_sum", "row_max", "logsumexp", "distance",
                                    "scaled_scores", "masked_scores", "weights"])
@pytest.mark.parametrize("options", [{}, {"causal": True, "normaliser": "sparsemax"}])
def test_any_output_may_be_wrong(tmp_path, output, options):
    t = {"Q": numbers(1, 2, 3, 4), "K": numbers(1, 2, 5, 4), "V": numbers(1, 2, 5, 4)}
    right = run_arrays(tmp_path, t, **options, outputs=[output])[output]
    write(tmp_path, t, **options)
    run = compared(tmp_path, "--rtol", "1e-3", **{output: numbers(*right.shape, dtype=np.float32)})
    assert run.returncode == 1 and b"known mistake" in run.stdout, run


@pytest.mark.parametrize("normaliser", ["sparsemax", "entmax15", "hardmax", "sigmoid", "none"])
@pytest.mark.parametrize("keys", [0, 5])
def test_queries_without_keys_and_another_normaliser(tmp_path, normaliser, keys):
    mask = np.ones((3, keys), bool)
    mask[0] = False
    write(tmp_path, {"Q": numbers(3, 4), "K": numbers(keys, 4), "V": numbers(keys, 4), "mask": mask}, normaliser=normaliser)
    assert compared(tmp_path, "--rtol", "1e-3", context=numbers(3, 4, dtype=np.float32)).returncode == 1
    assert attn("sensitivity", "job.json", "--rtol", "1e-3", cwd=tmp_path).returncode == 0


def test_bias_without_keys(tmp_path):
    write(tmp_path, {"Q": numbers(1, 2, 3, 4), "K": numbers(1, 2, 0, 4), "V": numbers(1, 2, 0, 4), "bias": numbers(1, 2, 1, 0)})
    assert compared(tmp_path, context=numbers(1, 2, 3, 4, dtype=np.float32)).returncode == 1


@pytest.mark.parametrize("shape", [(0, 4), (0, 2, 3, 4), (1, 2, 0, 4)])
def test_nothing_to_see(tmp_path, shape):
    write(tmp_path, {"Q": numbers(*shape), "K": numbers(*shape), "V": numbers(*shape)})
    assert_error(attn("sensitivity", "job.json", cwd=tmp_path), 65,
                 "context has no elements, in which a test could see mistakes\n")


def test_scales_are_finite(tmp_path):
    write(tmp_path, {"Q": numbers(3, 0), "K": numbers(3, 0), "V": numbers(3, 4)}, scale=1.0)
    run = attn("sensitivity", "job.json", cwd=tmp_path)
    assert run.returncode == 0 and b"inf" not in run.stdout


class TestGradients:
    def test_sinks_of_padded_queries_have_no_part(self, tmp_path):
        t = {name: numbers(2, 2, 5, 4) for name in ("Q", "K", "V", "grad_context")}
        t |= {"sinks": numbers(2), "query_lengths": np.array([5, 3])}
        wrong = run_arrays(tmp_path, t, causal=True, scale=1.0, outputs=["grad_sinks"])["grad_sinks"]
        write(tmp_path, t, causal=True)
        assert first_lines(compared(tmp_path, "--diagnose", grad_sinks=np.float32(wrong)))[1] == \
            "  agrees with --scale none (the job has 1/sqrt(4))"

    def test_gradient_that_should_be_0(self, tmp_path):
        t = {name: numbers(1, 2, rows, 4) for name, rows in {"Q": 4, "K": 1, "V": 1, "grad_context": 4}.items()}
        write(tmp_path, t)
        wrong = compared(tmp_path, "--diagnose", grad_Q=numbers(1, 2, 4, 4, dtype=np.float32))
        assert first_lines(wrong)[1].startswith("  no known mistake explains it")

    def test_infinite_score_makes_the_weights_of_the_query_nan(self, tmp_path):
        t = {name: numbers(7, 4) for name in ("Q", "K", "V", "grad_context")}
        t["Q"] = abs(t["Q"])
        t["K"][3, 1] = np.inf
        found = run_arrays(tmp_path, t, causal=True, outputs=["grad_V"])["grad_V"]
        slow = run_arrays(tmp_path, t, causal=True, path="reference", outputs=["grad_V"])["grad_V"]
        assert np.isnan(found).all() and np.isnan(slow).all()  # queries 3 to 6 see all earlier keys

    def test_weights_of_queries_without_keys_leave_the_bound(self, tmp_path):
        def half(x):
            return np.asarray(x, np.float16).astype(float)

        Q, V, dO = (half(numbers(*shape)) for shape in ((2, 64), (3, 64), (2, 64)))
        weights = half([[0, 0, 0], [1 / 3] * 3])
        for empty_rows in "zero", "nan":
            write(tmp_path, {"Q": np.float16(Q), "K": np.zeros((3, 64), np.float16), "V": np.float16(V),
                             "grad_context": np.float16(dO), "mask": np.array([[False] * 3, [True] * 3])},
                  empty_rows=empty_rows)
            assert compared(tmp_path, grad_V=np.float16(weights.T @ dO)).returncode == 0, empty_rows


def test_rounded_head_scale_is_within_the_bound(tmp_path):
    """Scores are exact in float16 except for the factor of each head."""
    H = 2
    t = {name: R.integers(-4, 5, (1, H, n, 4)).astype(np.float32) for name, n in {"Q": 4, "K": 6, "V": 6}.items()}
    scale = np.array([1.0004, .5003], np.float32)
    write(tmp_path, t | {"head_scale": scale}, scale=1.0)
    scores = t["Q"] @ t["K"].swapaxes(2, 3) * scale.astype(np.float16).astype(float)[:, None, None]
    weights = softmax(scores)
    assert compared(tmp_path, scaled_scores=np.float16(scores), weights=np.float16(weights),
                    head_context=np.float16(weights @ t["V"])).returncode == 0


class TestLengths:
    """Kernels that use other key lengths than those of their batch item."""

    B, L, S, D = 3, 5, 16, 8
    LENGTHS = np.array([9, 16, 5])

    @pytest.mark.parametrize("seen, cause", [
        (lambda j, n: j < n + 1, "one key more than --key-lengths"),
        (lambda j, n: j < n - 1, "one key less than --key-lengths"),
        (lambda j, n: j < n[:1], "the key length of batch item 0 for all"),
        (lambda j, n: j < np.roll(n, -1, 0), "the key length of the next batch item"),
        (lambda j, n: j >= 16 - n, "the first keys hidden instead of the last (padding on the left)")])
    def test_mistake_is_named(self, tmp_path, seen, cause):
        t = {"Q": numbers(self.B, 1, self.L, self.D)} | {name: numbers(self.B, 1, self.S, self.D) for name in "KV"}
        write(tmp_path, t | {"key_lengths": self.LENGTHS})
        visible = seen(np.arange(self.S), self.LENGTHS[:, None, None, None])
        scores = np.where(visible, t["Q"] @ t["K"].swapaxes(2, 3) / self.D ** .5, -np.inf)
        lines = compared(tmp_path, "--diagnose", head_context=np.float32(softmax(scores) @ t["V"])).stdout.decode()
        assert f" agrees with {cause}\n" in lines


class TestBlankResults:
    @pytest.mark.parametrize("value, line", [(0, "all wrong elements are 0"), (np.nan, "all wrong elements are NaN")])
    @pytest.mark.parametrize("rows", [slice(None), slice(9, 12)])
    def test_elements_that_nobody_wrote(self, tmp_path, value, line, rows):
        t = {name: numbers(16, 8) for name in "QKV"}
        write(tmp_path, t, causal=True)
        i = np.arange(16)
        context = np.float32(softmax(np.where(i > i[:, None], -np.inf, t["Q"] @ t["K"].T / 8 ** .5)) @ t["V"])
        context[rows] = value
        report = json.loads(compared(tmp_path, "--diagnose", "--json", context=context).stdout)["tensors"][0]
        assert report["diagnosis"] == [] and report["arithmetic"] is None and report["pattern"][-1] == line

    def test_gradient_that_is_0(self, tmp_path):
        t = {name: numbers(16, 8) for name in ("Q", "K", "V", "grad_context")}
        write(tmp_path, t, causal=True)
        report = json.loads(compared(tmp_path, "--diagnose", "--json", grad_Q=np.zeros((16, 8))).stdout)["tensors"][0]
        assert report["diagnosis"] == [] and "all wrong elements are 0" in report["pattern"]


def test_numbers_where_the_job_has_nan(tmp_path):
    """A kernel without the mask, which hides all keys from one query and none from the others."""
    q, k, v, mask = *(numbers(1, 2, 12, 16) for _ in range(3)), np.ones((12, 12), bool)
    mask[3] = False
    write(tmp_path, {"Q": q, "K": k, "V": v, "mask": mask}, empty_rows="nan")
    run = compared(tmp_path, "--diagnose", context=softmax(q @ k.swapaxes(2, 3) / 4) @ v)
    assert "agrees with the job without --mask" in run.stdout.decode()


@pytest.mark.parametrize("causal", [True, False])
def test_own_key_only(tmp_path, causal):
    """Every hypothesis with a number that fits leaves no error at all."""
    t = {name: numbers(4, 2) for name in "QKV"}
    write(tmp_path, t, causal=causal)
    assert first_lines(compared(tmp_path, "--diagnose", context=t["V"]))[1].startswith("  agrees with --window 0,0")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_mean_of_parts_is_no_arithmetic(tmp_path, dtype):
    """Parts of the keys merged without their logsumexps, and large noise."""
    t = {name: numbers(1, 2, 4 if name == "Q" else 64, 16).astype(dtype) for name in "QKV"}
    write(tmp_path, t)
    q, k, v = (t[name].astype(float) for name in "QKV")
    parts = [softmax(q @ k[:, :, n:n + 32].swapaxes(2, 3) / 4) @ v[:, :, n:n + 32] for n in (0, 32)]
    right = softmax(q @ k.swapaxes(2, 3) / 4) @ v
    for wrong in (parts[0] + parts[1]) / 2, right * (1 + .05 * numbers(*right.shape)):
        report = json.loads(compared(tmp_path, "--diagnose", "--json", context=wrong.astype(dtype)).stdout)["tensors"][0]
        assert report["arithmetic"] is None


@pytest.mark.parametrize("first, query_scale", [
    (0, {}), (10_000_000, {}), (0, {"query_scale": {"factor": 0.1, "length": 4, "first": 0}})], ids=["first", "far", "query_scale"])
def test_negative_angles_at_any_position(tmp_path, first, query_scale):
    """Tables of cosines and sines for all positions up to these would take 640 MB."""
    t = {"Q": numbers(1, 2, 2, 8), "K": numbers(1, 2, 9, 8), "V": numbers(1, 2, 9, 8)}
    positions = {"position_ids": first + np.array([8, 3]), "key_position_ids": first + np.arange(9)[::-1]}

    def rotated(x, at):
        angles = -at[:, None] * 1e4 ** (-np.arange(4) / 4)
        a, b = x[..., :4], x[..., 4:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], -1)

    q, k = rotated(t["Q"], positions["position_ids"]), rotated(t["K"], positions["key_position_ids"])
    if query_scale:
        q *= 1 + 0.1 * np.log1p(np.floor(positions["position_ids"] / 4))[:, None]
    write(tmp_path, t | positions, rotary={"kind": "half"}, **query_scale)
    np.savez(tmp_path / "found.npz", head_context=softmax(q @ k.swapaxes(-1, -2) / 8 ** .5) @ t["V"])
    run, peak = attn_and_peak("compare", "found.npz", "--reference", "job.json", "--diagnose", cwd=tmp_path)
    assert first_lines(run)[1] == "  agrees with rotated by negative angles, or cosines and sines swapped"
    assert peak < 100e6 or under_asan()


class TestJoinedHeads:
    """A layer whose contexts are joined without being transposed."""

    @pytest.mark.parametrize("how, L, cause", [
        ("viewed", 20, "the contexts (B, H, L, Dv) read as (B, L, H, Dv) before W_O"),
        ("viewed as heads", 20, "the contexts (B, L, H, Dv) read as (B, H, L, Dv) before W_O"),
        ("viewed", 4, "the contexts (B, H, L, Dv) read as (B, L, H, Dv) before W_O"),
        ("inputs and back", 20, "Q, K and V of shape (B, L, H, D) read as (B, H, L, D), and contexts back")])
    @pytest.mark.parametrize("bias", [False, True])
    def test_mistake_is_named(self, tmp_path, how, L, cause, bias):
        B, H, D = 2, 4, 8
        t = {"Q": numbers(B, L, H * D), "K": numbers(B, L, H * D), "V": numbers(B, L, H * D), "W_O": numbers(H * D, 24)}
        if bias:
            t["b_O"] = numbers(24)
        write(tmp_path, t, heads=H)
        q, k, v = (t[name].reshape(B, H, L, D) if "inputs" in how else t[name].reshape(B, L, H, D).swapaxes(1, 2) for name in "QKV")
        context = softmax(q @ k.swapaxes(2, 3) / D ** .5) @ v
        if how == "viewed as heads":  # (B, L, H, Dv) in memory
            context = context.swapaxes(1, 2).reshape(B, H, L, D).swapaxes(1, 2)
        output = context.reshape(B, L, H * D) @ t["W_O"] + t.get("b_O", 0)
        run = compared(tmp_path, "--diagnose", output=output.astype("f4"))
        assert first_lines(run)[1] == f"  agrees with {cause}"


def test_two_swapped_heads_of_many_are_named(tmp_path):
    t = {name: numbers(1, 20, 12, 8) for name in "QKV"}
    write(tmp_path, t)
    context = softmax(t["Q"] @ t["K"].swapaxes(2, 3) / 8 ** .5) @ t["V"]
    context[:, [3, 5]] = context[:, [5, 3]]
    run = compared(tmp_path, "--diagnose", context=context)
    assert first_lines(run)[1] == "  agrees with the results of heads 5 in place of 3, 3 in place of 5"


def test_rows_of_one_number_have_no_factors(tmp_path):
    t = {name: numbers(1, 2, 12, 8) for name in "QKV"}
    write(tmp_path, t)
    s = t["Q"] @ t["K"].swapaxes(2, 3) / 8 ** .5
    run = compared(tmp_path, "--diagnose", logsumexp=np.log(np.exp(s).sum(-1)) + 1)
    assert "no known mistake" in first_lines(run)[1] and b"factors" not in run.stdout
