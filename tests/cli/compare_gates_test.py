"""`attn compare --gate`: the metrics against NumPy, the logic of expressions, and bad input."""

import json
import math

import numpy as np
import pytest

from support.attn import assert_error, assert_verdict, attn
from support.ordinals import ordinals

METRICS = ["max_abs", "mean_abs", "rms", "max_rel", "rel_l2", "rms_ratio", "nmse", "snr", "cosine", "cosdiff", "pcc",
           "ulp", "mismatched", "token_p50", "token_p90", "token_p99", "token_max", "ref_rms", "ref_max", "ref_l2",
           "ref_rounding"]
CALLS = ["mismatched(rtol=0.001, atol=1e-05)", "abs_or_rel(abs=0.0002, rel=0.001)"]
SHAPES = [(), (1,), (9,), (4, 5), (2, 3, 4), (2, 2, 3, 4), (0,), (0, 3)]
LOWEST = {"f8": 2.0 ** -1022, "f4": 2.0 ** -126, "f2": 2.0 ** -24}


def values_of(run):
    """The values of the metrics of each tensor's gates."""
    return {tensor["name"]: {name: math.nan if value is None else float(value)
                             for gate in tensor["gates"] for name, value in gate["values"].items()}
            for tensor in json.loads(run.stdout)["tensors"]}


def exact(values):
    """The sum, rounded once."""
    return math.fsum(np.ravel(values))


def ratio(x, y):
    return 0.0 if x == 0 else math.inf if y == 0 else x / y


def percentile(values, percent):
    """numpy.percentile, which has NaN between two infinities."""
    place = percent / 100 * (len(values) - 1)
    low, high = sorted(values)[math.floor(place)], sorted(values)[math.ceil(place)]
    return low if low == high else np.percentile(values, percent)


def rounding_of_shift(b, dtype):
    """FlashAttention's 2 x rounding error of the reference, without the 2."""
    wide = np.float64 if dtype == "f8" else np.float32
    stored = b.astype(dtype)
    up = (stored.astype(wide) + wide(0.3)).astype(dtype)
    down = (up.astype(wide) - wide(0.3)).astype(dtype)
    return np.abs((down.astype(wide) - stored.astype(wide)).astype(dtype)).max(initial=0)


