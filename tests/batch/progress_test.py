#!/usr/bin/env python3
"""What `attn batch` shows while it runs: bars, lines, answers to SIGUSR1, events."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402
from support.jobs import is_expected, job, manifest_of, slow_job, write_jobs  # noqa: E402


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


if __name__ == "__main__":
    checks = Checks("attn batch, progress")
    for part in (a_terminal, lines_of_progress, asked_by_a_signal, asked_early, events):
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
