"""Destinations of results: standard output, several files, and a failed run, which leaves none."""

import functools
import io
import json
import os
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, assert_error, attn

JOB = {"Q": [[1, 2], [3, 4]], "K": [[1, 2], [3, 4]]}


def numbers(text):
    return np.load(io.BytesIO(text))


class TestSvd:
    MATRIX = np.array([[3.0, 1], [1, 2]])
    SINGULAR_VALUES = np.linalg.svd(MATRIX, compute_uv=False)

    @pytest.fixture
    def svd(self, tmp_path):
        np.save(tmp_path / "a.npy", self.MATRIX)
        return functools.partial(attn, "svd", "a.npy", cwd=tmp_path)

    def test_writes_single_factors(self, svd, tmp_path):
        assert svd("-o", "s=s.npy", "-o", "U=u.csv").returncode == 0
        np.testing.assert_allclose(np.load(tmp_path / "s.npy"), self.SINGULAR_VALUES)
        assert np.loadtxt(tmp_path / "u.csv", delimiter=",").shape == (2, 2)

    def test_suggests_the_name_of_a_factor(self, svd):
        assert_error(svd("-o", "vt=x.npy"), 2, "did you mean 'Vt'?")

    def test_npy_needs_the_name_of_a_factor(self, svd):
        assert_error(svd("-o", "x.npy"), 2, "-o U=x.npy")

    def test_writes_a_folder(self, svd, tmp_path):
        assert svd("-o", "all/").returncode == 0
        assert sorted(os.listdir(tmp_path / "all")) == ["U.npy", "Vt.npy", "s.npy"]

    def test_prints_text_to_standard_output(self, svd):
        run = svd("-o", "-")
        assert run.returncode == 0
        assert b"singular values" in run.stdout

    def test_writes_to_standard_output_and_a_file(self, svd, tmp_path):
        run = svd("-o", "-", "-o", "f.npz", "--format", "json")
        assert run.returncode == 0
        np.testing.assert_allclose(json.loads(run.stdout)["s"], self.SINGULAR_VALUES)
        assert sorted(np.load(tmp_path / "f.npz").files) == ["U", "Vt", "s"]

    def test_prints_npz(self, svd):
        run = svd("--format", "npz")
        assert run.returncode == 0
        np.testing.assert_allclose(numbers(run.stdout)["s"], self.SINGULAR_VALUES)

    def test_prints_one_line_of_ndjson(self, svd):
        run = svd("--format", "ndjson")
        assert run.returncode == 0
        assert run.stdout.count(b"\n") == 1

    @pytest.mark.parametrize("flags", [["--format", "json"], ["--repr"]])
    def test_refuses_flags_that_contradict_the_suffix(self, svd, tmp_path, flags):
        assert_error(svd("-o", "g.npz", *flags), 2, flags[0])
        assert not (tmp_path / "g.npz").exists()

    def test_repr_excludes_format_json(self, svd):
        assert svd("--repr", "--format", "json").returncode == 2


class TestStandardStreams:
    @pytest.fixture
    def run(self, tmp_path):
        (tmp_path / "job.json").write_text(json.dumps(JOB))
        return functools.partial(attn, "run", "job.json", cwd=tmp_path)

    @pytest.fixture
    def convert(self, run, tmp_path):
        return functools.partial(attn, "convert", "job.json#Q", cwd=tmp_path)

    def test_dev_stdout_gets_text(self, run):
        text = run().stdout
        assert text
        assert run("-o", "/dev/stdout").stdout == text

    @pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
    def test_every_name_of_standard_output_gets_npz(self, run, name):
        npz = run("--format", "npz").stdout
        assert npz
        assert run("-o", name, "--format", "npz").stdout == npz

    def test_descriptor_gets_one_output(self, run):
        done = run("-o", "scores=/dev/fd/1", "--format", "npy")
        assert done.returncode == 0
        assert numbers(done.stdout).tolist() == [[5, 11], [11, 25]]

    def test_dev_null_needs_a_format(self, run):
        assert_error(run("-o", "/dev/null"), 2, "--format")

    def test_dev_null_with_a_format_prints_nothing(self, run):
        done = run("-o", "/dev/null", "--format", "json")
        assert (done.returncode, done.stdout) == (0, b"")

    def test_format_may_not_contradict_the_suffix(self, run):
        assert run("-o", "x.npz", "--format", "json").returncode == 2

    def test_process_substitution_gets_the_result(self, run, tmp_path):
        done = subprocess.run(["bash", "-c", f"'{ATTN}' run job.json -o >(cat > got.json) --format json"],
                              cwd=tmp_path)
        assert done.returncode == 0

    def test_convert_writes_to_a_descriptor(self, convert):
        done = convert("-o", "/dev/fd/1", "--format", "json")
        assert done.returncode == 0
        assert json.loads(done.stdout) == JOB["Q"]

    def test_convert_writes_to_dev_null(self, convert):
        assert convert("-o", "/dev/null").returncode == 0


class TestFailedRun:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "job.json").write_text(json.dumps(JOB))
        (tmp_path / "closed").mkdir(mode=0o555)
        (tmp_path / "link.npy").symlink_to("w.npy")  # which does not exist
        (tmp_path / "chain.npy").symlink_to("./link.npy")
        return tmp_path

    @pytest.mark.parametrize("arguments, code, reason", [
        (["--heads", "7", "-o", "new/"], 65, "heads"),
        (["--heads", "7", "-o", "new/", "-o", "w.npz"], 65, "heads"),
        (["-o", "w.json", "-o", "./w.json"], 2, "same file"),
        (["-o", "weights=w.npy", "-o", "scores=w.npy"], 2, "same file"),
        (["-o", "new/", "-o", "scores=new/scores.npy"], 2, "same file"),
        (["-o", "weights=w.npy", "-o", "scores=link.npy", "--force"], 2, "same file"),
        (["-o", "weights=chain.npy", "-o", "scores=link.npy"], 2, "same file"),
        (["-o", "z.npz", "-o", "-", "--format", "csv"], 2, "holds one output, found 3"),
        (["-o", "new/", "-o", "no/x.npz"], 73, "no/x.npz: "),
        (["-o", "no/new/"], 73, "no/new/: No such file"),
        pytest.param(["-o", "closed/new/"], 77, "closed/new/: Permission denied",
                     marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")),
    ])
    def test_leaves_nothing(self, folder, arguments, code, reason):
        before = sorted(os.listdir(folder))
        run = attn("run", "job.json", *arguments, cwd=folder)
        assert_error(run, code, reason)
        assert run.stderr.startswith(b"attn: ")
        assert run.stdout == b""
        assert sorted(os.listdir(folder)) == before

    def test_keeps_an_existing_folder(self, folder):
        (folder / "old").mkdir()
        assert attn("run", "job.json", "--heads", "7", "-o", "old/", cwd=folder).returncode == 65
        assert (folder / "old").is_dir()


def test_output_named_twice_is_written_once(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    run = attn("run", "job.json", "--outputs", "scores,weights,scores", "-o", "d/", cwd=tmp_path)
    assert run.returncode == 0
    assert sorted(os.listdir(tmp_path / "d")) == ["scores.npy", "weights.npy"]
