"""The commands in README.md, SECURITY.md and docs/ print what the pages show.

The ```console blocks of a page are run line by line, in order, in one folder: `$ cat FILE` creates the
file from the text that follows, and any other `$ COMMAND` must print the text that follows.
"""

import os
import re
import subprocess

import pytest

from support import mask_pictures
from support.attn import ATTN, ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def relative(path):
    return path.relative_to(ROOT).as_posix()


def console_steps(page):
    """(command, expected output) of all console blocks of a page."""
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command[:-1] + more.lstrip("> ")
            yield command, output.strip("\n")


def read(path):
    return path.read_text(encoding="utf-8")


def run_command(command, folder):
    env = {**os.environ, "PATH": f"{folder}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=env, timeout=60, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture
def folder(tmp_path):
    """A folder with the program in bin/attn and the repository's data/."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "attn").symlink_to(ATTN)
    (tmp_path / "data").symlink_to(ROOT / "data")
    return tmp_path


def any_duration(text):
    """`text` without the time that a batch took, which differs from run to run."""
    return re.sub(r" in \d+\.\d s; ", " in N s; ", text)


def run_page(path, folder):
    """Runs all commands of a page; returns (command, printed, expected) of each."""
    results = []
    for command, expected in console_steps(read(path)):
        if command.startswith("cat ") and not (folder / command[4:]).exists():
            (folder / command[4:]).write_text(expected + "\n", encoding="utf-8")
            continue
        stdout = run_command(command, folder).stdout
        printed = "\n".join(line.rstrip() for line in stdout.strip("\n").split("\n"))
        results.append((command, printed, expected))
    return results


def test_steps_are_parsed():
    assert list(console_steps("```console\n$ a \\\n> b\n1\n\n2\n$ c\n```\n")) == [("a b", "1\n\n2"), ("c", "")]


@pytest.mark.parametrize("path", [path for path in PAGES if BLOCK.search(read(path))], ids=relative)
def test_commands_print_what_the_page_shows(folder, path):
    for command, printed, expected in run_page(path, folder):
        assert any_duration(printed) == any_duration(expected), f"$ {command}"


def test_inputs_of_the_tested_kernel_differ(folder):
    """A kernel that confuses its inputs must not pass the test that the page describes."""
    run_page(ROOT / "docs" / "comparing.md", folder)
    assert len({(folder / f"{name}.npy").read_bytes() for name in "qkv"}) == 3
    flags = ["--q", "q.npy", "--k", "v.npy", "--v", "k.npy", "--causal"]
    for command, code in ["attn run " + " ".join(flags) + " -o context=swapped.npy", 0], \
                         ["attn compare swapped.npy --reference --q q.npy --k k.npy --v v.npy --causal", 1]:
        assert run_command(command, folder).returncode == code


def test_pages_show_commands():
    assert sum(len(list(console_steps(read(path)))) for path in PAGES) > 10


def test_indented_commands_of_the_viewing_page_succeed(folder):
    """Lines such as "    attn run job.json --view    description", after the page's console blocks."""
    path = ROOT / "docs" / "viewing.md"
    run_page(path, folder)
    commands = re.findall(r"^ {4}(attn .*?)(?:  .*)?$", read(path), re.MULTILINE)
    assert len(commands) > 5
    for command in commands:
        run = run_command(command, folder)
        assert run.returncode == 0, f"{command}: {run.stdout}"


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_links_lead_to_files(path):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read(path))
    assert not [link for link in links if not (path.parent / link).exists()]


def named_tests(page):
    """(file, name) of each `tests/FILE`, `tests/FILE::NAME` and `scripts/FILE` in a page."""
    return re.findall(r"`((?:tests|scripts)/[\w./-]+)(?:::(\w+))?`", page)


def exists(file, name):
    path = ROOT / file
    return path.is_file() and (not name or re.search(rf"^ *(def|class) {name}\b", read(path), re.MULTILINE))


def test_named_tests_are_parsed():
    assert named_tests("`tests/a_test.py::b` and `scripts/c`") == [("tests/a_test.py", "b"), ("scripts/c", "")]


def test_tests_named_in_the_docs_exist():
    named = named_tests(read(ROOT / "docs" / "reliability.md"))
    assert len(named) >= 30
    assert not [test for test in named if not exists(*test)]


def test_demo_ends_with_the_first_command_of_the_readme():
    command = re.search(r"^set -- (attn .*)$", read(ROOT / "scripts" / "demo"), re.MULTILINE)[1]
    first, _ = next(console_steps(read(ROOT / "README.md")))
    assert command == first


@pytest.mark.parametrize("name", ["stress/kill", "bench/batch", "bench/startup"])
def test_help_of_script_shows_its_usage(name):
    run = subprocess.run([ROOT / "scripts" / name, "--help"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0
    assert f"    scripts/{name} [" in run.stdout


def test_pictures_of_masks_are_those_of_the_documented_rules():
    assert read(ROOT / "docs" / "images" / "masks.svg") == mask_pictures.svg(), "run scripts/dev/images"
