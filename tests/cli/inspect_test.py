"""`attn inspect`: the table, its numbers against NumPy's, NDJSON, and unreadable files."""

import json

import numpy as np
import pytest

from support.attn import assert_error, attn, json_lines

DTYPES = ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64", "bool"]


# The table.


@pytest.fixture
def archive(tmp_path):
    np.savez(tmp_path / "t.npz", W_Q=np.array([[2, 0, 2], [2, 0, 0], [2, 1, 2]]),
             mask=np.array([[True, False]]), scores=np.array([0.5, np.nan, -np.inf], np.float32),
             none=np.zeros((0, 3), np.float16))
    return tmp_path / "t.npz"


def test_table_has_a_row_for_each_array(archive):
    run = attn("inspect", archive)
    assert run.stdout.decode() == (
        "name    dtype    shape     min   max     mean  nan  inf\n"
        "W_Q     int64    (3, 3)      0     2  1.22222    0    0\n"
        "mask    bool     (1, 2)  False  True      0.5    0    0\n"
        "scores  float32  (3,)     -inf   0.5     -inf    1    1\n"
        "none    float16  (0, 3)      -     -        -    0    0\n")
    assert (run.returncode, run.stderr) == (0, b"")


def test_table_of_one_member(archive):
    run = attn("inspect", f"{archive}#mask")
    assert run.stdout.decode().splitlines()[1:] == ["mask  bool   (1, 2)  False  True   0.5    0    0"]


def test_mean_of_both_infinities_is_nan(tmp_path):
    np.savez(tmp_path / "i.npz", both=np.array([np.inf, -np.inf, 1]))
    run = attn("inspect", tmp_path / "i.npz")
    assert run.stdout.decode().splitlines()[1].split() == [
        "both", "float64", "(3,)", "-inf", "inf", "nan", "0", "2"]


def test_control_characters_in_names_are_escaped(tmp_path):
    np.savez(tmp_path / "n.npz", **{"a\nb\x1b[2J": np.arange(2), "größe": np.arange(2)})
    lines = attn("inspect", tmp_path / "n.npz").stdout.decode().splitlines()
    assert len(lines) == 3
    assert "\x1b" not in lines[1]
    assert len(set(map(len, lines))) == 1, "columns are aligned by characters, not bytes"


def test_standard_input_is_inspected():
    run = attn("inspect", "-", stdin="[1, 2, 4]")
    assert run.returncode == 0
    assert b"int64" in run.stdout


def test_missing_argument_is_refused():
    assert attn("inspect").returncode == 2


# NDJSON.


@pytest.mark.parametrize("dtype", DTYPES)
class TestJson:
    @pytest.fixture
    def array(self, dtype):
        rng, dtype = np.random.default_rng(11), np.dtype(dtype)
        if dtype.kind == "f":
            array = (rng.standard_normal((50, 40)) * 10).astype(dtype)
            array[3, 4] = np.nan
            return array
        if dtype.kind == "b":
            return rng.random((50, 40)) < 0.3
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, (50, 40), dtype=dtype, endpoint=True)

    @pytest.fixture
    def line(self, array, tmp_path):
        np.save(tmp_path / "n.npy", array)
        run = attn("inspect", "--json", tmp_path / "n.npy")
        assert run.returncode == 0
        line, = json_lines(run.stdout)
        return line

    def test_has_these_keys(self, line):
        assert list(line) == ["file", "name", "dtype", "shape", "min", "max", "mean", "nan", "inf"]

    def test_describes_the_array(self, line, dtype, tmp_path):
        assert (line["file"], line["name"]) == (str(tmp_path / "n.npy"), None)
        assert (line["dtype"], line["shape"]) == (dtype, [50, 40])

    def test_has_numpys_minimum_and_maximum(self, line, array):
        assert array.dtype.type(line["min"]) == np.nanmin(array)
        assert array.dtype.type(line["max"]) == np.nanmax(array)

    def test_has_numpys_mean(self, line, array):
        mean = float(np.nanmean(array.astype(np.longdouble)))
        np.testing.assert_allclose(line["mean"], mean, rtol=1e-15, atol=1e-15)

    def test_counts_nan_and_infinities(self, line, array):
        assert (line["nan"], line["inf"]) == (np.count_nonzero(np.isnan(array)), 0)