def expected(a, b):
    """The metrics by their definitions, in float64, over the finite pairs. NaN: undefined."""
    x, y = a.astype("f8"), b.astype("f8")
    finite = np.isfinite(x) & np.isfinite(y)
    counted = ~(np.isnan(x) | np.isnan(y))
    with np.errstate(all="ignore"):
        error = np.where(x == y, 0, np.abs(x - y))
    u, v, d = x[finite], y[finite], error[finite]
    n, count = max(1, u.size), max(1, counted.sum())
    aa, bb, ab, dd = exact(u * u), exact(v * v), exact(u * v), exact(d * d)
    nmse = ratio(dd, bb)
    same = dd == 0
    uc, vc = u - exact(u) / n, v - exact(v) / n
    is_flat = not (np.ptp(u) > 1e-6 * np.abs(u).max() and np.ptp(v) > 1e-6 * np.abs(v).max()) if u.size else True
    rows = finite.reshape(math.prod(x.shape[:-1]), x.shape[-1] if x.ndim else 1)
    with np.errstate(all="ignore"):
        e2 = np.where(rows, np.where(rows, error.reshape(rows.shape), 0) ** 2, 0).sum(1)
        b2 = np.where(rows, np.where(rows, y.reshape(rows.shape), 0) ** 2, 0).sum(1)
    tokens = [ratio(math.sqrt(p), math.sqrt(q)) for p, q in zip(e2, b2)] if x.size else []
    nonzero = d[v != 0] / np.abs(v[v != 0])
    dtype = "f8" if a.dtype == b.dtype == "f8" else "f2" if "f2" in (a.dtype, b.dtype) else "f4"
    steps = [abs(i - j) for i, j in zip(ordinals(u, dtype), ordinals(v, dtype))]
    close = counted & (error <= 1e-5 + 1e-3 * np.abs(y)) | (np.isnan(x) & np.isnan(y)) | (x == y)
    either = (d < 2e-4) | (d / (np.abs(v) + 1e-6) < 1e-3)
    loose = {"f8": (1e-7, 1e-7), "f4": (1.3e-6, 1e-5), "f2": (1e-3, 1e-5)}
    rtol, atol = (max(loose[t.dtype.str[1:]][i] for t in (a, b)) for i in (0, 1))
    by_default = counted & (error <= atol + rtol * np.abs(y)) | (np.isnan(x) & np.isnan(y)) | (x == y)
    return {
        "max_abs": d.max(initial=0), "mean_abs": exact(d) / count, "rms": math.sqrt(dd / count),
        "max_rel": nonzero.max(initial=0), "rel_l2": math.sqrt(nmse),
        "rms_ratio": math.sqrt(dd / count) / (math.sqrt(bb / n) + 1e-8), "nmse": nmse,
        "snr": math.inf if nmse == 0 else -math.inf if nmse == math.inf else -10 * math.log10(nmse),
        "cosine": 1 if same else ab / math.sqrt(aa) / math.sqrt(bb) if aa and bb else math.nan,
        "cosdiff": 0 if same else dd / (aa + bb),
        "pcc": 1 if same else math.nan if is_flat else exact(uc * vc) / math.sqrt(exact(uc * uc) * exact(vc * vc)),
        "ulp": max(steps, default=0), "mismatched": 1 - by_default.mean() if x.size else 0,
        **{f"token_{name}": percentile(tokens, p) if tokens else 0
           for name, p in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100))},
        "ref_rms": math.sqrt(bb / n), "ref_max": np.abs(v).max(initial=0), "ref_l2": math.sqrt(bb),
        "ref_rounding": rounding_of_shift(v, a.dtype.str[1:]),
        CALLS[0]: 1 - close.mean() if x.size else 0, CALLS[1]: 1 - either.sum() / max(1, x.size)
        - (x.size - finite.sum()) / max(1, x.size) if x.size else 0,
    }


def random_pair(rng):
    shape = SHAPES[rng.integers(len(SHAPES))]
    a_type, b_type = (rng.choice(["f8", "f4", "f2"]) for _ in range(2))
    b = np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 2), b_type)
    if rng.random() < 0.1:
        b = np.zeros_like(b)
    noise = rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 0)
    a = np.asarray(b.astype("f8") + noise * rng.choice([0, 1e-3, 1]), a_type)
    if rng.random() < 0.2 and a.size:  # at the same places
        flat_a, flat_b = a.reshape(-1), b.reshape(-1)
        place = rng.integers(a.size)
        flat_a[place] = flat_b[place] = rng.choice([np.nan, np.inf, -np.inf])
    return a, b


def test_metrics_of_random_tensors(tmp_path):
    rng = np.random.default_rng(3)
    pairs = {f"t{i}": random_pair(rng) for i in range(300)}
    for side in (0, 1):
        np.savez(tmp_path / f"{'ab'[side]}.npz", **{name: pair[side] for name, pair in pairs.items()})
    gate = " and ".join(f"{metric} >= 0" for metric in METRICS + CALLS)
    run = attn("compare", "a.npz", "b.npz", "--json", "--equal-nan", "--gate", gate, cwd=tmp_path)
    found = values_of(run)
    assert list(found) == list(pairs)
    for name, (a, b) in pairs.items():
        want = expected(a, b)
        for metric in METRICS + CALLS:
            tolerance = {"pcc": 1e-9, "cosine": 1e-12}.get(metric, 0)
            got = found[name][metric]
            assert got == pytest.approx(want[metric], rel=1e-9, abs=tolerance + 1e-15, nan_ok=True), (name, metric, a, b)


@pytest.mark.parametrize("a, b", [([1, math.nan], [1, 2]), ([1, 2], [1, math.nan]), ([1, math.inf], [1, 2]),
                                  ([1, math.inf], [1, -math.inf]), ([1, 2], [math.inf, 2])])
