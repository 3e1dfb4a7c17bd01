#!/usr/bin/env python3
"""Runs at the same time on one output, and signals at moments that nobody chose."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402
from support.jobs import contents, job, manifest_of, write_jobs  # noqa: E402

OLD = b"what stood there before\n"


def start(folder, *args):
    return subprocess.Popen([ATTN, *map(str, args)], cwd=folder, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def results(folder, count):
    """What each of `count` jobs gives alone."""
    for seed in range(count):
        (folder / f"job{seed}.json").write_text(json.dumps(job(seed)))
        attn("run", f"job{seed}.json", "-o", f"whole{seed}.npz", cwd=folder)
    return [(folder / f"whole{seed}.npz").read_bytes() for seed in range(count)]


def one_output(checks, folder, count):
    whole = results(folder, count)
    out = folder / "out.npz"

    def ended(*flags):
        runs = [start(folder, "run", f"job{seed}.json", "-o", "out.npz", *flags)
                for seed in range(count)]
        said = [run.communicate() for run in runs]
        litter = [name for name in os.listdir(folder) if name.startswith(".attn-tmp")]
        checks.check(not litter, f"{count} runs {flags}: left {litter}")
        return [run.returncode for run in runs], said

    codes, said = ended()
    wins = [seed for seed in range(count) if codes[seed] == 0]
    checks.check(len(wins) == 1 and codes.count(73) == count - 1, f"exactly one writes: {codes}")
    checks.check(out.read_bytes() == whole[wins[0]], "and it is what stands there")
    checks.check(all(err.count(b"\n") == 1 and b"exists already" in err
                     for code, (_, err) in zip(codes, said) if code == 73), f"the others say so: {said}")
    out.unlink()
    codes, said = ended("--no-clobber")
    checks.check(codes == [0] * count and out.read_bytes() in whole
                 and sum(err == b"" for _, err in said) == 1, f"--no-clobber: {codes} {said}")
    codes, said = ended("--force")
    checks.check(codes == [0] * count and out.read_bytes() in whole, f"--force: {codes} {said}")
    out.write_bytes(OLD)
    codes, said = ended()
    checks.check(codes == [73] * count and out.read_bytes() == OLD, f"it stands there: {codes}")


def one_batch(checks, folder, count):
    write_jobs(folder / "jobs", range(20))
    attn("batch", "jobs", "--out-dir", "whole", cwd=folder)
    runs = [start(folder, "batch", "jobs", "--out-dir", "out", "--resume") for _ in range(count)]
    codes = [run.wait() for run in runs]
    for run in runs:
        run.communicate()
    checks.check(set(codes) <= {0, 75} and 0 in codes, f"{count} batches: {codes}")
    checks.check(contents(folder / "out") == contents(folder / "whole")
                 and len(manifest_of(folder / "out")) == 20, "one folder of results")


def signals(checks, folder, count):
    """Old or new, nothing beside it, and the end is that of the signal."""
    (folder / "job.json").write_text(json.dumps(
        {"seed": 1, "Q": {"rand": {"shape": [300, 8]}}, "K": {"rand": {"shape": [300, 8]}}}))
    command = ["run", "job.json", "-o", "out.npz", "-o", "new/", "--view=page.html", "--force"]
    seconds = 60.0
    for _ in range(3):
        began = time.monotonic()
        checks.check(start(folder, *command).wait() == 0, "undisturbed")
        seconds = min(seconds, time.monotonic() - began)
    whole = contents(folder)
    dice, ended = random.Random(3), 0
    for turn in range(count):
        number = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT][turn % 4]
        (folder / "out.npz").write_bytes(OLD)
        (folder / "page.html").unlink()
        subprocess.run(["rm", "-r", "new"], cwd=folder, check=True)
        run = start(folder, *command)
        time.sleep(dice.uniform(0.001, seconds))
        run.send_signal(number)
        run.communicate()
        ended += run.returncode == -number
        left = contents(folder)
        fine = all(data in (OLD, whole.get(name)) for name, data in left.items() if name != "core")
        checks.check(run.returncode in (0, -number) and fine and "out.npz" in left,
                     f"{number.name}: {run.returncode}, {sorted(left)}")
        checks.check((folder / "new").exists() == any(name.startswith("new/") for name in left),
                     f"{number.name}: a folder without anything")
        start(folder, *command).wait()
    checks.check(ended > 0, f"{ended} of {count} runs were stopped")


if __name__ == "__main__":
    checks = Checks("races")
    for part, count in [(one_output, 2), (one_output, 50), (one_batch, 2), (one_batch, 20),
                        (signals, int(sys.argv[1]) if len(sys.argv) > 1 else 40)]:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder), count)
    checks.finish()
