"""`attn batch --resume`: finished jobs are kept, changed ones are computed again, and a batch that is
killed loses nothing."""

import fcntl
import functools
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

from support.attn import ATTN, attn, json_lines
from support.jobs import contents, job, manifest_of, slow_job, write_jobs


def counts(run):
    """(done, skipped, failed) in the summary."""
    words = run.stderr.decode().split(": ", 1)[-1].replace(",", "").replace(";", "").split()
    return tuple(int(words[words.index(word) - 1]) for word in ("done", "skipped", "failed"))


@pytest.fixture
def batch(tmp_path):
    """Runs the jobs in jobs/ with results in out/."""
    return functools.partial(attn, "batch", "jobs", "--out-dir", "out", cwd=tmp_path)


@pytest.fixture
def resume(batch):
    """Like `batch`, with --resume."""
    return functools.partial(batch, "--resume")


# Which jobs are computed again.


class TestChanges:
    """Six jobs are done; the fourth reads w.npy."""

    @pytest.fixture(autouse=True)
    def paths(self, tmp_path, batch):
        paths = write_jobs(tmp_path / "jobs", range(6))
        np.save(tmp_path / "w.npy", np.eye(3))
        paths[3].write_text(json.dumps(job(3) | {"W_Q": "../w.npy"}))
        assert batch().returncode == 0
        return paths

    @pytest.fixture
    def resumed_counts(self, tmp_path, resume):
        """Resumes, compares the results with those of a new batch, and returns the counts."""
        def resumed_counts():
            run = resume()
            assert run.returncode == 0
            assert attn("batch", "jobs", "--out-dir", "fresh", cwd=tmp_path).returncode == 0
            assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
            return counts(run)
        return resumed_counts

    def test_finished_jobs_are_skipped(self, tmp_path, resume):
        before = contents(tmp_path / "out")
        assert counts(resume()) == (0, 6, 0)
        assert contents(tmp_path / "out") == before

    def test_changed_job_is_done_again(self, paths, resumed_counts):
        paths[0].write_text(json.dumps(job(100)))
        assert resumed_counts() == (1, 5, 0)

    def test_changed_input_file_is_noticed(self, tmp_path, resumed_counts):
        np.save(tmp_path / "w.npy", 2 * np.eye(3))
        assert resumed_counts() == (1, 5, 0)

    def test_deleted_result_is_written_again(self, tmp_path, resumed_counts):
        (tmp_path / "out" / "job0002.npz").unlink()
        assert resumed_counts() == (1, 5, 0)

    def test_changed_result_is_written_again(self, tmp_path, resumed_counts):
        (tmp_path / "out" / "job0002.npz").write_bytes(b"cut off")
        assert resumed_counts() == (1, 5, 0)

    def test_new_job_is_done(self, tmp_path, resumed_counts):
        write_jobs(tmp_path / "jobs", [200], "a{}.json")  # sorts first: the other jobs get new numbers
        assert resumed_counts() == (1, 6, 0)

    def test_modification_time_of_a_job_does_not_matter(self, paths, resumed_counts):
        os.utime(paths[4])
        assert resumed_counts() == (0, 6, 0)

    @pytest.mark.parametrize("flags", [["--causal"], ["--format", "json"]])
    def test_other_flags_repeat_all_jobs(self, resume, flags):
        assert counts(resume(*flags)) == (6, 0, 0)