def test_misplaced_nan_and_infinities_fail_every_gate(tmp_path, a, b):
    np.save(tmp_path / "a.npy", a), np.save(tmp_path / "b.npy", b)
    run = attn("compare", "a.npy", "b.npy", "--gate", "max_abs >= 0 or ref_max >= 0", "--gate", "not 1 < 0", cwd=tmp_path)
    assert_verdict(run, 1)
    assert b"fails, because NaN or infinities are not at the same places" in run.stdout


def test_nan_in_both(tmp_path):
    np.save(tmp_path / "a.npy", [1, math.nan])
    run = attn("compare", "a.npy", "a.npy", "--gate", "max_abs < 1", cwd=tmp_path)
    assert_verdict(run, 1)
    assert b"fails, because both have NaN, which --equal-nan accepts" in run.stdout
    assert_verdict(attn("compare", "a.npy", "a.npy", "--gate", "max_abs < 1", "--equal-nan", cwd=tmp_path), 0)


def test_different_shapes_fail(tmp_path):
    np.save(tmp_path / "a.npy", [1.0]), np.save(tmp_path / "b.npy", [1.0, 2])
    run = attn("compare", "a.npy", "b.npy", "--gate", "max_abs >= 0", "--json", cwd=tmp_path)
    assert_verdict(run, 1)
    assert json.loads(run.stdout)["tensors"][0]["gates"][0] == {
        "gate": "max_abs >= 0", "preset": None, "passed": False, "values": {}}


# a = [1.5, 2], b = [1, 2]: max_abs 0.5, mean_abs 0.25, and the cosine of zeros is undefined.
@pytest.fixture(scope="module")
def folder(module_path):
    np.savez(module_path / "a.npz", x=[1.5, 2], z=[0.0, 0])
    np.savez(module_path / "b.npz", x=[1.0, 2], z=[1.0, 2])
    return module_path


@pytest.mark.parametrize("text, passes", [
    ("max_abs == 0.5", True), ("max_abs != .5", False), ("max_abs<5e-1", False), ("max_abs <= 5E-1", True),
    ("0.1 < mean_abs < max_abs", True), ("0.1 < mean_abs < max_abs < 0.4", False),
    ("max_abs - mean_abs == 1 / 4", True), ("2 * mean_abs + 1e-9 >= max_abs", True),
    ("-max_abs < - -mean_abs", True), ("max_abs > 1 - 0.25 - 0.25", False), ("8 / 4 / 2 == 1", True),
    ("1 + 2 * 3 == 7 and (1 + 2) * 3 == 9", True),
    ("max_abs < 0.1 or mean_abs < 0.3 and rms > 0", True), ("(max_abs < 0.1 or mean_abs < 0.3) and rms < 0", False),
    ("not max_abs < 0.1", True), ("not not max_abs < 0.1", False), ("not (max_abs < 0.1 or rms > 0)", False),
    ("mismatched == 0.5", True), ("mismatched(atol=0.5) == 0", True), ("mismatched(rtol=1/4, atol=0.2) == 0.5", True),
    ("abs_or_rel(abs=0.5, rel=0.5) == 0", True), ("abs_or_rel(rel=0.4, abs=0.5) == 0.5", True),
])
def test_expressions(folder, text, passes):
    assert_verdict(attn("compare", "a.npz#x", "b.npz#x", "--gate", text, cwd=folder), 0 if passes else 1)


@pytest.mark.parametrize("text, passes", [
    ("cosine > 0.5", False), ("cosine < 0.5", False), ("not cosine > 0.5", False), ("cosine == cosine", False),
    ("cosine > 0.5 or max_abs == 2", True), ("not (cosine > 0.5 and max_abs != 2)", True),
    ("not (cosine > 0.5 or max_abs != 2)", False), ("cosine > 0.5 and max_abs == 2", False)])
def test_undefined_metrics(folder, text, passes):
    run = attn("compare", "a.npz#z", "b.npz#z", "--gate", text, "-v", cwd=folder)
    assert_verdict(run, 0 if passes else 1)
    assert b"cosine undefined" in run.stdout


