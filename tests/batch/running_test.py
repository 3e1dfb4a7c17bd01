#!/usr/bin/env python3
"""`attn batch` while it runs: progress, SIGUSR1, events, --timeout, closed pipes, --durable."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402
from support.jobs import contents, is_expected, job, manifest_of, slow_job, write_jobs  # noqa: E402


def on_terminal(folder, *words, columns=80, term="xterm", stdin=None):
    """A batch with both its outputs on a terminal, and that."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = subprocess.Popen([ATTN, "batch", "-j", "2", *words], cwd=folder, stdin=stdin, stdout=theirs,
                               stderr=theirs, env=dict(os.environ, TERM=term))
    os.close(theirs)
    return process, ours


def until_stopped(process, ours, sign, number=signal.SIGTERM):
    """What the terminal gets, with a signal once `sign` is there, or after some seconds."""
    seen, sent, late = b"", False, time.monotonic() + (20 if sign else 2)
    while True:
        ready = select.select([ours], [], [], 0.1)[0]
        try:
            part = os.read(ours, 4096) if ready else None
        except OSError:  # the other end is closed
            break
        seen += part or b""
        if part == b"":
            break
        if not sent and ((sign and sign in seen) or time.monotonic() > late):
            process.send_signal(number)
            sent = True
    process.wait()
    os.close(ours)
    return seen


def a_terminal(checks, folder):
    write_jobs(folder / "jobs", range(3))
    (folder / "jobs" / "slow.json").write_text(json.dumps(slow_job()))
    (folder / "jobs" / "bad.json").write_text("{}")
    wide = on_terminal(folder, "jobs", "--out-dir", "out")
    narrow = {columns: on_terminal(folder, "jobs", "--out-dir", f"out{columns}", columns=columns)
              for columns in (60, 40, 20, 10, 1)}
    dumb = on_terminal(folder, "jobs", "--out-dir", "dumb", term="dumb")
    shared = on_terminal(folder, "-", stdin=subprocess.PIPE)
    seen = until_stopped(*wide, b" left", signal.SIGINT)
    checks.check(b"[###################.....] 4 of 5 jobs, 1 failed, " in seen, f"a bar: {seen}")
    checks.check(b"attn: jobs/bad.json: " in seen, "errors stand beside it")
    checks.check(seen.endswith(b"\r\x1b[Kattn: stopped after 4 of 5 jobs; --resume goes on\r\n")
                 and wide[0].returncode == -signal.SIGINT, f"and the last word: {seen}")
    for columns, run in narrow.items():
        text = b"4 of 5 jobs"[:columns - 1]
        seen = until_stopped(*run, b"\r\x1b[K" if columns == 1 else text)
        drawn = [line.removesuffix(b"\x1b[K") for line in re.split(rb"[\r\n]+", seen)
                 if b"attn: " not in line]
        checks.check(text in seen and max(map(len, drawn)) < max(columns, 2), f"{columns} columns: {seen}")
    seen = until_stopped(*dumb, None)
    checks.check(b"\x1b" not in seen and b"\r" not in seen.replace(b"\r\n", b""), f"TERM=dumb: {seen}")
    seen = b""
    while b" a second" not in seen:
        seen += os.read(shared[1], 4096)
    shared[0].stdin.write((json.dumps(job(1)) + "\n").encode())
    shared[0].stdin.flush()
    seen += until_stopped(*shared, b"1 job, 0 failed")
    checks.check(seen.count(b'\r\x1b[K{"schema"') == 1 and seen.endswith(b"\x1b[Kattn: stopped after 1 job\r\n"),
                 f"results have a line of their own: {seen}")
    shared[0].stdin.close()
    quiet = attn("batch", "jobs/job0000.json", "--out-dir", "out2", "-q", cwd=folder)
    checks.check(quiet.stderr == b"", f"-q: {quiet}")


