"""Result files of `attn batch`: their names, and what happens to existing files."""

import functools
import json
import os

import numpy as np
import pytest

from support.attn import assert_error, attn
from support.jobs import contents, is_expected, job, manifest_of, write_jobs


@pytest.fixture
def batch(tmp_path):
    """Runs `attn batch` in the test's folder."""
    return functools.partial(attn, "batch", cwd=tmp_path)


@pytest.fixture
def two_folders(tmp_path):
    """Three jobs in two folders; two have the same file name."""
    write_jobs(tmp_path / "jobs" / "a", [0, 1])
    write_jobs(tmp_path / "jobs" / "b", [0])


# Names of result files.


def test_two_results_of_one_name_are_refused_before_any_job_runs(batch, two_folders, tmp_path):
    run = batch("jobs", "--out-dir", "out")
    assert run.returncode == 2
    assert b"jobs/a/job0000.json" in run.stderr
    assert b"jobs/b/job0000.json" in run.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flags, folder, file", [
    ([], "a.npz", "a.json"),
    (["--format", "folder"], "a/weights.npy", "a.json"),
], ids=["file and folder", "output and folder"])
def test_result_that_needs_another_result_as_a_folder_is_refused(batch, tmp_path, flags, folder, file):
    write_jobs(tmp_path / "jobs" / folder, [1], "b.json")
    write_jobs(tmp_path / "jobs", [0], file)
    run = batch("jobs", "--out-dir", "out", "--name", "{job}", *flags)
    assert run.returncode == 2
    assert b"one inside the other" in run.stderr
    assert not (tmp_path / "out").exists()


def test_result_folders_may_contain_other_result_folders(batch, tmp_path):
    write_jobs(tmp_path / "jobs" / "a", [1], "b.json")
    write_jobs(tmp_path / "jobs", [0], "a.json")
    run = batch("jobs", "--out-dir", "out", "--name", "{job}", "--format", "folder", "--outputs", "weights")
    assert run.returncode == 0
    assert list(contents(tmp_path / "out")) == ["a/b/weights.npy", "a/weights.npy"]


NAMES = pytest.mark.parametrize("flags, want", [
    (["--name", "{job}"], ["a/job0000.npz", "a/job0001.npz", "b/job0000.npz"]),
    (["--name", "r{index}-{stem}", "--format", "json"], ["r1-job0000.json", "r2-job0001.json", "r3-job0000.json"]),
    (["--name", "{index}", "--format", "csv", "--outputs", "weights"], ["1.csv", "2.csv", "3.csv"]),
    (["--name", "{index}", "--format", "folder", "--outputs", "scores,weights"],
     [f"{i}/{name}.npy" for i in (1, 2, 3) for name in ("scores", "weights")]),
], ids=["job", "index and stem", "index, CSV", "index, folder"])


@NAMES
def test_name_sets_the_names_of_results(batch, two_folders, tmp_path, flags, want):
    run = batch("jobs", "--out-dir", "out", *flags)
    assert (run.returncode, run.stdout) == (0, b"")
    assert list(contents(tmp_path / "out")) == want


@NAMES
def test_manifest_records_the_names_of_results(batch, two_folders, tmp_path, flags, want):
    batch("jobs", "--out-dir", "out", *flags)
    lines = manifest_of(tmp_path / "out").values()
    assert sorted(name for line in lines for name in line["outputs"]) == want


def test_npz_holds_the_results_of_its_job(batch, two_folders, tmp_path):
    batch("jobs", "--out-dir", "out", "--name", "{job}")
    with np.load(tmp_path / "out" / "a" / "job0001.npz") as result:
        assert is_expected(result, 1)


def test_json_holds_the_results_of_its_job(batch, two_folders, tmp_path):
    batch("jobs", "--out-dir", "out", "--name", "r{index}-{stem}", "--format", "json")
    assert is_expected(json.loads((tmp_path / "out" / "r2-job0001.json").read_text()), 1)


def test_results_of_lines_are_named_by_number(batch, tmp_path):
    batch("-", "--out-dir", "out", stdin=json.dumps(job(5)))
    assert list(contents(tmp_path / "out")) == ["1.npz"]