def test_report(folder):
    run = attn("compare", "a.npz", "b.npz", "--gate", "x: max_abs < 1", "--gate", "max_abs < 1 and rms > 0", "-v", cwd=folder)
    assert_verdict(run, 1)
    lines = run.stdout.decode().splitlines()
    assert lines[:3] == ["x (2,) float64: passes 2 gates",
                         "  passes  x: max_abs < 1 (max_abs 0.5)",
                         "  passes  max_abs < 1 and rms > 0 (max_abs 0.5, rms 0.353553)"]
    start = lines.index("z (2,) float64: fails 1 gate")
    assert lines[start + 1] == "  fails   max_abs < 1 and rms > 0 (max_abs 2, rms 1.58114)"
    assert lines[-1] == "1 of 2 tensors passes"


def test_the_line_has_the_error_and_not_a_share_of_the_bound(tmp_path):
    """With --reference, gates replace the error bound, which is only computed for hints."""
    for name, seed in (("q", 1), ("k", 2), ("v", 3)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).standard_normal((5, 4)).astype("f4"))
    job = [word for name in "qkv" for word in (f"--{name}", f"{name}.npy")]
    assert attn("run", *job, "-o", "context=out.npy", cwd=tmp_path).returncode == 0
    run = attn("compare", "out.npy", "--reference", *job, "--gate", "max_abs < 0.02", cwd=tmp_path)
    assert_verdict(run, 0)
    line = run.stdout.decode().splitlines()[0]
    before, _, error = line.partition(": passes 1 gate, max |a - b| ")
    assert before == "context (5, 4) float32 and float64" and 0 < float(error) < 1e-6
    run = attn("compare", "out.npy", "--reference", *job, cwd=tmp_path)
    assert b"within the error bound of f32, at most " in run.stdout


def test_number_of_failed_gates(folder):
    run = attn("compare", "a.npz#x", "b.npz#x", "--gate", "max_abs < 1", "--gate", "rms < 0", cwd=folder)
    assert b": fails 1 of 2 gates\n" in run.stdout


def test_tensors_that_no_gate_selects_have_the_tolerance(folder):
    command = ["compare", "a.npz", "b.npz", "--gate", "x: max_abs < 1"]
    assert_verdict(attn(*command, cwd=folder), 1)
    assert_verdict(attn(*command, "--atol", "2", cwd=folder), 0)
    run = attn(*command, "--gate", "[y-z]|w+: ref_max == 2", "--json", cwd=folder)
    assert_verdict(run, 0)
    assert [[gate["gate"] for gate in tensor["gates"]] for tensor in json.loads(run.stdout)["tensors"]] == [
        ["x: max_abs < 1"], ["[y-z]|w+: ref_max == 2"]]


def test_regex_matches_whole_names(folder):
    assert_error(attn("compare", "a.npz", "b.npz", "--gate", "y?:max_abs < 1", cwd=folder), 2,
                 "--gate 'y?:max_abs < 1': the regular expression matches none of the compared tensors: x, z")


def test_regex_with_a_colon(folder):
    assert_verdict(attn("compare", "a.npz#x", "b.npz#x", "--gate", "(?:x|y): max_abs < 1", cwd=folder), 0)


def test_tokens_of_named_axes(tmp_path):
    """The tokens of weights (B, H, L, S) are queries, in all heads together; those of an unknown tensor are rows."""
    rng = np.random.default_rng(8)
    b = rng.random((2, 3, 4, 5))
    a = b + rng.standard_normal(b.shape) * rng.random((2, 3, 4, 1))
    np.savez(tmp_path / "a.npz", weights=a, other=a)
    np.savez(tmp_path / "b.npz", weights=b, other=b)
    run = attn("compare", "a.npz", "b.npz", "--json", "--gate", "token_p90 < 9 and token_max < 9", cwd=tmp_path)
    found = values_of(run)
    queries = np.sqrt(((a - b) ** 2).sum((1, 3)) / (b ** 2).sum((1, 3)))
    rows = np.sqrt(((a - b) ** 2).sum(3) / (b ** 2).sum(3))
    for name, tokens in ("weights", queries), ("other", rows):
        assert found[name]["token_p90"] == pytest.approx(np.percentile(tokens, 90), rel=1e-12)
        assert found[name]["token_max"] == pytest.approx(tokens.max(), rel=1e-12)


