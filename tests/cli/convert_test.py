"""`attn convert`: round trips through every format, refusals, and existing files."""

import functools
import io
import itertools
import json

import numpy as np
import pytest

from support import safetensors_file
from support.attn import assert_error, attn

DTYPES = ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64", "bool"]


def same(a, b):
    """Equal dtype, shape and elements; NaN equals NaN, and zeros have equal signs."""
    return (a.dtype == b.dtype and a.shape == b.shape and
            np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and
            (a.dtype.kind != "f" or np.array_equal(np.signbit(a), np.signbit(b))))


@pytest.fixture
def run(tmp_path):
    """Runs `attn convert` in the test's folder."""
    return functools.partial(attn, "convert", cwd=tmp_path)


@pytest.fixture
def convert(run):
    """Runs `attn convert`, which must succeed silently, and returns its output."""
    def convert(*arguments, **keywords):
        done = run(*arguments, **keywords)
        assert done.stderr == b""
        assert done.returncode == 0
        return done.stdout
    return convert


def assert_refused(run, code, *texts):
    assert_error(run, code, *texts)
    assert run.stdout == b""
    assert run.stderr


# Round trips.


def sample(dtype, shape):
    """Random elements, after the smallest and largest number, or after special numbers."""
    rng, dtype, count = np.random.default_rng(7), np.dtype(dtype), int(np.prod(shape, dtype=int))
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        ends = np.array([limits.min, limits.max], dtype)
        return np.concatenate([ends, values])[:count].reshape(shape)
    values = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
    special = [0.0, -0.0, np.finfo(dtype).max, np.finfo(dtype).tiny, np.nan, np.inf, -np.inf]
    with np.errstate(over="ignore"):
        return np.concatenate([special, values])[:count].astype(dtype).reshape(shape)


@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 3, 4), (0, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_through_npz(convert, tmp_path, dtype, shape):
    array = sample(dtype, shape)
    np.save(tmp_path / "in.npy", array)
    convert("in.npy", "-o", "one.npz")
    with np.load(tmp_path / "one.npz") as archive:
        assert archive.files == ["arr_0"]
        assert same(archive["arr_0"], array)
    convert("one.npz", "-o", "back.npy")
    assert (tmp_path / "back.npy").read_bytes() == (tmp_path / "in.npy").read_bytes()


@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_through_json(convert, tmp_path, dtype, shape):
    array = sample(dtype, shape)
    np.save(tmp_path / "in.npy", array)
    convert("in.npy", "-o", "a.json")
    written = json.loads((tmp_path / "a.json").read_text())
    if array.dtype.kind == "f":
        cells = [float(cell) for cell in np.array(written, dtype=object).ravel()]
        assert same(np.array(cells).reshape(shape).astype(dtype), array)
    else:
        assert json.dumps(written) == json.dumps(array.tolist())
    convert("a.json", "-o", "back.npy", "--dtype", dtype)
    assert same(np.load(tmp_path / "back.npy"), array)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("bool", "uint64")])
def test_round_trip_through_csv(convert, tmp_path, dtype):
    """CSV holds int64 and float64, and so neither bool nor uint64."""
    array = sample(dtype, (6, 4))
    np.save(tmp_path / "in.npy", array)
    convert("in.npy", "-o", "a.csv")
    assert same(np.genfromtxt(tmp_path / "a.csv", delimiter=",", dtype=array.dtype), array)
    convert("a.csv", "-o", "back.npy", "--dtype", dtype)
    assert same(np.load(tmp_path / "back.npy"), array)


SUFFIXES = ["npy", "npz", "safetensors", "json", "csv"]


@pytest.mark.parametrize("first, second", itertools.product(SUFFIXES, SUFFIXES))
def test_float32_matrix_through_two_formats(convert, tmp_path, first, second):
    x = np.random.default_rng(7).standard_normal((3, 4)).astype("f4")
    np.savez(tmp_path / "from.npz", x=x)
    convert("from.npz#x", "-o", f"a.{first}")
    convert(f"a.{first}", "-o", f"b.{second}")
    convert(f"b.{second}", "-o", "back.npy", "--dtype", "f32")
    assert same(np.load(tmp_path / "back.npy"), x)