def test_output_folder_inside_the_job_folder_holds_no_jobs(batch, two_folders):
    flags = ["--name", "{index}", "--format", "json", "--out-dir", "jobs/out"]
    batch("jobs", *flags)
    assert b"3 jobs: 0 done, 3 skipped" in batch("jobs", *flags, "--resume").stderr


@pytest.mark.parametrize("pattern, reason", [
    ("./{index}", "has the component '.'"), ("{job}/", "ends with '/'"), (".", "has the component '.'"),
    ("/x{index}", "begins with '/'"), ("../{stem}", "has the component '..'"),
])
def test_name_that_is_not_a_relative_path_is_refused(batch, two_folders, pattern, reason):
    run = batch("jobs/a", "--out-dir", "bad", "--name", pattern)
    assert run.returncode == 2
    assert f"', which {reason}".encode() in run.stderr


@pytest.mark.parametrize("pattern", ["{stm}", "{stem", "x", "../{stem}", "/tmp/{index}"])
def test_invalid_name_is_refused_in_one_line(batch, two_folders, pattern):
    run = batch("jobs/a", "--out-dir", "bad", "--name", pattern)
    assert run.returncode == 2
    assert run.stderr.count(b"\n") == 1


@pytest.mark.parametrize("flags", [["--manifest", "-", "--out-dir", "bad"], ["--out-dir", "-"]])
def test_standard_output_cannot_be_the_folder_or_the_manifest(batch, two_folders, flags):
    run = batch("jobs/a", *flags)
    assert run.returncode == 2
    assert b"./-" in run.stderr


def test_job_name_above_the_working_folder_is_refused(batch, two_folders, tmp_path):
    run = batch(f"../{tmp_path.name}/jobs/a/job0000.json", "--out-dir", "bad", "--name", "{job}")
    assert run.returncode == 2


@pytest.mark.parametrize("pattern", ["x", "{stem}", "{index}-{job}"])
def test_name_for_lines_must_consist_of_their_number(batch, tmp_path, pattern):
    run = batch("-", "--out-dir", "out", "--name", pattern, stdin="{}")
    assert run.returncode == 2
    assert b"lines" in run.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flags", [["--name", "{index}"], ["--resume"], ["--force"], ["--format", "json"]])
def test_flags_about_files_require_out_dir(batch, two_folders, flags):
    run = batch("jobs/a", *flags)
    assert run.returncode == 2
    others = " or --summary" if flags == ["--force"] else ""
    assert run.stderr.decode() == f"attn: {flags[0]} requires --out-dir{others}\n"


def test_fail_fast_excludes_keep_going(batch, two_folders):
    run = batch("jobs/a", "--fail-fast", "--keep-going")
    assert run.returncode == 2
    assert run.stderr == b"attn: --fail-fast and --keep-going are mutually exclusive\n"


class TestNamesThatAreNotUtf8:
    @pytest.fixture(scope="class")
    def runs(self, class_path):
        """The same batch twice, with --resume."""
        (class_path / "jobs").mkdir()
        for seed, name in enumerate([b"a\xff.json", b"a\xfe.json", b"a\\xff.json", "\u00e4.json".encode()]):
            with open(os.fsencode(class_path) + b"/jobs/" + name, "w") as file:
                json.dump(job(seed), file)
        return [attn("batch", "jobs", "--out-dir", "out", "--resume", cwd=class_path) for _ in range(2)]

    @pytest.mark.parametrize("index, counts", [(0, b"4 done, 0 skipped"), (1, b"0 done, 4 skipped")],
                             ids=["first run", "resumed"])
    def test_jobs_are_distinct_and_resumable(self, runs, index, counts):
        assert runs[index].returncode == 0
        assert counts in runs[index].stderr

    def test_manifest_escapes_the_names(self, runs, class_path):
        assert sorted(manifest_of(class_path / "out")) == [
            r"jobs/a\x5cxff.json", r"jobs/a\xfe.json", r"jobs/a\xff.json", "jobs/\u00e4.json"]


