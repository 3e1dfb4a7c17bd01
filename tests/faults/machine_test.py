"""A machine with too little disk, descriptors, memory, file size or time; closed streams; odd environments.

Each time the exit code is a documented one, stderr gives the reason in one line, and the folder contains
the old file or a complete result.
"""

import json
import os
import resource
import subprocess

import numpy as np
import pytest

from support.attn import ATTN, attn, under_sanitizer
from support.jobs import job, write_jobs

OLD = b"old content\n"


def run_with_limit(folder, *arguments, limit):
    """Runs attn with a limit: (resource, value)."""
    def set_limit():
        resource.setrlimit(limit[0], (limit[1], limit[1]))
    return subprocess.run([ATTN, *map(str, arguments)], cwd=folder, capture_output=True, timeout=60,
                          preexec_fn=set_limit)


def temporary_files(folder):
    return [name for name in os.listdir(folder) if name.startswith(".attn")]


# Limits. The runtimes of sanitizers also need memory and files.


@pytest.mark.skipif(under_sanitizer(), reason="a sanitizer's own memory and files")
class TestLimits:
    RUN = ["run", "--q", "q.npy", "--k", "q.npy", "-o", "out.npz", "--force"]

    @pytest.fixture
    def run(self, tmp_path):
        """Runs a job whose result takes 2.6 MB, with a limit; a failure is clean. Returns the exit code."""
        np.save(tmp_path / "q.npy", np.random.default_rng(1).standard_normal((400, 8)))

        def run(*arguments, limit):
            out = tmp_path / "out.npz"
            out.write_bytes(OLD)
            done = run_with_limit(tmp_path, *self.RUN, *arguments, limit=limit)
            assert temporary_files(tmp_path) == []
            if done.returncode == 0:
                assert "weights" in np.load(out)
            else:
                assert out.read_bytes() == OLD
                assert done.stderr.startswith(b"attn: ")
                assert done.stderr.count(b"\n") == 1
            return done.returncode
        return run

    def test_descriptors(self, run):
        """Three are the streams; four outputs are open at once."""
        codes = [run("-o", "more/", limit=(resource.RLIMIT_NOFILE, most)) for most in range(4, 10)]
        assert set(codes) <= {0, 66, 73, 74}
        assert codes[0] != 0
        assert codes[-1] == 0

    @pytest.mark.parametrize("size", [0, 1, 4096, 10**6, 2 * 10**6])
    def test_file_size(self, run, size):
        assert run(limit=(resource.RLIMIT_FSIZE, size)) == 74

    def test_address_space(self, run, tmp_path):
        """From where the loader just succeeds to plenty."""
        codes = []
        for megabytes in range(20, 420, 20):
            limit = (resource.RLIMIT_AS, megabytes << 20)
            if run_with_limit(tmp_path, "--version", limit=limit).returncode == 0:
                codes.append(run(limit=limit))
        assert set(codes) <= {0, 65, 74}
        assert codes[-1] == 0

    @pytest.mark.parametrize("command", ["convert", "svd"])
    def test_address_space_for_libraries_that_are_loaded_later(self, tmp_path, command):
        np.savez_compressed(tmp_path / "packed.npz", Q=np.eye(3))
        codes = []
        for megabytes in [*range(14, 30), *range(30, 260, 30)]:
            limit = (resource.RLIMIT_AS, megabytes << 20)
            run = run_with_limit(tmp_path, command, "packed.npz", "-o", "out.npz", "--force", limit=limit)
            if run_with_limit(tmp_path, "--version", limit=limit).returncode == 0:  # the program can start
                codes.append(run.returncode)
                assert run.returncode in (0, 65)
                assert b"internal" not in run.stderr
        assert codes[-1] == 0

    @pytest.mark.parametrize("kilobytes", [128, 256, 1024])
    def test_stack(self, run, kilobytes):
        assert run(limit=(resource.RLIMIT_STACK, kilobytes << 10)) == 0

    def test_processor_time(self, tmp_path):
        """SIGXCPU ends the run as other signals do."""
        draw = {"randint": {"high": 2**25, "shape": [2000, 2000]}}
        (tmp_path / "slow.json").write_text(json.dumps({"seed": 1, "Q": draw, "K": draw, "outputs": ["scores"]}))
        (tmp_path / "out.npz").write_bytes(OLD)
        run = subprocess.run([ATTN, "run", "slow.json", "-o", "out.npz", "--force"], cwd=tmp_path, timeout=60,
                             capture_output=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (1, 2)))
        assert run.returncode == -24
        assert (tmp_path / "out.npz").read_bytes() == OLD
        assert temporary_files(tmp_path) == []


