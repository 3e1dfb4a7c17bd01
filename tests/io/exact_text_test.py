"""Text that programs read holds the exact numbers: bit for bit, as doubles and in the array's dtype.

Python's json and csv modules read the text of every command that writes JSON, NDJSON or CSV, for arrays of
every dtype in every binary format. bfloat16 is the upper half of float32.
"""

import csv
import json

import numpy as np
import pytest

from support import safetensors_file
from support.attn import attn

RANDOM = np.random.default_rng(15)
COLUMNS = 16
# For each dtype: its name in safetensors, and the NumPy dtype of its bits.
FLOATS = {"f16": ("F16", np.uint16), "bf16": ("BF16", np.uint16), "f32": ("F32", np.uint32), "f64": ("F64", np.uint64)}
OTHERS = {"i8": ("I8", np.int8), "i16": ("I16", np.int16), "i32": ("I32", np.int32), "i64": ("I64", np.int64),
          "u8": ("U8", np.uint8), "u16": ("U16", np.uint16), "u32": ("U32", np.uint32), "u64": ("U64", np.uint64),
          "bool": ("BOOL", np.bool_)}
DTYPES = FLOATS | OTHERS
NUMPY_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
CONTAINERS = ["npy", "npz", "safetensors"]


def bits_of(dtype):
    """The bits of finite floats, or integers: random ones, and the ends of the range."""
    bits_dtype = DTYPES[dtype][1]
    if dtype == "bool":
        return (RANDOM.random((20, COLUMNS)) < 0.5)
    random = np.frombuffer(RANDOM.bytes(np.dtype(bits_dtype).itemsize * 4000), bits_dtype)
    if dtype in OTHERS:
        limits = np.iinfo(bits_dtype)
        ends = np.array([limits.min, limits.max, limits.max - 1, 0, 1], bits_dtype)
        return np.concatenate([ends, random])[:4000].reshape(-1, COLUMNS)
    normal = to_bits(RANDOM.standard_normal(500), dtype)
    edges = to_bits(np.array([0.0, -0.0, 9984, 10016, 0.1, 65504, 1e-7, 1 / 3, 100000, 123456789]), dtype)
    bits = np.concatenate([edges, normal, random])
    bits = bits[np.isfinite(to_doubles(bits, dtype))]
    return bits[:len(bits) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)


def to_doubles(bits, dtype):
    with np.errstate(invalid="ignore"):  # NaN with unusual bits
        if dtype == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return bits.view(NUMPY_FLOATS[dtype]).astype(np.float64)


def to_bits(doubles, dtype):
    """Exact for doubles that the dtype represents; for others, the low bits of bf16 are cut off."""
    with np.errstate(over="ignore"):
        if dtype == "bf16":
            return (doubles.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        found = doubles.astype(NUMPY_FLOATS[dtype])
    return found.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[found.itemsize])


def write(folder, container, dtype, bits):
    """Writes the array to x.CONTAINER, under the name x if it has names; returns the file name."""
    path = folder / f"x.{container}"
    if container == "safetensors":
        data = bits.tobytes()
        header = {"x": safetensors_file.entry(0, len(data), DTYPES[dtype][0], list(bits.shape))}
        path.write_bytes(safetensors_file.build(header, data))
    else:
        array = bits.view(NUMPY_FLOATS[dtype]) if dtype in NUMPY_FLOATS else bits
        np.save(path, array) if container == "npy" else np.savez(path, x=array)
    return path.name


@pytest.fixture(params=FLOATS)
def dtype(request):
    return request.param


@pytest.fixture
def bits(tmp_path, dtype):
    """The bits of the array that the file x.safetensors holds."""
    bits = bits_of(dtype)
    write(tmp_path, "safetensors", dtype, bits)
    return bits


def assert_exact(numbers, bits, dtype):
    if dtype in OTHERS:
        assert numbers == bits.tolist()
        return
    numbers = np.array(numbers, np.float64)
    assert np.array_equal(numbers.view(np.uint64), to_doubles(bits, dtype).view(np.uint64)), "as doubles"
    assert np.array_equal(to_bits(numbers, dtype), bits), "in the dtype"


