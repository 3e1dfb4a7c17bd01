#!/usr/bin/env python3
"""Inputs that are emptied, replaced or written over while they are read: at every open, fstat, read,
mmap, write and close, and in the middle of each read.

A run then gives the result of the old file or of the new one, or says what is wrong (65, 66, 74);
it never crashes and never mixes the two.
"""

import json
import os
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from commands import Command  # noqa: E402
from injection import MEMORY, Bench, state_of  # noqa: E402
from support.attn import Checks, under_sanitizer  # noqa: E402

ROWS = 1200  # more than 128 KiB: used where it is, without a copy, save by a batch
LONG_AGO = 1_000_000_000  # a write within the same tick of a file system's clock goes unseen


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


# Batches with one worker: with two, one may open the file while the other's call writes to it, and all
# that within one tick of the clock that files have.
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


def result_of(run, state):
    return run.returncode, run.stdout, state.get("out.npy")


def is_refused(run, now, file):
    lines = run.stderr.decode().splitlines()
    told = len(lines) == (2 if run.returncode == 3 else 1)  # a batch adds how many jobs failed
    return told and run.returncode in (3, 65, 66, 74) and "out.npy" not in now \
        and lines[0].startswith("attn: ") and f"{file}: " in lines[0]


def main():
    checks = Checks("inputs that change")
    if under_sanitizer():
        print("not tried: a sanitizer does not start with another library before it")
        checks.check(True, "")
        checks.finish()
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        inputs = pathlib.Path(name)
        write_files(inputs, 0)
        write_files(inputs, 1)
        changes, mixtures = 0, 0
        for command, file in COMMANDS:
            bench = Bench(command, inputs)
            (bench.folder / file).write_bytes(bench.before[file + ".new"])
            allowed = [(0, bench.stdout, bench.after.get("out.npy")),
                       result_of(bench.run(), state_of(bench.folder))]
            bench.reset(state_of(bench.folder))
            for kind in "open", "stat", "read", "map", "write", "close":
                for number in range(1, bench.counts[kind] + 2):
                    for action in f"cut={file}", f"swap={file}", f"fill={file}":
                        os.utime(bench.folder / file, (LONG_AGO, LONG_AGO))
                        run = bench.run(f"{kind}:{action}:{number}")
                        now = state_of(bench.folder)
                        changes += now.get(file) != bench.before[file]
                        checks.check(is_refused(run, now, file) or result_of(run, now) in allowed,
                                     f"{command.name}, {kind}:{action}:{number}: {run}")
                        mixtures += b": was written to while it was read" in run.stderr
                        checks.check(not any(".attn-tmp" in path for path in now), "litter")
                        bench.reset(now)
    checks.check(changes > 200 and mixtures > 20, f"{changes} inputs changed, {mixtures} noticed")
    print(f"{changes} inputs changed while they were read, {mixtures} of them told of")
    checks.finish()


if __name__ == "__main__":
    main()
