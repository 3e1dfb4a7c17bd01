#!/usr/bin/env python3
"""How `attn batch` runs: --timeout, threads, closed pipes, when results come, --durable."""

import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402
from support.jobs import contents, is_expected, job, manifest_of, slow_job, write_jobs  # noqa: E402


def no_more_time(checks, folder):
    write_jobs(folder / "jobs", range(6))
    for number in range(3):
        (folder / "jobs" / f"a{number}.json").write_text(json.dumps(slow_job()))
    run = attn("batch", "jobs", "--out-dir", "out", "--timeout", "0.5", "-j", "1", "-q", cwd=folder)
    lines = manifest_of(folder / "out")
    slow = [lines[f"jobs/a{number}.json"] for number in range(3)]
    checks.check(run.returncode == 3 and all(line["status"] == "failed" and line["code"] == 75
                                             and "more than 0.5 s (--timeout), given up after 0." in
                                             line["error"][0] for line in slow),
                 f"overdue jobs fail: {run} {slow}")
    checks.check(sum(line["status"] == "done" for line in lines.values()) == 6, "the others are done")
    checks.check(len(contents(folder / "out")) == 6, f"no litter: {list(contents(folder / 'out'))}")
    text = "\n".join(json.dumps(line) for line in (job(0), slow_job(), job(1)))
    run = attn("batch", "-", "--timeout", "0.5", stdin=text)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    checks.check(len(results) == 3 and is_expected(results[0], 0) and results[1]["code"] == 75
                 and is_expected(results[2], 1), f"in order: {run}")


def less_time_than_any_job_takes(checks, folder):
    """Nobody looks at the clock as often as that; what is done late is not done, all the same."""
    write_jobs(folder / "jobs", range(50))
    run = attn("batch", "jobs", "--out-dir", "out", "--timeout", "0.000001", "-q", cwd=folder)
    lines = manifest_of(folder / "out")
    checks.check(run.returncode == 3 and len(lines) == 50
                 and all(line["status"] == "failed" and line["code"] == 75 and line["outputs"] == {}
                         and "more than 1e-06 s (--timeout), given up after" in line["error"][0]
                         for line in lines.values()), f"all are overdue: {run} {lines}")
    checks.check(not contents(folder / "out"), f"nothing is published: {list(contents(folder / 'out'))}")
    run = attn("batch", "jobs", "--timeout", "0.000001", "-q", cwd=folder)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    checks.check(run.returncode == 3 and len(results) == 50 and all(line["code"] == 75 for line in results),
                 f"nor printed: {run}")
    run = attn("batch", "jobs", "--out-dir", "out", "--resume", "--timeout", "60", "-q", cwd=folder)
    checks.check(run.returncode == 0 and len(contents(folder / "out")) == 50, f"--resume: {run}")