# A full disk.

FULL_DISK = """
set -e
mount -t tmpfs -o size={size} none disk
cp q.npy job.json disk; cp -r jobs disk; cd disk
printf old > out.npz
echo ready
set +e
'{attn}' run --q q.npy --k q.npy -o out.npz --force 2> /tmp/$$.err; echo "run $? $(wc -l < /tmp/$$.err)"
'{attn}' run --q q.npy --k q.npy -o new/ 2> /tmp/$$.err; echo "folder $? $(wc -l < /tmp/$$.err)"
'{attn}' run job.json --view=page.html 2> /dev/null; echo "small $?"
'{attn}' batch jobs --out-dir results -j 2 -q 2> /tmp/$$.err; echo "batch $? $(wc -l < /tmp/$$.err)"
rm -f /tmp/$$.err
echo "old $(cat out.npz)"
echo "left $(find . -name '.attn-tmp*' | wc -l) $(ls -d new 2>/dev/null | wc -l)"
mount -o remount,size=64m .
'{attn}' batch jobs --out-dir results -q --resume; echo "resumed $?"
cp -r results ..
"""


class TestFullDisk:
    """A small tmpfs in its own mount namespace, which is then enlarged."""

    @pytest.fixture(scope="class")
    def folder(self, class_path):
        (class_path / "disk").mkdir()
        np.save(class_path / "q.npy", np.random.default_rng(1).standard_normal((400, 8)))
        (class_path / "job.json").write_text(json.dumps(job(1)))
        write_jobs(class_path / "jobs", range(40))
        assert attn("batch", "jobs", "--out-dir", "whole", "-q", cwd=class_path).returncode == 0
        return class_path

    @pytest.fixture(scope="class")
    def report(self, folder):
        """The lines of the script, {first word: rest}."""
        script = FULL_DISK.format(attn=ATTN, size="440k")
        for unshare in ["unshare", "-m"], ["unshare", "-rm"]:
            run = subprocess.run([*unshare, "bash", "-c", script], cwd=folder, capture_output=True, text=True,
                                 timeout=60)
            if "ready" in run.stdout:
                return dict(line.split(" ", 1) for line in run.stdout.splitlines() if " " in line)
        return pytest.skip(f"cannot mount a tmpfs: {run.stderr.strip()}")

    @pytest.mark.parametrize("output", ["run", "folder"])
    def test_run_fails_with_one_line(self, report, output):
        assert report[output] == "74 1"

    def test_old_file_is_kept(self, report):
        assert report["old"] == "old"

    def test_no_temporary_file_or_folder_is_left(self, report):
        assert report["left"] == "0 0"

    def test_batch_fails_with_messages(self, report):
        code, lines = report["batch"].split()
        assert code in ("3", "73", "74")
        assert int(lines) > 0

    def test_batch_is_resumed_when_there_is_space(self, report, folder):
        assert report["resumed"] == "0"
        results = {path.name: path.read_bytes() for path in (folder / "results").glob("*.npz")}
        assert len(results) == 40
        assert results == {path.name: path.read_bytes() for path in (folder / "whole").glob("*.npz")}


# Closed and full streams.