class TestReason:
    """--resume says why it runs jobs again, once per reason; the summary has their number."""

    @pytest.fixture(autouse=True)
    def paths(self, tmp_path, batch):
        paths = write_jobs(tmp_path / "jobs", range(4), "{}.json")
        np.save(tmp_path / "w.npy", np.eye(3))
        for index in 0, 1:
            paths[index].write_text(json.dumps(job(index) | {"W_Q": "../w.npy"}))
        paths[3].write_text("{")
        assert batch().returncode == 3
        return paths

    CASES = pytest.mark.parametrize("change, job, reason, summary", [
        (lambda path: np.save(path / "w.npy", 2 * np.eye(3)), "jobs/0.json", "jobs/../w.npy changed or is missing",
         "2 (input changed)"),
        (lambda path: (path / "out" / "2.npz").unlink(), "jobs/2.json", "2.npz changed or is missing",
         "1 (result changed or missing)"),
    ], ids=["input", "result"])

    @CASES
    def test_of_a_change_is_printed(self, tmp_path, resume, change, job, reason, summary):
        change(tmp_path)
        err = resume("-j", "1").stderr.decode()
        assert f"attn: {job}: run again because {reason}\n" in err
        assert err.count(reason) == 1
        assert f"run again: 1 (failed before), {summary}" in err

    @CASES
    def test_of_a_change_is_in_the_events(self, tmp_path, resume, change, job, reason, summary):
        change(tmp_path)
        events = {event.get("job"): event for event in json_lines(resume("--json").stderr)}
        assert events[job]["reason"] == reason
        assert "reason" not in events["jobs/2.json" if job == "jobs/0.json" else "jobs/0.json"]

    @CASES
    def test_of_a_change_is_in_the_dry_run(self, tmp_path, resume, change, job, reason, summary):
        change(tmp_path)
        plans = {plan["job"]: plan for plan in json_lines(resume("--dry-run").stdout)}
        assert plans[job]["reason"] == reason

    def test_of_other_flags_is_printed_once(self, resume):
        err = resume("--causal").stderr
        assert err.count(b"run again because the flags, the base or the version of attn changed") == 1
        assert b"3 (flags, base or version changed)" in err

    def test_of_a_failed_job_is_its_error(self, paths, resume):
        paths[3].write_text(json.dumps(job(3)))
        assert b"attn: jobs/3.json: run again because its last run ended with an error\n" in resume().stderr

    def test_is_not_given_for_a_new_job(self, tmp_path, paths, resume):
        paths[3].unlink()
        write_jobs(tmp_path / "jobs", [9], "{}.json")
        assert b"again" not in resume().stderr


