"""Input files that are cut, replaced or overwritten while they are read: at every open, fstat, read, mmap,
write and close, and in the middle of each read.

The run gives the result of the old file or of the new one, or reports an error (65, 66, 74). It never
crashes and never mixes the two.
"""

import collections
import json
import os
import pathlib
import tempfile

import numpy as np
import pytest

from commands import Command
from injection import MEMORY, Bench, state_of
from support.attn import under_sanitizer

pytestmark = [
    pytest.mark.build_folder,
    pytest.mark.skipif(under_sanitizer(), reason="a sanitizer does not start after a preloaded library"),
]

ROWS = 1200  # more than 128 KiB: mapped instead of copied, except by a batch
LONG_AGO = 1_000_000_000  # a write within one tick of the file system's clock is not detected


def write_files(folder, start):
    random = np.random.default_rng(start)
    Q = random.standard_normal((ROWS, 16))
    end = ".new" if start else ""
    with open(folder / f"q.npy{end}", "wb") as file:
        np.save(file, Q)
    with open(folder / f"q.npz{end}", "wb") as file:
        np.savez_compressed(file, Q=Q, K=Q)
    with open(folder / f"small.npy{end}", "wb") as file:
        np.save(file, Q[:20])
    (folder / f"job.json{end}").write_text(json.dumps({"Q": Q.tolist(), "K": Q[:5].tolist()}))


# Batches have one worker. With two, one could open the file while a call of the other writes to it, within
# one tick of the file system's clock.
COMMANDS = [
    (Command(".npy", ["run", "--q", "q.npy", "--k", "q.npy", "-o", "out.npy", "--outputs", "context"]),
     "q.npy"),
    (Command(".npz", ["run", "q.npz", "-o", "out.npy", "--outputs", "context"]), "q.npz"),
    (Command("JSON", ["run", "job.json", "-o", "out.npy", "--outputs", "context"]), "job.json"),
    (Command("small", ["run", "--q", "small.npy", "--k", "small.npy"]), "small.npy"),
    (Command("convert", ["convert", "q.npy", "-o", "out.npy"]), "q.npy"),
    (Command("convert small", ["convert", "small.npy", "-o", "out.npy"]), "small.npy"),
    (Command("batch", ["batch", "-", "-q", "-j", "1"], stdin=b'{"Q":"q.npy","K":"q.npy","outputs":["context"]}'),
     "q.npy"),
    (Command("batch small", ["batch", "-", "-q", "-j", "1"], stdin=b'{"Q":"small.npy","K":"small.npy"}'),
     "small.npy"),
    (Command("batch of files", ["batch", "job.json", "-q", "-j", "1"]), "job.json"),
    (Command("inspect", ["inspect", "q.npy"]), "q.npy"),
]


KINDS = ["open", "stat", "read", "map", "write", "close"]
TOTALS = collections.Counter()  # changed: inputs that changed during a run; noticed: mixtures that were reported


@pytest.fixture(scope="module")
def inputs():
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        write_files(pathlib.Path(name), 0)
        write_files(pathlib.Path(name), 1)
        yield pathlib.Path(name)


@pytest.fixture(scope="module", params=COMMANDS, ids=lambda param: param[0].name)
def bench(request, inputs):
    """A command, its input file, and the results of the old and of the new file."""
    command, file = request.param
    bench = Bench(command, inputs)
    (bench.folder / file).write_bytes(bench.before[file + ".new"])
    results = [(0, bench.stdout, bench.after.get("out.npy")), result_of(bench.run(), state_of(bench.folder))]
    bench.reset(state_of(bench.folder))
    return bench, file, results


def result_of(run, state):
    return run.returncode, run.stdout, state.get("out.npy")


def is_refused(run, state, file):
    """Whether the run failed with a message about the file, and without an output."""
    lines = run.stderr.decode().splitlines()
    return (run.returncode in (3, 65, 66, 74) and "out.npy" not in state
            and len(lines) == (2 if run.returncode == 3 else 1)  # a batch also counts its failed jobs
            and lines[0].startswith("attn: ") and f"{file}: " in lines[0])


@pytest.mark.parametrize("action", ["cut", "swap", "fill"])
@pytest.mark.parametrize("kind", KINDS)
def test_change_gives_a_result_or_an_error(bench, kind, action):
    bench, file, results = bench
    for number in range(1, bench.counts[kind] + 2):
        os.utime(bench.folder / file, (LONG_AGO, LONG_AGO))
        run = bench.run(f"{kind}:{action}={file}:{number}")
        state = state_of(bench.folder)
        TOTALS["changed"] += state.get(file) != bench.before[file]
        TOTALS["noticed"] += b": was modified while being read" in run.stderr
        bench.reset(state)
        assert is_refused(run, state, file) or result_of(run, state) in results, (number, run)
        assert [path for path in state if ".attn-tmp" in path] == [], number


def test_many_inputs_changed():
    assert TOTALS["changed"] > 200


def test_many_mixtures_were_noticed():
    assert TOTALS["noticed"] > 20
