#!/usr/bin/env python3
"""A machine that gives too little: disk, descriptors, memory, file size, streams, environment.

Each time the exit code is a documented one, stderr says why in one line, and what stands in the
folder is what stood there before or a complete result.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn, under_sanitizer  # noqa: E402
from support.jobs import job, write_jobs  # noqa: E402

OLD = b"what stood there before\n"


def limited(folder, *args, limits=(), code=None, checks=None, what="", **options):
    """Runs attn with limits (resource, value); where it fails, it says why and leaves all alone."""
    def set_limits():
        for kind, value in limits:
            resource.setrlimit(kind, (value, value))

    out = folder / "out.npz"
    out.write_bytes(OLD)
    run = subprocess.run([ATTN, *map(str, args)], cwd=folder, capture_output=True, timeout=60,
                         preexec_fn=set_limits, **options)
    left = sorted(name for name in os.listdir(folder) if name.startswith(".attn-tmp"))
    lines = run.stderr.decode().splitlines()
    said = run.returncode == 0 or (len(lines) == 1 and lines[0].startswith("attn: "))
    whole = "weights" in np.load(out) if run.returncode == 0 else out.read_bytes() == OLD
    checks.check(run.returncode in code and said and whole and not left, f"{what}: {run} {left}")
    return run.returncode


def large_job(folder):
    np.save(folder / "q.npy", np.random.default_rng(1).standard_normal((400, 8)))
    return ["run", "--q", "q.npy", "--k", "q.npy", "-o", "out.npz", "--force"]


def limits(checks, folder):
    args = large_job(folder)
    if under_sanitizer():  # their runtimes need memory and files of their own
        print("limits: not tried with a sanitizer")
        return
    # Descriptors: three of them are the streams; four outputs are open at once.
    codes = [limited(folder, *args, "-o", "more/", limits=[(resource.RLIMIT_NOFILE, most)], code={0, 66, 73, 74},
                     checks=checks, what=f"ulimit -n {most}") for most in range(4, 10)]
    checks.check(codes[-1] == 0 and codes[0] != 0, f"descriptors: {codes}")
    # A file's size; the results take 2.6 MB.
    for size in 0, 1, 4096, 10**6, 2 * 10**6:
        limited(folder, *args, limits=[(resource.RLIMIT_FSIZE, size)], code={74}, checks=checks,
                what=f"ulimit -f {size}")
    # Address space, from where the loader just comes through to plenty.
    codes = []
    for megabytes in range(20, 420, 20):
        limit = [(resource.RLIMIT_AS, megabytes << 20)]
        probe = subprocess.run([ATTN, "--version"], capture_output=True, preexec_fn=lambda:
                               resource.setrlimit(resource.RLIMIT_AS, (limit[0][1],) * 2))
        if probe.returncode == 0:
            codes.append(limited(folder, *args, limits=limit, code={0, 65, 74}, checks=checks,
                                 what=f"ulimit -v {megabytes} MB"))
    checks.check(codes and codes[-1] == 0, f"address space: {codes}")
    # Libraries that are loaded when they are needed.
    np.savez_compressed(folder / "packed.npz", Q=np.eye(3))
    for line in ["convert", "packed.npz", "-o", "out.npz"], ["svd", "packed.npz", "-o", "out.npz"]:
        codes = []
        for megabytes in [*range(14, 30), *range(30, 260, 30)]:
            limit = [(resource.RLIMIT_AS, megabytes << 20)]
            run = subprocess.run([ATTN, *line, "--force"], cwd=folder, capture_output=True,
                                 preexec_fn=lambda: resource.setrlimit(*limit[0][:1], limit[0][1:] * 2))
            if run.returncode not in (127, -11):  # the loader's own end
                codes.append(run.returncode)
                checks.check(run.returncode in (0, 65) and b"internal" not in run.stderr,
                             f"{line[0]}, ulimit -v {megabytes} MB: {run}")
        checks.check(codes and codes[-1] == 0, f"{line[0]}: {codes}")
    for kilobytes in 64, 256, 1024:
        limited(folder, *args, limits=[(resource.RLIMIT_STACK, kilobytes << 10)], code={0},
                checks=checks, what=f"ulimit -s {kilobytes}")
    # Processor time: SIGXCPU ends it as a signal does, and nothing is left.
    slow = json.dumps({"seed": 1, "Q": {"randint": {"high": 2**25, "shape": [2000, 2000]}},
                       "K": {"randint": {"high": 2**25, "shape": [2000, 2000]}},
                       "outputs": ["scores"]})
    (folder / "out.npz").write_bytes(OLD)
    run = subprocess.run([ATTN, "run", "-", "-o", "out.npz", "--force"], cwd=folder, timeout=60,
                         input=slow.encode(), capture_output=True,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (1, 2)))
    checks.check(run.returncode == -24 and (folder / "out.npz").read_bytes() == OLD, f"ulimit -t: {run}")
    checks.check(not [name for name in os.listdir(folder) if name.startswith(".attn")], "ulimit -t: litter")


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


def full_disk(checks, folder):
    """A small tmpfs in a mount namespace of our own, which then grows."""
    (folder / "disk").mkdir()
    large_job(folder)
    (folder / "job.json").write_text(json.dumps(job(1)))
    write_jobs(folder / "jobs", range(40))
    whole = attn("batch", "jobs", "--out-dir", "whole", "-q", cwd=folder)
    checks.check(whole.returncode == 0, f"{whole}")
    script = FULL_DISK.format(attn=ATTN, size="400k")
    for unshare in ["unshare", "-m"], ["unshare", "-rm"]:
        run = subprocess.run([*unshare, "bash", "-c", script], cwd=folder, capture_output=True,
                             text=True, timeout=60)
        if "ready" in run.stdout:
            break
    else:
        print(f"full disk: not tried: {run.stderr.strip()}")
        return
    said = dict(line.split(" ", 1) for line in run.stdout.splitlines() if " " in line)
    checks.check(said.get("run") == "74 1" and said.get("folder") == "74 1", f"full: {run}")
    checks.check(said.get("old") == "old" and said.get("left") == "0 0", f"full, what is left: {run}")
    code, lines = said.get("batch", "0 0").split()
    checks.check(code in ("3", "73", "74") and int(lines) > 0, f"full, a batch: {run}")
    names = sorted(path.name for path in (folder / "whole").glob("*.npz"))
    same = all((folder / "results" / name).read_bytes() == (folder / "whole" / name).read_bytes()
               for name in names)
    checks.check(said.get("resumed") == "0" and len(names) == 40 and same, f"space again: {run}")


def streams(checks, folder):
    (folder / "job.json").write_text(json.dumps(job(1)))

    def shell(line):
        return subprocess.run(["bash", "-c", line.replace("attn", f"'{ATTN}'", 1)], cwd=folder,
                              capture_output=True, timeout=60)

    for line, code, says in [
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
    ]:
        run = shell(line)
        checks.check(run.returncode == code and says in run.stderr, f"{line}: {run}")
        checks.check(run.stderr.count(b"\n") <= 1 or "batch" in line, f"{line}: {run.stderr}")
    # A closed number is not given to a file, so no note comes to stand in a result.
    shell("attn run job.json --view=page.html -o all.npz")
    for closed in "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "<&- 2>&-":
        run = shell(f"attn run job.json --view=again.html -o again.npz {closed}")
        same = [(folder / f"again.{end}").read_bytes() == (folder / name).read_bytes()
                for end, name in [("html", "page.html"), ("npz", "all.npz")]]
        checks.check(run.returncode == 0 and all(same), f"{closed}: {run} {same}")
        for end in "html", "npz":
            (folder / f"again.{end}").unlink()
    run = shell("attn run job.json --format json | head -c 1; exit ${PIPESTATUS[0]}")
    checks.check(run.returncode in (0, 141) and run.stderr == b"", f"head -c 1: {run}")


def environment(checks, folder):
    """180: what surrounds the program does not change a byte of what it says."""
    (folder / "job.json").write_text(json.dumps(job(1)))
    usual = attn("run", "job.json", "--format", "json", cwd=folder)
    view = attn("run", "job.json", "--view", cwd=folder)
    keep = {key: os.environ[key] for key in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if key in os.environ}
    for env in [{}, {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"}, {"TZ": "Nowhere/No"},
                {"TMPDIR": "/nowhere"}, {"COLUMNS": "0", "TERM": ""}, {"HOME": "/nowhere"},
                {"COLUMNS": "-5", "LINES": "x", "TERM": "\x1b[31m"}, {"PATH": ""},
                {"OPENBLAS_NUM_THREADS": "abc", "OMP_NUM_THREADS": "-1"}]:
        run = subprocess.run([ATTN, "run", "job.json", "--format", "json"], cwd=folder,
                             capture_output=True, env=env | keep)
        checks.check(run.returncode == 0 and run.stdout == usual.stdout and not run.stderr,
                     f"{env}: {run}")
        run = subprocess.run([ATTN, "run", "job.json", "--view"], cwd=folder, capture_output=True,
                             env=env | keep)
        checks.check(run.returncode == 0 and run.stdout == view.stdout, f"--view, {env}: {run}")


if __name__ == "__main__":
    checks = Checks("a poor machine")
    for part in limits, full_disk, streams, environment:
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