class TestPrune:
    """--prune removes the results of jobs/b.json and jobs/deep/c.json, which have been deleted."""

    FLAGS = ["--name", "{job}"]
    REMOVED = ["b.npz", "deep/c.npz"]

    @pytest.fixture(autouse=True)
    def paths(self, tmp_path, batch):
        paths = write_jobs(tmp_path / "jobs", [0], "a.json") + write_jobs(tmp_path / "jobs", [1], "b.json")
        paths += write_jobs(tmp_path / "jobs" / "deep", [2], "c.json")
        assert batch(*self.FLAGS).returncode == 0
        (tmp_path / "out" / "mine.npz").write_text("mine")
        for path in paths[1:]:
            path.unlink()
        return paths

    @pytest.fixture
    def prune(self, resume):
        return functools.partial(resume, "--prune", *self.FLAGS)

    def test_removes_results_of_deleted_jobs(self, tmp_path, prune):
        run = prune()
        assert run.returncode == 0
        assert list(contents(tmp_path / "out")) == ["a.npz", "mine.npz"]
        assert b"1 job: 0 done, 1 skipped, 0 failed" in run.stderr
        assert b"; results of 2 jobs removed" in run.stderr

    def test_removes_empty_folders(self, tmp_path, prune):
        prune()
        assert not (tmp_path / "out" / "deep").exists()

    def test_is_recorded(self, tmp_path, prune):
        prune()
        lines = manifest_of(tmp_path / "out")
        assert {name: line["status"] for name, line in lines.items()} == {
            "jobs/a.json": "done", "jobs/b.json": "removed", "jobs/deep/c.json": "removed"}

    def test_happens_once(self, prune):
        prune()
        assert b"removed" not in prune().stderr

    def test_is_not_done_without_the_flag(self, tmp_path, resume):
        resume(*self.FLAGS)
        assert list(contents(tmp_path / "out")) == ["a.npz", *self.REMOVED, "mine.npz"]

    def test_dry_run_lists_the_results(self, tmp_path, prune):
        plans = json_lines(prune("--dry-run").stdout)
        assert [plan["outputs"] for plan in plans if plan["resume"] == "remove"] == [[name] for name in self.REMOVED]
        assert list(contents(tmp_path / "out")) == ["a.npz", *self.REMOVED, "mine.npz"]

    def test_keeps_a_result_that_was_changed(self, tmp_path, prune):
        (tmp_path / "out" / "b.npz").write_text("edited")
        assert b"out/b.npz: changed since it was written; not removed" in prune().stderr
        assert (tmp_path / "out" / "b.npz").read_text() == "edited"

    def test_keeps_results_of_jobs_that_exist_but_are_not_selected(self, tmp_path, paths):
        write_jobs(tmp_path / "jobs", [1], "b.json")
        run = attn("batch", "jobs/a.json", "--out-dir", "out", "--resume", "--prune", cwd=tmp_path)
        assert run.returncode == 0
        assert (tmp_path / "out" / "b.npz").exists()

    def test_keeps_a_result_of_another_job(self, tmp_path, batch, resume):
        """The job b is now an archive, and its result has the same name."""
        np.savez(tmp_path / "jobs" / "b.npz", Q=np.eye(2), K=np.eye(2))
        run = attn("batch", "jobs/a.json", "jobs/b.npz", "--out-dir", "out", "--resume", "--prune", cwd=tmp_path)
        assert run.returncode == 0
        with np.load(tmp_path / "out" / "b.npz") as result:
            assert np.array_equal(result["scores"], np.eye(2))

    def test_new_job_of_the_same_name_is_done_again(self, tmp_path, prune):
        prune()
        write_jobs(tmp_path / "jobs", [7], "b.json")
        run = prune()
        assert counts(run) == (1, 1, 0)
        assert b"again" not in run.stderr

    def test_removes_no_file_outside_the_output_folder(self, tmp_path, prune):
        (tmp_path / "out" / "b.npz").rename(tmp_path / "b.npz")
        manifest = tmp_path / "out" / "manifest.ndjson"
        manifest.write_text(manifest.read_text().replace('"b.npz"', '"../b.npz"'))
        assert prune().returncode == 0
        assert (tmp_path / "b.npz").exists()

    def test_requires_resume(self, batch):
        run = batch("--prune")
        assert run.returncode == 2
        assert b"--prune" in run.stderr

    def test_requires_job_files(self, tmp_path):
        run = attn("batch", "-", "--out-dir", "out", "--resume", "--prune", cwd=tmp_path, stdin="")
        assert run.returncode == 2
        assert b"--prune" in run.stderr


def test_resume_without_a_manifest_does_all_jobs(tmp_path, resume):
    write_jobs(tmp_path / "jobs", range(6))
    assert counts(resume()) == (6, 0, 0)


@pytest.mark.parametrize("first, second", [([], ["--base", "b0.json"]), (["--base", "b0.json"], ["--base", "b1.json"]),
                                           (["--base", "b1.json"], [])])
def test_other_base_repeats_the_jobs(tmp_path, resume, first, second):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "q.json").write_text('{"Q": [[1.0, 2.0]], "K": [[3.0, 4.0]]}')
    for number, scale in enumerate((2, 3)):
        (tmp_path / f"b{number}.json").write_text(json.dumps({"scale": scale}))
    assert [counts(resume(*flags)) for flags in (first, first, second, second)] == [
        (1, 0, 0), (0, 1, 0), (1, 0, 0), (0, 1, 0)]
    assert attn("batch", "jobs", "--out-dir", "fresh", *second, cwd=tmp_path).returncode == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


