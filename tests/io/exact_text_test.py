"""Text that programs read holds the exact numbers: bit for bit, as doubles and in the array's dtype.

Python's json and csv modules read the text. bfloat16 is the upper half of float32.
"""

import csv
import json

import numpy as np
import pytest

from support import safetensors_file
from support.attn import attn

RANDOM = np.random.default_rng(15)
COLUMNS = 16
DTYPES = ["f16", "bf16", "f32", "f64"]


def bits_of(dtype):
    """The bits of finite numbers: random ones, and the ends of the range."""
    unsigned = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}[dtype]
    bits = np.frombuffer(RANDOM.bytes(np.dtype(unsigned).itemsize * 4000), unsigned)
    normal = to_bits(RANDOM.standard_normal(500), dtype)
    edges = to_bits(np.array([0.0, -0.0, 9984, 10016, 0.1, 65504, 1e-7, 1 / 3, 100000, 123456789]), dtype)
    bits = np.concatenate([edges, normal, bits])
    bits = bits[np.isfinite(to_doubles(bits, dtype))]
    return bits[:len(bits) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)


def to_doubles(bits, dtype):
    with np.errstate(invalid="ignore"):  # NaN with unusual bits
        if dtype == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return bits.view({"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]).astype(np.float64)


def to_bits(doubles, dtype):
    """Exact for doubles that the dtype represents; for others, the low bits of bf16 are cut off."""
    with np.errstate(over="ignore"):
        if dtype == "bf16":
            return (doubles.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        found = doubles.astype({"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype])
    return found.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[found.itemsize])


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


@pytest.fixture
def bits(tmp_path, dtype):
    """The bits of the array that the file x.safetensors holds."""
    bits = bits_of(dtype)
    data = bits.tobytes()
    name = {"f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64"}[dtype]
    header = {"x": safetensors_file.entry(0, len(data), name, list(bits.shape))}
    (tmp_path / "x.safetensors").write_bytes(safetensors_file.build(header, data))
    return bits


def assert_exact(numbers, bits, dtype):
    numbers = np.array(numbers, np.float64)
    assert np.array_equal(numbers.view(np.uint64), to_doubles(bits, dtype).view(np.uint64)), "as doubles"
    assert np.array_equal(to_bits(numbers, dtype), bits), "in the dtype"


def run(folder, *arguments, **keywords):
    done = attn(*arguments, cwd=folder, **keywords)
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.stdout.decode()


def test_json(tmp_path, bits, dtype):
    assert_exact(json.loads(run(tmp_path, "convert", "x.safetensors", "--format", "json"))["x"], bits, dtype)


def test_csv(tmp_path, bits, dtype):
    rows = list(csv.reader(run(tmp_path, "convert", "x.safetensors", "--format", "csv").splitlines()))
    assert_exact([[float(cell) for cell in row] for row in rows], bits, dtype)
    if dtype != "bf16":  # the digits as such, without a double between
        numpy_dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
        direct = np.array([[numpy_dtype(cell) for cell in row] for row in rows])
        assert np.array_equal(direct.view(bits.dtype), bits)


def test_ndjson(tmp_path, bits, dtype):
    job = {"Q": "x.safetensors", "K": "x.safetensors", "outputs": ["Q"]}
    assert_exact(json.loads(run(tmp_path, "batch", "-", stdin=json.dumps(job)))["Q"], bits, dtype)


def test_run_json_and_csv(tmp_path, bits, dtype):
    """An output in the dtype of the tensor."""
    (tmp_path / "job.json").write_text(json.dumps({"Q": "x.safetensors", "K": "x.safetensors"}))
    for suffix in "json", "csv":
        run(tmp_path, "run", "job.json", "--outputs", "K", "-o", f"K={tmp_path}/k.{suffix}")
    text = (tmp_path / "k.json").read_text()
    found = json.loads(text)
    assert_exact(found["K"] if isinstance(found, dict) else found, bits, dtype)
    rows = list(csv.reader((tmp_path / "k.csv").read_text().splitlines()))
    assert_exact([[float(cell) for cell in row] for row in rows], bits, dtype)


def test_inspect_json(tmp_path, bits, dtype):
    found = json.loads(run(tmp_path, "inspect", "x.safetensors", "--json"))
    doubles = to_doubles(bits, dtype)
    assert (found["min"], found["max"]) == (doubles.min(), doubles.max())


def test_compare_json(tmp_path, bits, dtype):
    np.save(tmp_path / "y.npy", to_doubles(bits, dtype) * 0.5)
    tensor = json.loads(run(tmp_path, "compare", "x.safetensors", "y.npy", "--json"))["tensors"][0]
    doubles = to_doubles(bits, dtype)
    for extreme in "max_abs", "max_rel":
        at = tuple(tensor[extreme]["at"])
        assert (tensor[extreme]["a"], tensor[extreme]["b"]) == (doubles[at], doubles[at] * 0.5)


def test_converted_file_compares_as_equal(tmp_path, bits, dtype):
    for suffix in "json", "csv":
        run(tmp_path, "convert", "x.safetensors", "-o", f"x.{suffix}")
        assert attn("compare", f"x.{suffix}", "x.safetensors", cwd=tmp_path).returncode == 0