def assert_exact_csv(text, bits, dtype):
    rows = list(csv.reader(text.splitlines()))
    if dtype in OTHERS:
        assert [[int(cell) for cell in row] for row in rows] == bits.tolist()  # true is 1
        return
    assert_exact([[float(cell) for cell in row] for row in rows], bits, dtype)
    if dtype != "bf16":  # the digits as such, without a double between
        direct = np.array([[NUMPY_FLOATS[dtype](cell) for cell in row] for row in rows])
        assert np.array_equal(direct.view(bits.dtype), bits)


def run(folder, *arguments, **keywords):
    done = attn(*arguments, cwd=folder, **keywords)
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.stdout.decode()


def array_in(text):
    """The array x of a JSON text, which has names if the file that was converted has."""
    found = json.loads(text)
    return found["x"] if isinstance(found, dict) else found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("container", CONTAINERS)
class TestConvert:
    """`attn convert` from each binary format to text."""

    @pytest.fixture
    def bits(self, dtype):
        return bits_of(dtype)

    @pytest.fixture
    def file(self, tmp_path, container, dtype, bits):
        if dtype == "bf16" and container != "safetensors":
            pytest.skip("no bfloat16 in this format")
        return write(tmp_path, container, dtype, bits)

    def test_json(self, tmp_path, file, bits, dtype):
        assert_exact(array_in(run(tmp_path, "convert", file, "--format", "json")), bits, dtype)

    def test_json_file(self, tmp_path, file, bits, dtype):
        run(tmp_path, "convert", file, "-o", "y.json")
        assert_exact(array_in((tmp_path / "y.json").read_text()), bits, dtype)

    def test_csv(self, tmp_path, file, bits, dtype):
        assert_exact_csv(run(tmp_path, "convert", file, "--format", "csv"), bits, dtype)

    def test_csv_file(self, tmp_path, file, bits, dtype):
        run(tmp_path, "convert", file, "-o", "y.csv")
        assert_exact_csv((tmp_path / "y.csv").read_text(), bits, dtype)

    @pytest.mark.parametrize("suffix", ["json", "csv"])
    def test_and_back(self, tmp_path, file, bits, dtype, suffix):
        """attn reads its own text: the bits of the same dtype again, and `compare` finds no difference."""
        run(tmp_path, "convert", file, "-o", f"y.{suffix}")
        assert attn("compare", f"y.{suffix}", file, cwd=tmp_path).returncode == 0
        run(tmp_path, "convert", f"y.{suffix}", "--dtype", dtype, "-o", "z.safetensors")
        tensors, _ = safetensors_file.read((tmp_path / "z.safetensors").read_bytes())
        [(name, shape, data)] = tensors.values()
        assert (name, shape, data) == (DTYPES[dtype][0], bits.shape, bits.tobytes())

    def test_inspect(self, tmp_path, file, bits, dtype):
        found = json.loads(run(tmp_path, "inspect", file, "--json"))
        numbers = bits if dtype in OTHERS else to_doubles(bits, dtype)
        assert (found["min"], found["max"]) == (numbers.min(), numbers.max())


@pytest.mark.parametrize("form", ["json", "csv"])
def test_nan_and_infinity(tmp_path, dtype, form):
    doubles = np.array([[np.nan, np.inf, -np.inf, 0.1]])
    write(tmp_path, "safetensors", dtype, to_bits(doubles, dtype))
    text = run(tmp_path, "convert", "x.safetensors", "--format", form)
    [row] = json.loads(text)["x"] if form == "json" else list(csv.reader(text.splitlines()))
    assert row[:3] == (["NaN", "Infinity", "-Infinity"] if form == "json" else ["nan", "inf", "-inf"])
    assert np.isnan(float(row[0])) and [float(row[1]), float(row[2])] == [np.inf, -np.inf]


