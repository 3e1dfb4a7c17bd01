"""Numbers in JSON, compared with Python's and NumPy's conversions.

`attn convert X.npy --format json` writes text that Python reads as the same numbers bit for bit, in the
fewest digits: those of Python's repr, for float32 and float16, too. `attn convert X.json
-o X.npy` reads what Python writes bit for bit.
"""

import json

import numpy as np
import pytest

from support.attn import attn

NON_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
RANDOM = np.random.default_rng(2024)


def random_bits(dtype, count):
    """Finite floats of random bits, and so of all exponents."""
    values = np.frombuffer(RANDOM.bytes(count * np.dtype(dtype).itemsize), dtype=dtype)
    return values[np.isfinite(values)]


def to_json(folder, array):
    np.save(folder / "x.npy", array)
    run = attn("convert", "x.npy", "--format", "json", cwd=folder)
    assert run.returncode == 0, run.stderr
    return run.stdout


def from_json(folder, value):
    (folder / "x.json").write_text(json.dumps(value))
    run = attn("convert", "x.json", "-o", "x.npy", cwd=folder)
    assert run.returncode == 0, run.stderr
    return np.load(folder / "x.npy")


EVERY_FLOAT16 = np.arange(0x10000, dtype=np.uint16).view(np.float16)
FLOATS = {
    "special values": np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1, 100000, 1e15, 1e16, 1e-4, 1e-5]),
    "random float64": random_bits(np.float64, 50_000),
    "normal float64": RANDOM.standard_normal(50_000),
    "random float32": random_bits(np.float32, 50_000),
    "every float16": EVERY_FLOAT16[np.isfinite(EVERY_FLOAT16)],
}


class TestWrittenFloats:
    @pytest.fixture(scope="class", params=FLOATS)
    def written(self, request, module_path):
        """An array, and the tokens that the program writes for it."""
        array = FLOATS[request.param]
        return array, json.loads(to_json(module_path, array), parse_float=str, parse_int=str)

    def test_values_are_equal(self, written):
        array, tokens = written
        numbers = np.array([NON_FINITE.get(token, token) for token in tokens], dtype=np.float64)
        assert np.array_equal(numbers, array.astype(np.float64), equal_nan=True)
        assert np.array_equal(np.signbit(numbers), np.signbit(array))

    def test_digits_are_the_fewest(self, written):
        array, tokens = written
        assert [(token, value) for token, value in zip(tokens, array)
                if np.isfinite(value) and token != repr(float(value))] == []


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_written_integers_are_exact(tmp_path, dtype):
    limits = np.iinfo(dtype)
    array = np.array([[limits.min, limits.max], [0, 1]], dtype=dtype)
    assert json.loads(to_json(tmp_path, array)) == array.tolist()


@pytest.mark.parametrize("array", [np.array([True, False]), np.array(7.5), np.arange(24).reshape(2, 3, 4),
                                   np.zeros((2, 0))],
                         ids=["bool", "no axes", "three axes", "rows without elements"])
def test_array_is_written_as_nested_lists(tmp_path, array):
    assert json.loads(to_json(tmp_path, array)) == array.tolist()


@pytest.mark.parametrize("value, dtype", [
    (random_bits(np.float64, 50_000).reshape(-1, 1).tolist(), "float64"),
    (RANDOM.integers(-2**63, 2**63 - 1, (100, 100)).tolist(), "int64"),
    ([[2**64 - 1, 2**63], [0, 1]], "uint64"),
    ([[True], [False]], "bool"),
    ([[1, 2], [3, 0.5]], "float64"),
    ([[-2**63, 2**63 - 1], [-10**17, 10**18]], "int64"),
    ([[1, 0.5], [0.5, 1], [0.5, 2**64 - 1], [2**53 + 1, 0.5]], "float64"),
], ids=["float64", "int64", "uint64", "bool", "integers and a float", "the limits of int64", "integers beside floats"])
def test_json_is_read_bit_for_bit(tmp_path, value, dtype):
    expected = np.array(value, dtype=dtype)
    found = from_json(tmp_path, value)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def decimals(count):
    """Texts of decimals with up to 27 digits, before and after the point, with and without an exponent."""
    for _ in range(count):
        whole, fraction = ("".join(map(str, RANDOM.integers(0, 10, RANDOM.integers(1, most)))) for most in (9, 20))
        sign, exponent = RANDOM.choice(["", "", "-"]), RANDOM.choice(["", "", "", "e5", "E-7", "e+300", "e-320"])
        yield f"{sign}{whole.lstrip('0') or '0'}.{fraction}{exponent}"


SHORT = ["0.5", "-0.0", "0.1", "0.3", "12.75", "9007199254740992.0", "9007199254740993.0", "900719925474099.3",
         "9007199254740.9931", "0.000000000000000001", "0.00000000000000000999", "123456789012345678.5",
         "1234567890123456789.5", "0e0", "-0e5", "1E5", "1e-5", "0.3e1", "4.35", "2.675", "1.005", "179769313486231570.0e291"]


@pytest.mark.parametrize("texts", [SHORT, list(decimals(20_000))], ids=["chosen", "random"])
def test_decimals_are_read_as_python_reads_them(tmp_path, texts):
    (tmp_path / "x.json").write_text("[" + ", ".join(texts) + "]")
    run = attn("convert", "x.json", "-o", "x.npy", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert np.load(tmp_path / "x.npy").tobytes() == np.array([float(text) for text in texts]).tobytes()
