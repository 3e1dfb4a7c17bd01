"""Safetensors files, read and written: all dtypes, compared with files that plain Python code handles."""

import json

import numpy as np
import pytest

from support.attn import attn
from support.safetensors_file import build, entry, read
from support.stored_jobs import BYTES, CODES, e2m1, e4m3, e5m2, e8m0

DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8",
          "U8": "u1", "U16": "u2", "U32": "u4", "U64": "u8", "BOOL": "?"}
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


def make_arrays():
    """An array of each dtype, with odd lengths, and arrays of unusual shapes and values."""
    rng = np.random.default_rng(5)
    arrays = {f"t.{name}": rng.integers(0, 2 if name == "BOOL" else 100, (3, 5)).astype(code)
              for name, code in DTYPES.items()}
    arrays["scalar"] = np.array(2.5)
    arrays["empty"] = np.zeros((0, 4), "f4")
    arrays["bits"] = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    return arrays


ARRAYS = make_arrays()


def run(folder, *args, **options):
    """Runs the program, which must succeed without messages; returns stdout."""
    done = attn(*args, cwd=folder, **options)
    assert done.returncode == 0
    assert done.stderr == b""
    return done.stdout


class TestConversion:
    @pytest.fixture(scope="class")
    def folder(self, module_path):
        """A folder with in.npz and out.safetensors, which was converted from it."""
        np.savez(module_path / "in.npz", **ARRAYS)
        run(module_path, "convert", "in.npz", "-o", "out.safetensors")
        return module_path

    @pytest.fixture(scope="class")
    def data(self, folder):
        return (folder / "out.safetensors").read_bytes()

    def test_header_is_padded_to_8_bytes(self, data):
        assert int.from_bytes(data[:8], "little") % 8 == 0
        assert data[8:9] == b"{"

    def test_there_is_no_metadata(self, data):
        assert read(data)[1] == {}

    def test_tensors_have_dtype_shape_and_bytes_of_the_arrays(self, data):
        assert read(data)[0] == {name: (NAMES[array.dtype], array.shape, array.tobytes())
                                 for name, array in ARRAYS.items()}

    def test_tensors_are_sorted_by_dtype_and_name(self, data):
        """The order of the safetensors package, whose files are reproduced byte for byte."""
        order = "U64 I64 F64 F32 U32 I32 F16 U16 I16 I8 U8 BOOL".split()
        tensors, _ = read(data)
        assert list(tensors) == sorted(tensors, key=lambda name: (order.index(tensors[name][0]), name))

    def test_second_conversion_gives_the_same_bytes(self, folder, data):
        run(folder, "convert", "out.safetensors", "-o", "again.safetensors")
        assert (folder / "again.safetensors").read_bytes() == data

    def test_conversion_to_npz_gives_the_same_arrays(self, folder):
        run(folder, "convert", "out.safetensors", "-o", "back.npz")
        with np.load(folder / "back.npz") as back:
            found = {name: (array.dtype, array.shape, array.tobytes()) for name, array in back.items()}
        assert found == {name: (array.dtype, array.shape, array.tobytes()) for name, array in ARRAYS.items()}

    def test_pipe_to_pipe(self, folder, data):
        assert run(folder, "convert", "-", "--format", "safetensors", stdin=data) == data

    def test_compare_finds_no_difference(self, folder):
        run(folder, "compare", "in.npz", "out.safetensors", "--equal-nan")


def bfloat16(bits):
    return float(np.array([bits << 16], "u4").view("f4")[0])


SMALL = {"F8_E4M3": e4m3, "F8_E5M2": e5m2, "F8_E8M0": e8m0, "F8_E4M3FNUZ": CODES["e4m3fnuz"],
         "F8_E5M2FNUZ": CODES["e5m2fnuz"], "F4": e2m1}