class TestFailedJob:
    @pytest.fixture(autouse=True)
    def failed(self, tmp_path, batch):
        """The third of four jobs, which failed."""
        paths = write_jobs(tmp_path / "jobs", range(4))
        paths[2].write_text("{")
        assert counts(batch()) == (3, 0, 1)
        return paths[2]

    def test_is_tried_again(self, resume):
        run = resume()
        assert run.returncode == 3
        assert counts(run) == (0, 3, 1)

    def test_is_done_after_it_is_fixed(self, tmp_path, failed, resume):
        failed.write_text(json.dumps(job(2)))
        run = resume()
        assert run.returncode == 0
        assert counts(run) == (1, 3, 0)
        assert manifest_of(tmp_path / "out")["jobs/job0002.json"]["status"] == "done"


def test_lines_can_be_resumed(tmp_path):
    lines = [json.dumps(job(seed)) + "\n" for seed in range(5)]
    flags = ["batch", "-", "--out-dir", "out", "--resume"]
    assert counts(attn(*flags, stdin="".join(lines[:3]), cwd=tmp_path)) == (3, 0, 0)
    lines[1] = json.dumps(job(50)) + "\n"
    assert counts(attn(*flags, stdin="".join(lines), cwd=tmp_path)) == (3, 2, 0)


# Files that do not belong to the batch are not replaced.


class TestResultThatTheManifestDoesNotName:
    @pytest.fixture
    def lines(self, tmp_path, batch):
        """The manifest's lines after three jobs."""
        write_jobs(tmp_path / "jobs", range(3))
        assert batch().returncode == 0
        return (tmp_path / "out" / "manifest.ndjson").read_text().splitlines(keepends=True)

    def test_is_kept_as_the_result_if_identical(self, tmp_path, lines, resume):
        """This is the state after a batch was killed before it wrote the line."""
        before = contents(tmp_path / "out")
        (tmp_path / "out" / "manifest.ndjson").write_text("".join(line for line in lines if "job0001" not in line))
        run = resume()
        assert run.returncode == 0
        assert counts(run) == (1, 2, 0)
        assert contents(tmp_path / "out") == before

    def test_fails_the_job_and_is_kept_if_different(self, tmp_path, lines, resume):
        (tmp_path / "out" / "manifest.ndjson").write_text(lines[0])
        (tmp_path / "out" / "job0002.npz").write_text("precious")
        run = resume()
        assert run.returncode == 3
        assert counts(run) == (2, 0, 1)
        assert b"job0002.npz: already exists" in run.stderr
        assert manifest_of(tmp_path / "out")["jobs/job0002.json"]["code"] == 73
        assert (tmp_path / "out" / "job0002.npz").read_text() == "precious"


@pytest.mark.parametrize("mode", ["--force", "--resume"])
class TestResultsThatWouldReplaceInputs:
    """Results in JSON have the names of the job files."""

    @pytest.fixture
    def run(self, tmp_path, mode):
        write_jobs(tmp_path / "jobs", range(3))
        return lambda *flags: attn("batch", "jobs", "--format", "json", *flags, mode, cwd=tmp_path)

    def test_job_files_are_not_replaced(self, tmp_path, run):
        before = contents(tmp_path / "jobs")
        result = run("--out-dir", "jobs")
        assert result.returncode == 73
        assert result.stderr.count(b"\n") < 3
        assert b": is a" in result.stderr
        assert contents(tmp_path / "jobs") == before

    def test_base_is_not_replaced(self, tmp_path, run, mode):
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "job0000.json").write_text('{"scale": 2}')
        result = run("--out-dir", "b", "--base", "b/job0000.json")
        assert result.returncode == (73 if mode == "--force" else 3)
        assert result.stderr.count(b"\n") < 3
        assert b": is a" in result.stderr
        assert (tmp_path / "b" / "job0000.json").read_text() == '{"scale": 2}'

    def test_manifest_is_not_replaced(self, tmp_path, run):
        result = run("--out-dir", "m", "--manifest", "m/job0001.json")
        assert result.returncode == 73
        assert result.stderr == b"attn: --manifest m/job0001.json: is the result of jobs/job0001.json\n"
        assert not (tmp_path / "m").exists()


# --resume --dry-run


