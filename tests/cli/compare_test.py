"""`attn compare`: random pairs against numpy.testing, text, pictures, and limits."""

import json
import math
import types

import numpy as np
import pytest
import scipy.stats

from support.attn import assert_error, assert_verdict, attn
from support.ordinals import ordinals

FLOATS = ["float64", "float32", "float16"]
INTEGERS = ["int64", "int32", "int8", "uint64", "uint8", "bool"]
SHAPES = [(), (1,), (7,), (3, 4), (2, 3, 4), (0,), (0, 3), (5, 1, 2)]
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 5e-8, 65504.0]


# A thousand random pairs against NumPy.


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
    """Two arrays of one shape, whose differences are near the tolerances of the tests."""
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


def expected_ulps(a, b):
    """The distance of each finite pair in representable numbers; None for other pairs."""
    kinds = {a.dtype.name, b.dtype.name}
    dtype = next((name for name in reversed(FLOATS) if name in kinds), None)
    if dtype is None:
        return [abs(int(x) - int(y)) for x, y in zip(a.ravel().tolist(), b.ravel().tolist())]
    with np.errstate(over="ignore"):
        steps = [abs(x - y) for x, y in zip(ordinals(a, dtype), ordinals(b, dtype))]
    finite = (np.isfinite(a.astype("f8")) & np.isfinite(b.astype("f8"))).ravel()
    return [step if fine else None for step, fine in zip(steps, finite)]


def near(found, expected):
    found = float(found) if isinstance(found, str) else found
    return found == expected or math.isclose(found, expected, rel_tol=1e-12, abs_tol=0)


def assert_extreme(found, errors):
    """`found` is the largest error that is not NaN, at the first element that has it."""
    flat = np.ravel(errors)
    counted = flat[~np.isnan(flat)]
    if counted.size == 0:
        assert found is None
        return
    largest = counted.max()
    assert near(found["value"], largest)
    index = np.unravel_index(np.flatnonzero(flat == largest)[0], errors.shape)
    assert found["at"] == [int(i) for i in index]


TOLERANCES = [(1e-7, 0, False), (1e-7, 0, True), (1e-5, 1e-8, True), (0, 0, False), (1e-12, 1e-4, True)]
DEFAULT_TOLERANCES = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}  # of torch.testing


@pytest.fixture(scope="module", params=TOLERANCES,
                ids=lambda p: f"rtol {p[0]}, atol {p[1]}{', equal NaN' if p[2] else ''}")
def comparison(request, module_path):
    """The comparison of 200 pairs with these tolerances. For each: A, B, both as float64, the absolute
    errors, and what attn found."""
    rtol, atol, equal_nan = request.param
    rng = np.random.default_rng([11, TOLERANCES.index(request.param)])
    pairs = {f"t{i}": random_pair(rng) for i in range(200)}
    for i, name in enumerate(("a.npz", "b.npz")):
        np.savez(module_path / name, **{key: pair[i] for key, pair in pairs.items()})
    flags = [f"--rtol={rtol}", f"--atol={atol}", *(["--equal-nan"] if equal_nan else [])]
    run = attn("compare", "a.npz", "b.npz", "--json", *flags, cwd=module_path)
    report = json.loads(run.stdout)
    items = []
    for tensor in report["tensors"]:
        a, b = pairs[tensor["name"]]
        u, v = np.asarray(a, "f8"), np.asarray(b, "f8")
        with np.errstate(all="ignore"):
            error = np.where(u == v, 0.0, np.abs(u - v))
        items.append(types.SimpleNamespace(a=a, b=b, u=u, v=v, error=error, found=tensor))
    return types.SimpleNamespace(run=run, report=report, names=list(pairs), items=items,
                                 tolerances=dict(rtol=rtol, atol=atol, equal_nan=equal_nan))


def for_numpy(array):
    """NumPy compares integers exactly, and booleans and narrow floats as float64."""
    return array if array.dtype.name in INTEGERS and array.dtype != bool else array.astype("f8")


