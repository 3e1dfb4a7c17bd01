"""`attn batch --isolate`: a worker that crashes, is killed or hangs fails only its job, and has reduced privileges.

A job that reads a FIFO without data waits until the test ends its worker.
"""

import errno
import json
import os
import pathlib
import platform
import random
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from support.attn import ATTN, attn, json_lines, under_sanitizer
from support.jobs import contents, is_expected, job, manifest_of, slow_job, write_jobs
from support.traced import Traced

FACTS = dict(line.split(": ", 1) for line in attn("--version", "-v").stdout.decode().splitlines()[1:])
WAITING = {"Q": "../fifo.npy", "K": "../fifo.npy", "outputs": ["scores"]}


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def workers_of(process):
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def is_alive(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def has_open(pid, path):
    try:
        return any(os.path.samefile(fd, path) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir() if fd.exists())
    except FileNotFoundError:
        return False


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo.npy"
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)
    yield path
    os.close(held)


@pytest.fixture
def folder(tmp_path, fifo):
    """Twenty jobs, and one that waits for the FIFO."""
    write_jobs(tmp_path / "jobs", range(20))
    (tmp_path / "jobs" / "job0007b.json").write_text(json.dumps(WAITING))
    return tmp_path


@pytest.fixture
def start(folder):
    """Starts a batch; waits until all jobs but the waiting one are done and returns its worker, too."""
    started = []

    def start(*flags):
        process = subprocess.Popen([ATTN, "batch", "jobs", "--isolate", "-j", "2", "--out-dir", "out", *flags],
                                   cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.append(process)
        wait_until(lambda: len(list((folder / "out").glob("*.npz"))) == 20)
        worker = []
        wait_until(lambda: worker.extend(pid for pid in workers_of(process) if has_open(pid, folder / "fifo.npy"))
                   or worker)
        return process, worker[0]
    yield start
    for process in started:
        process.kill()
        process.communicate()


def make_readable(folder):
    """Replaces the FIFO by an array."""
    (folder / "fifo.npy").unlink()
    np.save(folder / "fifo.npy", np.eye(2))


# Workers that end.


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL", "SIGBUS"])
@pytest.mark.skipif(under_sanitizer(), reason="a sanitizer handles signals of crashes")
class TestEndOfAWorker:
    @pytest.fixture
    def run(self, start, name):
        process, worker = start()
        os.kill(worker, getattr(signal, name))
        err = process.communicate(timeout=60)[1].decode()
        return process.returncode, err

    def test_fails_its_job_only(self, folder, run, name):
        lines = manifest_of(folder / "out")
        assert run[0] == 3
        assert [line["status"] for line in lines.values()].count("done") == 20
        assert all(is_expected(np.load(folder / "out" / f"job{seed:04}.npz"), seed) for seed in range(20))

    def test_is_in_the_manifest(self, folder, run, name):
        line = manifest_of(folder / "out")["jobs/job0007b.json"]
        assert line["status"] == "failed"
        assert line["code"] == 128 + getattr(signal, name)
        assert line["error"][0].startswith(f"jobs/job0007b.json: its worker process was ended by {name}")

    def test_is_printed(self, run, name):
        assert f"attn: jobs/job0007b.json: its worker process was ended by {name}" in run[1]

    def test_is_repaired_by_resume(self, folder, run, name):
        make_readable(folder)
        assert attn("batch", "jobs", "--isolate", "--resume", "--out-dir", "out", cwd=folder).returncode == 0
        assert attn("batch", "jobs", "--out-dir", "fresh", cwd=folder).returncode == 0
        assert contents(folder / "out") == contents(folder / "fresh")


def test_other_jobs_of_an_ended_worker_are_run(folder, start):
    """Jobs are waiting for each worker when it is killed."""
    (folder / "jobs" / "job0007b.json").unlink()
    write_jobs(folder / "jobs", range(2000))
    process = subprocess.Popen([ATTN, "batch", "jobs", "--isolate", "-j", "2", "--out-dir", "many", "-q"], cwd=folder,
                               stderr=subprocess.PIPE)
    for count in range(1, 6):
        wait_until(lambda: len(list((folder / "many").glob("*.npz"))) > 200 * count or process.poll() is not None)
        for worker in workers_of(process):
            os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=60)
    lines = manifest_of(folder / "many")
    failed = [line for line in lines.values() if line["status"] == "failed"]
    assert len(lines) == 2000
    assert len(failed) <= 10
    assert {line["code"] for line in failed} <= {137}


