"""`attn compare --reference`: correct and wrong kernels, and the error bound.

The kernels are simulated here, operation by operation. The bound is computed again from the formulas
in docs/error-bounds.md.
"""

import functools
import json
import re

import numpy as np
import pytest
from scipy.special import softmax

from support.attn import ROOT, assert_error, assert_verdict, attn
from support.rounding import rounded

UNIT = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "tf32": 2.0 ** -11, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
SMALLEST = {"f64": 2.0 ** -1022, "f32": 2.0 ** -126, "tf32": 2.0 ** -126, "f16": 2.0 ** -24, "bf16": 2.0 ** -126}


def kernel(q, k, v, mask, store, sums="f32", scale=None, factors=None, weights=None, of_scores=None,
           of_context=None, exp=np.exp):
    """Online softmax in blocks of 32 keys. `store` is the precision of inputs and outputs, `sums` of sums,
    `factors` of the inputs of products; each operation is rounded accordingly."""
    factors = factors or store
    weights, of_scores, of_context = weights or factors, of_scores or sums, of_context or sums
    q, k, v = (rounded(x, factors) for x in (q, k, v))
    scale = scale or 1 / np.sqrt(q.shape[1])
    s = np.zeros((len(q), len(k)))
    for d in range(q.shape[1]):
        s = rounded(s + q[:, d:d + 1] * k[None, :, d], of_scores)
    z = np.where(mask, rounded(s * scale, sums), -np.inf)
    most = np.full((len(q), 1), -np.inf)
    total, o = np.zeros((len(q), 1)), np.zeros((len(q), v.shape[1]))
    for start in range(0, len(k), 32):
        block = z[:, start:start + 32]
        new = np.maximum(most, block.max(1, keepdims=True))
        safe = np.where(np.isinf(new), 0, new)
        p = rounded(exp(rounded(block - safe, sums)), sums)
        shrink = rounded(exp(rounded(most - safe, sums)), sums)
        total, o = rounded(total * shrink, sums), rounded(o * shrink, of_context)
        for j in range(p.shape[1]):
            total = rounded(total + p[:, j:j + 1], sums)
            o = rounded(o + rounded(p[:, j:j + 1], weights) * v[start + j][None, :], of_context)
        most = new
    return rounded(rounded(o / total, sums), store)


def growth(n):
    return min(n, 4 * np.sqrt(n))


def bound(q, k, v, mask, precision, sums="f32"):
    """The bound of docs/error-bounds.md for the context, with Q, K and V representable in the precision."""
    r = f = UNIT[precision]
    s = UNIT[sums]
    D, S = q.shape[1], len(k)
    x = np.where(mask, q @ k.T / np.sqrt(D), 0)
    e = growth(D) * s * (abs(q) @ abs(k).T) / np.sqrt(D)
    e += 2 * s * abs(q @ k.T) / np.sqrt(D) + 2 * s * abs(q @ k.T / np.sqrt(D)) + s * abs(x)
    w = np.where(mask, np.exp(x), 0)
    w /= w.sum(1, keepdims=True)
    largest = abs(np.where(mask, x, -np.inf).max(1, keepdims=True))
    n = np.where(mask, e + 2 * s * (abs(x) + largest) + 4 * s, 0)
    t = n + (w * n).sum(1, keepdims=True) + growth(S) * s + 2 * s
    terms, squares = w @ abs(v), abs(w @ v) + 4 * np.sqrt(w ** 2 @ v ** 2)
    of_w = np.minimum(w * np.expm1(t), np.maximum(w, 1 - w) + (growth(S) + 4) * s)
    error = of_w @ abs(v) + growth(S) * s * terms + f * (np.minimum(terms, squares) if f > s else terms)
    error += 4 * SMALLEST[precision] * np.sqrt(mask @ v ** 2)
    return error + r * abs(w @ v) + SMALLEST[precision]


def save(path, x, precision):
    """Saves x in the dtype of the precision; bf16 as safetensors, since .npy has no bf16."""
    if precision != "bf16":
        np.save(f"{path}.npy", x.astype({"f64": "f8", "f32": "f4", "tf32": "f4", "f16": "f2"}[precision]))
        return f"{path.name}.npy"
    raw = (x.astype("f4").view("u4") >> 16).astype("<u2").tobytes()
    head = json.dumps({"context": {"dtype": "BF16", "shape": list(x.shape),
                                   "data_offsets": [0, len(raw)]}}).encode()
    path.with_suffix(".safetensors").write_bytes(len(head).to_bytes(8, "little") + head + raw)
    return f"{path.name}.safetensors"


# Simulated kernels.

WRONG = {  # changes of a kernel that are too inaccurate for a precision
    "f16": [{"sums": "f16"}, {"weights": "bf16"}, {"of_scores": "f16"}],
    "bf16": [{"sums": "bf16"}, {"of_scores": "bf16"}],
    "f32": [{"factors": "tf32"}, {"weights": "f16"}, {"sums": "f16"}],
    "tf32": [{"of_scores": "bf16"}],
    "f64": [{"sums": "f32"}, {"weights": "f32"}],
}