@pytest.mark.filterwarnings("ignore")
class TestRandomPairs:
    def test_all_tensors_are_reported_in_order(self, comparison):
        assert [item.found["name"] for item in comparison.items] == comparison.names

    def test_exit_code_tells_whether_all_are_close(self, comparison):
        assert comparison.run.returncode == (0 if comparison.report["same"] else 1)

    def test_verdicts_are_those_of_assert_allclose(self, comparison):
        for item in comparison.items:
            try:
                np.testing.assert_allclose(for_numpy(item.a), for_numpy(item.b), **comparison.tolerances)
                close = True
            except AssertionError:
                close = False
            assert close == np.allclose(for_numpy(item.a), for_numpy(item.b), **comparison.tolerances)
            assert item.found["same"] == close

    def test_both_verdicts_occur(self, comparison):
        verdicts = [item.found["same"] for item in comparison.items]
        assert verdicts.count(True) > 40
        assert verdicts.count(False) > 40

    def test_differing_elements_are_those_of_isclose(self, comparison):
        for item in comparison.items:
            close = np.isclose(for_numpy(item.a), for_numpy(item.b), **comparison.tolerances)
            assert item.found["differing"] == int((~close).sum())

    def test_max_abs(self, comparison):
        for item in comparison.items:
            assert_extreme(item.found["max_abs"], item.error)

    def test_max_rel(self, comparison):
        for item in comparison.items:
            relative = np.where(item.v == 0, np.nan,
                                np.where(np.isinf(item.error), np.inf, item.error / np.abs(item.v)))
            assert_extreme(item.found["max_rel"], relative)

    def test_max_ulps(self, comparison):
        for item in comparison.items:
            nan = (np.isnan(item.u) | np.isnan(item.v)).ravel()
            ulps = [np.nan if n else e if steps is None else steps
                    for steps, n, e in zip(expected_ulps(item.a, item.b), nan, item.error.ravel())]
            assert_extreme(item.found["max_ulps"], np.array(ulps, "f8").reshape(item.a.shape))

    def test_rms(self, comparison):
        for item in comparison.items:
            counted = item.error[~np.isnan(item.error)]
            if counted.size:
                assert near(item.found["rms"], np.sqrt(np.mean(counted ** 2)))

    def test_mean_abs(self, comparison):
        for item in comparison.items:
            counted = item.error[~np.isnan(item.error)]
            if counted.size:
                assert near(item.found["mean_abs"], np.mean(counted))

    def test_nmse_and_snr(self, comparison):
        for item in comparison.items:
            finite = np.isfinite(item.u) & np.isfinite(item.v)
            power = np.sum(item.v[finite] ** 2)
            if power == 0:
                assert item.found["nmse"] is None
                continue
            nmse = np.sum((item.u[finite] - item.v[finite]) ** 2) / power
            assert near(item.found["nmse"], nmse)
            assert item.found["snr_db"] == (pytest.approx(-10 * np.log10(nmse), rel=1e-12) if nmse > 0 else None)

    def test_pcc(self, comparison):
        for item in comparison.items:
            finite = np.isfinite(item.u) & np.isfinite(item.v)
            u, v = item.u[finite], item.v[finite]
            if u.size == 0 or np.ptp(u) == 0 or np.ptp(v) == 0:
                assert item.found["pcc"] is None
            else:
                assert item.found["pcc"] == pytest.approx(scipy.stats.pearsonr(u, v)[0], rel=0, abs=1e-12)

    def test_cosine(self, comparison):
        for item in comparison.items:
            finite = np.isfinite(item.u) & np.isfinite(item.v)
            length = np.linalg.norm(item.u[finite]) * np.linalg.norm(item.v[finite])
            if length > 0:
                cosine = np.dot(item.u[finite], item.v[finite]) / length
                assert item.found["cosine"] == pytest.approx(cosine, rel=0, abs=1e-12)
            else:
                assert item.found["cosine"] is None

    def test_nan(self, comparison):
        for item in comparison.items:
            a, b = np.isnan(item.u), np.isnan(item.v)
            counts = {"both": (a & b).sum(), "a_only": (a & ~b).sum(), "b_only": (~a & b).sum()}
            assert {key: item.found["nan"][key] for key in counts} == counts

    def test_histogram_counts_every_error_once(self, comparison):
        for item in comparison.items:
            counted = item.error[~np.isnan(item.error)]
            bars = item.found["histogram"]
            assert bars["equal"] == (counted == 0).sum()
            assert bars["infinite"] == np.isinf(counted).sum()
            decades = sum(bar["count"] for bar in bars["decades"])
            assert bars["equal"] + bars["infinite"] + decades == counted.size

    def test_decades_of_the_histogram(self, comparison):
        for item in comparison.items:
            for bar in item.found["histogram"]["decades"]:
                low = 10.0 ** bar["decade"]
                inside = (item.error >= low * (1 - 1e-12)) & (item.error < 10 * low * (1 + 1e-12))
                assert bar["count"] <= inside.sum()


# Tolerances.


@pytest.mark.filterwarnings("ignore")
def test_default_tolerance_is_that_of_torch_testing(compare, tmp_path):
    rng = np.random.default_rng(12)
    pairs = {f"t{i}": random_pair(rng) for i in range(200)}
    for i, name in enumerate(("a.npz", "b.npz")):
        np.savez(tmp_path / name, **{key: pair[i] for key, pair in pairs.items()})
    for tensor in json.loads(compare("a.npz", "b.npz", "--json").stdout)["tensors"]:
        a, b = pairs[tensor["name"]]
        rtol, atol = map(max, zip(*(DEFAULT_TOLERANCES.get(x.dtype.name, (0, 0)) for x in (a, b))))
        assert (tensor["rtol"], tensor["atol"]) == (rtol, atol)
        assert tensor["differing"] == int((~np.isclose(for_numpy(a), for_numpy(b), rtol, atol)).sum())