def lines_of_progress(checks, folder):
    """--progress plain: a line every five seconds, wherever it goes."""
    process = subprocess.Popen([ATTN, "batch", "-", "--progress", "plain"], cwd=folder,
                               stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process.stdin.write((json.dumps(job(1)) + "\n").encode())
    process.stdin.flush()
    line = process.stderr.readline()
    checks.check(re.match(rb"attn: 1 job, 0 failed, [0-9.]+ a second$", line.strip()), f"a line: {line}")
    rest = process.communicate()[1]
    checks.check(process.returncode == 0 and rest.startswith(b"attn: 1 job: 1 done"), f"{rest}")


def asked_by_a_signal(checks, folder):
    for flags in [], ["--json"]:
        process = subprocess.Popen([ATTN, "batch", "-", "-q", *flags], cwd=folder, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write((json.dumps(job(1)) + "\n").encode())
        process.stdin.flush()
        checks.check(is_expected(json.loads(process.stdout.readline()), 1), "one result")
        process.send_signal(signal.SIGUSR1)
        line = process.stderr.readline()
        while flags and b'"progress"' not in line and line:
            line = process.stderr.readline()
        if flags:
            event = json.loads(line)
            checks.check(event["done"] == 1 and event["failed"] == 0, f"an event: {line}")
        else:
            checks.check(re.match(rb"attn: 1 job, 0 failed, [0-9.]+ a second$", line.strip()),
                         f"one line: {line}")
        process.communicate()
        checks.check(process.returncode == 0, "and it goes on")


def events(checks, folder):
    write_jobs(folder / "jobs", range(3))
    (folder / "jobs" / "job0001.json").write_text("{}")
    run = attn("batch", "jobs", "--out-dir", "out", "--json", cwd=folder)
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    checks.check([line["event"] for line in lines] == ["start"] + ["item"] * 3 + ["end"], f"{lines}")
    items = {line["job"]: line for line in lines if line["event"] == "item"}
    recorded = manifest_of(folder / "out")
    for name, line in items.items():
        checks.check(all(line[key] == recorded[name][key] for key in line if key != "event"),
                     f"as in the manifest: {line}")
    end = lines[-1]
    checks.check((end["total"], end["done"], end["failed"], end["skipped"]) == (3, 2, 1, 0), f"{end}")


    checks.check(end["code"] == run.returncode == 3, f"and the exit code: {end}")

    for words, code in [(["none.json"], 66), (["jobs", "--shard", "x"], 2), (["jobs", "--resume"], 2),
                        (["jobs", "--out-dir", "out"], 73)]:
        run = attn("batch", *words, "--json", cwd=folder)
        lines = [json.loads(line) for line in run.stderr.splitlines()]
        checks.check(run.returncode == code and [line["event"] for line in lines] == ["error"]
                     and lines[0]["code"] == code and lines[0]["error"], f"{words}: {run}")
    with open("/dev/full", "wb") as full:
        run = subprocess.run([ATTN, "batch", "-", "--json"], input=json.dumps(job(0)).encode(), stdout=full,
                             stderr=subprocess.PIPE)
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    checks.check([line["event"] for line in lines] == ["start", "item", "error", "end"]
                 and [line["code"] for line in lines[2:]] == [74, 74], f"a full disk: {run}")

    process = subprocess.Popen([ATTN, "batch", "-", "--json"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write((json.dumps(job(1)) + "\n").encode())
    process.stdin.flush()
    process.stdout.readline()
    process.terminate()
    end = json.loads(process.communicate()[1].splitlines()[-1])
    checks.check(process.returncode == -signal.SIGTERM and (end["event"], end["done"], end["code"])
                 == ("end", 1, 143) and "total" not in end, f"by a signal: {end}")


def asked_early(checks, folder):
    """SIGUSR1 is a question from the beginning on, not the end of a batch that is being listed."""
    os.mkfifo(folder / "list")
    process = subprocess.Popen([ATTN, "batch", "--files-from", "list"], cwd=folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    path, = write_jobs(folder, [0])
    with open(folder / "list", "w") as names:  # it reads the list, and has begun
        process.send_signal(signal.SIGUSR1)
        names.write(f"{path}\n")
    out, err = process.communicate()
    checks.check(process.returncode == 0 and is_expected(json.loads(out), 0), f"{process.returncode} {err}")


def no_more_time(checks, folder):
    write_jobs(folder / "jobs", range(6))
    for number in range(3):
        (folder / "jobs" / f"a{number}.json").write_text(json.dumps(slow_job()))
    start = time.monotonic()
    run = attn("batch", "jobs", "--out-dir", "out", "--timeout", "0.5", "-j", "1", "-q", cwd=folder)
    lines = manifest_of(folder / "out")
    slow = [lines[f"jobs/a{number}.json"] for number in range(3)]
    checks.check(run.returncode == 3 and all(line["status"] == "failed" and line["code"] == 75
                                             and "more than 0.5 s (--timeout), given up after 0." in
                                             line["error"][0] for line in slow),
                 f"overdue jobs fail: {run} {slow}")
    checks.check(sum(line["status"] == "done" for line in lines.values()) == 6, "the others are done")
    checks.check(len(contents(folder / "out")) == 6, f"no litter: {list(contents(folder / 'out'))}")
    checks.check(time.monotonic() - start < 15, "nobody waits for what is overdue")
    text = "\n".join(json.dumps(line) for line in (job(0), slow_job(), job(1)))
    run = attn("batch", "-", "--timeout", "0.5", stdin=text)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    checks.check(len(results) == 3 and is_expected(results[0], 0) and results[1]["code"] == 75
                 and is_expected(results[2], 1), f"in order: {run}")


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
    with subprocess.Popen([ATTN, "batch", "-", "-j", "1", "-q"], stdin=subprocess.PIPE,
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
    for part in (a_terminal, lines_of_progress, asked_by_a_signal, asked_early, events, no_more_time,
                 one_job_a_processor, closed_pipes, results_as_they_come, what_lasts, run_leaves_what_is_there):
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
