"""Runs one command with one injected fault and checks the outcome.

If the exit code is 0, the files and streams must be the same as without the fault. Otherwise the exit code
must be a documented one, stderr must give the reason in one line, each output must be the complete old or new
file, and no other files may be left. A failed sync, or a failed close after a write, must not give 0. If one of
these or a write fails, all outputs of the run, or of the job of a batch, must be the old ones.
"""

import csv
import io
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN  # noqa: E402

INTERPOSER = pathlib.Path(ATTN).parent / "attn_interpose.so"
KINDS = ["alloc", "open", "read", "write", "sync", "folder-sync", "close", "rename", "cut", "reserve",
         "map", "folder", "stat", "lock", "thread"]
# A file system in memory, if there is one: fsync() then takes no time.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
OLD = b"old content\n"

# The faults of each kind of call, for one call or for all from then on ('+'), with the exit codes that may
# follow. Interruptions and short transfers must not change the result.
FAULTS = {
    # 75: the C library cannot allocate the stack of a thread, and pthread_create() returns EAGAIN.
    "alloc": ({"ENOMEM": {65, 75}, "ENOMEM+": {65, 75}}),
    "open": ({"EMFILE": {66, 73, 74}, "EMFILE+": {66, 73, 74}, "EIO": {66, 73, 74},
              "EACCES": {66, 77}}),
    "read": ({"EIO": {74}, "EIO+": {74}, "EINTR": set(), "short+": set()}),
    "write": ({"ENOSPC": {74}, "ENOSPC+": {74}, "EIO": {74}, "EDQUOT+": {74}, "EINTR": set(),
               "short": set()}),
    "sync": ({"EIO": {74}, "EIO+": {74}, "ENOSPC": {74}}),
    "folder-sync": ({"EIO": {74}, "EIO+": {74}, "ENOSPC": {74}}),
    "close": ({"EIO": {74}, "EIO+": {74}, "EINTR": set(), "ENOSPC": {74}}),
    "rename": ({"ENOSPC": {74}, "EIO+": {74}, "EINVAL": {74}, "EROFS+": {74}}),
    "cut": ({"EIO": {74}, "ENOSPC+": {74}, "EINTR": set()}),
    "reserve": ({"EIO": {74}, "ENOSPC+": {74}, "EINTR": set(), "EOPNOTSUPP": set()}),
    "map": ({"ENOMEM": {65}, "ENOMEM+": {65}}),
    "folder": ({"ENOSPC": {73}, "EACCES+": {77}, "EROFS": {73}}),
    "stat": ({"EIO": {66, 73, 74}, "EIO+": {66, 73, 74}}),
    "lock": ({"ENOLCK": {74}, "EINTR": set()}),
    "thread": ({"EAGAIN": {75}, "EAGAIN+": {75}}),
}


def state_of(folder):
    """The contents of every file below the folder, by path; None for a folder."""
    state = {}
    for parent, folders, files in os.walk(folder):
        below = os.path.relpath(parent, folder)
        for name in folders:
            state[os.path.normpath(os.path.join(below, name))] = None
        for name in files:
            with open(os.path.join(parent, name), "rb") as file:
                state[os.path.normpath(os.path.join(below, name))] = file.read()
    return state


def is_manifest(path):
    return os.path.basename(path).startswith("manifest")


def manifest_lines(text):
    """(status, inputs, outputs) of the last line of each job. An incomplete last line is ignored."""
    lines = [json.loads(line) for line in text.decode().split("\n")[:-1]]
    return {line["job"]: (line["status"], line["inputs"], line["outputs"])
            for line in lines if "job" in line}


def summary_rows(text):
    """The rows of a summary without their times; nothing for those of failed jobs."""
    rows = list(csv.DictReader(text.decode().splitlines()))
    assert all(None not in row and None not in row.values() for row in rows), "the last row is incomplete"
    return [[value for key, value in row.items() if value and key != "seconds"]
            for row in rows if row["status"] != "failed"]


def is_part_of(path, data, whole):
    """Whether a file that has results of several jobs, some of which may have failed, is complete."""
    if path.endswith(".csv"):
        rows = summary_rows(whole)
        return all(row in rows for row in summary_rows(data))
    with zipfile.ZipFile(io.BytesIO(data)) as some, zipfile.ZipFile(io.BytesIO(whole)) as all_jobs:
        return all(name in all_jobs.namelist() and some.read(name) == all_jobs.read(name) for name in some.namelist())


