#!/usr/bin/env python3
"""SIGKILL before and after every write, rename, close and mkdir of a run and of a batch, and SIGTERM.

Each output is the old one or the new one; the only litter is a hidden .attn-tmp-* file (and none
after SIGTERM), which the next run is not disturbed by and `batch --resume` removes. Every batch, gone on with, ends in the
bytes of an unbroken one; so does one that was killed again while it was resumed.
"""

import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from commands import COMMANDS, Command, write_inputs  # noqa: E402
from injection import MEMORY, Bench, is_manifest, state_of  # noqa: E402
from support.attn import Checks, attn, under_sanitizer  # noqa: E402
from support.jobs import write_jobs  # noqa: E402

ENDS = {"kill": -9, "killed": -9, "stop": -15}
KINDS = ["write", "rename", "close", "folder", "sync", "folder-sync", "cut", "reserve"]
RUNS = ["run, npz over an old one", "run, several outputs", "run, a folder", "run, large and durable",
        "run, page", "convert", "svd"]


def is_litter(path):
    return pathlib.PurePath(path).name.startswith(".attn-tmp-")


def single_runs(checks, inputs):
    kills = 0
    for command in COMMANDS:
        if command.name not in RUNS:
            continue
        bench = Bench(command, inputs)
        for kind in KINDS:
            for number in range(1, bench.counts[kind] + 1):
                for action, code in ENDS.items():
                    run = bench.run(f"{kind}:{action}:{number}")
                    fault = f"{command.name}: {kind}:{action}:{number}"
                    kills += checks.check(run.returncode == code, f"{fault}: {run}")
                    now = state_of(bench.folder)
                    for path in now:
                        litter = is_litter(path) or now[path] is None
                        checks.check(bench.is_old_or_new(path, now) or (litter and code == -9),
                                     f"{fault} left {path}")
                    for name in command.old:
                        checks.check(name in now, f"{command.name}: {name} is gone")
                    again = bench.run(args=[*command.args, "--force"])
                    after = {path: data for path, data in state_of(bench.folder).items()
                             if not is_litter(path)}
                    checks.check(again.returncode == 0 and after == bench.after,
                                 f"{command.name}: the next run: {again.stderr}")
                    bench.reset(state_of(bench.folder))
    return kills


def empty_folders(now):
    return [path for path in now if now[path] is None
            and not any(inner.startswith(path + "/") for inner in now)]


def outputs_of(folder):
    return {path: data for path, data in state_of(folder).items() if not is_manifest(path)}


def a_batch(checks, jobs, every):
    """Killed at every N-th of its calls, on one thread so that each call has its number."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        inputs = pathlib.Path(name)
        for seed in range(jobs):
            write_jobs(inputs / "jobs" / f"{seed % 3}" / f"{seed}", [seed])
        args = ["batch", "jobs", "--out-dir", "out", "--resume", "-j", "1", "-q", "--format", "folder",
                "--name", "{job}"]
        bench = Bench(Command("batch", args, batch="out"), inputs)
    kills, dice = 0, random.Random(4711)
    whole = {path: data for path, data in bench.after.items() if not is_manifest(path)}
    for kind in KINDS:
        for number in range(1, bench.counts[kind] + 1, every):
            for action, code in ENDS.items():
                run = bench.run(f"{kind}:{action}:{number}")
                killed = run.returncode == code
                left = state_of(bench.folder)
                if code == -15:
                    checks.check(not any(map(is_litter, left)) and not empty_folders(left),
                                 f"{kind}:{action}:{number}: {empty_folders(left)}: {run}")
                for _ in range(number % 3):  # and again while it is resumed
                    again = bench.run(f"{kind}:{action}:{dice.randint(1, bench.counts[kind])}")
                    kills += again.returncode == -9
                kills += killed
                now = outputs_of(bench.folder)
                fault = f"{kind}:{action}:{number}"
                checks.check(killed and all(is_litter(path) or now[path] is None
                                            or whole.get(path) == now[path] for path in now),
                             f"batch, {fault}: {run}")
                end = bench.run()
                now = outputs_of(bench.folder)
                checks.check(end.returncode == 0 and now == whole,
                             f"batch, {fault}, resumed: {end.stderr} {sorted(set(now) - set(whole))}")
                bench.reset(state_of(bench.folder))
    return kills


def main(jobs, every):
    checks = Checks("killed at every call")
    if under_sanitizer():
        print("not tried: a sanitizer does not start with another library before it")
        checks.check(True, "")
        checks.finish()
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        inputs = pathlib.Path(name)
        write_inputs(inputs, lambda *args: attn(*args, cwd=inputs))
        kills = single_runs(checks, inputs)
    more = a_batch(checks, jobs, every)
    checks.check(kills > 50 and more > 50, f"{kills} and {more} kills")
    print(f"{kills} single runs and {more} batches of {jobs} jobs killed")
    checks.finish()


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]] or (12, 7))