# 1, -2, the largest number, the smallest positive number, and NaN or infinity, by the formats' definitions.
NARROW = {"BF16": ("<u2", [0x3F80, 0xC000, 0x7F7F, 0x0001, 0x7F80], [1, -2, 255 * 2.0 ** 120, 2.0 ** -133, np.inf]),
          "F16": ("<u2", [0x3C00, 0xC000, 0x7BFF, 0x0001, 0x7C00], [1, -2, 65504, 2.0 ** -24, np.inf]),
          "F8_E4M3": ("u1", [0x38, 0xC0, 0x7E, 0x01, 0x7F], [1, -2, 448, 2.0 ** -9, np.nan]),
          "F8_E5M2": ("u1", [0x3C, 0xC0, 0x7B, 0x01, 0x7C], [1, -2, 57344, 2.0 ** -16, np.inf])}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_dtype_of_safetensors_into_another_format(convert, tmp_path, dtype, suffix):
    kind, bits, values = NARROW[dtype]
    raw = np.array(bits, kind).tobytes()
    header = {"x": safetensors_file.entry(0, len(raw), dtype, [1, 5])}
    (tmp_path / "n.safetensors").write_bytes(safetensors_file.build(header, raw))
    convert("n.safetensors", "-o", f"n2.{suffix}")
    # Text has just enough digits to tell a number from its neighbours in the same dtype.
    own = {"BF16": "bf16", "F16": "f16"}.get(dtype, "f32")
    convert("-q", f"n2.{suffix}", "-o", "n3.npy", "--dtype", own)
    np.testing.assert_array_equal(np.load(tmp_path / "n3.npy").astype("f8"), [values])


# Several arrays.


class TestArchive:
    ARRAYS = {"q": np.arange(6.0).reshape(2, 3) / 4, "k": np.arange(3), "mask": np.array([True])}

    @pytest.fixture(autouse=True)
    def archive(self, tmp_path):
        np.savez(tmp_path / "s.npz", **self.ARRAYS)

    def test_becomes_a_json_object(self, convert, tmp_path):
        convert("s.npz", "-o", "s.json")
        assert json.loads((tmp_path / "s.json").read_text()) == {
            name: array.tolist() for name, array in self.ARRAYS.items()}

    def test_comes_back_from_json(self, convert, tmp_path):
        convert("s.npz", "-o", "s.json")
        convert("s.json", "-o", "s2.npz")
        with np.load(tmp_path / "s2.npz") as archive:
            assert archive.files == list(self.ARRAYS)
            assert [name for name in archive if not same(archive[name], self.ARRAYS[name])] == []

    def test_member_becomes_an_array(self, convert, tmp_path):
        convert("s.npz#k", "-o", "k.json")
        assert json.loads((tmp_path / "k.json").read_text()) == [0, 1, 2]

    def test_member_keeps_its_name_in_an_npz(self, convert, tmp_path):
        convert("s.npz#k", "-o", "k.npz")
        with np.load(tmp_path / "k.npz") as archive:
            assert archive.files == ["k"]

    def test_is_printed_with_names(self, convert):
        text = "".join(f"{name}:\n{array}\n\n" for name, array in self.ARRAYS.items())[:-1]
        assert convert("s.npz").decode() == text

    def test_member_is_printed_without_its_name(self, convert):
        assert convert("s.npz#mask", "--repr") == b"array([ True])\n"

    @pytest.mark.parametrize("flags", [["-o", "s.npy"], ["--format", "csv"]])
    def test_does_not_fit_a_format_of_one_array(self, run, tmp_path, flags):
        assert_refused(run("s.npz", *flags), 65, "s.npz", "mask")
        assert not (tmp_path / "s.npy").exists()