def test_default_tolerance_of_bfloat16(compare, tmp_path):
    np.save(tmp_path / "b.npy", np.ones(3, "f4"))
    attn("convert", "b.npy", "--dtype", "bf16", "-o", "a.safetensors", cwd=tmp_path)
    np.save(tmp_path / "b.npy", np.array([1, 1.0158, 1.0163], "f4"))
    tensor = json.loads(compare("a.safetensors", "b.npy", "--json").stdout)["tensors"][0]
    assert (tensor["rtol"], tensor["atol"], tensor["differing"]) == (0.016, 1e-5, 1)


@pytest.mark.parametrize("flags, code", [(["--rtol", "1e-9"], 1), (["--atol", "1e-9"], 1), (["--ulp", "1"], 1), ([], 0)])
def test_given_tolerance_replaces_all_defaults(compare, tmp_path, flags, code):
    np.save(tmp_path / "a.npy", np.array([0.0, 1.0]))
    np.save(tmp_path / "b.npy", np.array([5e-8, 1 + 5e-8]))
    assert_verdict(compare("a.npy", "b.npy", *flags), code)


@pytest.fixture
def three_steps(tmp_path):
    """one.npy and three.npy differ by three representable numbers in each element."""
    one = np.array([1, -1, 0, 1e-300, 1e300])
    three = one.copy()
    for _ in range(3):
        three = np.nextafter(three, np.inf)
    np.save(tmp_path / "one.npy", one)
    np.save(tmp_path / "three.npy", three)


@pytest.mark.parametrize("flags, code", [
    (["--ulp", "3"], 0),
    (["--ulp", "2"], 1),
    (["--ulp", "2", "--rtol", "1e-12"], 1),  # 0 and 1e-323 differ
    (["--ulp", "2", "--rtol", "1e-12", "--atol", "1e-9"], 0),
])
def test_ulp_accepts_neighbours(compare, three_steps, flags, code):
    assert_verdict(compare("one.npy", "three.npy", *flags), code)


@pytest.mark.parametrize("flags, code", [(["--ulp", "0"], 0), (["--rtol", "1e-9"], 1)])
def test_ulp_counts_in_the_narrower_dtype(compare, tmp_path, flags, code):
    np.save(tmp_path / "rounded.npy", np.array([1 / 3, 2 / 3], "f4"))
    np.save(tmp_path / "exact.npy", np.array([1 / 3, 2 / 3]))
    assert_verdict(compare("rounded.npy", "exact.npy", *flags), code)


def test_infinity_is_close_to_no_finite_number(compare, tmp_path):
    np.save(tmp_path / "inf.npy", np.array([np.inf]))
    np.save(tmp_path / "max.npy", np.array([np.finfo("f8").max]))
    assert_verdict(compare("max.npy", "inf.npy", "--ulp", "9", "--rtol", "1", "--atol", "1e308"), 1)


class TestLargeIntegers:
    """NumPy rounds these integers to float64 and finds them equal; attn compares them exactly."""

    @pytest.fixture
    def tensors(self, compare, tmp_path):
        np.savez(tmp_path / "a.npz", i=np.array([2 ** 62 + 1, -2 ** 63]), u=np.array([2 ** 64 - 1], "u8"))
        np.savez(tmp_path / "b.npz", i=np.array([2 ** 62, 2 ** 63 - 1]), u=np.array([2 ** 64 - 3], "u8"))
        run = compare("a.npz", "b.npz", "--rtol=0", "--json")
        assert_verdict(run, 1)
        return json.loads(run.stdout)["tensors"]

    def test_int64(self, tensors):
        assert tensors[0]["differing"] == 2
        assert tensors[0]["max_abs"]["value"] == 2.0 ** 64
        assert tensors[0]["max_abs"]["at"] == [1]
        assert tensors[0]["max_abs"]["a"] == -2 ** 63

    def test_uint64(self, tensors):
        assert tensors[1]["max_abs"]["value"] == 2
        assert tensors[1]["max_abs"]["a"] == 2 ** 64 - 1


# Which tensors are compared.


