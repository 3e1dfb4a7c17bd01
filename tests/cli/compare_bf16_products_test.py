"""`attn compare --reference` of results of jobs with `compute: "bf16"`: the bound counts the rounding of all factors."""

import json
import os
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, attn
from support.rounding import rounded

ROUNDOFF = 2.0**-24
OUTPUTS = ["scores", "weights", "logsumexp", "context"]


def supported_isas():
    version = attn("--version", "-v").stdout.decode()
    return version.partition("(of ")[2].partition(")")[0].split(", ")


def write_job(path, tensors, **options):
    np.savez(path.with_name("in.npz"), **tensors)
    path.write_text(json.dumps({**options, **{name: f"in.npz#{name}" for name in tensors}}))


def run(folder, *flags, isa=None):
    environment = dict(os.environ, **({"ATTN_ISA": isa} if isa else {}))
    subprocess.run([ATTN, "run", "job.json", *flags, "--outputs", ",".join(OUTPUTS), "-o", "mine.npz", "--force"],
                   cwd=folder, env=environment, check=True, capture_output=True)


def compare(folder, result="mine.npz", job="job.json", *flags):
    """The exit code, and the largest error of each output as a fraction of its bound."""
    done = attn("compare", result, "--reference", job, *flags, "--json", cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    worst = {tensor["name"].rpartition("#")[2]: tensor["bound"]["worst"]["value"]
             for tensor in json.loads(done.stdout)["tensors"]}
    return done.returncode, worst


def random_tensors(seed, dtype="f4", L=20, S=30, D=32):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((2, n, D)).astype(dtype) for name, n in (("Q", L), ("K", S), ("V", S))}


JOBS = {
    "plain": ({}, {}), "causal": ({"causal": True}, {}), "softcap": ({"softcap": 5}, {}),
    "rotary": ({"rotary": {"kind": "half"}}, {}), "norms": ({"qk_norm": "rms"}, {}),
    "float16": ({}, {"dtype": "f2"}), "one query": ({}, {"L": 1, "S": 1100, "D": 64}),
    "streamed": ({}, {"L": 130, "S": 600, "D": 64}), "odd width": ({}, {"D": 7}),
}


@pytest.mark.parametrize("isa", supported_isas() + ["reference"])
@pytest.mark.parametrize("name", JOBS)
def test_results_are_within_the_bound_of_their_job_only(tmp_path, name, isa):
    options, sizes = JOBS[name]
    tensors = random_tensors(3, **sizes)
    write_job(tmp_path / "plain.json", tensors, **options)
    write_job(tmp_path / "job.json", tensors, **options, compute="bf16")
    run(tmp_path, *(["--path", "reference"] if isa == "reference" else []), isa=None if isa == "reference" else isa)
    code, worst = compare(tmp_path)
    assert code == 0, worst
    # Without the term, results would exceed the bound; with it, the bound is not arbitrarily wide.
    without, exceeded = compare(tmp_path, job="plain.json")
    if name != "float16":  # where the results themselves have few bits
        assert without == 1 and exceeded["logsumexp"] > 2
    assert worst["scores"] > 0.03


def growth(n):
    return min(n, 4 * np.sqrt(n))


def score_bound(q, k):
    """Of scores in float32, from the formula of docs/error-bounds.md."""
    of_q, of_k = abs(q - rounded(q, "bf16")), abs(k - rounded(k, "bf16"))
    D = q.shape[1]
    error = of_q @ (abs(k) + of_k).T + abs(q) @ of_k.T + growth(D) * ROUNDOFF * abs(q) @ (abs(k) + of_k).T
    return error + D * 2.0**-126 + ROUNDOFF * abs(q @ k.T)


@pytest.mark.parametrize("D", [1, 16, 65])
def test_the_bound_is_that_of_the_formula(tmp_path, D):
    rng = np.random.default_rng(D)
    q, k = (rng.standard_normal((n, D)).astype("f4").astype(float) for n in (6, 9))
    write_job(tmp_path / "job.json", {"Q": q.astype("f4"), "K": k.astype("f4")}, compute="bf16")
    bound = score_bound(q, k)
    for factor, code in ((0.99, 0), (1.01, 1)):
        np.savez(tmp_path / "mine.npz", scores=q @ k.T + factor * bound)
        found, worst = compare(tmp_path, "mine.npz", "job.json", "--precision", "f32")
        assert (found, worst["scores"]) == (code, pytest.approx(factor, rel=1e-3))