@pytest.fixture
def shell(tmp_path):
    """Runs a shell command in a folder with job.json; its first "attn" is the program."""
    (tmp_path / "job.json").write_text(json.dumps(job(1)))

    def shell(line):
        return subprocess.run(["bash", "-c", line.replace("attn", f"'{ATTN}'", 1)], cwd=tmp_path,
                              capture_output=True, timeout=60)
    return shell


@pytest.mark.parametrize("line, code, message", [
    ("attn run job.json <&-", 0, b""), ("attn run - <&-", 74, b"standard input: "),
    ("attn run job.json >&-", 74, b"standard output: "),
    ("attn run job.json --format npz >&-", 74, b"standard output: "),
    ("attn batch job.json >&-", 74, b"standard output: "),
    ("attn batch - <&-", 74, b"standard input: "),
    ("attn inspect job.json >&-", 74, b"standard output: "),
    ("attn --help >&-", 74, b"standard output: "),
    ("attn run job.json > /dev/full", 74, b"standard output: No space"),
    ("attn convert job.json#embeddings > /dev/full", 74, b"standard output: No space"),
    ("attn run job.json -o /dev/full --format npz", 74, b"/dev/full: No space"),
    ("attn random rand --shape 9 --seed 1 > /dev/full", 74, b"No space"),
    ("attn compare job.json job.json > /dev/full", 74, b"No space"),
    ("attn examples check > /dev/full", 74, b"No space"),
    ("attn schema > /dev/full", 74, b"No space"),
    ("attn nonsense 2> /dev/full", 2, b""),
    ("attn nonsense <&- >&- 2>&-", 2, b""),
])
def test_closed_or_full_stream_is_reported(shell, line, code, message):
    run = shell(line)
    assert run.returncode == code
    assert message in run.stderr
    assert run.stderr.count(b"\n") <= 1 or "batch" in line


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-", "<&- 2>&-"])
def test_closed_stream_does_not_become_an_output_file(shell, tmp_path, closed):
    """The descriptor of a closed stream is not reused for a file, which would then get the messages."""
    shell("attn run job.json --view=page.html -o all.npz")
    assert shell(f"attn run job.json --view=again.html -o again.npz {closed}").returncode == 0
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "page.html").read_bytes()
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "all.npz").read_bytes()


def test_reader_that_stops_early_is_not_an_error(shell):
    run = shell("attn run job.json --format json | head -c 1; exit ${PIPESTATUS[0]}")
    assert run.returncode in (0, 141)
    assert run.stderr == b""


# Environment variables.


@pytest.mark.parametrize("variables", [{}, {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"}, {"TZ": "Nowhere/No"},
    {"TMPDIR": "/nowhere"}, {"COLUMNS": "0", "TERM": ""}, {"HOME": "/nowhere"},
    {"COLUMNS": "-5", "LINES": "x", "TERM": "\x1b[31m"}, {"PATH": ""},
    {"OPENBLAS_NUM_THREADS": "abc", "OMP_NUM_THREADS": "-1"}], ids=json.dumps)
class TestEnvironment:
    @pytest.fixture
    def run(self, tmp_path, variables):
        """Runs the job with the usual environment, and with these variables only."""
        (tmp_path / "job.json").write_text(json.dumps(job(1)))
        keep = {key: os.environ[key] for key in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if key in os.environ}

        def run(*flags):
            usual = attn("run", "job.json", *flags, cwd=tmp_path)
            return usual, subprocess.run([ATTN, "run", "job.json", *flags], cwd=tmp_path, capture_output=True,
                                         env=variables | keep)
        return run

    def test_does_not_change_the_result(self, run):
        usual, other = run("--format", "json")
        assert (other.returncode, other.stderr) == (0, b"")
        assert other.stdout == usual.stdout

    def test_does_not_change_the_view(self, run):
        usual, other = run("--view")
        assert other.returncode == 0
        assert other.stdout == usual.stdout