class TestPairs:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path):
        np.savez(tmp_path / "a.npz", x=np.arange(3.0), y=np.zeros((2, 2)), extra=np.zeros(1))
        np.savez(tmp_path / "b.npz", y=np.zeros((2, 3)), x=np.arange(3.0), more=np.zeros(1))
        np.save(tmp_path / "x.npy", np.arange(3.0))
        (tmp_path / "x.json").write_text("[0, 1.0, 2]")

    def test_are_found_by_name(self, compare):
        run = compare("a.npz", "b.npz")
        assert run.stdout.decode().splitlines() == [
            "x (3,) float64: equal", "y (2, 2) and (2, 3) float64: shapes differ", "extra: in A only",
            "more: in B only", "1 of 4 tensors is the same"]
        assert_verdict(run, 1)

    def test_that_are_missing_on_one_side_are_in_json(self, compare):
        run = compare("a.npz", "b.npz", "--json")
        assert_verdict(run, 1)
        report = json.loads(run.stdout)
        assert (report["only_in_a"], report["only_in_b"]) == (["extra"], ["more"])

    @pytest.mark.parametrize("a, b", [
        ("x.npy", "a.npz#x"), ("a.npz#extra", "b.npz#more"), ("x.json", "x.npy")])
    def test_single_tensors_need_no_common_name(self, compare, a, b):
        assert_verdict(compare(a, b), 0)

    @pytest.mark.parametrize("a, b", [("x.npy", "a.npz"), ("a.npz", "x.npy")])
    def test_single_tensor_and_archive_are_refused(self, compare, a, b):
        assert_error(compare(a, b), 2, "a.npz#NAME", "extra")


def test_missing_file_is_an_error(compare, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3.0))
    assert compare("x.npy", "none.npy").returncode == 66


def test_negative_tolerance_is_refused(compare, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3.0))
    assert compare("x.npy", "x.npy", "--rtol", "-1").returncode == 2


# Text.


def test_text_shows_the_largest_differences_and_a_histogram(compare, tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0, 2.0], [np.nan, 4.0]], "f4"))
    np.save(tmp_path / "b.npy", np.array([[1.0, 2.5], [3.0, 4.0]]))
    run = compare("a.npy", "b.npy", "-v")
    assert run.stdout.decode().splitlines() == [
        "(2, 2) float32 and float64: 2 of 4 elements differ (rtol 1.3e-06, atol 1e-05)",
        "  max |a - b|      0.5 at [0, 1]: 2.0 and 2.5",
        "  max |a - b|/|b|  0.2 at [0, 1]: 2.0 and 2.5",
        "  max ulps         2.09715e+06 at [0, 1]: 2.0 and 2.5",
        "  mean |a - b|     0.166667",
        "  RMS of a - b     0.288675",
        "  NMSE             0.0107527 (SNR 19.6848 dB)",
        "  cosine           0.995638208843",
        "  PCC              0.981980506062",
        "  NaN              0 in both, 1 in A only, 0 in B only; the first that differs at [1, 0]: "
        "nan and 3.0",
        "  |a - b|",
        "    0              ######################################## 2",
        "    1e-01 to 1e+00 #################### 1",
        "0 of 1 tensor is the same"]
    assert_verdict(run, 1)


def test_text_without_details(compare, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([1.0, 2.0]), y=np.array([1.0, 2.0]), z=np.array([1.0, 2.0]))
    np.savez(tmp_path / "b.npz", x=np.array([1.0, 4.0]), y=np.array([1.0, 2.5]), z=np.array([1.0, 2.0]))
    assert compare("a.npz", "b.npz", "--atol", "1").stdout.decode().splitlines() == [
        "x (2,) float64: 1 of 2 elements differ (atol 1)",
        "  max |a - b|      2 at [1]: 2.0 and 4.0",
        "  max |a - b|/|b|  0.5 at [1]: 2.0 and 4.0",
        "  max ulps         4.5036e+15 at [1]: 2.0 and 4.0",
        "  RMS of a - b     1.41421",
        "y (2,) float64: close (atol 1), max |a - b| 0.5",
        "z (2,) float64: equal",
        "2 of 3 tensors are the same or close"]


def test_details_are_refused_with_json(compare, tmp_path):
    np.save(tmp_path / "a.npy", np.ones(2))
    assert_error(compare("a.npy", "a.npy", "-v", "--json"), 2, "--verbose")


@pytest.mark.parametrize("number, flags, summary", [
    (2.5, ["--atol", "1"], "1 of 1 tensor is the same or close"), (2.0, [], "1 of 1 tensor is the same")],
    ids=["close", "equal"])
def test_summary_tells_close_from_equal(compare, tmp_path, number, flags, summary):
    np.save(tmp_path / "a.npy", np.array([1.0, 2.0]))
    np.save(tmp_path / "b.npy", np.array([1.0, number]))
    run = compare("a.npy", "b.npy", *flags)
    assert run.stdout.decode().splitlines()[-1] == summary
    assert_verdict(run, 0)


@pytest.mark.parametrize("flags, verdict", [
    ([], "1 of 1 element differs (rtol 1e-07, atol 1e-07)"), (["--atol", "0"], "1 of 1 element differs"),
    (["--ulp", "3"], "1 of 1 element differs (3 ulps)"), (["--rtol", "2", "--ulp", "1"], "close (rtol 2 or 1 ulp)")])
