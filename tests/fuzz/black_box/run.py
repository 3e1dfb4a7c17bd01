"""Runs cases (cases.py) in folders of their own and checks the rules (rules.py)."""

import collections
import json
import os
import pathlib
import resource
import shlex
import shutil
import subprocess
import sys

import rules
from cases import Case

MAX_OUTPUT = 4 << 20   # larger outputs are not read
MAX_MESSAGES = 64 << 20  # a batch prints some 200 bytes for each line, with --json
MAX_WAIT = 300         # seconds, on a machine with much other work
# A sanitizer ends the program with this code.
SANITIZERS = {"ASAN_OPTIONS": "exitcode=99:detect_stack_use_after_return=1:allocator_may_return_null=1:quarantine_size_mb=16",
              "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1", "LSAN_OPTIONS": "exitcode=99"}


def shown(data):
    """What is compared of a file: its bytes, or the size of a large one."""
    return data if len(data) <= MAX_OUTPUT else b"%d" % len(data)


def contents(folder):
    """{path: shown(bytes)} of the files below a folder."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            size = os.lstat(path).st_size
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read() if size <= MAX_OUTPUT else b"%d" % size
    return found


def seed_of_commit():
    """The first digits of the commit, so that CI tries other runs for each commit."""
    found = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return int(found.stdout[:7] or "1", 16)


class Bench:
    """A folder in which cases run one after another."""

    def __init__(self, program, scratch, seconds, sanitized):
        self.program, self.scratch, self.seconds, self.sanitized = program, pathlib.Path(scratch), seconds, sanitized
        self.codes = rules.documented_codes(program)
        self.folder = self.scratch / "work"
        self.scratch.mkdir(parents=True)
        self.environment = {"PATH": "/usr/bin:/bin", **(SANITIZERS if sanitized else {})}
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.launcher = subprocess.Popen([sys.executable, "-I", "-S", pathlib.Path(__file__).parent / "launch.py"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not sanitized:
            limit = 6 << 30
            resource.prlimit(self.launcher.pid, resource.RLIMIT_AS, (limit, limit))

    def close(self):
        self.launcher.stdin.close()
        self.launcher.wait()

    def launch(self, args, environment, stdin, stdout, stderr):
        request = [self.program, args, {**self.environment, **environment},
                   *map(str, (self.folder, stdin, stdout, stderr)), MAX_WAIT]
        print(json.dumps(request), file=self.launcher.stdin, flush=True)
        return json.loads(self.launcher.stdout.readline())

    def run(self, case):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name, data in case.files.items():
            (self.folder / name).write_bytes(data)
        stdin, out, err = (self.scratch / name for name in ("stdin", "stdout", "stderr"))
        stdin.write_bytes(case.stdin)
        code, peak, seconds = self.launch(case.args, case.environment, stdin, out, err)
        with open(out, "rb") as stdout, open(err, "rb") as stderr:
            return rules.Outcome(code, stdout.read(MAX_OUTPUT), stderr.read(MAX_MESSAGES), peak, seconds,
                                 {name: shown(data) for name, data in case.files.items()}, contents(self.folder))

    def read_by_attn(self, path):
        """Why attn refuses its own output, or ""."""
        err = self.scratch / "stderr-of-inspect"
        code, _, _ = self.launch(["inspect", "-q", "./" + path], {}, "/dev/null", "/dev/null", err)
        return "" if code == 0 else f"attn inspect: exit code {code}: {err.read_bytes()[:300]!r}"

    def check(self, case):
        """(outcome, broken rules)"""
        outcome = self.run(case)
        return outcome, rules.problems(case, outcome, self.codes, not self.sanitized, self.seconds, self.folder,
                                       self.read_by_attn)


def keep(case: Case, outcome, found, folder):
    """Writes the files of a run and a script that repeats it, which reads ATTN."""
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "files").mkdir(parents=True)
    for name, data in case.files.items():
        (folder / "files" / name).write_bytes(data)
    (folder / "stdin").write_bytes(case.stdin)
    (folder / "stderr").write_bytes(outcome.stderr)
    (folder / "problems").write_text("\n".join(found) + "\n", encoding="utf-8", errors="backslashreplace")
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in case.environment.items())
    words = " ".join(map(shlex.quote, case.args))
    # Runs in a copy, because a run may write there.
    script = f"""#!/bin/sh
cd "$(dirname "$0")" && rm -rf copy && cp -r files copy && cd copy || exit
{settings}"${{ATTN:-attn}}" {words} <../stdin
"""
    (folder / "repeat").write_bytes(script.encode("utf-8", "surrogateescape"))


def report(number, found, folder):
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    print(f"run {number}: {found[0]}{more}\n    repeat: sh {folder}/repeat", flush=True)


def run_all(bench, make, numbers, findings):
    """Runs the case make(number) of each number; keeps those that broke a rule in findings/NUMBER. Returns
    counts: {("code", N): runs, ("command", NAME): runs, "broken": runs}, and the worst excess of memory."""
    counts, worst = collections.Counter(), None
    for number in numbers:
        case = make(number)
        outcome, found = bench.check(case)
        counts["code", outcome.code] += 1
        counts["command", next((word for word in case.args if not word.startswith("-")), "")[:12]] += 1
        counts["runs"] += 1
        if case.limit is not None:
            worst = max(worst or (-1 << 60, 0), (outcome.peak - case.limit, number))
        if found:
            counts["broken"] += 1
            folder = pathlib.Path(findings) / str(number)
            keep(case, outcome, found, folder)
            report(number, found, folder)
    return counts, worst
