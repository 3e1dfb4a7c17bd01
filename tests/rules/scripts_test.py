"""Scripts: CONTRIBUTING.md lists each, every path to one is right, and each runs somewhere."""

import os
import re

from support.attn import ROOT

SCRIPTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "scripts").rglob("*")
                 if path.is_file() and path.suffix == "" and os.access(path, os.X_OK))
TEXTS = [path for pattern in (".ci/run", ".github/**/*.yml", "*.md", "docs/**/*.md", "data/*.md", "debian/rules", "cmake/*", "scripts/**/*",
                              "tests/**/*.py", "tests/**/*.md", "src/**/CMakeLists.txt")
         for path in ROOT.glob(pattern) if path.is_file() and "__pycache__" not in path.parts]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def named_scripts(text):
    """The paths below scripts/ in a text. ("scripts/NAME" and "scripts/{name}" are patterns.)"""
    return {name.rstrip(".") for name in re.findall(r"(?<![\w/.])scripts/[a-z][\w./-]*", text)}


def test_contributing_has_a_line_for_each_script():
    listed = re.findall(r"^\| `(?:PYTHON )?(scripts/[\w/-]+)[^`]*` \| \S", read("CONTRIBUTING.md"), re.MULTILINE)
    assert sorted(set(listed)) == SCRIPTS


def test_named_scripts_exist():
    """Everywhere but in tests of such names, which have examples."""
    absent = {f"{path.relative_to(ROOT)}: {name}" for path in TEXTS if path.name not in ("docs_test.py", "scripts_test.py")
              for name in named_scripts(path.read_text(encoding="utf-8")) if not (ROOT / name).exists()}
    assert absent == set()


def test_each_script_is_run():
    """By CI, by scripts/test-all, or by another script that is run."""
    run = named_scripts(read(".ci/run")) | named_scripts(read("scripts/test-all")) | {"scripts/test-all"}
    for _ in SCRIPTS:
        run |= {name for script in run & set(SCRIPTS) for name in named_scripts(read(script))}
    tested = {"scripts/dev/convert-llm-viz": "tests/llm_viz_test.py"}
    assert [script for script in SCRIPTS if script not in run and script not in tested] == []
    assert all(script in read(test) for script, test in tested.items())


def test_named_scripts_are_parsed():
    assert named_scripts("scripts/test release; `scripts/bench/peers`, ../scripts/no, and scripts/check.") == {
        "scripts/test", "scripts/bench/peers", "scripts/check"}


def test_folders_that_ci_leaves_out_of_a_run_exist():
    folders = re.search(r"left_out='\^\(([\w|]+)\)/", read(".ci/run"))[1].split("|")
    assert [folder for folder in folders if not (ROOT / "tests" / folder).is_dir()] == []