def planned(run):
    """{job: what --resume would do with it}, from the output of a dry run."""
    lines = [line for line in json_lines(run.stdout) if "error" not in line]
    for line in lines:
        assert ("outputs" in line) == (line["resume"] != "skip")
        assert line["output"].startswith("out/")
    return {pathlib.Path(line["job"]).stem: line["resume"] for line in lines}


@pytest.fixture
def dry_run(resume):
    return functools.partial(resume, "--dry-run")


def test_dry_run_without_a_manifest_plans_all_jobs_as_new(tmp_path, dry_run):
    write_jobs(tmp_path / "jobs", range(3), "{}.json")
    run = dry_run()
    assert run.returncode == 0
    assert planned(run) == {"0": "new", "1": "new", "2": "new"}
    assert b"3 jobs: 3 planned, 0 skipped, 0 failed" in run.stderr
    assert not (tmp_path / "out").exists()


class TestDryRun:
    """Job 0 is done, job 1 has changed since, job 2 failed and is now valid, job 3 is new."""

    PLAN = {"0": "skip", "1": "again", "2": "again", "3": "new"}

    @pytest.fixture(autouse=True)
    def paths(self, tmp_path, batch):
        paths = write_jobs(tmp_path / "jobs", range(3), "{}.json")
        paths[2].write_text("{")
        batch()
        paths += write_jobs(tmp_path / "jobs", [3], "{}.json")
        paths[1].write_text(json.dumps(job(50)))
        paths[2].write_text(json.dumps(job(2)))
        return paths

    def test_counts_a_job_that_still_fails(self, paths, dry_run):
        paths[2].write_text("{")
        run = dry_run()
        assert run.returncode == 3
        assert planned(run) == {"0": "skip", "1": "again", "3": "new"}
        assert b"4 jobs: 2 planned, 1 skipped, 1 failed" in run.stderr

    @pytest.mark.parametrize("flags, plan", [
        ([], PLAN),
        (["--causal"], PLAN | {"0": "again"}),
        (["--manifest", "other.ndjson"], {"0": "new", "1": "new", "2": "new", "3": "new"}),
    ], ids=["same flags", "other flags", "other manifest"])
    def test_says_what_happens_to_each_job(self, dry_run, flags, plan):
        assert planned(dry_run(*flags)) == plan

    def test_writes_nothing(self, tmp_path, dry_run):
        before = contents(tmp_path / "out", ())
        dry_run()
        dry_run("--causal")
        dry_run("--manifest", "other.ndjson")
        assert contents(tmp_path / "out", ()) == before
        assert not (tmp_path / "other.ndjson").exists()

    def test_agrees_with_the_resumed_batch(self, resume):
        assert counts(resume()) == (3, 1, 0)

    def test_skips_all_jobs_afterwards(self, resume, dry_run):
        resume()
        assert planned(dry_run()) == dict.fromkeys("0123", "skip")

    @pytest.mark.parametrize("manifest, code, reason", [
        ("jobs/0.json", 73, b"is an input"), ("out/0.npz", 65, b"is not a manifest")])
    def test_refuses_a_file_that_is_not_a_manifest(self, dry_run, manifest, code, reason):
        run = dry_run("--manifest", manifest)
        assert run.returncode == code
        assert reason in run.stderr


class TestDryRunDuringAnotherRun:
    PLAN = {"0": "skip", "1": "skip", "2": "new"}

    @pytest.fixture
    def manifest(self, tmp_path, batch):
        """The manifest of two finished jobs, open and locked; a third job is new."""
        write_jobs(tmp_path / "jobs", range(2), "{}.json")
        batch()
        write_jobs(tmp_path / "jobs", [2], "{}.json")
        with open(tmp_path / "out" / "manifest.ndjson", "ab", buffering=0) as manifest:
            fcntl.flock(manifest, fcntl.LOCK_EX)
            yield manifest

    def test_ignores_the_lock(self, manifest, dry_run):
        assert planned(dry_run()) == self.PLAN

    def test_reads_the_manifest_as_far_as_it_is_written(self, manifest, dry_run):
        enough = threading.Event()

        def append():
            while not enough.is_set():
                manifest.write(b"{}\n")

        writer = threading.Thread(target=append, daemon=True)
        writer.start()
        plans = [planned(dry_run()) for _ in range(5)]
        enough.set()
        writer.join()
        assert plans == 5 * [self.PLAN]