class Problem:
    """Q, K, V and a mask that a precision represents."""

    def __init__(self, folder, length, width, causal, precision):
        rng = np.random.default_rng(5)
        self.folder, self.precision, self.width = folder, precision, width
        self.stored = "f32" if precision == "tf32" else precision
        self.sums = "f64" if precision == "f64" else "f32"
        self.mask = np.tri(length, dtype=bool) if causal else np.ones((length, length), bool)
        self.wrong_mask = (np.tri(length, k=-1, dtype=bool) if causal
                           else np.roll(np.eye(length, dtype=bool), 1, 1) ^ self.mask)
        self.wrong_mask[0, 0] = True
        self.tensors = [rounded(rng.standard_normal((length, width)), self.stored) for _ in range(3)]
        for name, x in zip("qkv", self.tensors):
            np.save(folder / f"{name}.npy", x)
        self.flags = ["--reference", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy",
                      *(["--causal"] if causal else []), "--precision", precision]

    def compare(self, code, **changes):
        """Compares the result of a kernel with these changes, and returns the tensor's entry in the report."""
        exact = {"mask": self.mask, "store": self.stored, "sums": self.sums, "factors": self.precision}
        file = save(self.folder / "context", kernel(*self.tensors, **{**exact, **changes}), self.stored)
        run = attn("compare", file, *self.flags, "--json", cwd=self.folder)
        assert_verdict(run, code)
        return json.loads(run.stdout)["tensors"][0]


@pytest.fixture(scope="module", params=[(64, 64, True), (96, 32, False)], ids=["causal", "all keys visible"])
def shape(request):
    return request.param


@pytest.fixture(scope="module", params=list(WRONG))
def precision(request):
    return request.param


@pytest.fixture(scope="module")
def problem(module_path, shape, precision):
    return Problem(module_path, *shape, precision)


@pytest.fixture(scope="module")
def worst(problem):
    """The element of a correct kernel's result that comes closest to the bound."""
    return problem.compare(0)["bound"]["worst"]


def test_correct_kernel_is_well_within_the_bound(worst):
    assert worst["value"] < 0.8


def test_bound_of_narrow_precisions_is_tight(worst, precision):
    if precision in ("f16", "bf16"):
        assert worst["value"] > 0.2


def test_bound_is_the_documented_one(worst, problem, precision):
    if precision != "tf32":
        documented = bound(*problem.tensors, problem.mask, precision, problem.sums)[tuple(worst["at"])]
        assert worst["bound"] == pytest.approx(documented * (2 if precision == "f64" else 1), rel=1e-6)


@pytest.mark.parametrize("row", [2047, 2048])
def test_bound_of_many_queries_is_the_documented_one(module_path, row):
    """More scores than are computed at once: 2,300 queries and 1,024 keys of two heads."""
    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal((2, n, 4)).astype("f4").astype("f8") for n in (2300, 1024, 1024))
    mask = rng.random((2300, 1024)) < .9
    result = np.empty((2, 2300, 4))
    for h in range(2):
        weights = np.where(mask, np.exp(q[h] @ k[h].T / 2), 0)
        result[h] = weights / weights.sum(1, keepdims=True) @ v[h]
    result[1, row, 2] += 1
    arrays = {"many_q": q, "many_k": k, "many_v": v, "many_context": result}
    for name, x in arrays.items():
        np.save(module_path / f"{name}.npy", x.astype("f4")[None])
    np.save(module_path / "many_mask.npy", mask)
    run = attn("compare", "many_context.npy", "--reference", "--q", "many_q.npy", "--k", "many_k.npy", "--v",
               "many_v.npy", "--mask", "many_mask.npy", "--layout", "bhld", "--json", cwd=module_path)
    assert_verdict(run, 1)
    worst = json.loads(run.stdout)["tensors"][0]["bound"]["worst"]
    assert worst["at"] == [0, 1, row, 2]
    documented = bound(q[1, row:row + 1], k[1], v[1], mask[row:row + 1], "f32")[0, 2]
    assert worst["bound"] == pytest.approx(documented, rel=1e-6)


