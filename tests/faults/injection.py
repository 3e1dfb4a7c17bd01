"""One command with one fault, and whether what is left is what was promised.

The promise: the exit code is 0 and everything is as without the fault, or it is a documented one, a
line on stderr says why, and each output is the old file or the new one, bit for bit, with nothing
else beside them. It is not 0 where a sync failed, or the closing of what had been written; and where
that or a write failed, all outputs of the run, or of the job, are old ones.
"""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.attn import ATTN  # noqa: E402

INTERPOSER = pathlib.Path(ATTN).parent / "attn_interpose.so"
KINDS = ["alloc", "open", "read", "write", "sync", "folder-sync", "close", "rename", "cut", "reserve",
         "map", "folder", "stat", "lock", "thread"]
# A file system without a disk below, where there is one: fsync() then takes no time.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
OLD = b"what stood there before\n"

# What each kind of call can meet, once or from then on ('+'), and the exit codes that may follow.
# Interruptions and short transfers are no failure: the result is as without them.
FAULTS = {
    # The C library's own allocation for a thread: it then says that there is no room for one more.
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
    """Every file and folder below: its bytes, or None."""
    state = {}
    for place, folders, files in os.walk(folder):
        below = os.path.relpath(place, folder)
        for name in folders:
            state[os.path.normpath(os.path.join(below, name))] = None
        for name in files:
            with open(os.path.join(place, name), "rb") as file:
                state[os.path.normpath(os.path.join(below, name))] = file.read()
    return state


def is_manifest(path):
    return os.path.basename(path).startswith("manifest")


def manifest_lines(text):
    """What the last line of each job says; a line without its end is left out."""
    lines = [json.loads(line) for line in text.decode().split("\n")[:-1]]
    return {line["job"]: (line["status"], line["inputs"], line["outputs"])
            for line in lines if "job" in line}


# Before an output gets its name.
BEFORE_NAMES = ("write", "sync", "close", "cut")


def same_file(path, one, other):
    if one is None or other is None or not is_manifest(path):
        return one == other
    return manifest_lines(one) == manifest_lines(other)


def said(stderr):
    """Without how long it took, how much of it an earlier run had done, and why jobs are run again: an
    earlier result that cannot be read counts as changed."""
    return re.sub(rb"attn: [^\n]*: run again, since [^\n]*\n|; run again: [^\n]*|"
                  rb"\d+ done, \d+ skipped|[0-9.]+ s", b"", stderr)


class Bench:
    """A folder in which one command is run again and again, each time from the same beginning."""

    def __init__(self, command, inputs):
        self.command = command
        self.place = tempfile.TemporaryDirectory(prefix="attn-faults-", dir=MEMORY)
        self.counts_file = pathlib.Path(self.place.name) / "counts"
        self.folder = pathlib.Path(self.place.name) / "work"
        self.interposer = pathlib.Path(self.place.name) / "interpose.so"
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
        """Calls by kind, how many were touched, and how many lost what had been written."""
        numbers = struct.unpack(f"{len(KINDS) + 2}Q", self.counts_file.read_bytes())
        return dict(zip(KINDS, numbers)), *numbers[-2:]

    def reset(self, now):
        """Makes the folder what it was before."""
        for path in sorted(now, reverse=True):
            if path not in self.before:
                place = self.folder / path
                place.rmdir() if now[path] is None else place.unlink()
        for path, data in self.before.items():
            if path not in now or now[path] != data:
                (self.folder / path).write_bytes(data)

    def problems(self, run, now, codes):
        """What is not as promised, after a run that ended with one of `codes`, or 0."""
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
        stderr = run.stderr.removeprefix(self.stderr)  # notes of what went well before
        found += self.unclear(stderr, is_batch)
        if not self.is_beginning(run.stdout):
            found.append(f"stdout: {run.stdout[:200]}")
        return found

    def differences(self, run, now):
        found = [f"exit 0, but not as without the fault: {path}" for path in {*now, *self.after}
                 if path not in now or path not in self.after
                 or not same_file(path, now[path], self.after[path])]
        if run.stdout != self.stdout:
            found.append(f"exit 0, but stdout: {run.stdout[:200]}")
        if said(run.stderr) != said(self.stderr):
            found.append(f"exit 0, but stderr: {run.stderr[:200]}")
        return found

    def is_old_or_new(self, path, now):
        if path not in now:
            return path not in self.before
        data = now[path]
        if data is None:  # a folder stays for what is in it
            return path in self.before or path == self.command.batch or any(
                inner.startswith(path + "/") and now[inner] is not None for inner in now)
        if path in self.before and data == self.before[path]:
            return True
        if self.command.batch and path.startswith(self.command.batch):
            if is_manifest(path):
                return manifest_lines(data) is not None
        return path in self.after and data == self.after[path]

    def outputs(self):
        """The files that come or change, by job; those of a single run are one group."""
        groups = {}
        for path, data in self.after.items():
            if data is None or data == self.before.get(path) or is_manifest(path):
                continue
            job = path.split("/")[1] if self.command.batch else ""
            groups.setdefault(job, []).append(path)
        return groups.values()

    def some_named(self, now):
        """Where something failed before any output should have got its name."""
        found = []
        for paths in self.outputs():
            old = all(now.get(path) == self.before.get(path) for path in paths)
            new = all(now.get(path) == self.after[path] for path in paths)
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
        """1 where the fault came about, and what was not as promised."""
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
            found.append("exit 0, but what was written may be lost")
        if kind in BEFORE_NAMES and run.returncode != 0:
            found += self.some_named(now)
        if run.returncode != 0 and self.command.batch:
            found += self.resumed()
        elif not injected:
            found += [] if run.returncode == 0 else [f"exit {run.returncode} without a fault"]
        self.reset(state_of(self.folder))
        text = run.stderr.decode("utf-8", "backslashreplace")[:300]
        return min(injected, 1), [f"{self.command.name}: {fault}: {what}\n    {text}" for what in found]

    def resumed(self):
        """A batch that failed, gone on with, ends in what it would have been."""
        args = self.command.args
        run = self.run(args=args if "--resume" in args else [*args, "--resume"])
        now = {path: data for path, data in state_of(self.folder).items() if not is_manifest(path)}
        whole = {path: data for path, data in self.after.items() if not is_manifest(path)}
        return [] if run.returncode == 0 and now == whole else [f"--resume: {run.stderr[:300]}"]