class TestSmallFloats:
    """All bytes of the dtypes of 8 and 4 bits, and 256 values of BF16."""

    BF16 = (np.arange(256) * 257).astype("<u2")

    @pytest.fixture(scope="class")
    def folder(self, module_path):
        header = {name: entry(256 * i, 256 * i + 256, name, [16, 32 if name == "F4" else 16]) for i, name in enumerate(SMALL)}
        end = 256 * len(SMALL)
        header["c"] = entry(end, end + 512, "BF16", [256])
        data = BYTES.tobytes() * len(SMALL) + self.BF16.tobytes()
        (module_path / "small.safetensors").write_bytes(build(header, data))
        run(module_path, "convert", "small.safetensors", "-o", "small.npz")
        run(module_path, "convert", "small.safetensors", "-o", "small2.safetensors")
        return module_path

    @pytest.mark.parametrize("name", [*SMALL, "c"])
    def test_values_are_exact_in_float32(self, folder, name):
        expected = np.array([bfloat16(int(code)) for code in self.BF16] if name == "c" else SMALL[name](BYTES), "f4")
        with np.load(folder / "small.npz") as arrays:
            found = arrays[name].ravel()
        assert found.dtype == np.float32
        assert np.array_equal(found, expected, equal_nan=True)
        numbers = ~np.isnan(expected)
        assert np.array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])

    def test_shape_is_kept(self, folder):
        with np.load(folder / "small.npz") as arrays:
            assert arrays["F8_E4M3"].shape == (16, 16)
            assert arrays["F4"].shape == (16, 32)

    def test_bfloat16_is_written_bit_for_bit(self, folder):
        tensors, _ = read((folder / "small2.safetensors").read_bytes())
        assert tensors["c"] == ("BF16", (256,), self.BF16.tobytes())

    def test_f8_is_written_as_f32(self, folder):
        tensors, _ = read((folder / "small2.safetensors").read_bytes())
        assert tensors["F8_E4M3"][0] == "F32"


class TestJobsAndResults:
    TOKENS = ["I", "</script>", "\u202eam\n"]

    @pytest.fixture(scope="class")
    def folder(self, module_path):
        """Jobs in .safetensors, .npz and .json, and the last one's result in tokens.safetensors."""
        q, k, v = np.random.default_rng(5).standard_normal((3, 3, 4))
        header = {"K": entry(0, 96, "F64", [3, 4]), "Q": entry(96, 192, "F64", [3, 4]),
                  "V": entry(192, 288, "F64", [3, 4]), "causal": entry(288, 289, "BOOL", [])}
        data = k.tobytes() + q.tobytes() + v.tobytes() + b"\1"
        (module_path / "job.safetensors").write_bytes(build(header, data))
        np.savez(module_path / "job.npz", Q=q, K=k, V=v, causal=True)
        tensors = {name: f"job.safetensors#{name}" for name in "QKV"}
        (module_path / "tokens.json").write_text(json.dumps(tensors | {"causal": True, "tokens": self.TOKENS}))
        run(module_path, "run", "tokens.json", "-o", "tokens.safetensors")
        return module_path

    @pytest.fixture(scope="class")
    def result(self, folder):
        return read((folder / "tokens.safetensors").read_bytes())

    def test_job_in_safetensors_equals_job_in_npz(self, folder):
        run(folder, "run", "job.npz", "-o", "result.npz")
        run(folder, "run", "job.safetensors", "-o", "result.safetensors")
        compared = run(folder, "compare", "result.safetensors", "result.npz", "--ulp", "0")
        assert compared.endswith(b"3 of 3 tensors are the same\n")

    def test_result_has_the_outputs(self, result):
        tensors, _ = result
        assert sorted(tensors) == ["context", "scores", "weights"]

    def test_metadata_has_the_schema(self, result):
        _, metadata = result
        assert metadata["schema"] == "attn/1"

    def test_metadata_has_the_tokens(self, result):
        _, metadata = result
        assert json.loads(metadata["tokens"]) == self.TOKENS

    def test_metadata_has_the_job_and_its_inputs(self, result):
        _, metadata = result
        made_by = json.loads(metadata["made_by"])
        assert made_by["job"]["causal"] is True
        assert "job.safetensors" in made_by["inputs"]

    def test_view_shows_the_tokens(self, folder):
        assert b"</script>" in run(folder, "view", "tokens.safetensors")

    def test_standard_output_gets_the_bytes_of_the_file(self, folder):
        printed = run(folder, "run", "tokens.json", "--format", "safetensors")
        assert printed == (folder / "tokens.safetensors").read_bytes()

    def test_inspect_lists_the_tensors(self, folder, result):
        lines = run(folder, "inspect", "tokens.safetensors").decode().splitlines()
        assert [line.split()[0] for line in lines[1:]] == sorted(result[0])


def test_tensor_cannot_be_named_metadata(tmp_path):
    np.savez(tmp_path / "m.npz", **{"__metadata__": np.arange(2)})
    done = attn("convert", "m.npz", "-o", "m.safetensors", cwd=tmp_path)
    assert done.returncode == 65
    assert b"__metadata__" in done.stderr
    assert not (tmp_path / "m.safetensors").exists()
