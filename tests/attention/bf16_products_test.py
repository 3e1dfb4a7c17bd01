"""`compute: "bf16"`: queries, keys, weights and values are rounded to bfloat16 before they are multiplied.

Results are compared with NumPy in float64, which rounds queries, keys and values itself, within a bound of the roundings
of float32. Queries and keys that are not rounded, or rounded toward zero, are outside of that of logsumexp. Kernels round
weights relative to the maximum of a block of keys or of the row, so their roundings widen the bound of the context; separate
tests check that they are rounded, and to nearest.
"""

import json
import os
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn
from support.rounding import rounded
from support.safetensors_file import build, entry

ROUNDOFF = 2.0**-24
BF16_ROUNDOFF = 2.0**-8


def supported_isas():
    version = attn("--version", "-v").stdout.decode()
    return version.partition("(of ")[2].partition(")")[0].split(", ")


def run(folder, tensors, *flags, isa=None, **options):
    """The outputs of a job with these tensors."""
    np.savez(folder / "in.npz", **tensors)
    job = {"compute": "bf16", **options, **{name: f"in.npz#{name}" for name in tensors}}
    (folder / "job.json").write_text(json.dumps(job))
    environment = dict(os.environ, **({"ATTN_ISA": isa} if isa else {}))
    done = subprocess.run([ATTN, "run", "job.json", *flags, "-o", "out.npz", "--force"], cwd=folder, env=environment,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    with np.load(folder / "out.npz") as outputs:
        return dict(outputs)


def repeated(x, heads):
    """Keys or values (B, G, S, D) for each query head."""
    return np.repeat(x, heads // x.shape[1], axis=1)


def bf16(x):
    return rounded(x, "bf16")


def rotated(x, positions):
    """Rotary positions of pairs (k, k + D/2)."""
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10000.0 ** (np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


class Case:
    """A job and what NumPy makes of it. `before` is applied to queries and keys, in float64."""

    def __init__(self, H=3, G=3, L=20, S=40, D=24, Dv=16, B=2, dtype="f4", seed=1, before=None, options=None,
                 extra=None, visible=None, added=0, cap=None, head_scale=None, sinks=None):
        rng = np.random.default_rng(seed)
        shapes = {"Q": (B, H, L, D), "K": (B, G, S, D), "V": (B, G, S, Dv)}
        self.tensors = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
        self.tensors.update(extra(rng) if extra else {})
        self.options, self.before = options or {}, before
        self.visible, self.added, self.cap, self.head_scale, self.sinks = visible, added, cap, head_scale, sinks

    def factors(self, rounding):
        q, k = (self.tensors[name].astype(float) for name in "QK")
        if self.before:
            q, k = self.before(q, k, self.tensors)
        return rounding(q), rounding(repeated(k, q.shape[1]))

    def expected(self, rounding=bf16):
        """The context and logsumexp, (B, H, L, ...), and their error bounds."""
        q, k = self.factors(rounding)
        v = rounding(repeated(self.tensors["V"].astype(float), q.shape[1]))
        scale = 1.0 if self.options.get("score") in ("cosine", "general") else 1 / np.sqrt(q.shape[-1])
        if self.head_scale is not None:
            scale = scale * self.head_scale[:, None, None]
        scores = q @ k.swapaxes(-1, -2) * scale
        sizes = abs(q) @ abs(k).swapaxes(-1, -2) * abs(scale)
        if self.cap:
            scores = self.cap * np.tanh(scores / self.cap)
        added = self.added(self.tensors) if callable(self.added) else self.added
        scores = scores + added
        visible = np.broadcast_to(True if self.visible is None else self.visible(self.tensors), scores.shape)
        masked = np.where(visible, scores, -np.inf)
        sinks = np.full(q.shape[1], -np.inf) if self.sinks is None else self.sinks
        sinks = sinks[:, None, None]
        largest = np.maximum(masked.max(-1, keepdims=True), sinks)
        weights = np.exp(masked - largest)
        sums = weights.sum(-1, keepdims=True) + np.exp(sinks - largest)
        weights /= sums
        # Of a score, twice (its own and that of the sum), of the sums over keys, and of exponentials.
        of_score = (q.shape[-1] + 8) * ROUNDOFF * sizes + 8 * ROUNDOFF * (abs(scores) + abs(largest))
        of_weight = 2 * np.where(visible, of_score, 0).max(-1, keepdims=True) + (40 + 2 * np.sqrt(k.shape[-2])) * ROUNDOFF
        return {"context": (weights @ v, (of_weight + BF16_ROUNDOFF) * (weights @ abs(v)) + 1e-30),
                "logsumexp": ((largest + np.log(sums))[..., 0], of_weight[..., 0] * (1 + abs(largest[..., 0])))}

    def is_met_by(self, found, rounding=bf16):
        return {name: bool((abs(found[name].astype(float) - as_stored(value, found[name])) <=
                            as_stored(error, found[name])).all())
                for name, (value, error) in self.expected(rounding).items()}


def as_stored(x, result):
    """The array (B, H, L, Dv) with the heads beside each other, if they are in the result."""
    return x if x.shape == result.shape else x.swapaxes(1, 2).reshape(result.shape)


def rotary(q, k, _):
    return rotated(q, np.arange(q.shape[2])), rotated(k, np.arange(k.shape[2]))


CASES = {
    "plain": Case(),
    "odd width": Case(D=33, Dv=5),
    "wide": Case(D=130, L=7),
    "one column": Case(D=1),
    "causal": Case(L=40, options={"causal": True}, visible=lambda _: np.tri(40, dtype=bool)),
    "grouped": Case(H=6, G=2, L=33),
    "one query": Case(L=1, S=1500, D=64),
    "five queries": Case(L=5, S=700, D=64, G=1),
    "grouped decoding": Case(H=8, G=2, L=1, S=1100, D=40),
    "streaming": Case(L=130, S=1300, D=64, B=1),
    "mask": Case(L=30, extra=lambda rng: {"mask": np.eye(30, 40, dtype=bool) | (rng.random((30, 40)) < 0.7)},
                 visible=lambda t: t["mask"]),
    "mask of streaming": Case(L=30, S=1100, extra=lambda rng: {"mask": rng.random((30, 1100)) < 0.2},
                              visible=lambda t: t["mask"]),
    "bias": Case(L=30, extra=lambda rng: {"bias": rng.standard_normal((30, 40)).astype("f4")},
                 added=lambda t: t["bias"].astype(float)),
    "softcap": Case(options={"softcap": 2.0}, cap=2.0),
    "window": Case(L=40, options={"window": [5, 3]},
                   visible=lambda _: np.tri(40, k=3, dtype=bool) & ~np.tri(40, k=-6, dtype=bool)),
    "window that begins at an odd key": Case(L=1, S=700, D=32, Dv=32, options={"window": [180, 0], "causal": "bottom-right"},
                                             visible=lambda _: np.arange(700) >= 519),
    "keys before an odd index are padding": Case(L=9, S=65, extra=lambda rng: {"key_starts": np.array([3, 31])},
                                                 visible=lambda t: np.arange(65) >= t["key_starts"][:, None, None, None]),
    "sinks": Case(extra=lambda rng: {"sinks": np.array([3, -1, 0.5], "f4")}, sinks=np.array([3, -1, 0.5])),
    "head_scale": Case(extra=lambda rng: {"head_scale": np.array([0.5, -1.25, 2], "f4")},
                       head_scale=np.array([0.5, -1.25, 2])),
    "rotary": Case(L=20, S=40, options={"rotary": {"kind": "half"}}, before=rotary),
    "l2 norms": Case(options={"qk_norm": "l2"}, before=lambda q, k, _: (unit(q), unit(k))),
    "cosine": Case(options={"score": "cosine"}, before=lambda q, k, _: (unit(q), unit(k))),
    "general": Case(options={"score": "general"},
                    extra=lambda rng: {"W_score": rng.standard_normal((24, 24)).astype("f4") / 5},
                    before=lambda q, k, t: (q @ t["W_score"].astype(float), k)),
    "weights, too": Case(L=30, S=600, options={"outputs": ["weights", "context", "logsumexp"]}),
}
# Factors that are computed in float32 may be rounded to the other neighbour, if they are close to the middle of two.
EXACT_FACTORS = [name for name in CASES if CASES[name].before is None]


@pytest.mark.parametrize("isa", supported_isas() + ["reference"])
@pytest.mark.parametrize("name", EXACT_FACTORS)
def test_factors_are_rounded(tmp_path, name, isa):
    case = CASES[name]
    flags = ["--path", "reference"] if isa == "reference" else []
    found = run(tmp_path, case.tensors, *flags, isa=None if flags else isa,
                **{"outputs": ["context", "logsumexp"], **case.options})
    assert case.is_met_by(found) == {"context": True, "logsumexp": True}
    for other in unrounded, truncated:
        assert not case.is_met_by(found, rounding=other)["logsumexp"]


def unrounded(x):
    return x


def truncated(x):
    return (x.astype("f4").view("u4") & 0xffff0000).view("f4").astype(float)


@pytest.mark.parametrize("isa", supported_isas() + ["reference"])
@pytest.mark.parametrize("L, S, Dv", [(1, 1, 24), (4, 1, 64), (60, 1, 7)])
def test_values_are_rounded(tmp_path, isa, L, S, Dv):
    """The context of a single key is its value."""
    case = Case(B=1, L=L, S=S, Dv=Dv)
    flags = ["--path", "reference"] if isa == "reference" else []
    context = run(tmp_path, case.tensors, *flags, isa=None if flags else isa, outputs=["context"])["context"]
    assert (context == as_stored(np.broadcast_to(bf16(case.tensors["V"]), (1, 3, L, Dv)), context)).all()


@pytest.mark.parametrize("isa", supported_isas() + ["reference"])
@pytest.mark.parametrize("L, S", [(1, 700), (4, 520), (60, 600)])
def test_weights_are_rounded_to_nearest(tmp_path, isa, L, S):
    """Values of 1 at one key and 0 at all others leave one weight of each query. Its error is that of rounding it, at
    most 2**-8 of it, and of both signs."""
    case = Case(B=1, H=1, G=1, L=L, S=S, D=8, Dv=S)
    case.tensors["V"][0, 0] = np.eye(S)
    flags = ["--path", "reference"] if isa == "reference" else []
    found = run(tmp_path, case.tensors, *flags, isa=None if flags else isa, outputs=["context", "logsumexp"])
    q, k = case.factors(bf16)
    scores = (q @ k.swapaxes(-1, -2))[0, 0] / np.sqrt(8)
    exact = np.exp(scores - scores.max(-1, keepdims=True))
    exact /= exact.sum(-1, keepdims=True)
    errors = found["context"].reshape(L, S) / exact - 1
    assert abs(errors).max() <= BF16_ROUNDOFF * 1.01
    # Uniform roundings have a third of the largest error as their root mean square, or a bit less.
    assert 0.2 < np.sqrt((errors**2).mean()) / BF16_ROUNDOFF < 0.6
    assert abs(errors.mean()) < 5 * BF16_ROUNDOFF / np.sqrt(errors.size)


@pytest.mark.parametrize("isa", supported_isas() + ["reference"])
@pytest.mark.parametrize("name", sorted(CASES.keys() - EXACT_FACTORS))
def test_computed_factors_are_rounded(tmp_path, name, isa):
    """The stages of the job say which factors are rounded."""
    case = CASES[name]
    flags = ["--path", "reference"] if isa == "reference" else []
    found = run(tmp_path, case.tensors, *flags, isa=None if flags else isa,
                **{**case.options, "outputs": ["queries", "keys", "scores"]})
    q, k = found["queries"].astype(float), found["keys"].astype(float)
    if name == "cosine":
        q, k = unit(q).astype("f4").astype(float), unit(k).astype("f4").astype(float)
    if name == "general":
        q = (q.astype("f4") @ case.tensors["W_score"]).astype(float)
    q, k = bf16(q), bf16(repeated(k, q.shape[1]))
    scores = q @ k.swapaxes(-1, -2)
    sizes = abs(q) @ abs(k).swapaxes(-1, -2)
    far = abs(found["scores"] - scores) > (q.shape[-1] + 2) * ROUNDOFF * sizes
    # In float32, one in 2**16 factors rounds to the other neighbour.
    assert far.mean() < 0.05
    assert (abs(found["scores"] - scores) <= 0.01 * sizes).all()


@pytest.mark.parametrize("isa", supported_isas())
def test_float16_is_rounded(tmp_path, isa):
    case = Case(dtype="f2", L=30, S=60)
    context = run(tmp_path, case.tensors, isa=isa, outputs=["context"])["context"]
    assert context.dtype == np.float16
    value, error = (as_stored(x, context) for x in case.expected()["context"])
    assert (abs(context.astype(float) - value) <= error + 2.0**-11 * abs(value) + 2.0**-25).all()
    exact = run(tmp_path, case.tensors, isa=isa, outputs=["scores"])["scores"].astype(float)
    q, k = case.factors(bf16)
    np.testing.assert_allclose(exact, q @ k.swapaxes(-1, -2), rtol=2.0**-10, atol=1e-5)


def bfloat16_file(path, tensors):
    """A .safetensors file of these arrays in bfloat16."""
    header, data = {}, b""
    for name, x in tensors.items():
        raw = (x.astype("f4").view("u4") >> 16).astype("<u2").tobytes()
        header[name] = entry(len(data), len(data) + len(raw), "BF16", x.shape)
        data += raw
    path.write_bytes(build(header, data))


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("L, S, D", [(1, 900, 64), (5, 64, 33), (40, 600, 64), (30, 50, 31)])
def test_bfloat16_inputs_are_exact(tmp_path, isa, L, S, D):
    """Without rounding, the key changes no more than the order of sums does."""
    case = Case(L=L, S=S, D=D, B=1)
    case.tensors = {name: bf16(x) for name, x in case.tensors.items()}
    bfloat16_file(tmp_path / "in.safetensors", case.tensors)
    environment = dict(os.environ, ATTN_ISA=isa)
    found = {}
    for word in ("auto", "bf16"):
        flags = [part for name in "QKV" for part in (f"--{name.lower()}", f"in.safetensors#{name}")]
        subprocess.run([ATTN, "run", *flags, "--compute", word, "--outputs", "scores,logsumexp", "-o", "out.safetensors",
                        "--force"], cwd=tmp_path, env=environment, check=True, capture_output=True)
        attn("convert", "out.safetensors", "-o", "out.npz", "--dtype", "f32", "--force", cwd=tmp_path)
        with np.load(tmp_path / "out.npz") as outputs:
            found[word] = outputs["logsumexp"].astype(float)
    size = (abs(case.tensors["Q"]) @ abs(case.tensors["K"]).swapaxes(-1, -2)).max() / np.sqrt(D)
    assert abs(found["auto"] - found["bf16"]).max() <= (2 * D + 60) * ROUNDOFF * (1 + size)


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("L, S", [(1, 5000), (3, 1300), (150, 700)])
def test_threads_do_not_change_a_byte(tmp_path, isa, L, S):
    case = Case(L=L, S=S, D=33, H=4, G=2)
    first, *others = [run(tmp_path, case.tensors, "--threads", str(n), isa=isa, outputs=["context", "logsumexp"])
                      for n in (1, 2, 3, 7)]
    for other in others:
        for name, x in first.items():
            assert x.tobytes() == other[name].tobytes()


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("L, S", [(1, 600), (6, 90), (40, 1100)])
def test_neighbours_do_not_change_a_byte(tmp_path, isa, L, S):
    """A batch item alone, and a row alone, have the bytes that they have in the batch."""
    case = Case(L=L, S=S, D=40, B=3, H=4, G=2)
    outputs = {"outputs": ["context", "logsumexp"]}
    whole = run(tmp_path, case.tensors, isa=isa, **outputs)
    alone = run(tmp_path, {name: x[1:2] for name, x in case.tensors.items()}, isa=isa, **outputs)
    row = run(tmp_path, case.tensors, isa=isa, rows=[L - 1], **outputs)
    for name, x in whole.items():
        assert x[1:2].tobytes() == alone[name].tobytes()
        axis = x.shape.index(L, 1) if L > 1 else None
        if axis is not None:
            assert np.take(x, [L - 1], axis).tobytes() == row[name].tobytes()


def test_packed_sequences_have_the_bytes_of_each_alone(tmp_path):
    rng = np.random.default_rng(3)
    lengths = [7, 70, 1]
    ends = np.cumsum([0, *lengths])
    t = {name: rng.standard_normal((ends[-1], 2, 40)).astype("f4") for name in "QKV"}
    packed = run(tmp_path, {**t, "cu_seqlens_q": ends, "cu_seqlens_k": ends}, layout="thd", outputs=["context"])["context"]
    for start, end in zip(ends, ends[1:]):
        one = run(tmp_path, {name: x[start:end] for name, x in t.items()}, layout="thd", outputs=["context"])["context"]
        assert packed[start:end].tobytes() == one.tobytes()


@pytest.mark.parametrize("isa", supported_isas())
def test_subnormal_factors_count_as_0(tmp_path, isa):
    q, k = np.full((1, 8), 1e-39, "f4"), np.full((3, 8), 1e30, "f4")
    scores = run(tmp_path, {"Q": q, "K": k}, isa=isa, outputs=["scores"])["scores"]
    assert (scores == 0).all()


@pytest.mark.parametrize("isa", supported_isas() + ["reference"])
@pytest.mark.parametrize("L", [1, 20, 200])
@pytest.mark.parametrize("value, expected", [(-3.4e38, -np.inf), (-3.3e38, -8.24e37)])
def test_values_that_overflow_when_rounded_are_infinite(tmp_path, isa, L, value, expected):
    """Only for queries that see them."""
    tensors = {"Q": np.zeros((L, 2), "f4"), "K": np.zeros((5, 2), "f4"), "V": np.zeros((5, 3), "f4"),
               "mask": np.broadcast_to(np.arange(5) < 4, (L, 5)).copy()}
    tensors["V"][1, 2], tensors["V"][4, 0] = value, value
    flags = ["--path", "reference"] if isa == "reference" else []
    context = run(tmp_path, tensors, *flags, isa=None if flags else isa, outputs=["context"])["context"]
    np.testing.assert_allclose(context, np.tile([0, 0, expected], (L, 1)), rtol=0.01)


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("L, S", [(1, 71), (1, 1025), (7, 71), (40, 600)])
@pytest.mark.parametrize("Dv", [16, 21])
def test_hidden_values_have_no_effect(tmp_path, isa, L, S, Dv):
    case = Case(B=1, L=L, S=S, Dv=Dv, extra=lambda rng: {"key_mask": np.arange(S) % 4 != 2})
    before = run(tmp_path, case.tensors, isa=isa, outputs=["context"])["context"]
    for head, value in enumerate((np.nan, np.inf, -np.inf)):
        case.tensors["V"][:, head, 2::4] = value
    after = run(tmp_path, case.tensors, isa=isa, outputs=["context"])["context"]
    assert before.tobytes() == after.tobytes() and np.isfinite(after).all()


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("L", [1, 20])
def test_nan_and_infinity_reach_only_rows_that_see_them(tmp_path, isa, L):
    case = Case(L=L, S=70, B=1, H=1, G=1, extra=lambda rng: {"key_mask": np.arange(70) != 3})
    case.tensors["K"][0, 0, 3] = np.nan
    context = run(tmp_path, case.tensors, isa=isa, outputs=["context"])["context"]
    assert np.isfinite(context).all()
    case.tensors["K"][0, 0, 4, 5] = np.nan
    context = run(tmp_path, case.tensors, "--nan", "allow", isa=isa, outputs=["context"])["context"]
    assert np.isnan(context).all()


def test_other_words_do_not_round(tmp_path):
    case = CASES["plain"]
    outputs = {"outputs": ["scores", "context"]}
    plain = run(tmp_path, case.tensors, **{"compute": "auto", **outputs})
    for name, x in run(tmp_path, case.tensors, **{"compute": "f32", **outputs}).items():
        assert x.tobytes() == plain[name].tobytes()
    # A flag replaces the key of the file.
    for name, x in run(tmp_path, case.tensors, "--compute", "f32", **outputs).items():
        assert x.tobytes() == plain[name].tobytes()
    q, k = (case.tensors[name].astype(float) for name in "QK")
    sizes = abs(q) @ abs(k).swapaxes(-1, -2)
    assert (abs(plain["scores"] - q @ k.swapaxes(-1, -2)) <= 26 * ROUNDOFF * sizes).all()


OUTPUTS = ["scores", "weights", "logsumexp", "context"]


@pytest.mark.parametrize("isa", supported_isas())
def test_float64_inputs_are_first_rounded_to_float32(tmp_path, isa):
    case = Case(L=30, S=60, dtype="f8")
    wide = run(tmp_path, case.tensors, isa=isa, outputs=OUTPUTS)
    narrow = run(tmp_path, {name: x.astype("f4") for name, x in case.tensors.items()}, isa=isa, outputs=OUTPUTS)
    for name, x in wide.items():
        assert x.dtype == np.float32 and x.tobytes() == narrow[name].tobytes()


def test_integers_are_rounded(tmp_path):
    rng = np.random.default_rng(2)
    tensors = {name: rng.integers(-1000, 1000, (n, 4)) for name, n in (("Q", 5), ("K", 7), ("V", 7))}
    found = run(tmp_path, tensors, outputs=["scores", "context"])
    q, k = (bf16(tensors[name].astype(float)) for name in "QK")
    assert found["scores"].dtype == found["context"].dtype == np.float32
    assert (found["scores"] == q @ k.T).all() and (q != tensors["Q"]).any()


@pytest.mark.parametrize("q, score", [([[257, 1]], 257), ([[1.0039064, 1]], 2.0078125)])
def test_numbers_in_json_are_accepted(tmp_path, q, score):
    """A half between two numbers of bfloat16 is rounded to the even one, 256, and what is above it up."""
    (tmp_path / "job.json").write_text(json.dumps({"Q": q, "K": [[1, 1]], "V": [[2.5]], "compute": "bf16",
                                                   "outputs": ["scores", "context"]}))
    for flags in [], ["--dry-run"]:
        assert attn("run", "job.json", *flags, cwd=tmp_path).returncode == 0
    found = json.loads(attn("run", "job.json", "--format", "json", cwd=tmp_path).stdout)
    assert found["scores"] == [[score]] and found["context"] == [[2.5]]
    done = attn("batch", "job.json", "--compute", "bf16", "--out-dir", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# Refusals and descriptions.

def job(folder, dtype="f4", **options):
    t = {name: np.ones((3, 4), dtype) for name in "QKV"}
    np.savez(folder / "in.npz", **t)
    (folder / "job.json").write_text(json.dumps({"compute": "bf16", **options, **{name: f"in.npz#{name}" for name in t}}))


@pytest.mark.parametrize("score", ["l2", "additive", "concat"])
def test_scores_without_products_are_refused(tmp_path, score):
    job(tmp_path, score=score, **({"W_score": [[1.0]] * 8} if score == "concat" else {}))
    refused = attn("run", "job.json", cwd=tmp_path)
    assert_error(refused, 65, "compute: 'bf16' requires score dot, cosine or general")


def test_gradients_are_refused(tmp_path):
    job(tmp_path, grad_context=[[1.0] * 4] * 3, outputs=["grad_Q", "context"])
    refused = attn("run", "job.json", cwd=tmp_path)
    assert_error(refused, 65, "'grad_Q' is not computed with compute bf16")


def test_the_kernels_compute_it(tmp_path):
    job(tmp_path)
    plan = json.loads(attn("run", "job.json", "--dry-run", "--format", "json", cwd=tmp_path).stdout)
    assert plan["path"] == "kernels" and "fallback_reason" not in plan and plan["products"] == "bf16"
    lines = attn("run", "job.json", "--dry-run", cwd=tmp_path).stdout.decode().splitlines()
    assert "products: of factors rounded to bfloat16" in lines
    plain = attn("run", "job.json", "--compute", "f32", "--dry-run", "--format", "json", cwd=tmp_path).stdout
    assert "products" not in json.loads(plain)


def test_the_explanation_names_it(tmp_path):
    job(tmp_path)
    for flags, is_named in ([], True), (["--compute", "f32"], False):
        done = attn("run", "job.json", *flags, "--explain", "steps.txt", "--force", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        text = " ".join((tmp_path / "steps.txt").read_text().split())
        assert text.count("are rounded to bfloat16 before the product") == (2 if is_named else 0)
