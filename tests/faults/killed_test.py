"""SIGKILL and SIGTERM before and after every write, rename, close, mkdir and sync of a run and of a batch.

Each output is the old one or the new one. SIGKILL may leave hidden .attn-tmp-* files, which do not disturb
the next run and which `batch --resume` removes; SIGTERM leaves none. Every resumed batch gives the same
bytes as one that was not interrupted, also if it was killed again while it was resumed.

ATTN_KILL_JOBS is the number of jobs of the batch (12), which is killed at every ATTN_KILL_EVERY-th call (7).
"""

import os
import pathlib
import random
import tempfile

import pytest

from commands import COMMANDS, Command, write_inputs
from injection import MEMORY, Bench, is_manifest, state_of
from support.attn import attn, under_sanitizer
from support.jobs import write_jobs

pytestmark = [
    pytest.mark.build_folder,
    pytest.mark.skipif(under_sanitizer(), reason="a sanitizer does not start after a preloaded library"),
]

JOBS, EVERY = int(os.environ.get("ATTN_KILL_JOBS", 12)), int(os.environ.get("ATTN_KILL_EVERY", 7))
ENDS = {"kill": -9, "killed": -9, "stop": -15}  # before the call, after it, by SIGTERM
KINDS = ["write", "rename", "close", "folder", "sync", "folder-sync", "cut", "reserve"]
RUNS = ["run, npz over an old one", "run, several outputs", "run, a folder", "run, large and durable",
        "run, page", "convert", "svd"]
KILLS = {"run": 0, "batch": 0}


def is_temporary(path):
    return pathlib.PurePath(path).name.startswith(".attn-tmp-")


# Single runs.


@pytest.fixture(scope="module")
def inputs():
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        write_inputs(pathlib.Path(name), lambda *arguments: attn(*arguments, cwd=name))
        yield pathlib.Path(name)


@pytest.fixture(scope="module", params=RUNS)
def run_bench(request, inputs):
    command, = [command for command in COMMANDS if command.name == request.param]
    return Bench(command, inputs)


@pytest.mark.parametrize("action", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_run_leaves_old_or_new_outputs(run_bench, kind, action):
    bench, code = run_bench, ENDS[action]
    for number in range(1, bench.counts[kind] + 1):
        run = bench.run(f"{kind}:{action}:{number}")
        KILLS["run"] += run.returncode == code
        state = state_of(bench.folder)
        again = bench.run(args=[*bench.command.args, "--force"])
        after = {path: data for path, data in state_of(bench.folder).items() if not is_temporary(path)}
        changed = [path for path in state if not bench.is_old_or_new(path, state)
                   and not (code == -9 and (is_temporary(path) or state[path] is None))]
        bench.reset(state_of(bench.folder))
        assert run.returncode == code, number
        assert changed == [], number
        assert [name for name in bench.command.old if name not in state] == [], number
        assert again.returncode == 0, "the next run fails"
        assert after == bench.after, "the next run gives another result"


def test_many_runs_were_killed():
    assert KILLS["run"] > 50


# Batches.


@pytest.fixture(scope="module")
def batch_bench():
    """A batch on one thread, so that its calls have the same order each time."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        inputs = pathlib.Path(name)
        for seed in range(JOBS):
            write_jobs(inputs / "jobs" / f"{seed % 3}" / f"{seed}", [seed])
        arguments = ["batch", "jobs", "--out-dir", "out", "--resume", "-j", "1", "-q", "--format", "folder",
                     "--name", "{job}"]
        return Bench(Command("batch", arguments, batch="out"), inputs)


def without_manifest(state):
    return {path: data for path, data in state.items() if not is_manifest(path)}


def empty_folders(state):
    return [path for path in state if state[path] is None
            and not any(inner.startswith(path + "/") for inner in state)]


@pytest.mark.parametrize("action", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_batch_can_be_resumed(batch_bench, kind, action):
    bench, code, dice = batch_bench, ENDS[action], random.Random(f"{kind} {action}")
    whole = without_manifest(bench.after)
    for number in range(1, bench.counts[kind] + 1, EVERY):
        run = bench.run(f"{kind}:{action}:{number}")
        KILLS["batch"] += run.returncode == code
        left = state_of(bench.folder)
        for _ in range(number % 3):  # kill it again while it is resumed
            again = bench.run(f"{kind}:{action}:{dice.randint(1, bench.counts[kind])}")
            KILLS["batch"] += again.returncode == -9
        state = without_manifest(state_of(bench.folder))
        end = bench.run()
        result = without_manifest(state_of(bench.folder))
        bench.reset(state_of(bench.folder))
        assert run.returncode == code, number
        if code == -15:
            assert [path for path in left if is_temporary(path)] == [], number
            assert empty_folders(left) == [], number
        assert [path for path, data in state.items()
                if not is_temporary(path) and data is not None and whole.get(path) != data] == [], number
        assert end.returncode == 0, end.stderr
        assert result == whole, number


def test_batches_were_killed_many_times():
    assert KILLS["batch"] > 50