def test_verdict_states_the_tolerance(compare, tmp_path, flags, verdict):
    np.save(tmp_path / "a.npy", np.array([1.0]))
    np.save(tmp_path / "b.npy", np.array([2.0]))
    line = compare("a.npy", "b.npy", *flags).stdout.decode().splitlines()[0]
    assert line.removesuffix(", max |a - b| 1") == f"(1,) float64: {verdict}"


@pytest.mark.parametrize("mean", [0, 1e4, -1e6])
def test_pcc_of_numbers_far_from_zero(compare, tmp_path, mean):
    a, b = mean + np.random.default_rng(16).standard_normal((2, 1000))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    found = json.loads(compare("a.npy", "b.npy", "--json").stdout)["tensors"][0]["pcc"]
    assert found == pytest.approx(scipy.stats.pearsonr(a - a[0], b - b[0])[0], rel=0, abs=1e-6)


@pytest.mark.parametrize("constant", [0, 0.1, 1e300])
def test_constant_has_no_pcc(compare, tmp_path, constant):
    np.save(tmp_path / "a.npy", np.full(1000, constant))
    np.save(tmp_path / "b.npy", np.arange(1000.0))
    assert json.loads(compare("a.npy", "b.npy", "--json").stdout)["tensors"][0]["pcc"] is None


def test_close_tensors_have_no_histogram(compare, tmp_path):
    np.save(tmp_path / "a.npy", np.array([1.0]))
    np.save(tmp_path / "b.npy", np.array([1 + 1e-9]))
    assert "####" not in compare("a.npy", "b.npy").stdout.decode()


def test_more_than_ten_tensors_of_one_file_are_counted(compare, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(1), **{f"t{i}": np.ones(1) for i in range(25)})
    np.savez(tmp_path / "b.npz", x=np.ones(1), y=np.ones(1))
    assert compare("a.npz", "b.npz").stdout.decode().splitlines() == [
        "x (1,) float64: equal", *(f"t{i}: in A only" for i in range(10)), "and 15 more in A only", "y: in B only",
        "1 of 27 tensors is the same"]


# The figures of each head.


class TestParts:
    @pytest.fixture(scope="class")
    def arrays(self):
        rng = np.random.default_rng(13)
        b = rng.standard_normal((2, 3, 4, 5))
        a = b.copy()
        a[0, 1] += 0.001 * rng.standard_normal((4, 5))
        a[1, 2, 3, 4] += 0.5
        return a, b

    @pytest.fixture
    def report(self, compare, tmp_path, arrays):
        """Compares the arrays under a name, and returns the entry in JSON and the text."""
        def report(name, *flags, order=None):
            for file, array in zip(("a.npz", "b.npz"), arrays):
                np.savez(tmp_path / file, **{name: array if order is None else order(array)})
            return (json.loads(compare("a.npz", "b.npz", "--json", *flags).stdout)["tensors"][0],
                    compare("a.npz", "b.npz", *flags).stdout.decode().splitlines())
        return report

    def test_have_the_figures_of_numpy(self, report, arrays):
        a, b = arrays
        parts = report("weights")[0]["parts"]
        assert [(part["batch"], part["head"]) for part in parts] == [(i, j) for i in range(2) for j in range(3)]
        for part in parts:
            u, v = (x[part["batch"], part["head"]] for x in (a, b))
            error = np.abs(u - v)
            assert part["elements"] == 20
            assert part["differing"] == (~np.isclose(u, v, 1e-7, 1e-7)).sum()
            assert near(part["max_abs"], error.max())
            assert near(part["mean_abs"], error.mean())
            assert near(part["rms"], np.sqrt((error ** 2).mean()))
            assert part["nmse"] == pytest.approx((error ** 2).sum() / (v ** 2).sum(), rel=1e-12)
            assert part["pcc"] == pytest.approx(np.corrcoef(u.ravel(), v.ravel())[0, 1], abs=1e-12)

    def test_that_differ_are_listed_from_the_worst(self, report):
        lines = report("weights")[1]
        start = lines.index("  2 of 6 heads differ, largest errors first")
        assert lines[start + 1].split() == ["batch", "head", "differing", "max", "|a", "-", "b|", "RMS", "PCC"]
        assert [line.split()[:5] for line in lines[start + 2:-1]] == [
            ["1", "2", "1", "of", "20"], ["0", "1", "20", "of", "20"]]

    def test_of_logsumexp_are_its_rows(self, report, arrays):
        parts = report("logsumexp", order=lambda x: x[:, :, :, 0])[0]["parts"]
        assert [part["differing"] for part in parts] == [0, 4, 0, 0, 0, 0]

    def test_of_an_unknown_tensor_are_its_leading_axes(self, report):
        entry, lines = report("x")
        assert "  2 of 6 parts differ, largest errors first" in lines
        assert [(part["axis 0"], part["axis 1"]) for part in entry["parts"]][:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]

    def test_of_several_layers_are_named(self, report):
        entry, _ = report("weights", order=lambda x: x[:, None])
        assert [(part["layer"], part["head"]) for part in entry["parts"]][:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]

    def test_beyond_six_are_counted(self, compare, tmp_path):
        np.savez(tmp_path / "a.npz", weights=np.ones((1, 16, 2, 2)))
        np.savez(tmp_path / "b.npz", weights=np.zeros((1, 16, 2, 2)))
        lines = compare("a.npz", "b.npz").stdout.decode().splitlines()
        assert "  16 of 16 heads differ, largest errors first" in lines
        assert "    and 10 more" in lines

    def test_with_nan_are_worst(self, compare, tmp_path):
        b = np.zeros((1, 3, 2, 2))
        a = b.copy()
        a[0, 1], a[0, 2, 0, 0] = 7, np.nan
        for name, array in (("a.npz", a), ("b.npz", b)):
            np.savez(tmp_path / name, scores=array)
        lines = compare("a.npz", "b.npz").stdout.decode().splitlines()
        start = lines.index("  2 of 3 heads differ, largest errors first")
        assert [line.split()[0] for line in lines[start + 2:start + 4]] == ["2", "1"]

    @pytest.mark.parametrize("shape", [(4, 5), (1, 1, 4, 5), (0, 3, 4, 5)])
    def test_are_not_listed_for_a_single_matrix(self, compare, tmp_path, shape):
        np.savez(tmp_path / "a.npz", weights=np.ones(shape))
        np.savez(tmp_path / "b.npz", weights=np.zeros(shape))
        assert json.loads(compare("a.npz", "b.npz", "--json").stdout)["tensors"][0]["parts"] == []