class TestJsonOfSpecialNumbers:
    @pytest.fixture
    def lines(self, tmp_path):
        np.savez(tmp_path / "j.npz", a=np.array([np.inf, 1.0, np.nan]), b=np.array([np.nan]),
                 c=np.array([], np.int32))
        return {line["name"]: line for line in json_lines(attn("inspect", tmp_path / "j.npz", "--json").stdout)}

    def test_writes_infinity_as_text(self, lines):
        assert {key: lines["a"][key] for key in ("min", "max", "mean", "nan", "inf")} == {
            "min": 1.0, "max": "Infinity", "mean": "Infinity", "nan": 1, "inf": 1}

    def test_has_no_minimum_of_nan(self, lines):
        assert {key: lines["b"][key] for key in ("min", "max", "mean", "nan")} == {
            "min": None, "max": None, "mean": None, "nan": 1}

    def test_has_no_minimum_of_an_empty_array(self, lines):
        assert {key: lines["c"][key] for key in ("min", "shape", "nan")} == {"min": None, "shape": [0], "nan": 0}


# Several files.


class TestSeveralFiles:
    @pytest.fixture(autouse=True)
    def files(self, tmp_path):
        np.save(tmp_path / "a.npy", np.arange(3))
        (tmp_path / "b.json").write_text('{"m": [[1.5, 2.5]]}')
        (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00")

    @pytest.fixture
    def run(self, tmp_path):
        """Two of the four files cannot be read."""
        return attn("inspect", "missing.npy", "a.npy", "broken.npy", "b.json", cwd=tmp_path)

    def test_those_that_can_be_read_are_shown(self, run):
        assert run.stdout.decode() == (
            "a.npy:\n"
            "name  dtype  shape  min  max  mean  nan  inf\n"
            "-     int64  (3,)     0    2     1    0    0\n"
            "\n"
            "b.json:\n"
            "name  dtype    shape   min  max  mean  nan  inf\n"
            "m     float64  (1, 2)  1.5  2.5     2    0    0\n")

    def test_every_unreadable_file_has_an_error(self, run):
        errors = run.stderr.decode().splitlines()
        assert len(errors) == 2
        assert errors[0].startswith("attn: missing.npy")
        assert errors[1].startswith("attn: broken.npy")

    def test_first_error_sets_the_exit_code(self, run, tmp_path):
        assert run.returncode == 66
        reversed_run = attn("inspect", "broken.npy", "missing.npy", "--json", cwd=tmp_path)
        assert_error(reversed_run, 65)
        assert reversed_run.stdout == b""

    def test_json_has_a_line_for_each_array(self, tmp_path):
        run = attn("inspect", "a.npy", "b.json", "--json", cwd=tmp_path)
        assert [line["name"] for line in json_lines(run.stdout)] == [None, "m"]


@pytest.mark.parametrize("name", ["out.npz", "out.json", "out.safetensors"])
def test_provenance_is_the_job_of_a_result(tmp_path, name):
    (tmp_path / "job.json").write_text('{"Q": [[1.0]], "K": [[2.0]], "scale": 0.5}')
    assert attn("run", "job.json", "-o", name, cwd=tmp_path).returncode == 0
    made_by = json.loads(attn("inspect", "--provenance", name, cwd=tmp_path).stdout)
    assert made_by["job"]["scale"] == 0.5
    assert made_by["program"].startswith("attn ")
    assert list(made_by["inputs"]) == ["job.json"]


def test_job_in_provenance_can_be_run(tmp_path):
    np.savez(tmp_path / "layer.npz", Q=np.eye(4), K=np.ones((4, 4)), V=np.arange(16.0).reshape(4, 4))
    run = ["run", "layer.npz", "--rotary", "half", "--rotary-base", "50", "-o", "first.npz"]
    assert attn(*run, cwd=tmp_path).returncode == 0
    made_by = json.loads(attn("inspect", "--provenance", "first.npz", cwd=tmp_path).stdout)
    (tmp_path / "job.json").write_text(json.dumps(made_by["job"]))
    assert attn("run", "job.json", "-o", "second.npz", cwd=tmp_path).returncode == 0
    assert np.array_equal(np.load(tmp_path / "first.npz")["context"], np.load(tmp_path / "second.npz")["context"])


def test_provenance_of_other_files_is_an_error(archive):
    run = attn("inspect", "--provenance", archive)
    assert run.returncode == 65
    assert run.stderr.endswith(b": does not record what produced it\n")