@pytest.mark.parametrize("keys, shows", [
    ({"window": [70, 0]}, lambda q, k: k >= q - 70),
    ({"mask_rule": "q // 64 == k // 64"}, lambda q, k: q // 64 == k // 64),
    ({"documents": [i // 100 for i in range(900)]}, lambda q, k: q // 100 == k // 100),
    ({"window": [70, 0], "sinks": [0.5, 1, 2, 3]}, lambda q, k: k >= q - 70)], ids=["window", "rule", "documents", "sinks"])
@pytest.mark.parametrize("output", ["context", "logsumexp", "weights"])
def test_hidden_keys_do_not_change_the_bound(tmp_path, keys, shows, output):
    """A job whose queries see one range of keys each, and the same job with a mask. Both are computed in parts."""
    rng = np.random.default_rng(9)
    arrays = {"Q": rng.standard_normal((1, 4, 900, 8)), "K": rng.standard_normal((1, 2, 900, 8)),
              "V": rng.standard_normal((1, 2, 900, 8))}
    q, k = np.indices((900, 900))
    np.savez(tmp_path / "in.npz", mask=shows(q, k) & (q >= k), **{name: x.astype("f4") for name, x in arrays.items()})
    job = {name: f"in.npz#{name}" for name in arrays} | {"sinks": keys.get("sinks", [0, 0, 0, 0])}
    (tmp_path / "ranges.json").write_text(json.dumps(job | keys | {"causal": True}))
    (tmp_path / "mask.json").write_text(json.dumps(job | {"mask": "in.npz#mask"}))
    assert attn("run", "mask.json", "--outputs", output, "-o", "out.npz", cwd=tmp_path).returncode == 0
    reports = [attn("compare", "out.npz", "--reference", name, "--json", cwd=tmp_path) for name in ("ranges.json", "mask.json")]
    for run in reports:
        assert_verdict(run, 0)
    ranges, mask = (json.loads(run.stdout)["tensors"][0]["bound"]["worst"] for run in reports)
    assert ranges["at"] == mask["at"]
    assert ranges["bound"] == pytest.approx(mask["bound"], rel=1e-9)
    assert ranges["value"] == pytest.approx(mask["value"], rel=1e-5)


def assert_exceeds_the_bound(found):
    assert found["bound"]["worst"]["value"] > 1
    assert found["differing"] > 0


def test_wrong_scale_exceeds_the_bound(problem):
    assert_exceeds_the_bound(problem.compare(1, scale=1 / problem.width))


def test_wrong_mask_exceeds_the_bound(problem):
    assert_exceeds_the_bound(problem.compare(1, mask=problem.wrong_mask))


def test_inaccurate_kernel_exceeds_the_bound(problem, precision):
    for changes in WRONG[precision]:
        assert_exceeds_the_bound(problem.compare(1, **changes))


def inexact_exp(x):
    return np.exp(x) * (1 + 1e-5 * np.random.default_rng(1).choice([-1, 1], np.shape(x)))


DOCUMENTED = [  # the rows of the table in docs/error-bounds.md
    ("f16", {}), ("f16", {"of_scores": "f16"}), ("f16", {"of_context": "f16"}), ("f16", {"weights": "bf16"}),
    ("f16", {"mask": "wrong"}), ("f16", {"scale": 1 / 64}), ("bf16", {}), ("bf16", {"sums": "bf16"}), ("f32", {}),
    ("f32", {"factors": "tf32"}), ("f32", {"weights": "f16"}), ("f32", {"exp": inexact_exp})]


def documented_rows():
    text = (ROOT / "docs" / "error-bounds.md").read_text().split("| kernel | maximum fraction of the bound |")[1]
    return re.findall(r"^\| ([^|]*) \| ([0-9.]+) \| ([01]) \|$", text, re.MULTILINE)


@pytest.mark.parametrize("row", range(len(DOCUMENTED)))
def test_documented_fraction_of_the_bound(tmp_path, row):
    precision, changes = DOCUMENTED[row]
    name, fraction, code = documented_rows()[row]
    assert name.split(":")[0] == precision
    problem = Problem(tmp_path, 128, 64, True, precision)
    if "mask" in changes:
        changes = {"mask": problem.wrong_mask}
    found = problem.compare(int(code), **changes)["bound"]["worst"]["value"]
    assert f"{found:.0f}" == fraction if found >= 10 else float(f"{found:.2g}") == float(fraction)


# Results of attn in float32.


def own_jobs():
    rng = np.random.default_rng(6)

    def numbers(*shape):
        return rng.standard_normal(shape).tolist()
    x, memory = numbers(2, 9, 8), numbers(2, 7, 8)
    projected = {"embeddings": x, "W_Q": numbers(8, 8), "W_K": numbers(8, 4), "W_V": numbers(8, 6),
                 "W_O": numbers(12, 5), "b_Q": numbers(8), "b_V": numbers(6), "b_O": numbers(5),
                 "heads": 4, "kv_heads": 2}
    given = {"Q": numbers(2, 4, 9, 8), "K": numbers(2, 2, 9, 8), "V": numbers(2, 2, 9, 3)}
    past = {"past_K": numbers(2, 2, 5, 8), "past_V": numbers(2, 2, 5, 3)}
    hidden = np.where(rng.random((9, 9)) < 0.4, -np.inf, rng.standard_normal((9, 9)))
    hidden[3] = -np.inf
    mask = [["-Infinity" if np.isinf(m) else m for m in row] for row in hidden.tolist()]
    return {
        "projections": projected,
        "cross-attention": {**projected, "memory": memory},
        "some rows": {**projected, "rows": [2, -1]},
        "sinusoidal positions": {**projected, "causal": True, "position": {"kind": "sinusoidal"}},
        "grouped heads": given,
        "cache": {**given, **past, "causal": True},
        "mask": {**given, "mask": mask},
        "ALiBi": {**given, "alibi": True},
        "softcap": {**given, "softcap": 1.5},
        "sinks": {**given, "sinks": numbers(4)},
        "softcap after the mask": {**given, "softcap": 1.5, "softcap_order": "after-mask", "alibi": True},
        "temperature": {**given, "temperature": 0.5},
        "negative scale": {**given, "scale": -0.3},
        "layout": {**given, "layout": "bhld"},
        "zero key": {**given, "zero_key": True},
        "bias key": {**given, "bias_K": numbers(16), "bias_V": numbers(6)},
        "window": {**given, "window": [2, 0]},
        "rotary positions": {**projected, "causal": True, "rotary": {"kind": "interleaved"}},
        "rotary positions of some rows": {**given, **past, "rotary": {"kind": "half", "width": 4}, "rows": [1, -1]},
        "rotary tables": {**given, "rotary": {"kind": "half"}, "cos": numbers(2, 9, 3), "sin": numbers(2, 9, 3)},
        "normalised heads": {**projected, "qk_norm": "rms", "q_norm": numbers(4, 2), "k_norm": numbers(2)},
        "normalised tokens": {**given, "qk_norm": "layer", "qk_norm_axis": "all", "q_norm": numbers(32),
                              "q_norm_bias": numbers(32), "k_norm": numbers(16), "k_norm_bias": numbers(16)},
        "unit queries and keys": {**given, "qk_norm": "l2", "scale": 10},
        "counted keys": {**given, "key_indices": [[5, 5, 6], [6, 6, 7], [7, 7, -1]] * 3, "duplicates": "count"},
        "documents": {**given, "documents": [0, 0, 0, 1, 1, 1, 1, 2, 2], "causal": True},
        "lengths": {**given, "key_lengths": [4, 9], "key_starts": [1, 3]},
        "bias rule": {**given, "window": [2, 0], "bias_rule": "-0.1 * abs(q - k) + 0.2 * k"},
        "no values": {"Q": numbers(3, 4), "K": numbers(5, 4)},
    }


OWN_JOBS = own_jobs()
OUTPUTS = ["queries", "keys", "values", "scores", "scaled_scores", "masked_scores", "weights", "logsumexp",
           "head_context", "context"]


@pytest.fixture(scope="class", params=list(OWN_JOBS))
def own_job(request, class_path):
    """A job, computed in float32."""
    job = OWN_JOBS[request.param]
    (class_path / "job.json").write_text(json.dumps(job))
    outputs = OUTPUTS + (["output"] if "W_O" in job else [])
    assert attn("run", "job.json", "--compute", "f32", "--outputs", ",".join(outputs), "-o", "own.npz", "--force",
                cwd=class_path).returncode == 0
    return outputs


class TestOwnResult:
    @staticmethod
    def differing(folder, name):
        """The exit code, the names of all tensors, and of those beyond the bound."""
        run = attn("compare", name, "job.json", "--reference", "--json", cwd=folder)
        tensors = json.loads(run.stdout)["tensors"]
        return (run.returncode, [tensor["name"] for tensor in tensors],
                [tensor["name"] for tensor in tensors if not tensor["same"]])

    def test_is_within_the_bound(self, own_job, class_path):
        assert self.differing(class_path, "own.npz") == (0, own_job, [])

    def test_is_beyond_the_bound_when_an_element_changes(self, own_job, class_path):
        with np.load(class_path / "own.npz") as archive:
            own = dict(archive)
        for name in own_job:
            changed = own[name].copy()
            largest = np.argmax(np.where(np.isfinite(changed), abs(changed), -1))
            changed.flat[largest] *= 1 + 1e-3
            np.savez(class_path / "changed.npz", **{**own, name: changed})
            assert self.differing(class_path, "changed.npz") == (1, own_job, [name])


# Special inputs.


class TestInputsThatThePrecisionDoesNotRepresent:
    @pytest.fixture
    def job(self, tmp_path):
        job = {"Q": [[1 / 3, 0.1]], "K": [[0.7, 0.2], [0.1, 0.9]], "V": [[1.0, 2], [3, 4]]}
        q, k, v = (np.array(job[name]) for name in "QKV")
        np.save(tmp_path / "r.npy", kernel(q, k, v, np.ones((1, 2), bool), "f16").astype("f2"))
        return job

    def test_are_taken_as_rounded(self, compare, tmp_path, job):
        (tmp_path / "job.json").write_text(json.dumps(job))
        assert_verdict(compare("r.npy", "job.json", "--reference"), 0)

    def test_are_refused_when_they_overflow(self, compare, tmp_path, job):
        (tmp_path / "job.json").write_text(json.dumps(job | {"Q": [[1e6, 0]]}))
        assert_error(compare("r.npy", "job.json", "--reference"), 65, "float16 cannot represent")


class TestNumbersNearTheLargest:
    """Near 1e307 the error bound overflows. An infinite bound would accept any number."""

    @pytest.mark.parametrize("name, rows, large", [
        ("V", [[1.0], [0.25]], 1e306), ("V", [[1.0], [0.25]], 1e307), ("V", [[1.0], [0.25]], 1.7e308), ("Q", [[0.5, 1.0]], 1.7e308)])
    @pytest.mark.parametrize("factor", [1, 1.01])
    def test_are_refused(self, compare, tmp_path, large, name, rows, factor):
        job = {"Q": [[1.0, 0.5]], "K": [[1.0, 0], [0, 1]], "V": [[1.0], [2]], "scale": 1.0,
               name: (np.array(rows) * large).tolist()}
        (tmp_path / "job.json").write_text(json.dumps(job))
        np.save(tmp_path / "c.npy", factor * plain_context(job))
        assert_error(compare("c.npy", "job.json", "--reference"), 65, "the error bound overflows", "--rtol")

    @pytest.mark.parametrize("large", [1e306, 1e307])
    def test_of_scores_make_a_bound_that_accepts_zeros(self, compare, tmp_path, large):
        """Weights may be anything between 0 and 1."""
        job = {"Q": [[0.5 * large, large]], "K": [[1.0, 0], [0, 1]], "V": [[1.0], [2]], "scale": 1.0}
        (tmp_path / "job.json").write_text(json.dumps(job))
        for factor, verdict in (1, 0), (10, 1):
            np.save(tmp_path / "c.npy", factor * plain_context(job))
            run = compare("c.npy", "job.json", "--reference")
            assert run.returncode == verdict
            assert (b"zeros would pass" in run.stderr) == (verdict == 0)

    def test_are_compared_within_a_given_tolerance(self, compare, tmp_path):
        job = {"Q": [[1.0, 0.5]], "K": [[1.0, 0], [0, 1]], "V": [[1e307], [2e306]], "scale": 1.0}
        (tmp_path / "job.json").write_text(json.dumps(job))
        for factor, verdict in (1, 0), (1.01, 1):
            np.save(tmp_path / "c.npy", factor * plain_context(job))
            assert_verdict(compare("c.npy", "job.json", "--reference", "--rtol", "1e-9"), verdict)


def plain_context(job):
    scores = np.array(job["Q"]) @ np.array(job["K"]).T
    return softmax(scores, axis=1) @ np.array(job["V"])


class TestNan:
    @pytest.fixture
    def context(self, tmp_path):
        job = {"Q": [[1.0, 2]], "K": [[1.0, 0], [0, 1]], "V": [["NaN", 1.0], [2, 3]]}
        (tmp_path / "job.json").write_text(json.dumps(job))
        attn("run", "job.json", "--outputs", "context", "-o", "c.npy", "--nan", "allow", cwd=tmp_path)
        return np.load(tmp_path / "c.npy")

    def test_is_expected_where_the_reference_has_it(self, compare, context):
        assert_verdict(compare("c.npy", "job.json", "--reference"), 0)

    def test_differs_from_a_number(self, compare, tmp_path, context):
        np.save(tmp_path / "c.npy", np.nan_to_num(context))
        assert_verdict(compare("c.npy", "job.json", "--reference"), 1)


# Jobs without a bound, and outputs without a name.

SPARSEMAX = ["--q", "q.npy", "--k", "q.npy", "--v", "K", "--normaliser", "sparsemax"]
CROSS = ["--q", "q.npy", "--k", "cross.npy", "--v", "K"]


@pytest.fixture(scope="module")
def results(module_path):
    """r.npz: context and queries of a job with another normaliser; o.npz: the context under another name;
    w.npy: the weights of a cross-attention."""
    q = np.random.default_rng(5).standard_normal((4, 4))
    np.save(module_path / "q.npy", q)
    np.save(module_path / "cross.npy", np.concatenate([q, q]))
    np.savez(module_path / "inputs.npz", Q=np.eye(2), K=np.eye(2))
    attn("run", *SPARSEMAX, "--outputs", "context,queries", "-o", "r.npz", cwd=module_path)
    np.savez(module_path / "o.npz", o=np.load(module_path / "r.npz")["context"], more=2 * q)
    attn("run", *CROSS, "-o", "weights=w.npy", cwd=module_path)
    return functools.partial(attn, "compare", cwd=module_path)


def test_job_without_a_bound_needs_a_tolerance(results):
    assert_error(results("r.npz", "--reference", *SPARSEMAX), 2, "for normalisers other than softmax", "--rtol")


def test_job_without_a_bound_is_compared_within_a_tolerance(results):
    assert_verdict(results("r.npz", "--reference", *SPARSEMAX, "--rtol", "1e-9"), 0)


def test_tensor_that_is_not_an_output_is_refused(results):
    run = results("o.npz", "--reference", *SPARSEMAX, "--rtol", "1e-9")
    assert run.stderr.decode() == (
        "attn: A: o: is not the name of an output; use --as o=context\n"
        "attn: A: more: is not the name of an output; use --as more=NAME; outputs of its shape: queries, keys, values, "
        "present_K, present_V, scores, scaled_scores, masked_scores, weights, mean_weights, head_context, context\n")
    assert (run.returncode, run.stdout) == (2, b"")


def test_as_names_the_outputs(results):
    assert_verdict(results("o.npz", "--reference", *SPARSEMAX, "--rtol", "1e-9", "--as", "o=context,more=queries"), 1)
    report = json.loads(results("o.npz", "--reference", *SPARSEMAX, "--rtol", "1e-9", "--as",
                                "o=context,more=queries", "--json").stdout)
    assert [(tensor["name"], tensor["same"]) for tensor in report["tensors"]] == [("context", True), ("queries", False)]


def test_single_tensor_is_taken_for_the_context(results):
    assert_verdict(results("o.npz#o", "--reference", *SPARSEMAX, "--rtol", "1e-9"), 0)


def test_as_names_the_output(results):
    assert_verdict(results("o.npz#o", "--reference", *SPARSEMAX, "--rtol", "1e-9", "--as", "queries"), 1)


def test_as_accepts_another_output(results):
    assert_verdict(results("w.npy", "--reference", *CROSS, "--as", "weights"), 0)


def test_tensor_without_the_shape_of_the_context_gets_a_hint(results):
    run = results("w.npy", "--reference", *CROSS)
    assert run.returncode == 1
    assert run.stderr.decode() == ("attn: use --as NAME to name the output that A represents; outputs of its shape: scores, scaled_scores, "
                                   "masked_scores, weights, mean_weights\n")


@pytest.mark.parametrize("arguments, word", [
    (["r.npz"], "--reference"),
    (["r.npz", "r.npz", "--q", "q.npy"], "--reference"),
    (["r.npz", "--reference"], "--reference"),
    (["r.npz", "--reference", *SPARSEMAX, "--as", "output", "--rtol", "0"], "--as"),
    (["o.npz#o", "--reference", *SPARSEMAX, "--as", "output", "--rtol", "0"], "W_O"),
    (["r.npz", "r.npz", "--sums", "f32"], "--reference"),
])
def test_flags_that_contradict_are_refused(results, arguments, word):
    assert_error(results(*arguments), 2, word)


BOUND_REPLACED = " requires the error bound, which --rtol, --atol and --ulp replace"


@pytest.mark.parametrize("flags, message", [
    (["--rtol", "1e-3", "--precision", "f16"], "--precision" + BOUND_REPLACED),
    (["--ulp", "4", "--sums", "f16"], "--sums" + BOUND_REPLACED),
    (["--outputs", "weights"], "--outputs cannot be combined with --reference: the tensors of A are compared; "
                               "A#NAME selects one, --as NAME says which output it is"),
    (["--compute", "f32"], "--compute: expected bf16, which widens the error bound, found 'f32'; the reference is computed "
                           "in f64, and --precision is that of the result"),
    (["--compute", "bf16", "--rtol", "1e-3"], "--compute" + BOUND_REPLACED),
    (["--path", "fast"], "--path cannot be combined with --reference: the reference is computed by the reference "
                         "implementation"),
    (["--tokens", "a,b"], "--tokens cannot be combined with --reference: labels come from A"),
    (["--as", "weigths"], "--as: unknown output 'weigths' (did you mean 'weights'?)"),
    (["--as", "output"], "--as: 'output' requires W_O"),
])
def test_flags_that_the_reference_decides_are_refused(results, flags, message):
    run = results("w.npy", "--reference", *CROSS, *flags)
    assert run.stderr.decode() == f"attn: {message}\n"
    assert run.returncode == 2
    assert run.stdout == b""


@pytest.mark.parametrize("flag", ["--model", "--stack", "--hidden", "--hidden-is"])
def test_flags_of_a_model_have_a_hint(results, flag):
    assert_error(results("w.npy", "--reference", flag, "x"), 2,
                 f"unknown flag '{flag}'; write model, layer and hidden in the job file")


@pytest.mark.parametrize("arguments", [["inputs.npz", "--reference", *SPARSEMAX], ["inputs.npz", "inputs.npz", "--reference"]])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_file_without_outputs_is_refused(results, arguments, flags):
    run = results(*arguments, *flags)
    assert_error(run, 65, "expected a tensor to compare")
    assert run.stdout == b""
    assert run.stderr.count(b"\n") == 1


# Tensors of a kernel: names, heads and hints.


class TestKernel:
    """The outputs of a correct kernel for a job of two batches and three heads of width 4, with other names."""

    @pytest.fixture(scope="class")
    def outputs(self, class_path):
        rng = np.random.default_rng(7)
        job = {name: rng.standard_normal((2, 5, 12)).tolist() for name in "QKV"} | {"heads": 3}
        (class_path / "job.json").write_text(json.dumps(job))
        attn("run", "job.json", "--compute", "f32", "--outputs", "context,logsumexp,scores", "-o", "own.npz",
             cwd=class_path)
        with np.load(class_path / "own.npz") as archive:
            return dict(archive)

    @pytest.fixture
    def kernel(self, class_path):
        def kernel(*flags, **tensors):
            np.savez(class_path / "kernel.npz", **tensors)
            return attn("compare", "kernel.npz", "job.json", "--reference", *flags, cwd=class_path)
        return kernel

    def test_names_without_a_meaning_are_refused(self, kernel, outputs):
        run = kernel(out=outputs["context"], attn=outputs["context"])
        assert run.stderr.decode() == (
            "attn: A: out: is not the name of an output; use --as out=context\n"
            "attn: A: attn: is not the name of an output; use --as attn=context\n")
        assert (run.returncode, run.stdout) == (2, b"")

    def test_at_most_ten_are_listed(self, kernel, outputs):
        run = kernel(**{f"t{i}": outputs["context"] for i in range(30)})
        assert run.returncode == 2
        assert run.stderr.count(b"\n") == 11
        assert run.stderr.endswith(b"attn: and 20 more errors\n")

    def test_as_gives_names_a_meaning(self, kernel, outputs):
        assert_verdict(kernel("--as", "out=context,l=logsumexp", out=outputs["context"], l=outputs["logsumexp"]), 0)

    @pytest.mark.parametrize("name", ["lse", "softmax_lse"])
    def test_logsumexp_by_the_name_of_kernels(self, kernel, outputs, name):
        run = kernel("--json", context=outputs["context"], **{name: outputs["logsumexp"]})
        assert run.returncode == 0
        assert [tensor["name"] for tensor in json.loads(run.stdout)["tensors"]] == ["context", "logsumexp"]

    def test_as_refuses_a_name_that_is_no_output(self, kernel, outputs):
        assert_error(kernel("--as", "out=contxt", out=outputs["context"]), 2,
                     "--as: unknown output 'contxt' (did you mean 'context'?)")

    def test_inputs_are_ignored(self, kernel, outputs):
        assert_verdict(kernel(Q=np.ones(3), context=outputs["context"]), 0)

    @pytest.mark.parametrize("names", ["qkv", ("query", "key", "value"), ("query_states", "key_states", "Values")])
    def test_inputs_with_other_names_are_ignored(self, kernel, outputs, class_path, names):
        job = json.loads((class_path / "job.json").read_text())
        inputs = {name: np.array(job[key]) for name, key in zip(names, "QKV")}
        assert_verdict(kernel("--as", "out=context", out=outputs["context"], **inputs), 0)
        other = {name: np.ones(3) for name in names[:1]}
        assert_error(kernel("--as", "out=context", out=outputs["context"], **other), 2, f"A: {names[0]}: is not the name")

    def test_heads_of_a_packed_context(self, kernel, outputs):
        context = outputs["context"].copy()
        context[1, :, 4:8] *= 1.1  # head 1 of batch 1
        found = json.loads(kernel("--json", context=context).stdout)["tensors"][0]
        assert [(part["batch"], part["head"]) for part in found["parts"]] == [(i, j) for i in range(2) for j in range(3)]
        assert [part["differing"] > 0 for part in found["parts"]] == [False] * 4 + [True, False]
        assert found["parts"][4]["max_of_bound"] == found["bound"]["worst"]["value"]
        lines = kernel(context=context).stdout.decode().splitlines()
        start = lines.index("  1 of 6 heads differs")
        assert lines[start + 1].split()[:5] == ["batch", "head", "differing", "max", "error/bound"]
        assert lines[start + 2].split()[:5] == ["1", "1", "20", "of", "20"]

    def test_base_of_the_logarithm_is_named(self, kernel, outputs):
        lse = (outputs["logsumexp"] / np.log(2)).astype("f4")
        assert "  agrees with --lse-base 2 (the job has e)\n" in kernel(logsumexp=lse).stdout.decode()
        assert_verdict(kernel("--lse-base", "2", logsumexp=lse), 0)

    def test_missing_scale_is_named(self, kernel, outputs):
        run = kernel(scaled_scores=outputs["scores"])
        assert "  agrees with --scale none (the job has 1/sqrt(4))\n" in run.stdout.decode()

    @pytest.mark.parametrize("flags, scale, causal, mistake", [
        ([], 1, False, "--scale none (the job has 1/sqrt(4))"),
        ([], 1 / 2, True, "--causal (the job has no causal mask)"),
        (["--causal"], 1 / 2, False, "the job without --causal"),
        (["--rotary", "half"], 1 / 2, False, "the job without --rotary (the job has half)"),
    ])
    def test_mistake_is_named(self, kernel, class_path, flags, scale, causal, mistake):
        job = json.loads((class_path / "job.json").read_text())
        q, k, v = (np.reshape(job[name], (2, 5, 3, 4)).swapaxes(1, 2) for name in "QKV")
        scores = np.where(np.tri(5, dtype=bool) | (not causal), q @ k.swapaxes(2, 3) * scale, -np.inf)
        context = (softmax(scores, axis=3) @ v).swapaxes(1, 2).reshape(2, 5, 12)
        run = kernel(*flags, context=context.astype("f4"))
        assert run.returncode == 1
        assert run.stdout.decode().splitlines()[1] == f"  agrees with {mistake}"

    def test_other_mistakes_have_no_hint(self, kernel, outputs):
        run = kernel(context=outputs["context"] + np.random.default_rng(1).standard_normal((2, 5, 12)).astype("f4"))
        assert run.returncode == 1
        assert b"hint" not in run.stdout

    def test_swapped_axes_are_named(self, kernel, outputs):
        run = kernel(logsumexp=outputs["logsumexp"].swapaxes(1, 2))
        assert run.returncode == 1
        assert "  hint: A agrees with B if its axes 1 and 2 (H and L) are swapped\n" in run.stdout.decode()

    def test_context_with_an_axis_of_heads_is_named(self, kernel, outputs):
        run = kernel(context=outputs["context"].reshape(2, 5, 3, 4))
        assert "  hint: A agrees with B if reshaped to (2, 5, 12)\n" in run.stdout.decode()


@pytest.mark.parametrize("layout, axis", [("bhld", 1), ("blhd", 2)])
def test_heads_of_a_context_with_an_axis_of_heads(tmp_path, layout, axis):
    rng = np.random.default_rng(8)
    job = {name: rng.standard_normal((2, 3, 4, 5)).tolist() for name in "QKV"} | {"layout": layout}
    (tmp_path / "job.json").write_text(json.dumps(job))
    attn("run", "job.json", "-o", "context=c.npy", cwd=tmp_path)
    context = np.load(tmp_path / "c.npy")
    context[(1, 2) if axis == 1 else (1, slice(None), 2)] += 1
    np.savez(tmp_path / "a.npz", context=context)
    report = attn("compare", "a.npz", "job.json", "--reference", "--json", cwd=tmp_path).stdout
    parts = json.loads(report)["tensors"][0]["parts"]
    assert len(parts) == 2 * context.shape[axis]
    assert [(part["batch"], part["head"]) for part in parts if part["differing"]] == [(1, 2)]


# Layouts and large problems.


def attention(q, k, v, scale, visible=True):
    """The context of Q, K and V (B, H, L, D)."""
    return softmax(np.where(visible, q @ k.swapaxes(2, 3) * scale, -np.inf), axis=3) @ v


class TestLayout:
    """Q, K and V (B, L, H, D), given without the layout."""

    @pytest.fixture(scope="class")
    def heads(self, class_path):
        rng = np.random.default_rng(21)
        q, k, v = rng.standard_normal((3, 2, 7, 3, 4))
        for name, tensor in zip("qkv", (q, k, v)):
            np.save(class_path / f"{name}.npy", tensor)
        return attention(*(tensor.swapaxes(1, 2) for tensor in (q, k, v)), 1 / 2)

    @pytest.mark.parametrize("arrange, rest", [
        (lambda context: context.swapaxes(1, 2), ""),
        (lambda context: context, " if its axes 1 and 2 (L and H) are swapped"),
        (lambda context: context.swapaxes(1, 2).reshape(2, 7, 12), " if reshaped to (2, 7, 3, 4)")])
    def test_is_named(self, heads, class_path, arrange, rest):
        np.save(class_path / "a.npy", arrange(heads).astype("f4"))
        command = ["compare", "a.npy", "--reference", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]
        run = attn(*command, cwd=class_path)
        assert run.returncode == 1
        assert run.stdout.decode().splitlines()[1] == f"  hint: A agrees with the job with layout blhd (--layout blhd){rest}"
        assert attn(*command, "--layout", "blhd", cwd=class_path).returncode == (1 if rest else 0)

    def test_is_named_for_many_heads(self, tmp_path):
        q, k, v = np.random.default_rng(23).standard_normal((3, 1, 900, 64, 16)).astype("f4")
        k, v = k[:, :, ::4], v[:, :, ::4]
        repeated = (x.repeat(4, 2).swapaxes(1, 2) for x in (k, v))
        for name, tensor in zip("qkv", (q, k, v)):
            np.save(tmp_path / f"{name}.npy", tensor)
        np.save(tmp_path / "a.npy", attention(q.swapaxes(1, 2), *repeated, 1 / 4).swapaxes(1, 2).astype("f4"))
        run = attn("compare", "a.npy", "--reference", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", cwd=tmp_path)
        assert run.stdout.decode().splitlines()[1] == (
            "  hint: A agrees with the job with layout blhd (--layout blhd), judging by 36 of 64 heads and 129 of 900 "
            "queries")

    def test_is_named_for_weights(self, heads, class_path):
        q, k = (np.load(class_path / f"{name}.npy").swapaxes(1, 2) for name in "qk")
        np.savez(class_path / "a.npz", weights=softmax(q @ k.swapaxes(2, 3) / 2, axis=3))
        run = attn("compare", "a.npz", "--reference", "--q", "q.npy", "--k", "k.npy", cwd=class_path)
        assert "  hint: A agrees with the job with layout blhd (--layout blhd)\n" in run.stdout.decode()


def test_mistake_of_a_large_problem_is_found_in_a_sample(tmp_path):
    q, k, v = np.random.default_rng(22).standard_normal((3, 1, 2, 1500, 4)).astype("f4")
    for name, tensor in zip("qkv", (q, k, v)):
        np.save(tmp_path / f"{name}.npy", tensor)
    np.save(tmp_path / "a.npy", attention(q, k, v, 1))
    run = attn("compare", "a.npy", "--reference", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", cwd=tmp_path)
    cause = run.stdout.decode().splitlines()[1]
    assert cause == "  agrees with --scale none (the job has 1/sqrt(4)), on 256 sampled queries"


@pytest.mark.long
def test_a_search_without_a_result_states_what_was_tested(tmp_path):
    """With 2,200,000 keys."""
    keys = np.zeros((2_200_000, 1), "f4")
    np.save(tmp_path / "k.npy", keys)
    np.save(tmp_path / "a.npy", np.ones((1, 1), "f4"))
    run = attn("compare", "a.npy", "--reference", "--q", "[[1.0]]", "--k", "k.npy", "--v", "k.npy", cwd=tmp_path)
    assert run.returncode == 1
    assert b"  no known mistake explains it: " in run.stdout


@pytest.mark.parametrize("dtype, flags, digits", [
    ("f2", [], 11), ("f2", ["--weights-precision", "bf16"], 8), ("f4", ["--weights-precision", "bf16"], 8)])
@pytest.mark.parametrize("S", [3, 100, 1000, 2040])
def test_equal_weights_that_are_rounded_alike_are_within_the_bound(tmp_path, dtype, flags, digits, S):
    """A kernel that rounds weights after the softmax multiplies all equal weights by the same factor."""
    mantissa, exponent = np.frexp(1 / S)
    weight = np.ldexp(np.round(mantissa * 2**digits) / 2**digits, exponent)
    v = np.linspace(1, 2, 40).astype(dtype).reshape(1, 40).repeat(S, 0)
    np.save(tmp_path / "context.npy", (v[:2].astype(float) * (S * weight)).astype(dtype))
    for name, x in (("q", np.zeros((2, 4), dtype)), ("k", np.ones((S, 4), dtype)), ("v", v)):
        np.save(tmp_path / f"{name}.npy", x)
    inputs = [part for name in "qkv" for part in (f"--{name}", f"{name}.npy")]
    done = attn("compare", "context.npy", "--reference", *inputs, *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
