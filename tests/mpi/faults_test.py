"""Faults of attn-mpi end all ranks soon, with one line, the usual exit code and no partial output.

scripts/test-with/mpi runs these tests for each MPI library.
"""

import os
import signal
import time

import numpy as np
import pytest

from mpi import ranks
from mpi.mpi_jobs import command
from mpi.ranks import launch, messages, mpi, ranks_of, start, with_script
from support.attn import ATTN, ROOT

pytestmark = ranks.NEEDS_MPI
INTERPOSE = os.environ.get("ATTN_INTERPOSE", ROOT / "build/release/attn_interpose.so")
L = 3000


@pytest.fixture(name="folder")
def folder_fixture(tmp_path):
    numbers = np.random.default_rng(1)
    for name in "QKV":
        np.save(tmp_path / f"{name}.npy", numbers.standard_normal((L, 16)).astype("float32"))
    (tmp_path / "job.json").write_text('{"Q": "Q.npy", "K": "K.npy", "V": "V.npy", "causal": true}')
    (tmp_path / "out").mkdir()
    return tmp_path


def refused(run, folder, code, *parts):
    """One line with these parts, this exit code, and nothing in the output folder."""
    assert run.returncode == code, run.stderr
    lines = messages(run)
    assert len(lines) == 1, run.stderr
    for part in parts:
        assert part in lines[0]
    assert sorted(path.name for path in (folder / "out").iterdir()) == []


RUN = ["run", "job.json", "-o", "out/r.npz"]

# Faults that rank 0 finds before the others start: what is added to the command line, code, part of the line.
EARLY = {
    "a missing job": (["run", "none.json", "-o", "out/r.npz"], 66, "none.json"),
    "an unknown flag": ([*RUN, "--unknown"], 2, "--unknown"),
    "a bad value": ([*RUN, "--threads", "0"], 2, "--threads"),
    "a bad way to read": ([*RUN, "--mpi-read", "some"], 2, "--mpi-read"),
    "a missing input": ([*RUN, "--q", "none.npy"], 66, "none.npy"),
    "an input without numbers": ([*RUN, "--q", "job.json"], 65, "job.json"),
    "an unknown output": ([*RUN, "--outputs", "nothing"], 2, "nothing"),
    "a missing folder": (["run", "job.json", "-o", "none/r.npz"], 73, "none"),
    "an output that is an input": (["run", "job.json", "-o", "context=Q.npy", "--force"], 73, "Q.npy"),
    "too little memory for the job": ([*RUN, "--max-memory", "100K"], 65, "memory"),
    "another command": (["inspect", "Q.npy"], 2, "expected 'run' or 'batch'"),
    "a window that is not one": ([*RUN, "--window", "x"], 2, "--window"),
}


@pytest.mark.parametrize("fault", EARLY)
def test_rank_0_finds(folder, fault):
    words, code, part = EARLY[fault]
    refused(mpi(folder, *words), folder, code, part)


def test_an_existing_output_is_kept(folder):
    (folder / "kept.npz").write_bytes(b"kept")
    run = mpi(folder, "run", "job.json", "-o", "kept.npz")
    assert (run.returncode, len(messages(run))) == (73, 1)
    assert (folder / "kept.npz").read_bytes() == b"kept"


# Faults of one rank: the rank, what its shell does first, words, code, parts of the line.
ONE_RANK = {
    "it cannot read an input": (1, "cd other", ["--mpi-read", "each"], 66, ["rank 1 on ", "V.npy"]),
    "it sees another input": (2, "cp Q.npy other/V.npy; cd other", [], 74, ["rank 2 on ", "V.npy", "another file"]),
    "it sees a shorter input": (1, "head -c 150000 V.npy > other/V.npy; cd other", [], 74,
                                ["rank 1 on ", "V.npy", "another file"]),
    "it sees a folder": (1, "mkdir other/V.npy; cd other", ["--mpi-read", "each"], 66, ["rank 1 on ", "V.npy"]),
    "it has another instruction set": (1, "export ATTN_ISA=baseline", [], 74, ["rank 1 on ", "another program"]),
    "it has too little memory": (2, 'set -- "$@" --max-memory 300K', [], 65, ["rank 2 on ", "--max-memory"]),
    "it has too little memory for what rank 0 reads": (2, 'set -- "$@" --max-memory 150K', ["--mpi-read", "root"], 65,
                                                       ["rank 2 on ", "K.npy"]),
    "rank 0 has too little memory to collect": (0, 'set -- "$@" --max-memory 6M', ["-o", "out/r.json"], 65,
                                                ["outputs of other ranks"]),
    "it may not write so far": (2, "ulimit -f 20000", ["--outputs", "weights"], 74, ["rank 2 on ", "too large"]),
    "rank 0 may not write so far": (0, "ulimit -f 20000", ["--outputs", "weights"], 74, ["too large"]),
    "its disk fails": (1, f"export LD_PRELOAD={INTERPOSE} ATTN_FAULT=sync:EIO:1+", ["--durable"], 74,
                       ["rank 1 on ", "out/r.npz"]),
    "the disk of rank 0 fails": (0, f"export LD_PRELOAD={INTERPOSE} ATTN_FAULT=rename:EIO:1+", [], 74,
                                 ["out/r.npz"]),
}