def test_roundings_of_one_sign_reach_the_bound(tmp_path):
    q = np.full((1, 64), 1 + 2.0**-8 - 2.0**-20, "f4")  # rounds down to 1
    write_job(tmp_path / "job.json", {"Q": q, "K": q, "V": q}, compute="bf16", scale=1)
    run(tmp_path)
    code, worst = compare(tmp_path)
    assert code == 0 and 0.95 < worst["scores"] <= 1


@pytest.mark.parametrize("isa", supported_isas() + ["reference"])
@pytest.mark.parametrize("case", ["equal keys", "one key above others", "nearly equal keys"])
@pytest.mark.parametrize("S", [3, 64, 1000, 3000])
def test_weights_that_are_rounded_alike_are_within_the_bound(tmp_path, isa, case, S):
    rng = np.random.default_rng(S)
    q, k, v = np.zeros((20, 64)), np.zeros((S, 64)), np.ones((S, 5))
    if case == "one key above others":
        q[:, 0], k[1:, 0] = 1, -1.359375
    if case == "nearly equal keys":
        q, k, v = 0.02 * rng.standard_normal((20, 64)), 0.02 * rng.standard_normal((S, 64)), abs(rng.standard_normal((S, 5)))
    tensors = {name: rounded(x, "bf16").astype("f4") for name, x in (("Q", q), ("K", k), ("V", v))}
    write_job(tmp_path / "job.json", tensors, compute="bf16", scale=1)
    run(tmp_path, *(["--path", "reference"] if isa == "reference" else []), isa=None if isa == "reference" else isa)
    code, worst = compare(tmp_path)
    assert code == 0, worst
    if case == "one key above others" and S == 1000:
        assert worst["context"] > 0.5


def test_both_roundings_of_weights_are_permitted(tmp_path):
    """Those of --weights-precision count beside those of compute: bf16."""
    tensors = {name: rounded(x, "bf16").astype("f4") for name, x in random_tensors(3).items()}
    write_job(tmp_path / "job.json", tensors, compute="bf16")
    q, k, v = (tensors[name].astype(float) for name in "QKV")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    step = 2.0 ** np.maximum(np.floor(np.log2(weights)), -6) / 8  # of e4m3
    context = np.round(weights / step) * step @ v / weights.sum(-1, keepdims=True)
    np.savez(tmp_path / "mine.npz", context=context.astype("f4"))
    assert compare(tmp_path)[0] == 1
    assert compare(tmp_path, "mine.npz", "job.json", "--weights-precision", "e4m3")[0] == 0


def test_numbers_that_bfloat16_cannot_represent_are_refused(tmp_path):
    tensors = random_tensors(3)
    tensors["V"][0, 0, 0] = 3.4e38
    write_job(tmp_path / "job.json", tensors, compute="bf16")
    run(tmp_path)
    done = attn("compare", "mine.npz#context", "--reference", "job.json", cwd=tmp_path)
    assert done.returncode == 65 and b"compute: bf16 cannot represent 3" in done.stderr


def test_what_bfloat16_represents_has_the_plain_bound(tmp_path):
    """A relative error of 1e-4 exceeds it, unless factors are rounded."""
    tensors = random_tensors(5)
    for exact in (True, False):
        if exact:
            tensors_of_job = {name: rounded(x, "bf16").astype("f4") for name, x in tensors.items()}
        else:
            tensors_of_job = tensors
        write_job(tmp_path / "job.json", tensors_of_job, compute="bf16")
        run(tmp_path)
        assert compare(tmp_path)[0] == 0
        with np.load(tmp_path / "mine.npz") as found:
            outputs = dict(found)
        np.savez(tmp_path / "wrong.npz", scores=(outputs["scores"] + 1e-3).astype("f4"))
        assert compare(tmp_path, "wrong.npz")[0] == (1 if exact else 0)


@pytest.mark.parametrize("isa", supported_isas())
def test_subnormal_numbers_are_within_the_bound(tmp_path, isa):
    rng = np.random.default_rng(8)
    for scale_q, scale_k in ((1e-39, 1e30), (1e-30, 1e-12), (2e-38, 1), (1e-20, 1e-19)):
        tensors = {"Q": (scale_q * rng.standard_normal((7, 16))).astype("f4"),
                   "K": (scale_k * rng.standard_normal((9, 16))).astype("f4"), "V": np.ones((9, 2), "f4")}
        write_job(tmp_path / "job.json", tensors, compute="bf16")
        run(tmp_path, isa=isa)
        code, worst = compare(tmp_path)
        assert code == 0, worst