BAD = [  # what is typed, and the message
    ("max_ab < 1", "unknown metric 'max_ab' at character 1 (did you mean 'max_abs'?)"),
    ("rms < 1 and MAXABS < 2", "unknown metric 'MAXABS' at character 13 (did you mean 'max_abs'?)"),
    ("x: rmse < 1", "unknown metric 'rmse' at character 4 (did you mean"),
    (" ", "expected a number, a metric or '(', found the end at character 2"),
    ("x:", "expected a number, a metric or '(', found the end at character 3"),
    ("max_abs <", "expected a number, a metric or '(', found the end at character 10"),
    ("max_abs", "expected a comparison such as 'max_abs < 1e-3', found a number at character 1"),
    ("max_abs and rms < 1", "expected a comparison, found a number at character 1"),
    ("not rms", "expected a comparison, found a number at character 5"),
    ("max_abs < 1 && rms < 1", "expected an operator, found '&&' at character 13 (use 'and')"),
    ("max_abs < 1 || rms < 1", "expected an operator, found '||' at character 13 (use 'or')"),
    ("!max_abs < 1", "found '!' at character 1 (use 'not')"),
    ("max_abs = 1", "expected an operator, found '=' at character 9 (use '==')"),
    ("max_abs \u2264 1", "expected an operator, found '\u2264' at character 9 (use '<=')"),
    ("\u00e9 < 1", "found '\u00e9' at character 1"),
    ("rms < \u00e9", "found '\u00e9' at character 7"),
    ("(rms < 1", "expected an operator or ')', found the end at character 9"),
    ("rms < 1)", "expected an operator, found ')' at character 8"),
    ("(rms < 1) + 1 < 2", "expected a number, found a truth value at character 6"),
    ("(rms < 1) < 2", "expected a number, found a truth value at character 6"),
    ("rms // 2 < 1", "expected an operator, found '//' at character 5"),
    ("rms < 5%", "expected an operator, found '%' at character 8"),
    ("snr > 60dB", "expected a number, found '60dB' at character 7"),
    ("rms < 1e-", "expected a number, found '1e-' at character 7"),
    ("rms < 1.2.3", "expected a number, found '1.2.3' at character 7"),
    ("rms < 1e999", "expected a number within the limits of float64, found '1e999' at character 7"),
    ("rms < ", "found the end at character 7"),
    ("rms < and", "found 'and' at character 7"),
    ("nmse(1) < 2", "unknown metric 'nmse' at character 1"),
    ("rms[1] < 2", "unknown table 'rms' at character 1"),
    ("abs_or_rel < 1", "expected '(' after abs_or_rel, found '<' at character 12"),
    ("mismatched(1e-3) < 1", "expected mismatched(rtol=X, atol=Y) at character 1"),
    ("mismatched() < 1", "found ')' at character 12"),
    ("mismatched(rtol=1 < 1", "expected ',' or ')', found '<' at character 19"),
    ("mismatched(rtol=1, rtol=2) < 1", "found 'rtol' twice at character 1"),
    ("mismatched(rtol=rms) < 1", "expected a number, found the metric 'rms' at character 17"),
    ("mismatched(rtol=-1) < 1", "expected a number of at least 0 at character 17"),
    ("mismatched(eps=1) < 1", "expected mismatched(rtol=X, atol=Y) at character 1"),
    ("(: rms < 1", "'(' is not a regular expression"),
    ("[b-a]: rms < 1", "'[b-a]' is not a regular expression"),
    ("a{3}: rms < 1", "expected a regular expression without '{' at character 2"),
    ("(" * 100 + "rms" + ")" * 100 + " < 1", "expected at most 64 nested operations at character 65"),
    ("not " * 100 + "rms < 1", "expected at most 64 nested operations"),
    ("-" * 100 + "rms < 1", "expected at most 64 nested operations"),
    ("rms < 1 or " * 500 + "rms < 1", "expected at most 4096 characters, found 5507"),
    ("a" * 201 + ": rms < 1", "expected a regular expression of at most 200 characters"),
    ("bound < 1", "the metric 'bound' requires --reference without --rtol, --atol and --ulp"),
    ("max_abs < baseline_max_abs", "metrics of the baseline require --reference"),
]


