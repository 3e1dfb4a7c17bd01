#!/usr/bin/env python3
"""`attn batch --resume`: what is finished stays, what changed is done again, and nothing is lost
when a run is killed at any moment."""

import fcntl
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN, Checks, attn  # noqa: E402
from support.jobs import contents, job, manifest_of, slow_job, write_jobs  # noqa: E402


def counts(run):
    """done, skipped, failed, as the summary tells them."""
    words = run.stderr.decode().split(": ", 1)[-1].replace(",", "").replace(";", "").split()
    return tuple(int(words[words.index(word) - 1]) for word in ("done", "skipped", "failed"))


def batch(folder, *flags, stdin=b""):
    return attn("batch", "jobs", "--out-dir", "out", *flags, stdin=stdin, cwd=folder)


def what_changed_is_done_again(checks, folder):
    paths = write_jobs(folder / "jobs", range(6))
    np.save(folder / "w.npy", np.eye(3))
    shared = job(3) | {"W_Q": "../w.npy"}
    paths[3].write_text(json.dumps(shared))
    checks.check(counts(batch(folder, "--resume")) == (6, 0, 0), "nothing to resume: all is done")
    before = contents(folder / "out")
    checks.check(counts(batch(folder, "--resume")) == (0, 6, 0), "all finished: nothing is done")
    checks.check(contents(folder / "out") == before, "the same bytes")

    def resumed(want, why):
        run = batch(folder, "--resume")
        checks.check(run.returncode == 0 and counts(run) == want, f"{why}: {run.stderr}")
        fresh = attn("batch", "jobs", "--out-dir", "fresh", "--force", cwd=folder)
        checks.check(fresh.returncode == 0
                     and contents(folder / "out") == contents(folder / "fresh"), f"{why}: bytes")

    paths[0].write_text(json.dumps(job(100)))
    resumed((1, 5, 0), "a job that changed")
    np.save(folder / "w.npy", 2 * np.eye(3))
    resumed((1, 5, 0), "a file that a job names changed")
    (folder / "out" / "job0002.npz").unlink()
    resumed((1, 5, 0), "a result that is gone")
    (folder / "out" / "job0002.npz").write_bytes(b"cut off")
    resumed((1, 5, 0), "a result that is not what was written")
    write_jobs(folder / "jobs", [200], "a{}.json")  # listed first: all others have new numbers
    resumed((1, 6, 0), "a job that is new")
    os.utime(paths[4])
    resumed((0, 7, 0), "a job that was touched only")

    run = batch(folder, "--resume", "--causal")
    checks.check(counts(run) == (7, 0, 0), f"other options: {run.stderr}")
    run = batch(folder, "--resume", "--format", "json")
    checks.check(counts(run) == (7, 0, 0), f"another format: {run.stderr}")


def another_base(checks, folder):
    """It is one of the options, and so is that there is none."""
    (folder / "jobs").mkdir()
    (folder / "jobs" / "q.json").write_text('{"Q": [[1.0, 2.0]], "K": [[3.0, 4.0]]}')
    for number, scale in enumerate((2, 3)):
        (folder / f"b{number}.json").write_text(json.dumps({"scale": scale}))
    for flags in [], ["--base", "b0.json"], ["--base", "b1.json"], []:
        for want in (1, 0, 0), (0, 1, 0):
            run = batch(folder, "--resume", *flags)
            checks.check(run.returncode == 0 and counts(run) == want, f"{flags}: {run}")
        fresh = attn("batch", "jobs", "--out-dir", "fresh", "--force", *flags, cwd=folder)
        checks.check(fresh.returncode == 0
                     and contents(folder / "out") == contents(folder / "fresh"), f"{flags}: bytes")