def has_several_jobs(path):
    return os.path.basename(path).startswith(("bundle-", "summary"))


# Calls that come before an output is renamed to its final name.
BEFORE_NAMES = ("write", "sync", "close", "cut")


def same_file(path, one, other):
    if one is not None and other is not None and path.endswith("summary.csv"):
        return sorted(summary_rows(one)) == sorted(summary_rows(other))
    if one is None or other is None or not is_manifest(path):
        return one == other
    return manifest_lines(one) == manifest_lines(other)


def comparable(stderr):
    """The text without times, without counts of jobs done or skipped, and without the reasons why jobs are
    run again: an earlier result that cannot be read counts as changed."""
    return re.sub(rb"attn: [^\n]*: run again because [^\n]*\n|; run again: [^\n]*|"
                  rb"\d+ done, \d+ skipped|[0-9.]+ s", b"", stderr)


class Bench:
    """A folder in which one command runs repeatedly, each time with the same files."""

    def __init__(self, command, inputs):
        self.command = command
        self.temporary = tempfile.TemporaryDirectory(prefix="attn-faults-", dir=MEMORY)
        self.counts_file = pathlib.Path(self.temporary.name) / "counts"
        self.folder = pathlib.Path(self.temporary.name) / "work"
        self.interposer = pathlib.Path(self.temporary.name) / "interpose.so"
        self.interposer.symlink_to(INTERPOSER)  # LD_PRELOAD cannot hold a path with a space
        shutil.copytree(inputs, self.folder)
        for name in command.old:
            (self.folder / name).write_bytes(OLD)
        self.before = state_of(self.folder)
        run = self.run()
        if run.returncode != 0:
            raise AssertionError(f"{command.name}: without a fault: {run}")
        self.stdout, self.stderr, self.counts = run.stdout, run.stderr, self.read_counts()[0]
        self.after = state_of(self.folder)
        self.reset(self.after)

    def run(self, fault="", args=None):
        self.counts_file.unlink(missing_ok=True)
        env = {**os.environ, "LD_PRELOAD": str(self.interposer), "ATTN_FAULT_COUNTS": self.counts_file,
               "LC_ALL": "C.UTF-8"}
        if fault:
            env["ATTN_FAULT"] = fault
        return subprocess.run([ATTN, *(args or self.command.args)], input=self.command.stdin,
                              capture_output=True, cwd=self.folder, env=env, timeout=20)

    def read_counts(self):
        """The number of calls by kind, of injected faults, and of faults that may have lost written data."""
        numbers = struct.unpack(f"{len(KINDS) + 2}Q", self.counts_file.read_bytes())
        return dict(zip(KINDS, numbers)), *numbers[-2:]

    def reset(self, now):
        """Restores the folder, whose state is `now`, to its state before the run."""
        for path in sorted(now, reverse=True):
            if path not in self.before:
                extra = self.folder / path
                extra.rmdir() if now[path] is None else extra.unlink()
        for path, data in self.before.items():
            if path not in now or now[path] != data:
                (self.folder / path).write_bytes(data)

    def problems(self, run, now, codes):
        """The violations after a run, which may end with one of `codes` or 0."""
        command = self.command
        is_batch = command.args[0] == "batch"
        code = run.returncode
        if code == 0:
            return self.differences(run, now)
        if code == command.report and b"FAIL" in run.stdout:
            return []
        found = []
        if code not in codes and not (is_batch and code == 3):
            found.append(f"exit {code}, expected one of {sorted(codes)}")
        for path in {*now, *self.before}:
            if not self.is_old_or_new(path, now):
                found.append(f"left: {path} {(now.get(path) or b'')[:40]}")
        stderr = run.stderr.removeprefix(self.stderr)  # messages of a run without the fault
        found += self.unclear(stderr, is_batch)
        if not self.is_beginning(run.stdout):
            found.append(f"stdout: {run.stdout[:200]}")
        return found

    def differences(self, run, now):
        found = [f"exit 0, but a file differs from a run without the fault: {path}" for path in {*now, *self.after}
                 if path not in now or path not in self.after
                 or not same_file(path, now[path], self.after[path])]
        if run.stdout != self.stdout:
            found.append(f"exit 0, but stdout: {run.stdout[:200]}")
        if comparable(run.stderr) != comparable(self.stderr):
            found.append(f"exit 0, but stderr: {run.stderr[:200]}")
        return found

    def is_old_or_new(self, path, now):
        if path not in now:
            return path not in self.before
        data = now[path]
        if data is None:  # folders are not removed while they contain something
            return path in self.before or path == self.command.batch or any(
                inner.startswith(path + "/") and now[inner] is not None for inner in now)
        if path in self.before and data == self.before[path]:
            return True
        if self.command.batch and path.startswith(self.command.batch):
            if is_manifest(path):
                return manifest_lines(data) is not None
        return self.is_new(path, data)

    def is_new(self, path, data):
        if path not in self.after or data is None or self.after[path] is None:
            return False
        return data == self.after[path] or has_several_jobs(path) and is_part_of(path, data, self.after[path])

    def outputs(self):
        """The paths of files that a run creates or changes, in one group per job of a batch."""
        groups = {}
        for path, data in self.after.items():
            if data is None or data == self.before.get(path) or is_manifest(path):
                continue
            job = (path + "/").split("/")[1] if self.command.batch else ""
            groups.setdefault(job, []).append(path)
        return groups.values()

    def partly_renamed(self, now):
        """Outputs that are new although a call before their rename failed."""
        found = []
        for paths in self.outputs():
            old = all(now.get(path) == self.before.get(path) for path in paths)
            new = all(self.is_new(path, now.get(path)) for path in paths)
            if not (old or (new and self.command.batch)):
                found.append(f"not all are old: {paths}")
        return found

    def is_beginning(self, stdout):
        if self.command.args[0] != "batch":
            return self.stdout.startswith(stdout)
        whole = set(self.stdout.splitlines(keepends=True))
        lines = stdout.splitlines(keepends=True)
        return all(line in whole or b'"error":[' in line or
                   (number + 1 == len(lines) and any(full.startswith(line) for full in whole))
                   for number, line in enumerate(lines))

    @staticmethod
    def unclear(stderr, is_batch):
        text = stderr.decode("utf-8", "backslashreplace")
        lines = text.splitlines()
        if not lines or not text.endswith("\n") or (len(lines) > 1 and not is_batch):
            return [f"expected one line on stderr: {text!r}"]
        return [f"unclear: {line}" for line in lines
                if not line.startswith("attn: ") or "internal error" in line
                or not line.isprintable() or len(line) < 12]

    def try_fault(self, kind, action, number):
        """Runs the command with a fault. Returns 1 if the fault was injected, else 0, and the violations."""
        fault = f"{kind}:{action.rstrip('+')}:{number}{'+' if action.endswith('+') else ''}"
        try:
            run = self.run(fault)
        except subprocess.TimeoutExpired:
            self.reset(state_of(self.folder))
            return 1, [f"{self.command.name}: {fault}: hangs"]
        _, injected, lost = self.read_counts()
        now = state_of(self.folder)
        found = self.problems(run, now, FAULTS[kind][action])
        if lost and run.returncode == 0:
            found.append("exit 0, but written data may be lost")
        if kind in BEFORE_NAMES and run.returncode != 0:
            found += self.partly_renamed(now)
        if run.returncode != 0 and self.command.batch:
            found += self.resumed()
        elif not injected:
            found += [] if run.returncode == 0 else [f"exit {run.returncode} without a fault"]
        self.reset(state_of(self.folder))
        text = run.stderr.decode("utf-8", "backslashreplace")[:300]
        return min(injected, 1), [f"{self.command.name}: {fault}: {what}\n    {text}" for what in found]

    def resumed(self):
        """Resumes a failed batch; its results must be those of a run without a fault."""
        args = self.command.args
        run = self.run(args=args if "--resume" in args else [*args, "--resume"])
        def results(state):
            return {path: data for path, data in state.items() if not is_manifest(path) and path != "summary.csv"}

        now, whole = results(state_of(self.folder)), results(self.after)
        return [] if run.returncode == 0 and now == whole else [f"--resume: {run.stderr[:300]}"]