# Existing files.


class TestExistingResult:
    """The file kept/job0000.npz exists and is not a result."""

    @pytest.fixture
    def paths(self, tmp_path):
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "job0000.npz").write_text("mine")
        return write_jobs(tmp_path, range(6))

    @pytest.fixture
    def after_no_clobber(self, batch, paths):
        return batch(paths[0], *paths[4:], "--out-dir", "kept", "--no-clobber")

    def test_is_not_overwritten_by_default(self, batch, paths, tmp_path):
        run = batch(paths[0], paths[4], "--out-dir", "kept")
        assert run.returncode == 73
        assert run.stderr.count(b"\n") == 1
        assert b"kept/job0000.npz: already exists" in run.stderr
        assert list(contents(tmp_path / "kept")) == ["job0000.npz"]
        assert (tmp_path / "kept" / "job0000.npz").read_text() == "mine"

    @pytest.mark.parametrize("count, others", [(2, "1 other"), (3, "2 others")])
    def test_several_are_counted(self, batch, paths, tmp_path, count, others):
        for path in paths[:count]:
            (tmp_path / "kept" / path.name).with_suffix(".npz").write_text("mine")
        run = batch(*paths[:count], "--out-dir", "kept")
        assert_error(run, 73, f"kept/job0000.npz and {others}: already exist; --force replaces")

    def test_is_skipped_with_no_clobber(self, after_no_clobber, tmp_path):
        assert after_no_clobber.returncode == 0
        assert b"2 done, 1 skipped" in after_no_clobber.stderr
        assert (tmp_path / "kept" / "job0000.npz").read_text() == "mine"

    def test_several_are_counted(self, after_no_clobber, batch, paths):
        run = batch(*paths[4:], "--out-dir", "kept")
        assert run.returncode == 73
        assert b"and 1 other" in run.stderr

    def test_manifest_keeps_the_lines_of_all_runs(self, after_no_clobber, batch, tmp_path):
        batch("-", "--out-dir", "kept", "--name", "job000{index}", "--no-clobber", stdin=json.dumps(job(1)))
        assert sorted(line["status"] for line in manifest_of(tmp_path / "kept").values()) == ["done"] * 3

    def test_existing_manifest_suggests_resume(self, after_no_clobber, batch, paths):
        run = batch(paths[0], paths[4], "--out-dir", "kept")
        assert run.returncode == 73
        assert b"--resume" in run.stderr

    def test_is_replaced_with_force(self, after_no_clobber, batch, paths, tmp_path):
        run = batch(paths[0], paths[4], "--out-dir", "kept", "--force")
        assert run.returncode == 0
        with np.load(tmp_path / "kept" / "job0000.npz") as result:
            assert is_expected(result, 0)


class TestNoClobberOnAnIncompleteFolder:
    """--no-clobber adds missing files to a result folder if the existing files are identical."""

    FLAGS = ["jobs", "--format", "folder", "--out-dir", "out", "--no-clobber"]

    @pytest.fixture
    def weights(self, batch, tmp_path):
        """The first run's weights, which the tests may delete."""
        write_jobs(tmp_path / "jobs", [0])
        batch(*self.FLAGS)
        return tmp_path / "out" / "job0000" / "weights.npy"

    def test_missing_file_is_added(self, batch, weights, tmp_path):
        complete = contents(tmp_path / "out")
        weights.unlink()
        run = batch(*self.FLAGS)
        assert run.returncode == 0
        assert b"1 done, 0 skipped" in run.stderr
        assert contents(tmp_path / "out") == complete

    def test_complete_folder_is_skipped(self, batch, weights):
        run = batch(*self.FLAGS)
        assert run.returncode == 0
        assert b"0 done, 1 skipped" in run.stderr

    def test_different_file_fails_the_job(self, batch, weights):
        weights.unlink()
        weights.with_name("context.npy").write_bytes(b"mine")
        run = batch(*self.FLAGS)
        assert run.returncode == 3
        assert b"context.npy: already exists" in run.stderr
        assert not weights.exists()