# Manifests that are damaged, elsewhere, or no manifests.


class TestDamagedManifest:
    @pytest.fixture(autouse=True)
    def manifest(self, tmp_path, batch):
        write_jobs(tmp_path / "jobs", range(5))
        batch("-j", "1")
        return tmp_path / "out" / "manifest.ndjson"

    def test_incomplete_last_line_repeats_its_job(self, manifest, resume):
        manifest.write_bytes(manifest.read_bytes()[:-40])
        assert counts(resume()) == (1, 4, 0)

    def test_incomplete_last_line_is_removed(self, manifest, resume):
        manifest.write_bytes(manifest.read_bytes()[:-40])
        resume()
        assert all(json_lines(manifest.read_text()))

    def test_incomplete_first_line_repeats_all_jobs(self, manifest, resume):
        manifest.write_bytes(b'{"schema":"att')
        assert counts(resume()) == (5, 0, 0)

    @pytest.mark.parametrize("damage", [
        lambda lines: lines[:2] + [lines[2][:50] + 100 * b"\0" + lines[2][150:]] + lines[3:],
        lambda lines: lines[:2] + [400 * b"\0" + b"\n"] + lines[3:],
        lambda lines: lines[:3] + [b'{"schema":"attn-batch/1","pro\0\0\n'] + lines[3:],
    ], ids=["part of a line is zero", "a line is zero", "a line is inserted"])
    def test_damaged_line_repeats_at_most_its_job(self, manifest, resume, damage):
        manifest.write_bytes(b"".join(damage(manifest.read_bytes().splitlines(keepends=True))))
        run = resume()
        assert run.returncode == 0
        assert counts(run) in ((1, 4, 0), (0, 5, 0))

    def test_incomplete_line_is_kept_when_the_batch_is_refused(self, manifest, batch):
        incomplete = manifest.read_bytes()[:-9]
        manifest.write_bytes(incomplete)
        run = batch("--format", "json")
        assert run.returncode == 73
        assert b"manifest.ndjson: already exists; --resume" in run.stderr
        assert manifest.read_bytes() == incomplete


def test_manifest_may_be_elsewhere(tmp_path, batch):
    write_jobs(tmp_path / "jobs", range(2))
    assert batch("--manifest", "m.ndjson").returncode == 0
    assert (tmp_path / "m.ndjson").exists()
    assert not (tmp_path / "out" / "manifest.ndjson").exists()


def test_manifest_must_be_a_regular_file(tmp_path, batch):
    write_jobs(tmp_path / "jobs", range(2))
    assert batch("--manifest", "/dev/null").returncode == 73


@pytest.mark.parametrize("flags, code", [([], 73), (["--force"], 73), (["--resume"], 65)])
@pytest.mark.parametrize("text", [
    b'{"precious": 1}', b'{"precious": 1}\nmore', b'{"schema":"attn-batch/2"}\n', b"\n"])
def test_file_that_is_not_a_manifest_is_not_changed(tmp_path, batch, text, flags, code):
    write_jobs(tmp_path / "jobs", range(2))
    (tmp_path / "p.json").write_bytes(text)
    run = batch("--manifest", "p.json", *flags)
    assert run.returncode == code
    assert run.stderr.count(b"\n") == 1
    assert b"p.json: is not a manifest" in run.stderr
    assert (tmp_path / "p.json").read_bytes() == text


@pytest.mark.parametrize("inputs", [
    ["empty.json"], ["jobs", "--base", "empty.json"], ["--files-from", "empty.json"], ["jobs/job0000.json"]])