# Names, and hints.


class TestAs:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path):
        np.savez(tmp_path / "kernel.npz", out=np.arange(3.0), lse=np.ones(2))
        np.savez(tmp_path / "right.npz", context=np.arange(3.0), logsumexp=np.ones(2))
        np.save(tmp_path / "lse.npy", np.ones(2))

    @pytest.mark.parametrize("arguments", [
        ["kernel.npz", "right.npz", "--as", "out=context,lse=logsumexp"],
        ["kernel.npz", "right.npz", "--as", "out=context", "--as", "lse=logsumexp"],
        ["lse.npy", "right.npz", "--as", "logsumexp"], ["kernel.npz#lse", "right.npz", "--as", "logsumexp"]])
    def test_pairs_tensors(self, compare, arguments):
        assert_verdict(compare(*arguments), 0)

    def test_leaves_other_names(self, compare):
        run = compare("kernel.npz", "right.npz", "--as", "out=context")
        assert run.stdout.decode().splitlines() == [
            "context (3,) float64: equal", "lse: in A only", "logsumexp: in B only", "1 of 3 tensors is the same"]

    def test_is_suggested_if_no_name_matches(self, compare):
        run = compare("kernel.npz", "right.npz")
        assert_error(run, 2, "A and B have no tensor name in common: A has out, lse; B has context, logsumexp; "
                     "pair them with --as out=context,...")
        assert run.stdout == b""

    @pytest.mark.parametrize("value, message", [
        ("ouy=context", "--as: A has no tensor 'ouy' (did you mean 'out'?)"),
        ("context", "--as: requires a single tensor, but A has 2 (out, lse); use TENSOR=context"),
        ("out=lse", "--as: two tensors of A are named 'lse'"), ("out=a,out=b", "--as: 'out' is given twice"),
        ("out=", "--as: expected TENSOR=NAME, found 'out='")])
    def test_refuses_wrong_names(self, compare, value, message):
        assert_error(compare("kernel.npz", "right.npz", "--as", value), 2, message)

    def test_refuses_a_name_that_b_lacks(self, compare):
        assert_error(compare("lse.npy", "right.npz", "--as", "logsumex"), 2,
                     "--as: right.npz has no tensor 'logsumex' (did you mean 'logsumexp'?)")