def what_is_not_ours_stays(checks, folder):
    """A file that no line of the manifest names is replaced by nothing, and is taken as done where it
    has the very bytes: so it is when a run is killed before it could write the line."""
    paths = write_jobs(folder / "jobs", range(3))
    checks.check(batch(folder).returncode == 0, "a first run")
    whole, manifest = contents(folder / "out"), folder / "out" / "manifest.ndjson"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(line for line in lines if "job0001" not in line))
    run = batch(folder, "--resume")
    checks.check(run.returncode == 0 and counts(run) == (1, 2, 0)
                 and contents(folder / "out") == whole, f"a line is missing: {run}")
    manifest.write_text(lines[0])
    (folder / "out" / "job0002.npz").write_text("precious")
    run = batch(folder, "--resume")
    checks.check(run.returncode == 3 and counts(run) == (2, 0, 1) and b"job0002.npz: exists already"
                 in run.stderr and manifest_of(folder / "out")[str("jobs/job0002.json")]["code"] == 73
                 and (folder / "out" / "job0002.npz").read_text() == "precious", f"not ours: {run}")

    # Nor what is an input of another job, the base, the list, or the manifest.
    command = ["batch", "jobs", "--format", "json", "--out-dir"]
    for name, flags in ("jobs", []), ("b", ["--base", "b/job0000.json"]), ("m", ["--manifest",
                                                                                "m/job0001.json"]):
        (folder / name).mkdir(exist_ok=True)
        if name == "b":
            (folder / "b" / "job0000.json").write_text('{"scale": 2}')
        before = {path: path.read_bytes() for path in [*paths, *(folder / "b").glob("job0000.json")]}
        for mode in "--force", "--resume":
            run = attn(*command, name, *flags, mode, cwd=folder)
            checks.check(run.returncode == (73 if name == "jobs" else 3) and run.stderr.count(b"\n") < 3
                         and b": is a" in run.stderr, f"{name} {mode}: {run}")
            checks.check(all(path.read_bytes() == text for path, text in before.items()), "untouched")
    checks.check(len(manifest_of(folder / "m", "job0001.json")) == 3, "the manifest is whole")


def failures_are_tried_again(checks, folder):
    paths = write_jobs(folder / "jobs", range(4))
    paths[2].write_text("{")
    checks.check(counts(batch(folder)) == (3, 0, 1), "one fails")
    run = batch(folder, "--resume")
    checks.check(run.returncode == 3 and counts(run) == (0, 3, 1), f"it fails again: {run.stderr}")
    paths[2].write_text(json.dumps(job(2)))
    run = batch(folder, "--resume")
    checks.check(run.returncode == 0 and counts(run) == (1, 3, 0), f"mended: {run.stderr}")
    checks.check(manifest_of(folder / "out")["jobs/job0002.json"]["status"] == "done", "manifest")


def lines_can_be_resumed(checks, folder):
    lines = [json.dumps(job(seed)) + "\n" for seed in range(5)]
    flags = ["batch", "-", "--out-dir", "out", "--resume"]
    checks.check(counts(attn(*flags, stdin="".join(lines[:3]), cwd=folder)) == (3, 0, 0), "three")
    lines[1] = json.dumps(job(50)) + "\n"
    run = attn(*flags, stdin="".join(lines), cwd=folder)
    checks.check(counts(run) == (3, 2, 0), f"one changed, two more: {run.stderr}")


def planned(checks, folder, *flags):
    """A dry run of a resumed batch, and what it says of each job by its name."""
    run = batch(folder, "--resume", "--dry-run", *flags)
    lines = [line for line in map(json.loads, run.stdout.splitlines()) if "error" not in line]
    checks.check(all(("outputs" in line) == (line["resume"] != "skip") and line["output"].startswith("out/")
                     for line in lines), f"plans of those to do: {lines}")
    return run, {pathlib.Path(line["job"]).stem: line["resume"] for line in lines}


def what_a_dry_run_says(checks, folder):
    """What a resumed run would skip, do again and do as new; and it leaves everything as it is."""
    paths = write_jobs(folder / "jobs", range(3), "{}.json")
    run, plans = planned(checks, folder)
    checks.check(run.returncode == 0 and plans == dict.fromkeys("012", "new") and not (folder / "out").exists()
                 and b"3 jobs: 3 planned, 0 skipped, 0 failed" in run.stderr, f"no manifest: {plans} {run}")
    paths[2].write_text("{")
    batch(folder)
    write_jobs(folder / "jobs", [3], "{}.json")
    paths[1].write_text(json.dumps(job(50)))
    before = contents(folder / "out", ())
    run, plans = planned(checks, folder)
    checks.check(run.returncode == 3 and plans == {"0": "skip", "1": "again", "3": "new"}
                 and b"4 jobs: 2 planned, 1 skipped, 1 failed" in run.stderr, f"a job failed: {plans} {run}")
    paths[2].write_text(json.dumps(job(2)))
    want = {"0": "skip", "1": "again", "2": "again", "3": "new"}
    for flags, plans in [((), want), (("--causal",), want | {"0": "again"}),
                         (("--manifest", "other.ndjson"), dict.fromkeys("0123", "new"))]:
        run = planned(checks, folder, *flags)
        checks.check(run[1] == plans, f"{flags}, after one was mended: {run}")
    checks.check(contents(folder / "out", ()) == before and not (folder / "other.ndjson").exists(), "nothing is written")
    checks.check(counts(batch(folder, "--resume")) == (3, 1, 0), "and so it is")
    checks.check(planned(checks, folder)[1] == dict.fromkeys("0123", "skip"), "all are done")
    for manifest, code, reason in ("jobs/0.json", 73, b"is an input"), ("out/0.npz", 65, b"expected a manifest"):
        run = batch(folder, "--resume", "--dry-run", "--manifest", manifest)
        checks.check(run.returncode == code and reason in run.stderr, f"another file: {run}")