@pytest.mark.parametrize("fault", ONE_RANK)
def test_one_rank_fails_because(folder, fault):
    rank, script, words, code, parts = ONE_RANK[fault]
    other = folder / "other"
    other.mkdir()
    for name in "QK":
        (other / f"{name}.npy").symlink_to(folder / f"{name}.npy")
    refused(with_script(folder, rank, script, *RUN, *words), folder, code, *parts)


def test_a_file_that_one_rank_lacks_is_sent_by_rank_0(folder):
    (folder / "other").mkdir()
    run = with_script(folder, 1, "cd other", *RUN)
    assert (run.returncode, messages(run)) == (0, [])
    launch([ATTN, "run", "job.json", "-o", "one.npz"], folder)
    assert (folder / "out/r.npz").read_bytes() == (folder / "one.npz").read_bytes()


def test_a_job_on_standard_input_is_sent_by_rank_0(folder):
    job = (folder / "job.json").read_text()
    words = [*command(ranks.MPIRUN, 3), ranks.PROGRAM, "run", "-", "-o", "context=out/r.npy"]
    run = launch(words, folder, text=job)
    assert (run.returncode, messages(run)) == (0, [])
    launch([ATTN, "run", "job.json", "-o", "context=one.npy"], folder)
    assert (folder / "out/r.npy").read_bytes() == (folder / "one.npy").read_bytes()


def test_refused_nan_of_another_rank_ends_all(folder):
    spoiled = np.load(folder / "Q.npy")
    spoiled[L // 2] = np.nan
    np.save(folder / "Q.npy", spoiled)
    run = mpi(folder, *RUN, "--nan", "refuse")
    alone = launch([ATTN, *RUN, "--nan", "refuse"], folder)
    assert messages(run) == messages(alone)
    refused(run, folder, 65, "values are NaN")


def long_job(folder):
    numbers = np.random.default_rng(2)
    for name in "QKV":
        np.save(folder / f"{name}.npy", numbers.standard_normal((40000, 64)).astype("float32"))
    return ["run", "job.json", "-o", "out/r.npz", "--threads", "1"]


def temporary(folder):
    return [path for path in (folder / "out").iterdir() if path.name.startswith(".attn-tmp")]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_after_a_rank_is_killed_the_next_run_cleans_up(folder, which):
    words = long_job(folder)
    process = start(folder, *words)
    until = time.monotonic() + 30
    while not temporary(folder) and time.monotonic() < until:
        time.sleep(0.05)
    pids = sorted(ranks_of(process))
    assert len(pids) == 3
    os.kill(pids[which], signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert not (folder / "out/r.npz").exists()
    for name in "QKV":
        np.save(folder / f"{name}.npy", np.load(folder / f"{name}.npy")[:500])
    assert mpi(folder, *words).returncode == 0
    assert [path.name for path in (folder / "out").iterdir()] == ["r.npz"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_mpirun_leaves_nothing(folder, number):
    process = start(folder, *long_job(folder))
    until = time.monotonic() + 30
    while not temporary(folder) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert not (folder / "out/r.npz").exists()


def test_two_runs_do_not_write_one_output(folder):
    words = long_job(folder)
    process = start(folder, *words)
    until = time.monotonic() + 30
    while not temporary(folder) and time.monotonic() < until:
        time.sleep(0.05)
    run = mpi(folder, *words, ranks=2)
    assert (run.returncode, len(messages(run))) == (75, 1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