# Commands that write the tensor `Q` of a job as JSON, and read their output: text on stdout, or a file.
JSON_COMMANDS = {
    "run": (["run", "job.json", "--format", "json"], None),
    "run ndjson": (["run", "job.json", "--format", "ndjson"], None),
    "run -o": (["run", "job.json", "-o", "out.json"], "out.json"),
    "run -o NAME": (["run", "job.json", "-o", "Q=out.json"], "out.json"),
    "batch": (["batch", "job.json", "--out-dir", "out", "--format", "json"], "out/job.json"),
    "batch ndjson": (["batch", "job.json"], None),
}
CSV_COMMANDS = {
    "run": (["run", "job.json", "--format", "csv"], None),
    "run -o": (["run", "job.json", "-o", "out.csv"], "out.csv"),
    "batch": (["batch", "job.json", "--out-dir", "out", "--format", "csv"], "out/job.csv"),
}


def output_of(folder, command):
    arguments, file = command
    (folder / "job.json").write_text(json.dumps({"Q": "x.safetensors", "K": "x.safetensors", "outputs": ["Q"]}))
    text = run(folder, *arguments)
    return text if file is None else (folder / file).read_text()


@pytest.mark.parametrize("command", JSON_COMMANDS)
def test_json_results(tmp_path, bits, dtype, command):
    found = json.loads(output_of(tmp_path, JSON_COMMANDS[command]))
    assert_exact(found["Q"] if isinstance(found, dict) else found, bits, dtype)


@pytest.mark.parametrize("command", CSV_COMMANDS)
def test_csv_results(tmp_path, bits, dtype, command):
    assert_exact_csv(output_of(tmp_path, CSV_COMMANDS[command]), bits, dtype)


def test_merged(tmp_path, bits, dtype):
    """Merging a single part returns it."""
    data = bits.tobytes()
    zeros = bytes(4 * len(bits))
    header = {"head_context": safetensors_file.entry(0, len(data), FLOATS[dtype][0], list(bits.shape)),
              "logsumexp": safetensors_file.entry(len(data), len(data) + len(zeros), "F32", [len(bits)])}
    (tmp_path / "part.safetensors").write_bytes(safetensors_file.build(header, data + zeros))
    found = json.loads(run(tmp_path, "merge", "part.safetensors", "--format", "json"))["head_context"]
    assert_exact(found, to_bits(to_doubles(bits, dtype) + 0.0, dtype), dtype)  # 0 + -0.0 is 0.0


@pytest.mark.parametrize("factor", ["U", "s", "Vt"])
@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_svd(tmp_path, form, factor):
    """As in the binary file of the same run."""
    np.save(tmp_path / "x.npy", RANDOM.standard_normal((5, 4)))
    run(tmp_path, "svd", "x.npy", "-o", "x.npz")
    found = json.loads(run(tmp_path, "svd", "x.npy", "--format", form))
    with np.load(tmp_path / "x.npz") as binary:
        assert np.array_equal(np.array(found[factor]).view(np.uint64), binary[factor].view(np.uint64))


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("numbers", ["float32", "float64"])
def test_random(tmp_path, form, numbers):
    text = run(tmp_path, "random", "random", "--generator", "default_rng", "--seed", 7, "--shape", "9,8",
               "--dtype", numbers, "--format", form)
    rows = json.loads(text) if form == "json" else list(csv.reader(text.splitlines()))
    drawn = np.random.default_rng(7).random((9, 8), dtype=numbers)
    assert np.array_equal(np.array(rows, np.float64), drawn.astype(np.float64))


def test_compare_json(tmp_path, bits, dtype):
    np.save(tmp_path / "y.npy", to_doubles(bits, dtype) * 0.5)
    tensor = json.loads(run(tmp_path, "compare", "x.safetensors", "y.npy", "--json"))["tensors"][0]
    doubles = to_doubles(bits, dtype)
    for extreme in "max_abs", "max_rel":
        at = tuple(tensor[extreme]["at"])
        assert (tensor[extreme]["a"], tensor[extreme]["b"]) == (doubles[at], doubles[at] * 0.5)