def attention(q, k, v, scale, mask):
    scores = np.where(mask, scale * rounded(q, "bf16") @ rounded(k, "bf16").swapaxes(-1, -2), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


FAULTS = {
    "none": ({}, 0), "causal mask off by one key": ({"offset": 1}, 1), "scaled by 1/D": ({"power": 1}, 1),
    "keys in 5 bits": ({"bits": 5}, 1), "scores 5 % too large": ({"factor": 1.05}, 1),
    "queries one position late": ({"late": True}, 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_exceed_the_bound(tmp_path, name):
    change, code = FAULTS[name]
    tensors = random_tensors(11, L=40, S=40, D=64)
    q, k, v = (tensors[name].astype(float) for name in "QKV")
    write_job(tmp_path / "job.json", tensors, compute="bf16", causal=True)
    scale = 64.0 ** -change.get("power", 0.5) * change.get("factor", 1)
    if "bits" in change:
        mantissa, exponent = np.frexp(k)
        k = np.ldexp(np.round(mantissa * 2 ** change["bits"]) / 2 ** change["bits"], exponent)
    if change.get("late"):
        q = np.roll(q, 1, axis=1)
    context = attention(q, k, v, scale, np.tri(40, k=change.get("offset", 0), dtype=bool))
    np.savez(tmp_path / "mine.npz", context=context.astype("f4"))
    assert compare(tmp_path)[0] == code


NAME = "f32 with products in bf16"


def test_the_flag_sets_the_key_of_the_job(tmp_path):
    tensors = random_tensors(4)
    write_job(tmp_path / "plain.json", tensors)
    write_job(tmp_path / "job.json", tensors, compute="bf16")
    run(tmp_path)
    assert compare(tmp_path, "mine.npz", "plain.json")[0] == 1
    assert compare(tmp_path, "mine.npz", "plain.json", "--compute", "bf16") == compare(tmp_path)


def test_the_verdict_names_what_widens_the_bound(tmp_path):
    write_job(tmp_path / "job.json", random_tensors(4), compute="bf16")
    run(tmp_path)
    attn("run", "job.json", "--outputs", "scores,queries", "-o", "some.npz", cwd=tmp_path)
    lines = attn("compare", "some.npz", "--reference", "job.json", cwd=tmp_path).stdout.decode().splitlines()
    assert f"within the error bound of {NAME}, at most" in lines[0] and lines[1].endswith(": equal")
    report = json.loads(attn("compare", "some.npz", "--reference", "job.json", "--json", cwd=tmp_path).stdout)
    assert [tensor["bound"]["of"] for tensor in report["tensors"]] == [NAME, "f32"]


def test_float64_jobs_are_compared(tmp_path):
    write_job(tmp_path / "job.json", random_tensors(6, "f8"), compute="bf16")
    run(tmp_path)
    assert compare(tmp_path)[0] == 0


def test_the_baseline_rounds_factors(tmp_path):
    tensors = random_tensors(7)
    found = {}
    write_job(tmp_path / "job.json", tensors, compute="bf16")
    run(tmp_path)
    for word in "bf16", "f32":
        write_job(tmp_path / "job.json", tensors, compute=word)
        done = attn("compare", "mine.npz#context", "--reference", "job.json", "--baseline", "--json", cwd=tmp_path)
        found[word] = json.loads(done.stdout)["tensors"][0]["gates"][0]
    assert found["bf16"]["passed"] and not found["f32"]["passed"]


@pytest.mark.parametrize("options", [{}, {"causal": True, "rotary": {"kind": "half"}}])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_the_diagnosis_of_other_jobs_names_the_rounding(tmp_path, options, dtype):
    tensors = random_tensors(9, dtype)
    write_job(tmp_path / "job.json", tensors, **options, compute="bf16")
    write_job(tmp_path / "plain.json", tensors, **options)
    run(tmp_path)
    report = json.loads(attn("compare", "mine.npz", "--reference", "plain.json", "--json", cwd=tmp_path).stdout)
    wrong = [tensor for tensor in report["tensors"] if not tensor["same"]]
    assert dtype == "f2" or len(wrong) == len(OUTPUTS)
    for tensor in wrong:
        products = "products in bf16" if tensor["name"].endswith("context") else "scores of bf16 factors"
        assert tensor["arithmetic"] == f"{products} (compute: bf16)", tensor["name"]
        assert tensor["diagnosis"] == []


def test_the_diagnosis_names_scores_that_alone_are_rounded(tmp_path):
    tensors = random_tensors(9)
    write_job(tmp_path / "plain.json", tensors)
    context = attention(*(tensors[name].astype(float) for name in "QKV"), 32**-0.5, True)
    np.savez(tmp_path / "mine.npz", context=context.astype("f4"))
    done = attn("compare", "mine.npz", "--reference", "plain.json", cwd=tmp_path).stdout.decode()
    assert "arithmetic, not meaning: the errors are those of scores of bf16 factors\n" in done
