#!/usr/bin/env python3
"""Numbers at the ends of a dtype's range: what is finite stays finite, and what does not fit is said."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402


def isas():
    """Those that this machine runs: "kernels: avx512 (of baseline, avx2, avx512)"."""
    said = attn("--version", "-v").stdout.decode()
    return said.partition("(of ")[2].partition(")")[0].split(", ")


def results(folder, tensors, *flags, isa=None):
    np.savez(folder / "job.npz", **tensors)
    env = dict(os.environ, **({"ATTN_ISA": isa} if isa else {}))
    run = subprocess.run([ATTN, "run", "job.npz", *flags, "-o", "out.npz", "--force"], cwd=folder,
                         env=env, capture_output=True, check=False)
    if run.returncode != 0:
        return run.stderr.decode(), {}
    with np.load(folder / "out.npz") as arrays:
        return run.stderr.decode(), {name: arrays[name] for name in arrays.files}


def large_values(checks, folder):
    """A context is a mean of values: it does not overflow, however many the keys. Other columns are
    what they are without the large ones, to the last bit."""
    rng = np.random.default_rng(1)
    for dtype, isa in itertools.product(("f4", "f8"), isas()):
        most = float(np.finfo(dtype).max)
        for L, S, outputs in (5, 10, "context"), (9, 700, "context"), (9, 700, "weights,context"), \
                (1, 3000, "context"), (200, 600, "context"):
            q, k = (rng.standard_normal((n, 4)).astype(dtype) for n in (L, S))
            v = rng.standard_normal((S, 20)).astype(dtype)
            plain = results(folder, {"Q": q, "K": k, "V": v}, "--outputs", outputs, isa=isa)[1]
            large = v.copy()
            large[:, 3] = 0.9 * most
            large[:, 17] = rng.uniform(-0.9, 0.9, S) * most
            large[:, 19] = np.inf
            said, found = results(folder, {"Q": q, "K": k, "V": large}, "--outputs", outputs, isa=isa)
            what = f"{dtype}, {isa}, {L} x {S}, {outputs}: {said}"
            if not checks.check("context" in found, what):
                continue
            scores = q.astype(float) @ k.astype(float).T / 2
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            want = weights @ (large[:, [3, 17]].astype(float) / most)
            got = found["context"][:, [3, 17]].astype(float) / most
            checks.check(np.allclose(got, want, rtol=0, atol=1e-5 if dtype == "f4" else 1e-13), what)
            rest = [i for i in range(20) if i not in (3, 17, 19)]
            checks.check(np.array_equal(found["context"][:, rest], plain["context"][:, rest]), what)
            checks.check(np.all(found["context"][:, 19] == np.inf), what)
    most = np.finfo("f4").max
    full = {"Q": rng.standard_normal((40, 8)).astype("f4"), "K": rng.standard_normal((1000, 8)).astype("f4"),
            "V": np.full((1000, 3), most)}
    for isa in isas():
        found = results(folder, full, "--outputs", "context", isa=isa)[1]["context"]
        checks.check(np.allclose(found / most, 1, rtol=1e-5), f"all of them the largest, {isa}")
    for path in "auto", "reference":
        hidden = {"Q": np.ones((2, 4), "f4"), "K": np.ones((30, 4), "f4"),
                  "V": np.full((30, 3), 3e38, "f4"), "mask": np.zeros((2, 30), bool)}
        found = results(folder, hidden, "--empty-rows", "uniform", "--outputs", "context", "--path",
                        path)[1]
        checks.check(np.allclose(found["context"], np.float32(3e38), rtol=1e-5), f"uniform, {path}")


def large_values_beside(checks, folder):
    """What is mended in one batch row changes nothing in another: of an infinite value whose weight
    rounds to 0 the context stays NaN, though keys in blocks would make it infinite."""
    for isa in isas():
        k = np.zeros((2, 1, 700, 1), "f4")
        k[:, :, :512] = -50
        k[:, :, 0] = -104
        job = {"Q": np.ones((2, 1, 1, 1), "f4"), "K": k, "V": np.ones((2, 1, 700, 1), "f4")}
        job["V"][0, 0, 0] = -np.inf
        for outputs in "weights,context", "context":
            alone = results(folder, job, "--outputs", outputs, isa=isa)[1]["context"]
            beside = {**job, "V": job["V"].copy()}
            beside["V"][1] = 3e38
            found = results(folder, beside, "--outputs", outputs, isa=isa)[1]["context"]
            what = f"{isa}, {outputs}: {alone.ravel()}, {found.ravel()}"
            checks.check(np.array_equal(alone[0], found[0], equal_nan=True), what)
            checks.check(np.allclose(found[1], 3e38, rtol=1e-5), what)


def large_values_of_groups(checks, folder):
    """Of one key/value head of several, for the heads that share it, in the rows chosen."""
    rng = np.random.default_rng(3)
    most = float(np.finfo("f4").max)
    q, k, v = (rng.standard_normal(shape).astype("f4")
               for shape in [(2, 4, 9, 8), (2, 2, 600, 8), (2, 2, 600, 5)])
    plain = results(folder, {"Q": q, "K": k, "V": v}, "--outputs", "context", "--rows", "8,2")[1]["context"]
    v[1, 0] = rng.uniform(0.5, 1, (600, 5)) * most
    found = results(folder, {"Q": q, "K": k, "V": v}, "--outputs", "context", "--rows", "8,2")[1]["context"]
    for head in 0, 1:
        scores = q[1, head, [8, 2]].astype(float) @ k[1, 0].astype(float).T / np.sqrt(8)
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        checks.check(np.allclose(found[1, head] / most, weights @ (v[1, 0].astype(float) / most), rtol=1e-5),
                     f"head {head}: {found[1, head]}")
    checks.check(np.array_equal(found[0], plain[0]) and np.array_equal(found[1, 2:], plain[1, 2:]),
                 "other batch rows and groups")


def odd_options(checks, folder):
    """Of a query of zeros all scores are 0, whatever they are multiplied with or divided by."""
    third = [1 / 3] * 3
    job = {"Q": [[0, 0], [1, 0]], "K": [[1, 0], [2, 0], [-1, 0]], "V": [[1], [2], [3]]}
    of_second = {"temperature": None, "scale": None, "softcap": third}  # inf - inf is NaN
    for dtype, flags in [
            ("f4", ["--scale", "1e39"]), ("f4", ["--temperature", "1e-39"]),
            ("f4", ["--scale", "1e38", "--temperature", "0.1"]), ("f4", ["--softcap", "1e-39"]),
            ("f4", ["--softcap", "1e-50"]), ("f8", ["--softcap", "1e-320"]),
            ("f8", ["--temperature", "1e-320"]), ("f8", ["--scale", "1e308", "--temperature", "0.01"])]:
        tensors = {name: np.array(rows, dtype) for name, rows in job.items()}
        for isa in isas():
            found = results(folder, tensors, *flags, "--outputs", "weights", isa=isa)[1].get("weights")
            second = of_second[flags[0].strip("-")]
            what = f"{dtype}, {isa}, {flags}: {found}"
            checks.check(found is not None and np.allclose(found[0], third, rtol=1e-6), what)
            checks.check(np.allclose(found[1], second, rtol=1e-6) if second
                         else np.isnan(found[1]).all(), what)


def odd_sinks(checks, folder):
    """A NaN is never lost, and a sink beyond all scores takes all."""
    tensors = {"Q": np.ones((2, 2), "f4"), "K": np.ones((3, 2), "f4"), "V": np.ones((3, 1), "f4")}
    for sink, weight, total in (np.nan, np.nan, np.nan), (np.inf, np.nan, np.inf), (3e38, 0, 3e38), \
            (-3e38, 1 / 3, np.sqrt(2) + np.log(3)), (-np.inf, 1 / 3, np.sqrt(2) + np.log(3)):
        for isa in isas():
            said, found = results(folder, {**tensors, "sinks": np.array([sink], "f4")}, "--heads", "1",
                                  "--outputs", "weights,logsumexp", isa=isa)
            what = f"sink {sink}, {isa}: {found} {said}"
            checks.check(np.allclose(found["weights"], weight, rtol=1e-6, equal_nan=True), what)
            checks.check(np.allclose(found["logsumexp"], total, rtol=1e-6, equal_nan=True), what)
            checks.check(("expected no NaN" in said) == bool(np.isnan(weight)), what)


def float16_is_left(checks, folder):
    """float16 ends at 65504: what is beyond is infinite, and that is said, streamed or not."""
    rng = np.random.default_rng(2)
    for L, S in (3, 3), (70, 600):
        job = {name: (300 * rng.standard_normal((n, 64))).astype("f2") for name, n in (("Q", L), ("K", S))}
        scores = job["Q"].astype(float) @ job["K"].astype(float).T / 8
        beyond = int((abs(scores) >= 65520).sum())
        for flags in [], ["--causal=bottom-right"]:
            if flags:
                beyond = int((abs(scores)[np.tri(L, S, S - L, bool)] >= 65520).sum())
            for outputs in "masked_scores", "weights,masked_scores", "masked_scores,mean_weights":
                heads = ["--heads", "1"] if "mean" in outputs else []
                said, found = results(folder, job, *flags, *heads, "--outputs", outputs)
                words = (f"masked_scores: expected numbers that float16 holds, found {beyond} of "
                         f"{L * S} beyond")
                checks.check(words in said, f"{L} x {S}, {outputs}, {flags}: {words}; {said}")
        for flags in ["--outputs", "weights"], ["--compute", "f32", "--outputs", "scores"]:
            checks.check(results(folder, job, *flags)[0] == "", f"{flags}: nothing is beyond")
    lines = json.dumps({"Q": "job.npz#Q", "K": "job.npz#K", "outputs": ["scores"]}) + "\n"
    run = attn("batch", "-", stdin=lines, cwd=folder)
    checks.check(b"line 1: warning: scores: expected numbers that float16 holds" in run.stderr, f"{run}")
    job = {"Q": np.full((1, 1), 6e4, "f2"), "K": np.full((1, 1), np.inf, "f2")}
    said, _ = results(folder, job, "--outputs", "scores")
    checks.check(said == "", f"an infinity that was given: {said}")


def main():
    checks = Checks("extremes")
    for part in large_values, large_values_beside, large_values_of_groups, odd_options, odd_sinks, float16_is_left:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()


main()