def a_dry_run_beside_a_run(checks, folder):
    """The manifest may be in use: it is read as far as it goes."""
    write_jobs(folder / "jobs", range(2), "{}.json")
    batch(folder)
    write_jobs(folder / "jobs", [2], "{}.json")
    want, enough = {"0": "skip", "1": "skip", "2": "new"}, threading.Event()
    with open(folder / "out" / "manifest.ndjson", "ab", buffering=0) as manifest:
        fcntl.flock(manifest, fcntl.LOCK_EX)
        run, plans = planned(checks, folder)
        checks.check(plans == want, f"while another run has it: {run}")

        def append():
            while not enough.is_set():
                manifest.write(b"{}\n")

        writer = threading.Thread(target=append, daemon=True)
        writer.start()
        for _ in range(5):
            run, plans = planned(checks, folder)
            checks.check(plans == want, f"and writes to it: {run}")
        enough.set()
        writer.join()


def a_damaged_manifest(checks, folder):
    write_jobs(folder / "jobs", range(5))
    batch(folder, "-j", "1")
    manifest = folder / "out" / "manifest.ndjson"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    run = batch(folder, "--resume")
    checks.check(counts(run) == (1, 4, 0), f"a line cut off: {run.stderr}")
    checks.check(all(json.loads(line) for line in manifest.read_text().splitlines()), "is gone")
    lines = manifest.read_bytes().splitlines(keepends=True)
    for broken in (lines[:2] + [lines[2][:50] + 100 * b"\0" + lines[2][150:]] + lines[3:],
                   lines[:2] + [400 * b"\0" + b"\n"] + lines[3:],
                   lines[:3] + [b'{"schema":"attn-batch/1","pro\0\0\n'] + lines[3:]):
        manifest.write_bytes(b"".join(broken))
        run = batch(folder, "--resume")
        checks.check(run.returncode == 0 and counts(run) in ((1, 4, 0), (0, 5, 0)), f"damage: {run}")
    elsewhere = attn("batch", "jobs", "--out-dir", "out2", "--manifest", "m.ndjson", cwd=folder)
    checks.check(elsewhere.returncode == 0 and (folder / "m.ndjson").exists()
                 and not (folder / "out2" / "manifest.ndjson").exists(), "--manifest elsewhere")
    run = attn("batch", "jobs", "--out-dir", "out3", "--manifest", "/dev/null", cwd=folder)
    checks.check(run.returncode == 73, f"a manifest that is no file: {run}")


def what_is_no_manifest_stays(checks, folder):
    """Not cut, not replaced, not even by --force."""
    write_jobs(folder / "jobs", range(2))
    (folder / "empty.json").touch()
    for text in b'{"precious": 1}', b'{"precious": 1}\nmore', b'{"schema":"attn-batch/2"}\n', b"\n":
        for flags, code in ([], 73), (["--force"], 73), (["--resume"], 65):
            (folder / "p.json").write_bytes(text)
            run = batch(folder, "--manifest", "p.json", *flags)
            checks.check(run.returncode == code and run.stderr.count(b"\n") == 1
                         and b"p.json: expected a manifest" in run.stderr, f"{text} {flags}: {run}")
            checks.check((folder / "p.json").read_bytes() == text, f"{text} {flags}: untouched")
    checks.check(batch(folder).returncode == 0, "a manifest")
    manifest = folder / "out" / "manifest.ndjson"
    cut_off = manifest.read_bytes()[:-9]
    manifest.write_bytes(cut_off)
    run = batch(folder, "--format", "json")
    checks.check(run.returncode == 73 and b"manifest.ndjson: exists already; --resume" in run.stderr
                 and manifest.read_bytes() == cut_off, f"a line cut off stays in a manifest that is refused: {run}")
    manifest.write_bytes(b'{"schema":"att')
    checks.check(counts(batch(folder, "--resume")) == (2, 0, 0), "cut off in its first line")
    for inputs in (["empty.json"], ["jobs", "--base", "empty.json"], ["--files-from", "empty.json"],
                   ["jobs/job0000.json"]):
        name = inputs[-1]
        before = (folder / name).read_bytes()
        run = attn("batch", *inputs, "--out-dir", "o", "--force", "--manifest", f"./{name}",
                   cwd=folder)
        checks.check(run.returncode != 0 and (folder / name).read_bytes() == before
                     and run.stderr.count(b"\n") == 1, f"{inputs}: {run}")
    run = batch(folder, "--resume", "--max-memory", str(manifest.stat().st_size - 1))
    checks.check(run.returncode == 65 and b"manifest.ndjson: expected at most" in run.stderr,
                 f"a manifest above --max-memory: {run}")