class TestHints:
    @pytest.fixture
    def hints(self, compare, tmp_path):
        """The hints about two arrays with a name."""
        def hints(name, a, b, *flags):
            np.savez(tmp_path / "a.npz", **{name: a})
            np.savez(tmp_path / "b.npz", **{name: b})
            found = json.loads(compare("a.npz", "b.npz", "--json", *flags).stdout)["tensors"][0]["hints"]
            text = compare("a.npz", "b.npz", *flags).stdout.decode().splitlines()
            assert [line.removeprefix("  hint: ") for line in text if line.startswith("  hint: ")] == found
            return found
        return hints

    B = np.random.default_rng(14).standard_normal((2, 3, 4, 4))

    @pytest.mark.parametrize("name, factor, hint", [
        ("logsumexp", 1 / np.log(2), "A is about 1.443 times B, 1/log(2): A is a logarithm in base 2, B a natural one "
                                     "(--lse-base 2)"),
        ("logsumexp", np.log(2), "A is about 0.6931 times B, log(2): A is a natural logarithm, B one in base 2 "
                                 "(--lse-base e)"),
        ("scores", np.sqrt(128), "A is about 11.31 times B, sqrt(128): the scale 1/sqrt(D) may be missing in A"),
        ("scores", 1 / 8, "A is about 0.125 times B, 1/sqrt(64): A may be scaled once too often"),
        ("context", -1, "A is about -1 times B: the sign is reversed"),
        ("context", 1.25, "A is about 1.25 times B")])
    @pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
    def test_name_the_factor(self, hints, name, factor, hint, dtype):
        assert hints(name, (factor * self.B).astype(dtype), self.B) == [hint]

    def test_hidden_keys_do_not_matter(self, hints):
        hidden = np.where(np.tri(4, dtype=bool), self.B, -np.inf)
        assert hints("masked_scores", hidden * 8, hidden) == [
            "A is about 8 times B, sqrt(64): the scale 1/sqrt(D) may be missing in A"]

    @pytest.mark.parametrize("a", [B + 0.3, B * np.exp(0.1 * B), B + 0.01 * B[::-1]], ids=["shift", "power", "noise"])
    def test_are_not_given_without_a_factor(self, hints, a):
        assert hints("context", a, self.B) == []

    def test_axes_of_different_lengths_are_swapped(self, hints):
        assert hints("head_context", self.B.swapaxes(1, 2), self.B) == [
            "A agrees with B if its axes 1 and 2 (H and L) are swapped"]

    def test_axes_of_one_length_are_swapped(self, hints):
        assert hints("weights", self.B.swapaxes(2, 3), self.B) == [
            "A agrees with B if its axes 2 and 3 (L and S) are swapped"]

    def test_axes_of_an_unknown_tensor_are_swapped(self, hints):
        assert hints("x", self.B.swapaxes(0, 1), self.B) == ["A agrees with B if its axes 0 and 1 are swapped"]

    def test_shape_fits_after_a_swap(self, hints):
        assert hints("x", self.B.swapaxes(0, 1) + 1, self.B) == ["A has the shape of B with axes 0 and 1 swapped"]

    def test_another_shape(self, hints):
        assert hints("context", self.B.reshape(2, 12, 4), self.B) == ["A agrees with B if reshaped to (2, 3, 4, 4)"]

    @pytest.mark.parametrize("packed, heads, hint", [
        (B.swapaxes(1, 2).reshape(2, 4, 12), B, "A agrees with B if axes 1 and 2 (H and L) of B are swapped, and the result "
                                                "is reshaped to (2, 4, 12)"),
        (B[0].swapaxes(0, 1).reshape(4, 12), B[0], "A agrees with B if axes 0 and 1 (H and L) of B are swapped, and the result is "
                                                   "reshaped to (4, 12)")])
    def test_concatenated_heads(self, hints, packed, heads, hint):
        assert hints("head_context", packed, heads) == [hint]
        axes = "0 and 1" if heads.ndim == 3 else "1 and 2"
        assert hints("x", heads, packed) == [
            f"A agrees with B if its axes {axes} are swapped, and the result is reshaped to {packed.shape}"]

    def test_concatenated_heads_of_another_result(self, hints):
        assert hints("head_context", self.B.swapaxes(1, 2).reshape(2, 4, 12) + 1, self.B) == [
            "A has the shape of B with axes 1 and 2 (H and L) swapped and the last two joined"]

    def test_large_tensors_are_sampled(self, hints):
        b = np.random.default_rng(3).integers(-100, 100, (2, 2049, 1030), "i1")
        assert b.size > 1 << 22
        assert hints("x", b.swapaxes(1, 2), b) == ["A agrees with B if its axes 1 and 2 are swapped"]

    def test_follow_the_first_line(self, compare, tmp_path):
        np.save(tmp_path / "a.npy", 2 * self.B)
        np.save(tmp_path / "b.npy", self.B)
        lines = compare("a.npy", "b.npy").stdout.decode().splitlines()
        assert lines[1] == "  hint: A is about 2 times B"
        assert [line for line in lines if "hint" in line] == lines[1:2]

    def test_tolerance_counts(self, hints):
        a = self.B.swapaxes(1, 2) + 1e-3
        assert hints("x", a, self.B) == ["A has the shape of B with axes 1 and 2 swapped"]
        assert hints("x", a, self.B, "--atol", "2e-3") == ["A agrees with B if its axes 1 and 2 are swapped"]


def test_ulps_of_close_tensors_are_shown_only_if_they_count(compare, tmp_path):
    np.save(tmp_path / "a.npy", np.array([1.0, 1e-12]))
    np.save(tmp_path / "b.npy", np.array([1.0, 2e-12]))
    assert b"max ulps" not in compare("a.npy", "b.npy", "-v").stdout
    assert b"max ulps" in compare("a.npy", "b.npy", "--ulp", str(10**16), "-v").stdout
    assert b"max ulps" in compare("a.npy", "b.npy", "--atol", "0").stdout
    assert json.loads(compare("a.npy", "b.npy", "--json").stdout)["tensors"][0]["max_ulps"]["value"] > 1e15


