"""How `attn batch` runs: --timeout, worker threads, closed pipes, order of results, --durable."""

import json
import os
import pathlib
import re
import select
import shutil
import subprocess

import pytest

from support.attn import ATTN, attn, json_lines
from support.jobs import contents, is_expected, job, manifest_of, slow_job, write_jobs


# --timeout


class TestTimeout:
    @pytest.fixture(scope="class")
    def run(self, class_path):
        """Three slow jobs and six fast ones on one worker."""
        write_jobs(class_path / "jobs", range(6))
        for number in range(3):
            (class_path / "jobs" / f"a{number}.json").write_text(json.dumps(slow_job()))
        return attn("batch", "jobs", "--out-dir", "out", "--timeout", "0.5", "-j", "1", "-q", cwd=class_path)

    @pytest.mark.parametrize("number", range(3))
    def test_slow_job_fails(self, run, class_path, number):
        line = manifest_of(class_path / "out")[f"jobs/a{number}.json"]
        assert run.returncode == 3
        assert (line["status"], line["code"]) == ("failed", 75)
        assert "more than 0.5 s (--timeout), abandoned after 0." in line["error"][0]

    def test_fast_jobs_are_done(self, run, class_path):
        statuses = [line["status"] for line in manifest_of(class_path / "out").values()]
        assert statuses.count("done") == 6

    def test_no_temporary_files_are_left(self, run, class_path):
        assert list(contents(class_path / "out")) == [f"job000{seed}.npz" for seed in range(6)]


def test_results_stay_in_order_after_a_timeout():
    lines = "\n".join(json.dumps(line) for line in (job(0), slow_job(), job(1)))
    results = json_lines(attn("batch", "-", "--timeout", "0.5", stdin=lines).stdout)
    assert len(results) == 3
    assert is_expected(results[0], 0)
    assert results[1]["code"] == 75
    assert is_expected(results[2], 1)


class TestTimeoutShorterThanAnyJob:
    """The clock is not read that often: a job that finishes late still fails."""

    @pytest.fixture(scope="class")
    def run(self, class_path):
        write_jobs(class_path / "jobs", range(50))
        return attn("batch", "jobs", "--out-dir", "out", "--timeout", "0.000001", "-q", cwd=class_path)

    def test_every_job_fails(self, run, class_path):
        lines = manifest_of(class_path / "out").values()
        assert run.returncode == 3
        assert [(line["status"], line["code"], line["outputs"]) for line in lines] == 50 * [("failed", 75, {})]
        assert [line for line in lines
                if "more than 1e-06 s (--timeout), abandoned after" not in line["error"][0]] == []

    def test_nothing_is_written(self, run, class_path):
        assert list(contents(class_path / "out", without=())) == ["manifest.ndjson"]

    def test_nothing_is_printed(self, run, class_path):
        run = attn("batch", "jobs", "--timeout", "0.000001", "-q", cwd=class_path)
        assert run.returncode == 3
        assert [result["code"] for result in json_lines(run.stdout)] == 50 * [75]

    def test_resume_with_more_time_does_all_jobs(self, run, class_path):
        shutil.copytree(class_path / "out", class_path / "resumed")
        run = attn("batch", "jobs", "--out-dir", "resumed", "--resume", "--timeout", "60", "-q", cwd=class_path)
        assert run.returncode == 0
        assert len(contents(class_path / "resumed")) == 50


# Workers.