@pytest.mark.parametrize("text, message", BAD, ids=[text[:20] for text, _ in BAD])
def test_bad_expressions(folder, text, message):
    run = attn("compare", "a.npz#x", "b.npz#x", f"--gate={text}", cwd=folder)
    assert_error(run, 2, message)
    assert run.stdout == b""
    assert len(run.stderr.splitlines()) == 1
    assert run.stderr.startswith(b"attn: --gate '")


@pytest.mark.parametrize("flags, message", [
    (["--preset", "flasmla"], "--preset: unknown preset 'flasmla' (did you mean 'flashmla'?); presets: fa2, fa3, flashmla, fla, "
     "flashinfer, llama.cpp, triton, tt"),
    (["--preset", "fa2"], "--preset fa2: metrics of the baseline require --reference"),
    (["--baseline"], "--baseline requires --reference"),
    (["--gate", "rms < 1", "--rtol", "1"], "--rtol, --atol and --ulp are the tolerance of the metric 'mismatched'"),
])
def test_bad_options(folder, flags, message):
    assert_error(attn("compare", "a.npz#x", "b.npz#x", *flags, cwd=folder), 2, message)


def test_hostile_regular_expression_is_quick(folder):
    """A backtracking matcher takes exponential time."""
    np.savez(folder / "long.npz", **{"a" * 1000: [1.0], "b": [1.0]})
    run = attn("compare", "long.npz", "long.npz", "--gate", "(a*)*b: rms < 1", cwd=folder, timeout=20)
    assert_verdict(run, 0)


def test_help_lists_metrics_and_presets():
    text = attn("compare", "--help").stdout.decode()
    for name in METRICS + ["abs_or_rel(abs=X, rel=Y)", "flashmla", "llama.cpp", "nmse <= 5e-4"]:
        assert f"  {name}" in text


@pytest.mark.parametrize("layout, shape, names", [("bhld", (2, 3, 5, 8), ["batch", "head"]), ("blhd", (2, 5, 3, 8), ["batch", "head"]),
                                                  ("thd", (5, 3, 8), ["head"])])
@pytest.mark.parametrize("suffix", ["npz", "safetensors", "json"])
def test_parts_and_tokens_of_results_with_an_axis_of_heads(tmp_path, layout, shape, names, suffix):
    rng = np.random.default_rng(4)
    np.savez(tmp_path / "in.npz", **{name: rng.standard_normal(shape) for name in "QKV"})
    found = []
    for number, scale in enumerate((0.3, 0.35)):
        job = {name: f"in.npz#{name}" for name in "QKV"} | {"layout": layout, "scale": scale, "outputs": ["context"]}
        (tmp_path / "job.json").write_text(json.dumps(job))
        assert attn("run", "job.json", "-o", f"{number}.{suffix}", "-o", f"{number}.npy", cwd=tmp_path).returncode == 0
        found.append(np.load(tmp_path / f"{number}.npy"))
    run = attn("compare", f"0.{suffix}", f"1.{suffix}", "--json", "--gate", "token_max < 0", cwd=tmp_path)
    [tensor] = json.loads(run.stdout)["tensors"]
    a, b = ((x.swapaxes(1, 2) if layout == "bhld" else x).reshape(-1, 24) for x in found)  # tokens
    errors = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
    assert tensor["gates"][0]["values"]["token_max"] == pytest.approx(errors.max(), rel=1e-9)
    assert list(tensor["parts"][0])[:len(names)] == names
    assert len(tensor["parts"]) == np.prod([{"batch": 2, "head": 3}[name] for name in names])