# Pictures of A - B.


class TestPicture:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path):
        a = np.array([[3.0, 1.0, -np.inf], [4.0, 2.0, 7.0]])
        b = np.array([[1.0, 0.5, -np.inf], [4.0, np.nan, -np.inf]])
        np.savez(tmp_path / "a.npz", masked_scores=a, other=a)
        np.savez(tmp_path / "b.npz", masked_scores=b, other=a)

    @pytest.fixture
    def text(self, compare):
        run = compare("a.npz", "b.npz", "--view", "--of", "masked_scores")
        assert_verdict(run, 1)
        return run.stdout.decode()

    def test_title_names_the_tensor_and_the_files(self, text):
        assert "masked_scores: A \u2212 B" in text
        assert "A: a.npz; B: b.npz" in text

    def test_shows_signed_differences(self, text):
        rows = [line.split() for line in text.splitlines()[-5:-3]]
        assert rows[0][:3] == ["0", "2", "0.5"]
        assert rows[1] == ["1", "0", "nan", "nan"]

    def test_hatches_keys_that_both_hide(self, text):
        assert text.splitlines()[-5].split()[3].strip("\u2571") == ""

    def test_scale_is_symmetric(self, text):
        scale = text.splitlines()[-2]
        assert "-2 " in scale
        assert scale.endswith(" 2")

    @pytest.mark.parametrize("name", ["d.svg", "d.png"])
    def test_is_written_to_a_file(self, compare, tmp_path, name):
        assert_verdict(compare("a.npz", "b.npz", f"--view={name}"), 1)
        assert (tmp_path / name).stat().st_size > 1000

    def test_is_written_to_a_page(self, compare, tmp_path):
        assert compare("a.npz", "b.npz", "--view=d.html").returncode == 1
        assert (tmp_path / "d.html").stat().st_size > 1000

    def test_shows_the_first_tensor_that_differs(self, compare, tmp_path):
        compare("a.npz", "b.npz", "--view=d.svg")
        assert "masked_scores: A \u2212 B" in (tmp_path / "d.svg").read_text()

    def test_replaces_no_file(self, compare, tmp_path):
        (tmp_path / "d.svg").touch()
        run = compare("a.npz", "b.npz", "--view=d.svg")
        assert (run.returncode, run.stdout) == (73, b"")

    def test_replaces_a_file_with_force(self, compare, tmp_path):
        (tmp_path / "d.svg").touch()
        assert_verdict(compare("a.npz", "b.npz", "--view=d.svg", "--force"), 1)

    @pytest.mark.parametrize("flags", [["--view", "--json"], ["--view=d.gif"], ["--view", "--of", "none"],
                                       ["--view", "--batch", "9"]])
    def test_invalid_flags_are_refused(self, compare, flags):
        run = compare("a.npz", "b.npz", *flags)
        assert (run.returncode, run.stdout) == (2, b"")
        assert run.stderr.count(b"\n") == 1


class TestDifferentShapes:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path):
        np.save(tmp_path / "long.npy", np.zeros(4))
        np.save(tmp_path / "short.npy", np.zeros(3))

    def test_are_a_difference(self, compare):
        run = compare("long.npy", "short.npy")
        assert_verdict(run, 1)
        assert run.stdout.startswith(b"(4,) and (3,) float64: shapes differ\n")

    @pytest.mark.parametrize("view", ["--view", "--view=none.svg"])
    def test_are_not_drawn(self, compare, tmp_path, view):
        run = compare("long.npy", "short.npy", view)
        assert run.returncode == 1
        assert b"nothing to draw" in run.stderr
        assert run.stdout
        assert not (tmp_path / "none.svg").exists()


# --max-memory


@pytest.fixture
def large(tmp_path):
    np.save(tmp_path / "large.npy", np.ones(1000))
    return "large.npy"


def test_file_within_max_memory_is_compared(compare, large):
    assert_verdict(compare(large, large, "--max-memory", "1M"), 0)


@pytest.mark.parametrize("size, code, reason", [
    ("bogus", 2, "--max-memory"), ("1000", 65, "large.npy: expected at most")])
def test_file_above_max_memory_is_refused(compare, large, size, code, reason):
    run = compare(large, large, "--max-memory", size)
    assert_error(run, code, reason)
    assert run.stderr.count(b"\n") == 1


def test_quiet_help_says_what_compare_still_prints():
    help_text = " ".join(attn("compare", "--help").stdout.decode().split())
    assert "-q, --quiet suppress the report, and notes and warnings on stderr; --json is printed" in help_text
    assert help_text.count("suppress") == 1