class TestArchiveWithADamagedMember:
    """FILE#NAME reads only that member."""

    @pytest.fixture
    def arrays(self, tmp_path):
        rng = np.random.default_rng(7)
        arrays = {f"x{i}": rng.standard_normal((50, 50)) for i in range(3)}
        np.savez_compressed(tmp_path / "many.npz", **arrays)
        raw = bytearray((tmp_path / "many.npz").read_bytes())
        start = raw.find(b"x0.npy") + 2000
        raw[start:start + 50] = bytes(50)
        (tmp_path / "many.npz").write_bytes(raw)
        return arrays

    def test_another_member_can_be_read(self, convert, tmp_path, arrays):
        convert("many.npz#x2", "-o", "one.npy")
        assert same(np.load(tmp_path / "one.npy"), arrays["x2"])

    @pytest.mark.parametrize("arguments", [["many.npz#x0"], ["many.npz", "-o", "all.json"]])
    def test_the_damaged_member_is_refused(self, run, arrays, arguments):
        assert_refused(run(*arguments), 65, "many.npz: x0")


# Standard streams.


class TestStandardInput:
    ARRAY = np.arange(12).reshape(3, 4)

    @pytest.fixture
    def npy(self):
        buffer = io.BytesIO()
        np.save(buffer, self.ARRAY)
        return buffer.getvalue()

    def test_npy_is_printed(self, convert, npy):
        assert convert("-", stdin=npy).decode() == f"{self.ARRAY}\n"

    def test_json_becomes_csv(self, convert):
        assert convert("-", "--format", "csv", stdin="[[1, 2], [3, 4]]") == b"1,2\n3,4\n"

    def test_npy_becomes_json(self, convert, npy):
        assert json.loads(convert("-", "--format", "json", stdin=npy)) == self.ARRAY.tolist()

    def test_is_written_to_a_file(self, convert, npy, tmp_path):
        convert("-", "-o", "stdin.npy", stdin=npy)
        assert same(np.load(tmp_path / "stdin.npy"), self.ARRAY)


# --dtype


class TestDtype:
    @pytest.fixture(autouse=True)
    def file(self, tmp_path):
        np.save(tmp_path / "d.npy", np.array([1.0, 2.5, 300.0]))

    def test_converts(self, convert, tmp_path):
        convert("d.npy", "-o", "out.npy", "--dtype", "f16")
        assert same(np.load(tmp_path / "out.npy"), np.array([1, 2.5, 300], "float16"))

    @pytest.mark.parametrize("suffix", ["npy", "npz"])
    def test_that_the_format_lacks_is_noted(self, run, tmp_path, suffix):
        done = run("d.npy", "-o", f"out.{suffix}", "--dtype", "bfloat16")
        assert done.returncode == 0
        assert done.stderr.decode() == (f"attn: out.{suffix}: written as float32, which holds the same numbers; "
                                        f".{suffix} has no bfloat16\n")
        written = np.load(tmp_path / f"out.{suffix}")
        assert same(written["arr_0"] if suffix == "npz" else written, np.array([1, 2.5, 300], "float32"))

    def test_that_the_format_has_is_not_noted(self, convert):
        convert("d.npy", "-o", "out.safetensors", "--dtype", "bfloat16")

    def test_bfloat16_is_printed_by_its_name(self, convert):
        assert convert("d.npy", "--repr", "--dtype", "bf16") == b"array([  1. ,   2.5, 300. ], dtype=bfloat16)\n"

    def test_that_cannot_hold_a_number_is_refused(self, run):
        assert_refused(run("d.npy", "--dtype", "i8"), 65, "d.npy", "300", "int8")

    def test_that_does_not_exist_is_refused(self, run):
        assert_refused(run("d.npy", "--dtype", "float46"), 2, "float46")


# Existing files.