def test_manifest_replaces_no_input(tmp_path, inputs):
    write_jobs(tmp_path / "jobs", range(2))
    (tmp_path / "empty.json").touch()
    name = inputs[-1]
    before = (tmp_path / name).read_bytes()
    run = attn("batch", *inputs, "--out-dir", "o", "--force", "--manifest", f"./{name}", cwd=tmp_path)
    assert run.returncode != 0
    assert run.stderr.count(b"\n") == 1
    assert (tmp_path / name).read_bytes() == before


def test_manifest_counts_towards_max_memory(tmp_path, batch, resume):
    write_jobs(tmp_path / "jobs", range(2))
    batch()
    size = (tmp_path / "out" / "manifest.ndjson").stat().st_size
    run = resume("--max-memory", str(size - 1))
    assert run.returncode == 65
    assert b"manifest.ndjson: expected at most" in run.stderr


# Several runs at a time, and runs that are killed.


class TestWhileAnotherRunUsesTheManifest:
    @pytest.fixture
    def first_run(self, tmp_path):
        write_jobs(tmp_path / "jobs", range(2))
        process = subprocess.Popen([ATTN, "batch", "-", "--out-dir", "out", "-q"], cwd=tmp_path,
                                   stdin=subprocess.PIPE)
        manifest = tmp_path / "out" / "manifest.ndjson"
        while not (manifest.exists() and manifest.stat().st_size) and process.poll() is None:
            time.sleep(0.01)
        yield process
        process.communicate()

    @pytest.mark.parametrize("flags", [["--resume"], ["--force"], []])
    def test_another_is_refused(self, first_run, batch, flags):
        run = batch(*flags)
        assert run.returncode == 75
        assert b"another run" in run.stderr

    def test_another_is_refused_for_that_reason_when_results_exist(self, first_run, batch, tmp_path):
        (tmp_path / "out" / "job0000.npz").write_text("")
        run = batch()
        assert run.returncode == 75
        assert b"another run" in run.stderr

    def test_the_first_is_not_disturbed(self, first_run, resume):
        resume()
        first_run.communicate(json.dumps(job(0)).encode())
        assert first_run.returncode == 0

    def test_another_may_follow(self, first_run, resume):
        first_run.communicate(json.dumps(job(0)).encode())
        assert resume().returncode == 0


# Manifests of shards.


class TestShards:
    @pytest.fixture(autouse=True)
    def paths(self, tmp_path, batch):
        paths = write_jobs(tmp_path / "jobs", range(9))
        for shard in "1/2", "2/2":
            assert batch("--shard", shard).returncode == 0
        return paths

    def test_are_continued_by_the_whole_batch(self, resume):
        assert counts(resume()) == (0, 9, 0)

    def test_are_continued_by_another_number_of_shards(self, resume):
        assert [counts(resume("--shard", f"{shard}/3")) for shard in (1, 2, 3)] == 3 * [(0, 3, 0)]

    def test_are_read_by_a_dry_run(self, resume):
        assert [plan["resume"] for plan in json_lines(resume("--dry-run").stdout)] == 9 * ["skip"]

    def test_changed_jobs_are_done_again(self, tmp_path, paths, resume):
        paths[4].write_text(json.dumps(job(100)))
        assert counts(resume()) == (1, 8, 0)
        assert counts(resume()) == (0, 9, 0)

    def test_result_of_a_deleted_job_is_pruned(self, tmp_path, paths, resume):
        paths[4].unlink()
        assert counts(resume("--prune")) == (0, 8, 0)
        assert not (tmp_path / "out" / "job0004.npz").exists()


# Files that are not manifests.


def test_empty_file_is_not_taken_over_as_a_manifest(tmp_path, batch):
    write_jobs(tmp_path / "jobs", [1])
    (tmp_path / "empty").touch()
    run = batch("--manifest", "empty")
    assert run.returncode == 73
    assert b"attn: empty: is empty, not a manifest; --force or --resume uses it\n" == run.stderr
    assert (tmp_path / "empty").read_bytes() == b""


