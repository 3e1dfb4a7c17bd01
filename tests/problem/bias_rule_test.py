"""bias_rule, compared with jobs whose bias Python computes from the same expression."""

import itertools
import json
import math
import random

import numpy as np
import pytest

from support.attn import assert_error, attn, json_lines
from support.jobs import random_jobs
from support.rule_table import Table

RANDOM_JOBS = random_jobs(80)
FUNCTIONS = dict(abs=abs, min=min, max=max, exp=math.exp, exp2=lambda x: 2.0**x, log=math.log, log2=math.log2,
                 sqrt=math.sqrt)


def python_bias(rule, L, S, *, B=1, H=1, G=None, offset=0, tables=None, causal=False):
    """The bias (B, H, L, S), pair by pair, with 0 for hidden keys; None if the rule has no value for a pair. The table
    "each" has an axis of batch items."""
    code = compile(rule, "rule", "eval")
    bias = np.zeros((B, H, L, S))
    for b, h, i, j in itertools.product(range(B), range(H), range(L), range(S)):
        if causal and j > i + offset:
            continue
        names = FUNCTIONS | dict(b=b, h=h, g=h // (H // (G or H)), i=i, j=j, q=i + offset, k=j, L=L, S=S, __builtins__={})
        for name, table in (tables or {}).items():
            names[name] = Table(table[b] if name == "each" else table)
        try:
            bias[b, h, i, j] = eval(code, names)
        except (ArithmeticError, IndexError, ValueError):
            return None
    return bias if np.isfinite(bias).all() else None


def problem(L, S, *, B=1, H=1, G=None, seed=0):
    rng = np.random.default_rng([L, S, B, H, seed])
    shapes = dict(Q=(B, H, L, 4), K=(B, G or H, S, 4), V=(B, G or H, S, 3))
    return {name: rng.standard_normal(shape).round(3).tolist() for name, shape in shapes.items()}


def outputs(jobs):
    """The outputs of these jobs, or the message of each that fails, by their ids."""
    run = attn("batch", "-", stdin="\n".join(map(json.dumps, jobs)))
    return {result.get("id", result["job"]): result for result in json_lines(run.stdout)}


# Of published models, with numbers for their parameters.
RULES = {
    "ALiBi": ("-slopes[h] * abs(q - k)", {"slopes": [0.5, 0.0625]}),
    "distances, h": ("learned[min(abs(q - k), 7), h]", {"learned": np.sin(np.arange(16)).reshape(8, 2).tolist()}),
    "KERPLE, logarithmic": ("-r1[h] * log(1 + r2[h] * abs(q - k))", {"r1": [0.3, 1.7], "r2": [0.9, 0.01]}),
    "Sandwich-like": ("-1.5 * sqrt(abs(q - k))", {}),
    "Gaussian": ("-(q - k) * (q - k) / (2 * 4.5)", {}),
    "grid, Manhattan distance": ("-0.1 * (abs(q % 5 - k % 5) + abs(q // 5 - k // 5))", {}),
    "grid, Swin": ("t[(q // 5 - k // 5 + 4) * 9 + q % 5 - k % 5 + 4, h]", {"t": np.cos(np.arange(162)).reshape(81, 2).tolist()}),
    "same document": ("2.5 * (doc[q] == doc[k])", {"doc": [n // 7 for n in range(24)]}),
    "first token": ("(k == 0 and not q == 0) * 1.25 - 1e-3 * j", {}),
    "one number": ("exp2(-2) - 1", {}),
    "of heads": ("log2(h + 3) - g", {}),
}


@pytest.mark.parametrize("compute", ["f64", "f32"])
@pytest.mark.parametrize("path", ["auto", "reference"])
def test_rules_in_use_have_the_bytes_of_their_biases(path, compute):
    jobs = []
    for number, (rule, tables) in enumerate(RULES.values()):
        job = problem(24, 24, H=2, seed=number) | {"outputs": ["masked_scores", "weights", "context", "logsumexp"],
                                                   "path": path, "compute": compute}
        jobs.append(job | {"id": f"rule {number}", "bias_rule": rule} | ({"mask_tables": tables} if tables else {}))
        jobs.append(job | {"id": f"bias {number}", "bias": python_bias(rule, 24, 24, H=2, tables=tables).tolist()})
    results = outputs(jobs)
    for number, name in enumerate(RULES):
        for output in jobs[0]["outputs"]:
            assert results[f"rule {number}"][output] == results[f"bias {number}"][output], (name, output)


def random_number(rng, depth):
    """An expression of real numbers."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*"qkqkijLSbhg", "0", "1", "2", "3", "0.5", "1.25e-1", "7."])
    a, b = (random_number(rng, depth - 1) for _ in range(2))
    return rng.choice([f"({a} + {b})", f"({a} - {b})", f"({a}) * ({b})", f"({a}) / ({b})", f"({a}) // ({b})",
                       f"({a}) % ({b})", f"-({a})", f"abs({a})", f"min({a}, {b})", f"max({a}, {b}, 2)", f"exp(min({a}, 4))",
                       f"exp2(-abs({a}))", f"log({a})", f"log2(1 + abs({a}))", f"sqrt(abs({a}))", f"({a} < {b})",
                       f"(({a} >= {b} or {b} != 1) * {a})", f"one[{a}]", f"two[abs({a}) % 6, {b}]", f"each[{a}]"])


def test_random_rules_add_what_python_adds():
    jobs, biases = [], []
    for seed in range(RANDOM_JOBS):
        rng = random.Random(seed)
        B, G = rng.choice([1, 1, 2]), rng.choice([1, 2])
        H, L, S = G * rng.choice([1, 2]), rng.randint(1, 10), rng.randint(1, 10)
        number = lambda: rng.randint(-20, 20) / 8
        tables = {"one": [number() for _ in range(14)], "two": [[number() for _ in range(9)] for _ in range(6)],
                  "each": [[number() for _ in range(12)] for _ in range(B)]}
        rule, offset, causal = f"0.5 * {random_number(rng, 3)}", rng.randint(-2, 3), rng.random() < 0.5
        tables = {name: table for name, table in tables.items() if f"{name}[" in rule}
        biases.append(python_bias(rule, L, S, B=B, H=H, G=G, offset=offset, tables=tables, causal=causal))
        job = problem(L, S, B=B, H=H, G=G, seed=seed) | {"causal": causal, "outputs": ["weights", "context"],
                                                         "path": ["auto", "reference"][seed % 2]}
        jobs.append(job | {"id": f"rule {seed}", "causal_offset": offset, "bias_rule": rule, "mask_tables": tables})
        if biases[-1] is not None:
            jobs.append(job | {"id": f"bias {seed}", "bias": biases[-1].tolist()} | ({"causal_offset": offset} if causal else {}))
    results = outputs(jobs)
    failed = 0
    for seed, bias in enumerate(biases):
        found = results[f"rule {seed}"]
        rule = next(job["bias_rule"] for job in jobs if job["id"] == f"rule {seed}")
        if bias is None:
            failed += 1
            assert "bias_rule: " in found["error"][0] and " at character " in found["error"][0], rule
        else:
            assert "error" not in found, (rule, found)
            for output in "weights", "context":
                assert found[output] == results[f"bias {seed}"][output], rule
    assert 10 < failed < RANDOM_JOBS - 10


def saved(folder, name, *flags, **arrays):
    """The arrays of a result of a job of these arrays."""
    np.savez(folder / f"{name}.npz", **arrays)
    run = attn("run", f"{name}.npz", *flags, "--force", "-o", f"{name}-result.npz", cwd=folder)
    assert run.returncode == 0, run.stderr.decode()
    return dict(np.load(folder / f"{name}-result.npz"))


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert np.array_equal(a[name], b[name], equal_nan=True), name


def arrays_of(L, S, B=1, H=1, seed=0, dtype="f4"):
    return {name: np.array(x, dtype) for name, x in problem(L, S, B=B, H=H, seed=seed).items()}


L, H = 130, 2
ROW, KEY, HEAD = np.arange(L)[:, None], np.arange(L), np.arange(H)[:, None, None]
RULE, BIAS = "-0.25 * abs(q - k) * (h + 1)", (-0.25 * abs(ROW - KEY) * (HEAD + 1)).astype("f4")


@pytest.mark.parametrize("path", ["auto", "reference"])
@pytest.mark.parametrize("more, flags", [
    ({}, ["--softcap", "3"]),
    ({}, ["--softcap", "3", "--softcap-order", "after-mask", "--causal"]),
    ({"mask": np.sin(ROW * KEY).astype("f4")}, ["--mask-rule", "(q + k) % 3 > 0"]),
    ({"alibi_slopes": np.array([0.5, 1], "f4"), "sinks": np.array([0.5, 1], "f4")}, ["--window", "40,3"]),
    ({"relative_bias": np.cos(np.arange(32)).reshape(16, 2).astype("f4")}, ["--rows", "3,-1,60:70"]),
    ({"bias_K": np.ones(8, "f4"), "bias_V": np.ones(6, "f4")}, ["--zero-key"]),
    ({"key_lengths": np.array([70])}, ["--causal"]),
])
def test_with_other_options(tmp_path, more, flags, path):
    """With masks, softcaps, other biases, appended keys and some of the rows: as `bias`."""
    arrays = arrays_of(L, L, H=H) | more
    flags = [*flags, "--path", path, "--outputs", "masked_scores,weights,context,logsumexp"]
    assert_same(saved(tmp_path, "rule", "--bias-rule", RULE, *flags, **arrays),
                saved(tmp_path, "bias", *flags, **arrays, bias=BIAS))


def test_it_is_added_to_a_bias(tmp_path):
    """A sum with exact numbers, in any order; a third one is added by the reference path."""
    bias, mask = np.round(8 * np.sin(ROW + KEY)).astype("f4"), np.round(4 * np.cos(ROW * KEY)).astype("f4")
    whole = {name: np.round(2 * x) for name, x in arrays_of(L, L, H=H).items()}
    for more in [{"bias": bias}, {"bias": bias, "mask": mask}]:
        flags = ["--scale", "1", "--outputs", "masked_scores"]
        assert_same(saved(tmp_path, "rule", "--bias-rule", RULE, *flags, **whole, **more),
                    saved(tmp_path, "sum", *flags, **whole, bias=sum(more.values()) + BIAS))


def test_positions_are_those_of_documents(tmp_path):
    documents = np.array([0] * 30 + [1] * 60 + [2] * 40)
    own = KEY - np.array([0] * 30 + [30] * 60 + [90] * 40)
    arrays = arrays_of(L, L, H=H) | {"documents": documents}
    assert_same(saved(tmp_path, "rule", "--bias-rule", "0.5 * q - sqrt(1 + k)", **arrays),
                saved(tmp_path, "bias", **arrays, bias=(0.5 * own[:, None] - np.sqrt(1.0 + own)).astype("f4")))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_gradients_and_comparison(tmp_path, dtype):
    """Those of the other inputs, also of another bias. The tables do not widen the result."""
    arrays = arrays_of(L, L, H=H, dtype=dtype)
    arrays |= {"grad_context": arrays["Q"][..., :3], "mask": np.sin(ROW - KEY).astype(dtype)}
    tables = {"mask_tables.slopes": np.array([0.25, 0.5])}
    flags = ["--outputs", "context,grad_Q,grad_K,grad_V,grad_mask"]
    rule = ["--bias-rule", "-slopes[h] * abs(q - k)"]
    by_rule = saved(tmp_path, "rule", *flags, *rule, **arrays, **tables)
    assert by_rule["context"].dtype == dtype
    assert_same(by_rule, saved(tmp_path, "bias", *flags, **arrays, bias=BIAS.astype(dtype)))
    compare = lambda *rule: attn("compare", "rule-result.npz", "--reference", "rule.npz", *rule, cwd=tmp_path)
    assert compare(*rule).returncode == 0
    other = compare("--bias-rule", "slopes[h] * abs(q - k)")
    assert other.returncode == 1 and "agrees with --bias-rule '-(slopes[h] * abs(q - k))'" in other.stdout.decode()


def test_it_is_recorded_in_the_result(tmp_path):
    arrays = arrays_of(9, 9, dtype="f8")
    (tmp_path / "job.json").write_text(json.dumps({name: x.tolist() for name, x in arrays.items()} | {
        "bias_rule": "t[q] / (1 + k)", "mask_tables": {"t": [0.5] * 9}, "outputs": ["scores", "masked_scores", "weights"]}))
    assert attn("run", "job.json", "-o", "result.json", cwd=tmp_path).returncode == 0
    assert '"bias_rule": "t[q] / (1 + k)"' in (tmp_path / "result.json").read_text()


JOB = {"Q": [[1.0], [2], [3]], "K": [[1], [2], [3]], "outputs": ["weights"]}


@pytest.mark.parametrize("flags, code, texts", [
    (["--bias-rule", "q - kk"], 2, ["--bias-rule: unknown name 'kk' at character 5"]),
    (["--bias-rule", "q >= k"], 2, ["--bias-rule: expected numbers to add, found a truth value at character 3 (use mask_rule)"]),
    (["--bias-rule", "q and k"], 2, ["expected a comparison, found a number at character 1"]),
    (["--bias-rule", "exp(q, k)"], 2, ["expected one argument of exp, found 2 at character 1"]),
    (["--bias-rule", "1 / (k - 1)"], 2, ["division by zero at character 3 for b = 0, h = 0, q = 0, k = 1"]),
    (["--bias-rule", "log(q - k)"], 2, ["the result is not finite at character 1 for b = 0, h = 0, q = 0, k = 0"]),
    (["--bias-rule", "log(q - k)", "--causal"], 2, ["the result is not finite at character 1 for b = 0, h = 0, q = 0, k = 0"]),
    (["--bias-rule", "log(1 + q - k)", "--causal"], 0, []),
    (["--bias-rule", "q / k", "--mask-rule", "k > 0"], 0, []),
    (["--bias-rule", "1e39", "--compute", "f32"], 2, ["the result does not fit into float32 at character 1 for"]),
    (["--bias-rule", "t[k]", "--mask-tables", '{"t": [1, 0.5]}'], 2, ["index 2 of t is not in [0, 2) at character 1 for"]),
    (["--bias-rule", "t[k / 2]", "--mask-tables", '{"t": [1, 0.5]}'], 2,
     ["index 0.5 of t is not a whole number at character 1 for b = 0, h = 0, q = 0, k = 1"]),
    (["--bias-rule", "exp[k]", "--mask-tables", '{"exp": [1]}'], 65, ["mask_tables.exp: expected another name"]),
    (["--bias-rule", "t[0]", "--mask-rule", "t[0] > 0", "--mask-tables", '{"t": [0.5]}'], 65,
     ["mask_tables.t: expected integers or booleans"]),
])
def test_errors(flags, code, texts):
    run = attn("run", "-", *flags, stdin=json.dumps(JOB))
    if code:
        assert_error(run, code, *texts)
    else:
        assert run.returncode == 0, run.stderr.decode()


def test_a_large_bias_is_made_for_some_queries_at_a_time(tmp_path):
    """A bias of all queries and heads would have 288 MB."""
    arrays = {name: np.random.default_rng(2).standard_normal((2, 6_000, 2)).astype("f4") for name in "QKV"}
    rule = ["--layout", "bhld", "--rows", "0:6000", "--bias-rule", "-0.01 * (h + 1) * abs(q - k)", "--outputs", "context"]
    whole = saved(tmp_path, "whole", *rule, "--max-memory", "200M", **{name: x[None] for name, x in arrays.items()})
    for h, i in itertools.product(range(2), [0, 1, 2_999, 5_999]):
        scores = arrays["K"][h].astype(float) @ arrays["Q"][h, i] / np.sqrt(2) - 0.01 * (h + 1) * abs(i - np.arange(6_000))
        weights = np.exp(scores - scores.max())
        expected = weights @ arrays["V"][h] / weights.sum()
        np.testing.assert_allclose(whole["context"].reshape(2, 6_000, 2)[h, i], expected, rtol=1e-4, atol=1e-5)