def threads_of(folder, *flags, cpus=None):
    """How many threads `attn batch` has once a job is done and more may come."""
    process = subprocess.Popen([ATTN, "batch", "-", "-q", *flags], cwd=folder, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=dict(os.environ, OPENBLAS_NUM_THREADS="1"),
                               preexec_fn=cpus and (lambda: os.sched_setaffinity(0, cpus)))
    process.stdin.write(json.dumps(job(0)).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    count = len(os.listdir(f"/proc/{process.pid}/task"))
    process.communicate()
    return count


def one_job_a_processor(checks, folder):
    """Processors are those that the run may have, not those of the machine."""
    cpus = sorted(os.sched_getaffinity(0))
    counts = {f"{flags} {few}": (threads_of(folder, *flags, cpus=few), want)
              for flags, few, want in (([], cpus[:1], 1), ([], cpus[:2], len(cpus[:2])),
                                       (["-j", "3"], cpus[:1], 3))}
    alone = threads_of(folder, "-j", "1", cpus=cpus[:1])
    checks.check(all(found - alone == want - 1 for found, want in counts.values()),
                 f"threads {counts}, with -j 1 {alone}")


def closed_pipes(checks, folder):
    text = "".join(json.dumps(job(seed)) + "\n" for seed in range(3000)).encode()
    (folder / "jobs.ndjson").write_bytes(text)
    run = subprocess.run(["bash", "-c", f"'{ATTN}' batch - < jobs.ndjson | head -1; "
                                        "echo ${PIPESTATUS[0]}"], cwd=folder, capture_output=True)
    checks.check(run.stdout.splitlines()[-1] == b"141", f"exit code, as by SIGPIPE: {run.stdout[-9:]}")
    checks.check(run.stderr == b"", f"quietly: {run.stderr}")
    with open("/dev/full", "wb") as full:
        run = subprocess.run([ATTN, "batch", "-"], input=text, stdout=full, stderr=subprocess.PIPE)
    checks.check(run.returncode == 74 and b"standard output: No space" in run.stderr, f"{run}")
    run = subprocess.run(["bash", "-c", f"head -9 jobs.ndjson | '{ATTN}' batch - >&-"], cwd=folder,
                         capture_output=True)
    checks.check(run.returncode == 74 and b": 0 done, 0 skipped, 0 failed" in run.stderr,
                 f"what could not be written is not done: {run}")
    run = subprocess.run(["bash", "-c", f"'{ATTN}' batch - < jobs.ndjson 2>/dev/full >out; echo $?"],
                         cwd=folder, capture_output=True)
    checks.check(run.stdout == b"0\n", f"a full stderr loses nothing: {run}")
    checks.check((folder / "out").read_bytes().count(b"\n") == 3000, "all results")


def results_as_they_come(checks, _):
    """Each at once where no other line is at hand; else many at once, but none waits for a slow job."""
    for workers in "1", "2":
        with subprocess.Popen([ATTN, "batch", "-", "-j", workers, "-q"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as batch:
            for seed in range(3):
                batch.stdin.write(json.dumps(job(seed)).encode() + b"\n")
                batch.stdin.flush()
                checks.check(is_expected(json.loads(batch.stdout.readline()), seed), f"line {seed} is answered")
            lines = [json.dumps(line) + "\n" for line in (job(3), job(4), slow_job())]
            batch.stdin.write("".join(lines).encode())
            batch.stdin.flush()
            for seed in 3, 4:
                checks.check(is_expected(json.loads(batch.stdout.readline()), seed), f"line {seed}")
            checks.check(not select.select([batch.stdout], [], [], 0)[0], "while the slow one is computed")
            batch.kill()


def calls_of(folder, *arguments):
    """The names of the calls that make files last, in order, on one thread at a time."""
    strace = ["strace", "-f", "-o", "trace", "-e", "trace=fsync,fdatasync,renameat2,rename,linkat"]
    subprocess.run([*strace, ATTN, *map(str, arguments)], cwd=folder, check=True,
                   env=dict(os.environ, LSAN_OPTIONS="detect_leaks=0"))
    return re.findall(r"^\d+ +(\w+)\(", (folder / "trace").read_text(), re.MULTILINE)


def synced_folders(folder, *arguments):
    """The folders whose names are put on disk, in order."""
    strace = ["strace", "-f", "-y", "-o", "trace", "-e", "trace=fsync"]
    subprocess.run([*strace, ATTN, *map(str, arguments)], cwd=folder, check=True,
                   env=dict(os.environ, LSAN_OPTIONS="detect_leaks=0"))
    synced = re.findall(r"fsync\(\d+<(.*?)>", (folder / "trace").read_text())
    return [name for name in synced if pathlib.Path(name).is_dir()]


def what_lasts(checks, folder):
    paths = write_jobs(folder / "jobs", range(2))
    if not checks.check(shutil.which("strace"), "strace is there to look with"):
        return
    usual = calls_of(folder, "run", paths[0], "-o", "a.npz")
    checks.check(usual == ["renameat2"], f"without --durable: {usual}")
    durable = calls_of(folder, "run", paths[0], "-o", "b.npz", "--durable")
    checks.check(durable == ["fsync", "renameat2", "fsync"], f"run --durable: {durable}")
    batch = calls_of(folder, "batch", "jobs", "-j", "1", "--out-dir", "out", "--durable", "-q")
    # A file gets its name by linkat() where the file system knows files without one.
    # Before, the output folder's own name, and after its first line the manifest's.
    named = [["fsync", "fdatasync", "fsync"] + 2 * ["fsync", call, "fsync", "fdatasync"]
             for call in ("linkat", "renameat2")]
    checks.check(batch in named, f"batch --durable: {batch}")
    run = synced_folders(folder, "run", paths[0], "-o", "nf/", "--durable")
    checks.check(run == [str(folder)] + 3 * [f"{folder}/nf"], f"run -o nf/ --durable: {run}")
    (folder / "deep" / "a" / "b").mkdir(parents=True)
    shutil.copy(paths[0], folder / "deep" / "a" / "b" / "one.json")
    made = synced_folders(folder, "batch", "deep", "--out-dir", "new/out", "--name", "{job}",
                          "--durable", "-q", "--manifest", "jobs/m.ndjson")
    want = ["", "new", "jobs", "new/out", "new/out/a", "new/out/a/b"]
    checks.check(made == [f"{folder}/{name}".rstrip("/") for name in want],
                 f"batch --name '{{job}}' --durable: {made}")


def run_leaves_what_is_there(checks, folder):
    path, = write_jobs(folder, [0])
    (folder / "out.json").write_text("mine")
    run = attn("run", path, "-o", "out.json", "--no-clobber", cwd=folder)
    checks.check(run.returncode == 0 and b"exists already" in run.stderr
                 and (folder / "out.json").read_text() == "mine", f"run --no-clobber: {run}")
    run = attn("run", path, "-o", "new.json", "--no-clobber", cwd=folder)
    checks.check(run.returncode == 0 and is_expected(json.loads((folder / "new.json").read_text()), 0),
                 f"and writes what is not there: {run}")
    run = attn("run", path, "-o", "new.json", "--no-clobber", "--force", cwd=folder)
    checks.check(run.returncode == 2, f"not with --force: {run}")


if __name__ == "__main__":
    checks = Checks("attn batch, running")
    for part in (no_more_time, less_time_than_any_job_takes, one_job_a_processor, closed_pipes,
                 results_as_they_come, what_lasts, run_leaves_what_is_there):
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