def test_idle_worker_that_is_killed_is_replaced(tmp_path):
    process = subprocess.Popen([ATTN, "batch", "-", "--isolate", "-j", "1"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for seed in 1, 2, 3:
        process.stdin.write(json.dumps(job(seed)).encode() + b"\n")
        process.stdin.flush()
        assert is_expected(json.loads(process.stdout.readline()), seed)
        worker, = workers_of(process)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: workers_of(process) not in ([], [worker]))
    process.communicate()
    assert process.returncode == 0


def test_worker_over_its_time_limit_is_killed(folder):
    run = attn("batch", "jobs", "--isolate", "-j", "2", "--timeout", "0.5", "--out-dir", "out", cwd=folder)
    line = manifest_of(folder / "out")["jobs/job0007b.json"]
    assert run.returncode == 3
    assert line["code"] == 75
    assert "took more than 0.5 s (--timeout), abandoned after 0." in line["error"][0]
    assert len(contents(folder / "out")) == 20


def test_time_limit_ends_a_computation(tmp_path):
    start = time.monotonic()
    run = attn("batch", "-", "--isolate", "--timeout", "0.5", stdin=json.dumps(slow_job()) + "\n", cwd=tmp_path)
    assert json_lines(run.stdout)[0]["code"] == 75
    assert time.monotonic() - start < 15  # the job takes over a minute


def test_results_stay_in_order_when_a_worker_ends(tmp_path, fifo):
    jobs = [job(seed) for seed in range(40)]
    jobs[11] = {key: value.replace("../", "") if key in "QK" else value for key, value in WAITING.items()}
    process = subprocess.Popen([ATTN, "batch", "-", "--isolate", "-j", "2", "-q"], cwd=tmp_path,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write("".join(json.dumps(each) + "\n" for each in jobs).encode())
    process.stdin.flush()
    wait_until(lambda: any(has_open(pid, fifo) for pid in workers_of(process)))
    worker, = (pid for pid in workers_of(process) if has_open(pid, fifo))
    os.kill(worker, signal.SIGKILL)
    results = json_lines(process.communicate(timeout=60)[0])
    assert [result["job"] for result in results] == [f"line {line}" for line in range(1, 41)]
    assert results[11]["code"] == 137
    assert all(is_expected(result, seed) for seed, result in enumerate(results) if seed != 11)


# As without --isolate.


LINES = "".join(json.dumps(dict(job(seed), id=seed)) + "\n" for seed in range(500)) + "{\n\n[]\n"


@pytest.mark.parametrize("flags", [["-j", "1"], ["-j", "3"], ["-j", "1", "--fail-fast"]], ids=" ".join)
def test_lines_are_the_same(tmp_path, flags):
    isolated = attn("batch", "-", "--isolate", *flags, stdin=LINES, cwd=tmp_path)
    usual = attn("batch", "-", *flags, stdin=LINES, cwd=tmp_path)
    assert isolated.returncode == usual.returncode == 3
    assert isolated.stdout == usual.stdout


def test_results_and_manifest_are_the_same(tmp_path):
    write_jobs(tmp_path / "jobs", range(50))
    (tmp_path / "jobs" / "bad.json").write_text('{"Q": [[1]], "K": [[1, 2]]}')
    for name, flags in ("usual", []), ("isolated", ["--isolate"]):
        assert attn("batch", "jobs", "--out-dir", name, "-j", "2", *flags, cwd=tmp_path).returncode == 3
    usual, isolated = ({job: dict(line, seconds=0) for job, line in manifest_of(tmp_path / name).items()}
                       for name in ("usual", "isolated"))
    assert contents(tmp_path / "isolated") == contents(tmp_path / "usual")
    assert isolated == usual


def test_result_of_many_megabytes_is_the_same(tmp_path):
    line = json.dumps({"seed": 1, "Q": {"normal": {"shape": [900, 4]}}, "K": {"normal": {"shape": [900, 4]}}})
    isolated, usual = (attn("batch", "-", *flags, stdin=line, cwd=tmp_path).stdout for flags in (["--isolate"], []))
    assert len(usual) > 2**23
    assert isolated == usual


def test_long_line_is_the_same(tmp_path):
    line = json.dumps({"Q": [[1.5, 2]] * 40000, "K": [[1, 2]], "outputs": ["scores"]})
    isolated, usual = (attn("batch", "-", *flags, stdin=line, cwd=tmp_path).stdout for flags in (["--isolate"], []))
    assert len(json.loads(usual)["scores"]) == 40000
    assert isolated == usual


def test_each_result_is_written_before_the_next_job_arrives(tmp_path):
    process = subprocess.Popen([ATTN, "batch", "-", "--isolate", "-q"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for seed in range(5):
        process.stdin.write(json.dumps(job(seed)).encode() + b"\n")
        process.stdin.flush()
        assert is_expected(json.loads(process.stdout.readline()), seed)
    process.stdin.write(b'{"Q": ')  # an unfinished line delays nothing
    process.stdin.flush()
    process.communicate(b'[[1]]}\n')
    assert process.returncode == 3


@pytest.mark.skipif(under_sanitizer(), reason="a sanitizer's memory")
def test_workers_share_the_memory(tmp_path):
    """Each job needs 40 of 64 MiB, so they run one after the other."""
    draw = {"normal": {"shape": [1500, 8]}}
    text = "".join(json.dumps({"seed": seed, "Q": draw, "K": draw, "outputs": ["scores", "weights"]}) + "\n"
                   for seed in range(6))
    run = attn("batch", "-", "--isolate", "-j", "3", "--max-memory", "64M", "--out-dir", "out", stdin=text, cwd=tmp_path)
    assert run.returncode == 0
    assert len(contents(tmp_path / "out")) == 6


# The end of the main process.


@pytest.mark.parametrize("number, code", [(signal.SIGINT, -2), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_no_worker_survives(start, number, code):
    process, _ = start()
    workers = workers_of(process)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    wait_until(lambda: not any(map(is_alive, workers)), seconds=2 if number == signal.SIGKILL else 0.001)


def test_signal_leaves_no_temporary_files(folder, start):
    """Results that replace others have temporary names, which the workers created."""
    process, _ = start()
    process.kill()
    process.communicate()
    replacing = subprocess.Popen([ATTN, "batch", "jobs", "--isolate", "-j", "2", "--out-dir", "out", "--force"],
                                 cwd=folder, stderr=subprocess.PIPE)
    wait_until(lambda: (folder / "out" / "manifest.ndjson").stat().st_size > 2000)
    replacing.terminate()
    replacing.communicate(timeout=60)
    assert [path.name for path in (folder / "out").rglob(".attn-tmp-*")] == []


def test_signal_to_the_group_fails_no_job(folder):
    process = subprocess.Popen([ATTN, "batch", "jobs", "--isolate", "-j", "2", "--out-dir", "out"], cwd=folder,
                               stderr=subprocess.PIPE, start_new_session=True)
    manifest = folder / "out" / "manifest.ndjson"
    wait_until(lambda: manifest.exists() and manifest.read_bytes().count(b'"status":"done"') == 20)
    os.killpg(process.pid, signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == -2
    assert err.count(b"attn: ") == 1
    assert b"attn: stopped after 20 of 21 jobs; --resume continues\n" in err


@pytest.mark.parametrize("seed", range(4))
def test_batch_killed_at_a_random_moment_can_be_resumed(tmp_path, seed):
    dice = random.Random(seed)
    write_jobs(tmp_path / "jobs", range(300))
    command = ["batch", "jobs", "--isolate", "--resume", "-q", "--out-dir"]
    assert attn(*command, "whole", cwd=tmp_path).returncode == 0
    process = subprocess.Popen([ATTN, *command, "out"], cwd=tmp_path)
    wait_until((tmp_path / "out" / "manifest.ndjson").exists)
    time.sleep(dice.uniform(0, 0.05))
    process.kill()
    process.wait()
    assert attn(*command, "out", cwd=tmp_path).returncode == 0  # at once: no worker holds the lock
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


# Rights.


def test_version_names_the_sandbox():
    assert "seccomp" in FACTS["sandbox"]
    assert "Landlock" in FACTS["sandbox"]


@pytest.mark.skipif(FACTS["sandbox"].startswith("no seccomp"), reason="the kernel has no seccomp")
def test_workers_run_under_a_filter(start):
    _, worker = start()
    status = dict(line.split(":\t", 1) for line in
                  pathlib.Path(f"/proc/{worker}/status").read_text().splitlines() if ":\t" in line)
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")


class TestSandbox:
    @pytest.mark.skipif(FACTS["sandbox"].startswith("no seccomp"), reason="the kernel has no seccomp")
    @pytest.mark.skipif(platform.machine() != "x86_64", reason="makes system calls by their numbers on x86-64")
    def test_stopped_worker_can_be_made_to_do_little(self, start):
        """Calls are made in the worker, as an attacker would."""
        _, worker = start("--summary", "s.csv")
        try:
            process = Traced(worker)
        except OSError:
            pytest.skip("processes cannot be traced here")
        parent = os.getpid()
        mode = os.stat(f"/proc/{worker}/fd/0").st_mode & 0o777
        calls = {"fchmod": (91, 0, mode), "fcntl(F_SETOWN)": (72, 0, 8, parent), "fcntl(F_SETSIG)": (72, 0, 10, 9),
                 "fcntl(F_SETFL)": (72, 0, 4, os.O_ASYNC), "kill": (62, parent, 0), "tgkill": (234, parent, parent, 0),
                 "ptrace": (101, 16, parent), "process_vm_readv": (310, parent, 0, 0, 0, 0, 0), "socket": (41, 1, 1, 0),
                 "fork": (57,), "clone": (56, 17), "execve": (59, 0, 0, 0), "umask": (95, 0), "unshare": (272, 0),
                 "memfd_create": (319, 0, 0), "prctl(PR_SET_DUMPABLE)": (157, 4, 0), "ioctl(TIOCSTI)": (16, 0, 0x5412, 0)}
        with process:
            found = {name: process.call(*call) for name, call in calls.items()}
            recent = [process.call(number) for number in (425, 434, 435, 449, 452)]  # io_uring_setup to fchmodat2
            assert process.call(39) == worker  # getpid
        assert found == dict.fromkeys(calls, -errno.EPERM)
        assert recent == [-errno.ENOSYS] * 5

    def test_worker_has_no_file_of_the_main_process_open_for_writing(self, start):
        main, worker = start("--summary", "s.csv")

        def written(process):
            files = {}
            for number in os.listdir(f"/proc/{process}/fd"):
                flags = int(re.search(r"flags:\s*(\d+)", pathlib.Path(f"/proc/{process}/fdinfo/{number}").read_text())[1], 8)
                path = os.readlink(f"/proc/{process}/fd/{number}")
                if int(number) > 2 and flags & os.O_ACCMODE and path.startswith("/") and not path.startswith("/dev"):
                    files[number] = path
            return files

        assert len(written(main.pid)) >= 2
        assert written(worker) == {}

    @pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
    def test_files_have_the_modes_that_threads_give_them(self, tmp_path, umask):
        write_jobs(tmp_path / "jobs" / "deep", range(2))
        modes = []
        for flags in [], ["--isolate"]:
            out = tmp_path / f"out{len(flags)}"
            run = [ATTN, "batch", "jobs", "--out-dir", out.name, "--name", "{job}", *flags]
            subprocess.run(run, cwd=tmp_path, umask=umask, check=True, capture_output=True)
            (out / "deep" / "job0000.npz").chmod(0o666)
            subprocess.run([*run, "--force"], cwd=tmp_path, umask=umask, check=True, capture_output=True)
            modes.append({path.relative_to(out): oct(path.stat().st_mode) for path in out.rglob("*")})
        assert modes[0] == modes[1]
        assert 0o666 in [int(mode, 8) & 0o777 for mode in modes[0].values()]


def test_worker_can_use_blas(tmp_path):
    """OpenBLAS is loaded by the worker."""
    q = np.random.default_rng(1).standard_normal((40, 40))
    np.savez(tmp_path / "job.npz", Q=q, K=q)
    run = attn("batch", "job.npz", "--isolate", "--path", "reference", "--outputs", "scores", "--out-dir", "out",
               cwd=tmp_path)
    assert run.returncode == 0
    np.testing.assert_allclose(np.load(tmp_path / "out" / "job.npz")["scores"], q @ q.T, rtol=1e-12)