@pytest.mark.parametrize("flag", ["--force", "--resume"])
def test_empty_file_is_a_manifest_if_a_flag_says_so(tmp_path, batch, flag):
    write_jobs(tmp_path / "jobs", [1])
    (tmp_path / "empty").touch()
    assert batch("--manifest", "empty", flag).returncode == 0
    assert list(manifest_of(tmp_path, "empty")) == ["jobs/job0001.json"]


@pytest.mark.parametrize("flags", [[], ["--force"], ["--resume"]])
def test_manifest_is_not_created_through_a_link(tmp_path, batch, flags):
    write_jobs(tmp_path / "jobs", [1])
    (tmp_path / "link").symlink_to("nowhere")
    run = batch("--manifest", "link", *flags)
    assert run.returncode == 73
    assert b"attn: link: is a link to a file that does not exist\n" == run.stderr
    assert not (tmp_path / "nowhere").exists()


def test_manifest_behind_a_link_is_used(tmp_path, batch, resume):
    write_jobs(tmp_path / "jobs", [1])
    assert batch("--manifest", "real").returncode == 0
    (tmp_path / "link").symlink_to("real")
    assert counts(resume("--manifest", "link")) == (0, 1, 0)


def test_batch_killed_at_random_moments_can_be_resumed(tmp_path, kills=20, jobs=150):
    """Batches are killed again while they are resumed; every fourth resumed run may finish."""
    write_jobs(tmp_path / "jobs", range(jobs))
    flags = ["batch", "jobs", "--format", "folder", "-j", "4", "-q", "--out-dir"]
    start = time.monotonic()
    attn(*flags, "whole", cwd=tmp_path)
    whole, seconds = contents(tmp_path / "whole"), time.monotonic() - start
    assert len(whole) == 3 * jobs
    dice, killed = random.Random(7), 0
    for kill in range(kills):
        process = subprocess.Popen([ATTN, *flags, "out", "--resume"], cwd=tmp_path)
        time.sleep(dice.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        if kill % 4 == 3:
            assert attn(*flags, "out", "--resume", cwd=tmp_path).returncode == 0
            assert contents(tmp_path / "out") == whole
            subprocess.run(["rm", "-r", "out"], cwd=tmp_path, check=True)
    assert killed > 0


class TestSignal:
    @pytest.fixture
    def stop(self, tmp_path):
        """Starts a batch, sends it a signal when its 20 fast jobs are done, and returns its exit status and
        standard error. Its 8 slow jobs are then not done."""
        (tmp_path / "jobs").mkdir()
        for seed in range(8):
            (tmp_path / "jobs" / f"slow{seed}.json").write_text(json.dumps(slow_job()))
        write_jobs(tmp_path / "jobs", range(20))
        manifest = tmp_path / "out" / "manifest.ndjson"

        def stop(number):
            process = subprocess.Popen([ATTN, "batch", "jobs", "--out-dir", "out", "-j", "4", "--resume"],
                                       cwd=tmp_path, stderr=subprocess.PIPE)
            while not (manifest.exists() and manifest.read_bytes().count(b'"status"') >= 20):
                time.sleep(0.01)
            process.send_signal(number)
            err = process.communicate()[1]
            return process.returncode, err
        return stop

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
    def test_stops_the_batch_without_waiting_for_slow_jobs(self, tmp_path, stop, number):
        status, err = stop(number)
        assert status == -number
        assert err.endswith(b"attn: stopped after 20 of 28 jobs; --resume continues\n")
        assert b'"slow' not in (tmp_path / "out" / "manifest.ndjson").read_bytes()
        assert list(contents(tmp_path / "out")) == [f"job{seed:04}.npz" for seed in range(20)]

    def test_keeps_the_results_of_earlier_runs(self, tmp_path, stop):
        stop(signal.SIGINT)
        before = contents(tmp_path / "out")
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            assert stop(number)[0] == -number
            assert contents(tmp_path / "out") == before
        assert b'"slow' not in (tmp_path / "out" / "manifest.ndjson").read_bytes()