class TestExistingFile:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path):
        np.save(tmp_path / "in.npy", np.arange(3))
        np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
        (tmp_path / "old.json").write_text("old")
        (tmp_path / "old.csv").write_text("old")
        yield
        assert [path.name for path in tmp_path.iterdir() if ".attn-tmp" in path.name] == []

    def test_is_kept(self, run, tmp_path):
        assert_refused(run("in.npy", "-o", "old.json"), 73, "old.json", "--force")
        assert (tmp_path / "old.json").read_text() == "old"

    def test_is_replaced_with_force(self, convert, tmp_path):
        convert("in.npy", "-o", "old.json", "--force")
        assert json.loads((tmp_path / "old.json").read_text()) == [0, 1, 2]

    def test_is_kept_when_the_conversion_fails(self, run, tmp_path):
        assert_refused(run("cube.npy", "-o", "old.csv", "--force"), 65, "old.csv")
        assert (tmp_path / "old.csv").read_text() == "old"

    def test_is_kept_if_it_is_the_input(self, run, tmp_path):
        assert_refused(run("in.npy", "-o", "in.npy", "--force"), 73, "in.npy")
        assert same(np.load(tmp_path / "in.npy"), np.arange(3))

    def test_array_that_does_not_fit_the_format_is_refused(self, run, tmp_path):
        assert_refused(run("cube.npy", "-o", "new.csv"), 65, "new.csv", "(2, 2, 2)")
        assert not (tmp_path / "new.csv").exists()

    def test_folder_must_exist(self, run):
        assert_refused(run("in.npy", "-o", "nowhere/a.npy"), 73, "nowhere")


# Invalid arguments.


@pytest.mark.parametrize("arguments, code, texts", [
    (["missing.npy"], 66, ["missing.npy"]),
    (["u.npy#W_Q"], 65, ["u.npy", "W_Q"]),
    (["u.npy", "-o", "u.bin"], 2, ["u.bin"]),
    (["u.npy", "-o", "u2.npy", "--format", "json"], 2, ["--format"]),
    (["u.npy", "--format", "json", "--precision", "3"], 2, ["--precision"]),
    (["u.npy", "-o", "u2.npy", "--repr"], 2, ["--repr"]),
    (["u.npy", "--precision", "-1"], 2, ["precision"]),
    (["u.npy", "--edgeitems", "-1"], 2, ["edgeitems"]),
    (["u.npy", "--linewidth", "0"], 2, ["linewidth"]),
    (["u.npy", "--floatmode", "exact"], 2, ["floatmode"]),
    (["u.npy", "--format", "xml"], 2, ["format"]),
    (["broken.npy"], 65, ["broken.npy"]),
])
def test_invalid_arguments_are_refused(run, tmp_path, arguments, code, texts):
    np.save(tmp_path / "u.npy", np.arange(3))
    (tmp_path / "broken.npy").write_bytes((tmp_path / "u.npy").read_bytes()[:-1])
    assert_refused(run(*arguments), code, *texts)


# Limits. Every command that reads an archive has the flag that its refusal names.


@pytest.mark.parametrize("size, refused", [("1K", True), ("1M", False)])
@pytest.mark.parametrize("command", [["inspect"], ["convert"], ["view"], ["svd"], ["compare", "z.npz"], ["merge"]])
def test_max_expand_limits_every_command(tmp_path, command, size, refused):
    np.savez_compressed(tmp_path / "z.npz", x=np.zeros((200, 200)))
    run = attn(*command, "z.npz", "--max-expand", size, cwd=tmp_path)
    assert (b"--max-expand raises the limit" in run.stderr) == refused


@pytest.mark.parametrize("size, code, texts", [("10K", 65, ["--max-memory"]), ("10M", 0, [])])
def test_max_memory_limits_a_comparison_with_the_reference(tmp_path, size, code, texts):
    np.save(tmp_path / "q.npy", np.ones((50, 4)))
    run = attn("compare", "q.npy", "--reference", "--q", "q.npy", "--k", "q.npy", "--max-memory", size, cwd=tmp_path)
    assert_error(run, code, *texts)