def one_run_at_a_time(checks, folder):
    write_jobs(folder / "jobs", range(2))
    process = subprocess.Popen([ATTN, "batch", "-", "--out-dir", "out", "-q"], cwd=folder,
                               stdin=subprocess.PIPE)
    manifest = folder / "out" / "manifest.ndjson"
    while not (manifest.exists() and manifest.stat().st_size):
        time.sleep(0.01)
    for flags in ["--resume"], ["--force"], []:
        run = batch(folder, *flags)
        checks.check(run.returncode == 75 and b"another run" in run.stderr, f"{flags}: {run}")
    process.communicate(json.dumps(job(0)).encode())
    checks.check(process.returncode == 0, "the first run is not disturbed")
    checks.check(batch(folder, "--resume").returncode == 0, "and then the lock is free")


def killed_at_any_moment(checks, folder, kills=20, jobs=150):
    """After each SIGKILL a resumed run, itself killed now and then, ends in the same bytes."""
    write_jobs(folder / "jobs", range(jobs))
    flags = ["batch", "jobs", "--format", "folder", "-j", "4", "-q", "--out-dir"]
    start = time.monotonic()
    attn(*flags, "whole", cwd=folder)
    whole, seconds = contents(folder / "whole", ("manifest",)), time.monotonic() - start
    checks.check(len(whole) == 3 * jobs, "an unbroken run")
    dice, killed = random.Random(7), 0
    for kill in range(kills):
        process = subprocess.Popen([ATTN, *flags, "out", "--resume"], cwd=folder)
        time.sleep(dice.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        if kill % 4 == 3:
            run = attn(*flags, "out", "--resume", cwd=folder)
            checks.check(run.returncode == 0 and contents(folder / "out") == whole,
                         f"kill {kill}: {run}")
            subprocess.run(["rm", "-r", "out"], cwd=folder, check=True)
    checks.check(killed > 0, f"{killed} of {kills} runs were killed")


def stopped_by_a_signal(checks, folder):
    """Finished results stay, temporary files go, and jobs at work are not waited for."""
    (folder / "jobs").mkdir()
    for number in range(8):
        (folder / "jobs" / f"slow{number}.json").write_text(json.dumps(slow_job()))
    write_jobs(folder / "jobs", range(20))
    whole = None
    for number, code in (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129):
        process = subprocess.Popen([ATTN, "batch", "jobs", "--out-dir", "out", "-j", "4", "--resume"],
                                   cwd=folder, stderr=subprocess.PIPE)
        manifest = folder / "out" / "manifest.ndjson"
        while not (manifest.exists() and manifest.read_bytes().count(b'"status"') >= 20):
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate()
        checks.check(process.returncode == -number, f"exit by signal, {code} to a shell")
        checks.check(manifest.read_bytes().count(b'"slow') == 0, "it does not wait for the work")
        # (Later runs are stopped at any moment, as the manifest is full already.)
        checks.check(whole or err.endswith(b"attn: stopped after 20 of 28 jobs; --resume goes on\n"), f"{err}")
        left = contents(folder / "out")
        checks.check(not any(".attn-tmp" in name for name in left), f"litter: {list(left)}")
        fast = {name: left[name] for name in left if "job" in name}
        checks.check(len(fast) == 20 and fast == (whole or fast), "what was finished stays")
        whole = fast


if __name__ == "__main__":
    checks = Checks("attn batch --resume")
    for part in (what_changed_is_done_again, another_base, what_is_not_ours_stays, failures_are_tried_again,
                 lines_can_be_resumed, what_a_dry_run_says, a_dry_run_beside_a_run, a_damaged_manifest,
                 what_is_no_manifest_stays, one_run_at_a_time, killed_at_any_moment, stopped_by_a_signal):
        with tempfile.TemporaryDirectory() as folder:
            part(checks, pathlib.Path(folder))
    checks.finish()
