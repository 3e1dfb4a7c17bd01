#!/usr/bin/env python3
"""`attn compare` from outside: a thousand random pairs against numpy.testing, and its edges."""

import json
import math
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from attn import Checks, attn  # noqa: E402

FLOATS = ["float64", "float32", "float16"]
INTEGERS = ["int64", "int32", "int8", "uint64", "uint8", "bool"]
SHAPES = [(), (1,), (7,), (3, 4), (2, 3, 4), (0,), (0, 3), (5, 1, 2)]
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 5e-8, 65504.0]
checks = Checks("compare")


def compare(folder, *args, code=None):
    run = attn("compare", *args, cwd=folder)
    if code is not None:
        checks.check(run.returncode == code and run.stderr == b"",
                     f"compare {args}: exit {run.returncode} instead of {code}, {run.stderr}")
    return run


def random_array(rng, dtype, shape):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        return rng.integers(0, 100, shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3), dtype)


def with_specials(rng, array):
    """A few elements replaced by zeros of either sign, NaN and infinities."""
    flat = array.reshape(-1).copy()
    for _ in range(min(flat.size, int(rng.integers(0, 4)))):
        flat[rng.integers(flat.size)] = rng.choice(SPECIAL)
    return flat.reshape(array.shape)


def random_pair(rng):
    """Two arrays of one shape whose distance is near the tolerances that are tried."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    dtype_a, dtype_b = (str(rng.choice(FLOATS if rng.random() < 0.7 else INTEGERS))
                        for _ in range(2))
    b = random_array(rng, dtype_b, shape)
    if rng.random() < 0.3 and dtype_b in FLOATS:
        b = with_specials(rng, b)
    with np.errstate(all="ignore"):
        if dtype_a in INTEGERS:
            a = np.asarray(np.nan_to_num(b.astype("f8"), nan=1, posinf=9, neginf=3)).astype(dtype_a)
        else:
            noise = rng.standard_normal(shape) * 10.0 ** rng.uniform(-18, -3)
            a = np.asarray(b.astype("f8") * (1 + noise)).astype(dtype_a)
    if rng.random() < 0.3 and dtype_a in FLOATS:
        a = with_specials(rng, a)
    return a, b


def ordinals(array, dtype):
    """Places among the representable values, as Python integers; both zeros are 0."""
    bits = array.astype(dtype).view(f"i{np.dtype(dtype).itemsize}").ravel().tolist()
    least = -2 ** (8 * np.dtype(dtype).itemsize - 1)
    return [i if i >= 0 else least - i for i in bits]


def expected_ulps(a, b):
    """What is left of a step between neighbours, for each finite pair; None for the others."""
    kinds = {a.dtype.name, b.dtype.name}
    dtype = next((name for name in reversed(FLOATS) if name in kinds), None)
    if dtype is None:
        return [abs(int(x) - int(y)) for x, y in zip(a.ravel().tolist(), b.ravel().tolist())]
    with np.errstate(over="ignore"):
        steps = [abs(x - y) for x, y in zip(ordinals(a, dtype), ordinals(b, dtype))]
    finite = (np.isfinite(a.astype("f8")) & np.isfinite(b.astype("f8"))).ravel()
    return [step if fine else None for step, fine in zip(steps, finite)]


def near(found, expected):
    return found is not None and (
        found == expected or math.isclose(found, expected, rel_tol=1e-12, abs_tol=0))


def as_number(value):
    return float(value) if isinstance(value, str) else value


def check_extreme(found, errors, what):
    """The largest of the errors that are not NaN, at the first element that has it."""
    flat = np.ravel(errors)
    counted = flat[~np.isnan(flat)]
    if counted.size == 0:
        return checks.check(found is None, f"{what}: {found}")
    largest = counted.max()
    place = [int(i) for i in np.unravel_index(np.flatnonzero(flat == largest)[0], errors.shape)]
    return checks.check(found is not None and near(as_number(found["value"]), largest) and
                        found["at"] == place, f"{what}: {found}, expected {largest} at {place}")


def check_pair(found, a, b, rtol, atol, equal_nan, what):
    x, y = (t if t.dtype.name in INTEGERS and t.dtype != bool else t.astype("f8") for t in (a, b))
    with np.errstate(all="ignore"):
        close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
        same = np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
        try:
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
            checks.check(same, f"{what}: numpy agrees with itself")
        except AssertionError:
            checks.check(not same, f"{what}: numpy agrees with itself")
        checks.check(found["same"] == same, f"{what}: same {found['same']}")
        checks.check(found["differing"] == int((~close).sum()), f"{what}: {found['differing']}")
        u, v = np.asarray(a, "f8"), np.asarray(b, "f8")
        error = np.where(u == v, 0.0, np.abs(u - v))
        relative = np.where(v == 0, np.nan, np.where(np.isinf(error), np.inf, error / np.abs(v)))
        check_extreme(found["max_abs"], error, f"{what}: max_abs")
        check_extreme(found["max_rel"], relative, f"{what}: max_rel")
        steps = expected_ulps(a, b)
        nan = np.isnan(u).ravel() | np.isnan(v).ravel()
        ulps = [np.nan if n else s if s is not None else e
                for s, n, e in zip(steps, nan, error.ravel())]
        check_extreme(found["max_ulps"], np.array(ulps, "f8").reshape(a.shape), f"{what}: ulps")
        counted = error[~(np.isnan(u) | np.isnan(v))]
        if counted.size:
            checks.check(near(as_number(found["rms"]), np.sqrt(np.mean(counted ** 2))),
                         f"{what}: rms {found['rms']}")
    finite = np.isfinite(u) & np.isfinite(v)
    length = np.linalg.norm(u[finite]) * np.linalg.norm(v[finite])
    cosine = np.dot(u[finite], v[finite]) / length if length > 0 else None
    checks.check((found["cosine"] is None) == (cosine is None) and
                 (cosine is None or abs(found["cosine"] - cosine) < 1e-12), f"{what}: cosine")
    nans = {"both": np.isnan(u) & np.isnan(v), "a_only": np.isnan(u) & ~np.isnan(v),
            "b_only": ~np.isnan(u) & np.isnan(v)}
    checks.check(all(found["nan"][key] == int(where.sum()) for key, where in nans.items()),
                 f"{what}: nan {found['nan']}")
    bars = found["histogram"]
    total = bars["equal"] + bars["infinite"] + sum(bar["count"] for bar in bars["decades"])
    checks.check(total == counted.size and bars["equal"] == int((counted == 0).sum()) and
                 bars["infinite"] == int(np.isinf(counted).sum()), f"{what}: histogram {bars}")
    for bar in bars["decades"]:
        low = 10.0 ** bar["decade"]
        inside = int(((counted >= low * (1 - 1e-12)) & (counted < 10 * low * (1 + 1e-12))).sum())
        checks.check(bar["count"] <= inside, f"{what}: decade {bar}")


def test_a_thousand_pairs(folder, rng):
    """Against numpy.testing: verdicts, counts, extremes with their places."""
    verdicts = {True: 0, False: 0}
    for rtol, atol, equal_nan in [(1e-7, 0, False), (1e-7, 0, True), (1e-5, 1e-8, True), (0, 0, False),
                                  (1e-12, 1e-4, True)]:
        pairs = {f"t{i}": random_pair(rng) for i in range(200)}
        np.savez(folder / "a.npz", **{name: a for name, (a, b) in pairs.items()})
        np.savez(folder / "b.npz", **{name: b for name, (a, b) in pairs.items()})
        flags = [] if (rtol, atol) == (1e-7, 0) else [f"--rtol={rtol}", f"--atol={atol}"]
        flags += ["--equal-nan"] if equal_nan else []
        run = compare(folder, "a.npz", "b.npz", "--json", *flags)
        report = json.loads(run.stdout)
        checks.check([tensor["name"] for tensor in report["tensors"]] == list(pairs), "all names")
        checks.check((run.returncode == 0) == report["same"] and run.returncode in (0, 1), "exit")
        for found in report["tensors"]:
            a, b = pairs[found["name"]]
            verdicts[found["same"]] += 1
            check_pair(found, a, b, rtol, atol, equal_nan,
                       f"{found['name']} {a.dtype} {b.dtype} {a.shape} {rtol} {atol} {equal_nan}")
    checks.check(min(verdicts.values()) > 200, f"both verdicts are met often: {verdicts}")


def test_ulps(folder):
    """Neighbours by np.nextafter; --ulp alone decides by distance only."""
    one = np.array([1, -1, 0, 1e-300, 1e300])
    three = one.copy()
    for _ in range(3):
        three = np.nextafter(three, np.inf)
    np.save(folder / "one.npy", one)
    np.save(folder / "three.npy", three)
    compare(folder, "one.npy", "three.npy", "--ulp", "3", code=0)
    compare(folder, "one.npy", "three.npy", "--ulp", "2", code=1)
    compare(folder, "one.npy", "three.npy", "--ulp", "2", "--rtol", "1e-12", code=1)  # 0 and 1e-323
    compare(folder, "one.npy", "three.npy", "--ulp", "2", "--rtol", "1e-12", "--atol", "1e-9", code=0)
    np.save(folder / "rounded.npy", np.array([1 / 3, 2 / 3], "f4"))
    np.save(folder / "exact.npy", np.array([1 / 3, 2 / 3]))
    compare(folder, "rounded.npy", "exact.npy", "--ulp", "0", code=0)
    compare(folder, "rounded.npy", "exact.npy", "--rtol", "1e-9", code=1)
    np.save(folder / "inf.npy", np.array([np.inf]))
    np.save(folder / "max.npy", np.array([np.finfo("f8").max]))
    compare(folder, "max.npy", "inf.npy", "--ulp", "9", "--rtol", "1", "--atol", "1e308", code=1)


def test_large_integers(folder):
    """NumPy rounds these to float64 and finds them equal; here their difference is exact."""
    np.savez(folder / "a.npz", i=np.array([2 ** 62 + 1, -2 ** 63]), u=np.array([2 ** 64 - 1], "u8"))
    np.savez(folder / "b.npz", i=np.array([2 ** 62, 2 ** 63 - 1]), u=np.array([2 ** 64 - 3], "u8"))
    found = json.loads(compare(folder, "a.npz", "b.npz", "--rtol=0", "--json", code=1).stdout)
    first, second = found["tensors"]
    checks.check(first["max_abs"]["value"] == 2.0 ** 64 and first["max_abs"]["at"] == [1], f"{first}")
    checks.check(first["differing"] == 2 and first["max_abs"]["a"] == -2 ** 63, f"{first}")
    checks.check(second["max_abs"]["value"] == 2 and second["max_abs"]["a"] == 2 ** 64 - 1, "uint64")


def test_what_is_paired(folder):
    np.savez(folder / "a.npz", x=np.arange(3.0), y=np.zeros((2, 2)), extra=np.zeros(1))
    np.savez(folder / "b.npz", y=np.zeros((2, 3)), x=np.arange(3.0), more=np.zeros(1))
    lines = compare(folder, "a.npz", "b.npz", code=1).stdout.decode().splitlines()
    checks.check(lines == ["x (3,) float64: equal", "y (2, 2) and (2, 3) float64: shapes differ",
                           "extra: in A only", "more: in B only", "1 of 4 tensors are the same"],
                 f"pairs: {lines}")
    found = json.loads(compare(folder, "a.npz", "b.npz", "--json", code=1).stdout)
    checks.check(found["only_in_a"] == ["extra"] and found["only_in_b"] == ["more"], "one side only")
    np.save(folder / "x.npy", np.arange(3.0))
    compare(folder, "x.npy", "a.npz#x", code=0)
    compare(folder, "a.npz#extra", "b.npz#more", code=0)
    (folder / "x.json").write_text("[0, 1.0, 2]")
    compare(folder, "x.json", "x.npy", code=0)
    for args, words in [(("x.npy", "a.npz"), ["a.npz#NAME", "extra"]),
                        (("a.npz", "x.npy"), ["a.npz#NAME", "extra"])]:
        run = compare(folder, *args)
        checks.check(run.returncode == 2 and all(word in run.stderr.decode() for word in words),
                     f"{args}: {run}")
    checks.check(compare(folder, "x.npy", "none.npy").returncode == 66, "a missing file")
    checks.check(compare(folder, "x.npy", "x.npy", "--rtol", "-1").returncode == 2, "--rtol -1")


def test_text(folder):
    """What people read: the verdict, the places, the bars."""
    a = np.array([[1.0, 2.0], [np.nan, 4.0]], "f4")
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", np.array([[1.0, 2.5], [3.0, 4.0]]))
    lines = compare(folder, "a.npy", "b.npy", code=1).stdout.decode().splitlines()
    expected = [
        "(2, 2) float32 and float64: 2 of 4 elements differ",
        "  max |a - b|      0.5 at [0, 1]: 2.0 and 2.5",
        "  max |a - b|/|b|  0.2 at [0, 1]: 2.0 and 2.5",
        "  max ulps         2.09715e+06 at [0, 1]: 2.0 and 2.5",
        "  RMS of a - b     0.288675",
        "  cosine           0.995638208843",
        "  NaN              0 in both, 1 in A only, 0 in B only; the first that differs at [1, 0]: "
        "nan and 3.0",
        "  |a - b|",
        "    0              ######################################## 2",
        "    1e-01 to 1e+00 #################### 1",
        "0 of 1 tensor is the same"]
    checks.check(lines == expected, "text:\n" + "\n".join(lines))
    np.save(folder / "a2.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))
    for flags, last in (["--atol", "1"], "1 of 1 tensor is the same or close"), ([], "1 of 1 tensor is the same"):
        other = "b.npy" if flags else "a2.npy"
        lines = compare(folder, "a2.npy", other, *flags, code=0).stdout.decode().splitlines()
        checks.check(lines[-1] == last, f"{flags}: {lines}")


def test_picture(folder):
    """A - B, signed, whatever the signs are; where both hide a key, so does the picture."""
    a = np.array([[3.0, 1.0, -np.inf], [4.0, 2.0, 7.0]])
    b = np.array([[1.0, 0.5, -np.inf], [4.0, np.nan, -np.inf]])
    np.savez(folder / "a.npz", masked_scores=a, other=a)
    np.savez(folder / "b.npz", masked_scores=b, other=a)
    run = compare(folder, "a.npz", "b.npz", "--view", "--of", "masked_scores", code=1)
    text = run.stdout.decode()
    rows = [line.split() for line in text.splitlines()[-5:-3]]
    checks.check("masked_scores: A \u2212 B" in text and "A: a.npz; B: b.npz" in text, text)
    checks.check(rows[0][:3] == ["0", "2", "0.5"] and rows[0][3].strip("\u2571") == "" and
                 rows[1] == ["1", "0", "nan", "nan"], f"the difference: {rows}")
    checks.check("-2 " in text.splitlines()[-2] and text.splitlines()[-2].endswith(" 2"), "a signed scale")
    for name in "d.svg", "d.png", "d.html":
        compare(folder, "a.npz", "b.npz", f"--view={name}", code=1) if name != "d.html" else attn(
            "compare", "a.npz", "b.npz", f"--view={name}", cwd=folder)
        checks.check((folder / name).stat().st_size > 1000, name)
    checks.check("masked_scores: A \u2212 B" in (folder / "d.svg").read_text(), "the first that differs")
    run = attn("compare", "a.npz", "b.npz", "--view=d.svg", cwd=folder)
    checks.check(run.returncode == 73 and run.stdout == b"", f"an old picture stays: {run}")
    compare(folder, "a.npz", "b.npz", "--view=d.svg", "--force", code=1)
    for args in (["--view", "--json"], ["--view=d.pdf"], ["--view", "--of", "none"]):
        run = attn("compare", "a.npz", "b.npz", *args, cwd=folder)
        checks.check(run.returncode == 2 and run.stderr.count(b"\n") == 1, f"{args}: {run}")
    # Other shapes are a difference like any other, though none that can be drawn.
    np.save(folder / "long.npy", np.zeros(4))
    np.save(folder / "short.npy", np.zeros(3))
    run = compare(folder, "long.npy", "short.npy", code=1)
    checks.check(run.stdout.startswith(b"(4,) and (3,) float64: shapes differ\n"), f"no name: {run}")
    for view in "--view", "--view=none.svg":
        run = attn("compare", "long.npy", "short.npy", view, cwd=folder)
        checks.check(run.returncode == 1 and b"nothing is drawn" in run.stderr and run.stdout
                     and not (folder / "none.svg").exists(), f"{view} of two shapes: {run}")


def test_limit(folder):
    """--max-memory bounds what is read, and is looked at, without a job, too."""
    np.save(folder / "large.npy", np.ones(1000))
    compare(folder, "large.npy", "large.npy", "--max-memory", "1M", code=0)
    for size, code, word in ("bogus", 2, b"--max-memory"), ("1000", 65, b"large.npy: expected at most"):
        run = attn("compare", "large.npy", "large.npy", "--max-memory", size, cwd=folder)
        checks.check(run.returncode == code and word in run.stderr and run.stderr.count(b"\n") == 1,
                     f"--max-memory {size}: {run}")


def main():
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_a_thousand_pairs(folder, rng)
        test_ulps(folder)
        test_large_integers(folder)
        test_what_is_paired(folder)
        test_text(folder)
        test_picture(folder)
        test_limit(folder)
    checks.finish()


main()
