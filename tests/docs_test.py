#!/usr/bin/env python3
"""The commands in README.md and docs/ print what the pages say.

A ```console block is run line by line, in the order of its page, in a folder of its own: `$ cat
FILE` makes the file from the text that follows, any other `$ COMMAND` has to print what follows.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support.attn import ATTN, ROOT, Checks  # noqa: E402

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def steps(page):
    """(command, expected output) of every console block."""
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command[:-1] + more.lstrip("> ")
            yield command, output.strip("\n")


def run_page(checks, path, folder):
    env = {**os.environ, "PATH": f"{folder}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    (folder / "bin").mkdir()
    (folder / "bin" / "attn").symlink_to(ATTN)
    (folder / "data").symlink_to(ROOT / "data")
    count = 0
    for command, expected in steps(path.read_text(encoding="utf-8")):
        count += 1
        if command.startswith("cat ") and not (folder / command[4:]).exists():
            (folder / command[4:]).write_text(expected + "\n", encoding="utf-8")
            continue
        run = subprocess.run(["bash", "-c", command], cwd=folder, env=env, timeout=60,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        printed = "\n".join(line.rstrip() for line in run.stdout.strip("\n").split("\n"))
        checks.check(printed == expected,
                     f"{path.name}: $ {command}\n--- the page says\n{expected}\n--- printed\n{printed}")
    return count


def run_lists(checks, path, folder):
    """Indented command lines, "    attn run job.json --view    what it does", after the page's blocks."""
    page = path.read_text(encoding="utf-8")
    commands = re.findall(r"^ {4}(attn .*?)(?:  .*)?$", page, re.MULTILINE)
    for command in commands:
        run = subprocess.run(["bash", "-c", command], cwd=folder, env={"PATH": f"{folder}/bin:/usr/bin:/bin"},
                             capture_output=True, timeout=60)
        checks.check(run.returncode == 0, f"{path.name}: {command}: {run.stderr}")
    checks.check(len(commands) > 5, f"{path.name}: only {len(commands)} commands are listed")


def named_tests(page):
    """`tests/FILE`, `tests/FILE::FUNCTION` and `scripts/NAME` in a page that says what holds what."""
    return re.findall(r"`((?:tests|scripts)/[\w./-]+)(?:::(\w+))?`", page)


def check_named_tests(checks, page, least):
    found = named_tests(page.read_text(encoding="utf-8"))
    checks.check(len(found) >= least, f"{page.name}: only {len(found)} tests are named")
    for file, function in found:
        path = ROOT / file
        there = path.is_file() and (not function or f"def {function}(" in path.read_text())
        checks.check(there, f"{page.name}: no such test: {file} {function}")


def check_demo(checks):
    """What scripts/demo runs at its end is what README.md shows, and so runs, too."""
    command = re.search(r"^set -- (attn .*)$", (ROOT / "scripts/demo").read_text(), re.MULTILINE)
    shown = [shown for shown, _ in steps((ROOT / "README.md").read_text(encoding="utf-8"))]
    checks.check(command and command[1] == shown[0], f"scripts/demo: README.md shows {shown[0]}")


def check_usages(checks):
    """--help says how a script is called, and starts nothing."""
    for name in "kill-test", "bench-batch", "bench-startup":
        run = subprocess.run([ROOT / "scripts" / name, "--help"], capture_output=True, text=True, timeout=60)
        checks.check(run.returncode == 0 and f"    scripts/{name} [" in run.stdout, f"{name} --help: {run}")


def main():
    checks = Checks("docs")
    check_demo(checks)
    check_usages(checks)
    checks.check(named_tests("`tests/a_test.py::b` and `scripts/c`") ==
                 [("tests/a_test.py", "b"), ("scripts/c", "")], "tests are found by name")
    check_named_tests(checks, ROOT / "docs" / "reliability.md", 20)
    check_named_tests(checks, ROOT / "docs" / "batch.md", 8)
    # The runner sees a difference.
    checks.check(list(steps("```console\n$ a \\\n> b\n1\n\n2\n$ c\n```\n")) ==
                 [("a b", "1\n\n2"), ("c", "")], "commands and outputs are told apart")
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
    commands = 0
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            commands += run_page(checks, page, pathlib.Path(folder))
            if page.name == "viewing.md":
                run_lists(checks, page, pathlib.Path(folder))
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            checks.check((page.parent / link).exists(), f"{page.name}: no such page: {link}")
    checks.check(commands > 10, f"only {commands} commands were found")
    checks.finish()


if __name__ == "__main__":
    main()