def threads_of(*flags, cpus):
    """The number of threads of an `attn batch` that has finished a job and waits for the next, on these
    processors."""
    process = subprocess.Popen([ATTN, "batch", "-", "-q", *flags], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=dict(os.environ, OPENBLAS_NUM_THREADS="1"),
                               preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    process.stdin.write(json.dumps(job(0)).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    count = len(os.listdir(f"/proc/{process.pid}/task"))
    process.communicate()
    return count


@pytest.mark.parametrize("flags, processors, workers", [([], 1, 1), ([], 2, 2), (["-j", "3"], 1, 3)],
                         ids=["one processor", "two processors", "-j 3"])
def test_workers_match_the_available_processors_or_j(flags, processors, workers):
    """The processors counted are those that the process may use, not those of the machine."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < processors:
        pytest.skip("needs two processors")
    one_worker = threads_of("-j", "1", cpus=cpus[:1])
    assert threads_of(*flags, cpus=cpus[:processors]) - one_worker == workers - 1


# Closed and full outputs.


class TestClosedOutputs:
    @pytest.fixture(scope="class")
    def shell(self, class_path):
        """Runs a shell command; jobs.ndjson has 3,000 jobs."""
        with open(class_path / "jobs.ndjson", "w") as file:
            file.writelines(json.dumps(job(seed)) + "\n" for seed in range(3000))

        def run(command):
            return subprocess.run(["bash", "-c", command], cwd=class_path, capture_output=True)
        return run

    def test_closed_pipe_ends_the_batch_quietly_by_sigpipe(self, shell):
        run = shell(f"'{ATTN}' batch - < jobs.ndjson | head -1; echo ${{PIPESTATUS[0]}}")
        assert run.stdout.splitlines()[-1] == b"141"
        assert run.stderr == b""

    def test_full_disk_is_an_error(self, shell):
        run = shell(f"'{ATTN}' batch - < jobs.ndjson > /dev/full")
        assert run.returncode == 74
        assert b"standard output: No space" in run.stderr

    def test_jobs_whose_results_cannot_be_written_are_not_done(self, shell):
        run = shell(f"head -9 jobs.ndjson | '{ATTN}' batch - >&-")
        assert run.returncode == 74
        assert b": 0 done, 0 skipped, 0 failed" in run.stderr

    def test_full_stderr_loses_no_results(self, shell, class_path):
        run = shell(f"'{ATTN}' batch - < jobs.ndjson 2>/dev/full >out; echo $?")
        assert run.stdout == b"0\n"
        assert (class_path / "out").read_bytes().count(b"\n") == 3000


@pytest.mark.parametrize("workers", ["1", "2"])
class TestResultsArePrintedEarly:
    @pytest.fixture
    def batch(self, workers):
        with subprocess.Popen([ATTN, "batch", "-", "-j", workers, "-q"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            yield process
            process.kill()

    def test_before_the_next_line_is_read(self, batch):
        for seed in range(3):
            batch.stdin.write(json.dumps(job(seed)).encode() + b"\n")
            batch.stdin.flush()
            assert is_expected(json.loads(batch.stdout.readline()), seed)

    def test_while_a_slow_job_is_computed(self, batch):
        lines = [json.dumps(line) + "\n" for line in (job(3), job(4), slow_job())]
        batch.stdin.write("".join(lines).encode())
        batch.stdin.flush()
        for seed in 3, 4:
            assert is_expected(json.loads(batch.stdout.readline()), seed)
        assert not select.select([batch.stdout], [], [], 0)[0]


# --durable


def trace(folder, calls, *arguments):
    """What strace prints of these system calls of `attn ARGUMENTS`, with the paths of descriptors."""
    strace = ["strace", "-f", "-y", "-o", "trace", "-e", f"trace={calls}"]
    subprocess.run([*strace, ATTN, *map(str, arguments)], cwd=folder, check=True,
                   env=dict(os.environ, LSAN_OPTIONS="detect_leaks=0"))
    return (folder / "trace").read_text()


def calls_of(folder, *arguments):
    """The names of the calls that sync and name files, in order."""
    text = trace(folder, "fsync,fdatasync,renameat2,rename,linkat", *arguments)
    return re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE)


def synced_folders(folder, *arguments):
    """The folders that are synced, in order."""
    synced = re.findall(r"fsync\(\d+<(.*?)>", trace(folder, "fsync", *arguments))
    return [name for name in synced if pathlib.Path(name).is_dir()]


@pytest.fixture
def jobs(tmp_path):
    return write_jobs(tmp_path / "jobs", range(2))


def test_run_syncs_nothing_by_default(tmp_path, jobs):
    assert calls_of(tmp_path, "run", jobs[0], "-o", "a.npz") == ["renameat2"]


def test_durable_run_syncs_the_file_and_its_folder(tmp_path, jobs):
    assert calls_of(tmp_path, "run", jobs[0], "-o", "b.npz", "--durable") == ["fsync", "renameat2", "fsync"]


def test_durable_batch_syncs_results_before_manifest_lines(tmp_path, jobs):
    calls = calls_of(tmp_path, "batch", "jobs", "-j", "1", "--out-dir", "out", "--durable", "-q")
    # First the output folder, the manifest's first line and its folder. A result gets its name by linkat()
    # where the file system supports files without a name.
    expected = {call: ["fsync", "fdatasync", "fsync"] + 2 * ["fsync", call, "fsync", "fdatasync"]
                for call in ("linkat", "renameat2")}
    assert calls in expected.values()


def test_durable_run_syncs_a_new_output_folder_and_its_parent(tmp_path, jobs):
    folders = synced_folders(tmp_path, "run", jobs[0], "-o", "nf/", "--durable")
    assert folders == [str(tmp_path)] + 3 * [f"{tmp_path}/nf"]


def test_durable_batch_syncs_every_folder_it_creates(tmp_path, jobs):
    (tmp_path / "deep" / "a" / "b").mkdir(parents=True)
    shutil.copy(jobs[0], tmp_path / "deep" / "a" / "b" / "one.json")
    folders = synced_folders(tmp_path, "batch", "deep", "--out-dir", "new/out", "--name", "{job}",
                             "--durable", "-q", "--manifest", "jobs/m.ndjson")
    names = ["", "new", "jobs", "new/out", "new/out/a", "new/out/a/b"]
    assert folders == [f"{tmp_path}/{name}".rstrip("/") for name in names]


# attn run --no-clobber


def test_run_no_clobber_keeps_an_existing_file(tmp_path, jobs):
    (tmp_path / "out.json").write_text("mine")
    run = attn("run", jobs[0], "-o", "out.json", "--no-clobber", cwd=tmp_path)
    assert run.returncode == 0
    assert b"already exists" in run.stderr
    assert (tmp_path / "out.json").read_text() == "mine"


def test_run_no_clobber_writes_a_new_file(tmp_path, jobs):
    run = attn("run", jobs[0], "-o", "new.json", "--no-clobber", cwd=tmp_path)
    assert run.returncode == 0
    assert is_expected(json.loads((tmp_path / "new.json").read_text()), 0)


def test_run_no_clobber_excludes_force(tmp_path, jobs):
    assert attn("run", jobs[0], "-o", "new.json", "--no-clobber", "--force", cwd=tmp_path).returncode == 2
